"""NodeName: a pod that names its node fits no other."""

import numpy as np

from extender.framework import SKIP, Nodes, PendingPod, Predicate, Refusal, Skip

REASON = "node(s) didn't match the requested node name"
"""Why a node is refused; no eviction can help (source: plugins/nodename of 1.36)."""


class NodeName(Predicate):
    """Refuses every node but the one in ``spec.nodeName``."""

    def filter(self, pod: PendingPod, nodes: Nodes) -> Skip | list[Refusal]:
        """Compare rows; a pod that names no node has no opinion asked of it."""
        name = pod.spec.node_name
        if not name:
            return SKIP
        row = nodes.table.index.get(name, -1)
        return [Refusal(np.not_equal(nodes.rows, row), REASON, resolvable=False)]
