"""NodeUnschedulable: a cordoned node takes no pod but those that tolerate it."""

from typing import Final

from extender.framework import NO_SCHEDULE, Nodes, PendingPod, Predicate, Refusal, Taint, tolerates

REASON: Final = "node(s) were unschedulable"
"""Why a node is refused; no eviction can help (source: plugins/nodeunschedulable of 1.36)."""

UNSCHEDULABLE: Final = Taint("node.kubernetes.io/unschedulable", None, NO_SCHEDULE)
"""The taint that stands for ``spec.unschedulable``, whether the node carries it or not."""


class NodeUnschedulable(Predicate):
    """Refuses nodes with ``spec.unschedulable``, unless the pod tolerates the taint that goes with it."""

    mandatory = True

    def filter(self, pod: PendingPod, nodes: Nodes) -> list[Refusal]:
        """Ask the tolerations once, and the flag of every node."""
        if any(tolerates(toleration, UNSCHEDULABLE) for toleration in pod.tolerations):
            return []
        return [Refusal(nodes.take(nodes.table.unschedulable), REASON, resolvable=False)]
