"""HardwareGeneration: keeps pods on nodes with a number that is high enough."""

from __future__ import annotations

from typing import Annotated

from extender.framework import Args, Field, NodeInfo, NodePredicate, PendingPod

REASON = "node(s) didn't satisfy HardwareGeneration"


class HardwareGenerationArgs(Args):
    """What can be set."""

    label: str = "example.com/hardware-generation"
    """The label of nodes that holds their number, and the annotation by which a pod asks for one."""
    minimum: Annotated[int, Field(ge=0)] = 1
    """What a pod needs that does not ask."""


class HardwareGeneration(NodePredicate):
    """Refuses nodes whose number is lower than the pod needs."""

    Arguments = HardwareGenerationArgs
    args: HardwareGenerationArgs

    def fits(self, pod: PendingPod, node: NodeInfo) -> str | None:
        """Return None where the pod fits, else why not."""
        # An annotation that is no number raises: the pod's events then say so, under the name of this class.
        needed = int(pod.annotations.get(self.args.label, self.args.minimum))
        return None if number(node.labels.get(self.args.label)) >= needed else REASON

    def resolvable(self, reason: str) -> bool:
        """Say that no eviction helps: it would not change the label."""
        return False


def number(text: str | None) -> int:
    """Return the number in a label, 0 for other labels and for none."""
    return int(text) if text and text.isdecimal() else 0
