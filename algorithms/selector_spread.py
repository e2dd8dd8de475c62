"""SelectorSpread: spreads the pods of a service or controller over nodes and zones, as kube-scheduler did before 1.24.

Source of the rules: plugins/selectorspread of 1.21. PodTopologySpread with its system defaults is the successor.
"""

from collections.abc import Mapping
from typing import Any, Final

import numpy as np

from extender.framework import (
    MAX_NODE_SCORE,
    NODES,
    SKIP,
    Cache,
    IntArray,
    Interned,
    NodeInfo,
    Nodes,
    NodeTable,
    OwnerSelectors,
    PendingPod,
    PodClasses,
    Priority,
    Skip,
    uses,
)

ZONE_SHARE: Final = 2 / 3
"""How much of the score is that of the zone, for nodes that are in one."""

ZONE_LABELS: Final = ("failure-domain.beta.kubernetes.io/zone", "topology.kubernetes.io/zone")
"""The labels that name a node's zone; the first one that is there counts."""

REGION_LABELS: Final = ("failure-domain.beta.kubernetes.io/region", "topology.kubernetes.io/region")
"""The labels that name its region, alike."""


class Zones(Cache):
    """The zone of each row: region and name; both empty where the node is in none."""

    kinds = (NODES,)

    def __init__(self, table: NodeTable) -> None:
        super().__init__(table)
        self.column: Interned[tuple[str, str]] = Interned(table.capacity, empty=("", ""))

    def grow(self, capacity: int) -> None:
        """Make room for ``capacity`` rows."""
        self.column.grow(capacity)

    def add_node(self, row: int, node: NodeInfo) -> None:
        """Note the zone of a node."""
        self.column.set(row, (_first(node.labels, REGION_LABELS), _first(node.labels, ZONE_LABELS)))

    def remove_node(self, row: int, node: NodeInfo) -> None:  # noqa: ARG002
        """Undo ``add_node``."""
        self.column.set(row, ("", ""))

    def dump(self) -> Any:
        """Return the zone of each node that is in one, by name."""
        return {
            self.table.name(row): self.column.values[self.column.codes[row]]
            for row in np.flatnonzero(self.column.codes).tolist()
        }


class SelectorSpread(Priority):
    """Prefers nodes, and zones of the candidates, with few pods of the services and the controller of the pod.

    Pods count in the namespace of the pod to place, unless they are being deleted. It has no opinion on pods with
    spread constraints of their own.
    """

    pods = uses(PodClasses)
    owners = uses(OwnerSelectors)
    zones = uses(Zones)

    def prioritize(self, pod: PendingPod, nodes: Nodes) -> Skip | IntArray:
        """Count the pods on each node; nothing counts where no service or controller is known."""
        if pod.spec.topology_spread_constraints:
            return SKIP
        selector = self.owners.find(pod)
        if selector.empty:
            return np.zeros(len(nodes), np.int64)
        classes = self.pods.select(selector, frozenset((pod.namespace,)), terminating=False)
        return nodes.take(self.pods.counts(classes))

    def normalize(self, pod: PendingPod, nodes: Nodes, scores: IntArray) -> IntArray:  # noqa: ARG002
        """Give 100 where there are no pods, 0 where there are most; two thirds of it by zone, in float64, truncated."""
        result = _rate(scores, int(scores.max(initial=0)))
        codes = nodes.take(self.zones.column.codes)
        counts = np.bincount(codes, weights=scores).astype(np.int64)
        zoned = codes != 0
        by_zone = _rate(counts, int(counts[1:].max(initial=0)))[codes]
        result[zoned] = result[zoned] * (1.0 - ZONE_SHARE) + ZONE_SHARE * by_zone[zoned]
        return result.astype(np.int64)


def _rate(counts: IntArray, most: int) -> np.ndarray[tuple[Any, ...], np.dtype[np.float64]]:
    """Return 100 for none and 0 for ``most``; shape as ``counts``, float64."""
    if not most:
        return np.full(len(counts), float(MAX_NODE_SCORE))
    return MAX_NODE_SCORE * ((most - counts) / most)


def _first(labels: Mapping[str, str], keys: tuple[str, ...]) -> str:
    """Return the value of the first of ``keys`` that is there, and nothing where none is."""
    return next((labels[key] for key in keys if key in labels), "")
