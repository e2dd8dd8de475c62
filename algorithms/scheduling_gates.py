"""SchedulingGates: a pod that is held back fits nowhere."""

from typing import Final

from extender.framework import SKIP, Nodes, PendingPod, Predicate, Refusal, Skip

REASON: Final = "waiting for scheduling gates: {gates}"
"""Why every node is refused; no eviction can help (source: plugins/schedulinggates of 1.36)."""


class SchedulingGates(Predicate):
    """Refuses every node while ``spec.schedulingGates`` is not empty, and names the gates."""

    mandatory = True

    def filter(self, pod: PendingPod, nodes: Nodes) -> Skip | list[Refusal]:  # noqa: ARG002 - all nodes are alike
        """Look at the pod only; one without gates has no opinion asked of it."""
        gates = pod.spec.scheduling_gates
        if not gates:
            return SKIP
        names = " ".join(gate.name or "" for gate in gates)
        return [Refusal(None, REASON.format(gates=f"[{names}]"), resolvable=False)]
