"""An algorithm from outside in its two forms, as an author would write it; workloads name it by import path."""

from __future__ import annotations

import numpy as np

from extender.framework import (
    BoolArray,
    IntArray,
    NodeInfo,
    NodePredicate,
    NodePriority,
    Nodes,
    PendingPod,
    Predicate,
    Priority,
    Refusal,
)

LABEL, REASON, AVOIDED = "pool", "node(s) are in a pool that is kept free", "pool-3"


class PerNode(NodePredicate, NodePriority):
    """Keeps a pool free of pods that do not ask for it, and prefers what a pod asks for: asked node by node."""

    def fits(self, pod: PendingPod, node: NodeInfo) -> str | None:
        return REASON if node.labels.get(LABEL) == AVOIDED != pod.labels.get(LABEL) else None

    def score(self, pod: PendingPod, node: NodeInfo) -> int:
        return 100 if node.labels.get(LABEL) == pod.labels.get(LABEL) else 0


class ByColumn(Predicate, Priority):
    """The same for all nodes at once."""

    def filter(self, pod: PendingPod, nodes: Nodes) -> list[Refusal]:
        pools, asked = nodes.table.label(LABEL), pod.labels.get(LABEL)
        kept_free: BoolArray = np.array([pool == AVOIDED != asked for pool in pools.values])
        return [Refusal(kept_free[nodes.take(pools.codes)], REASON)]

    def prioritize(self, pod: PendingPod, nodes: Nodes) -> IntArray:
        pools, asked = nodes.table.label(LABEL), pod.labels.get(LABEL)
        scores: IntArray = np.array([100 if pool == asked else 0 for pool in pools.values], np.int64)
        found: IntArray = scores[nodes.take(pools.codes)]
        return found
