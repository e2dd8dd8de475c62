"""NodeVolumeLimits: a node takes no more volumes of a CSI driver than the driver can attach there."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Final

import numpy as np

from extender.framework import (
    NO_LIMIT,
    SKIP,
    AttachedVolume,
    BoolArray,
    CsiNodes,
    CsiVolumes,
    Nodes,
    PendingPod,
    PodInfo,
    Predicate,
    Refusal,
    Skip,
    uses,
)

REASON: Final = "node(s) exceed max volume count"
"""Why a node is refused; evicting pods can help (source: plugins/nodevolumelimits/csi.go of 1.36)."""


class NodeVolumeLimits(Predicate):
    """Refuses nodes where the pod's volumes would be more than the node's CSINode object allows of their driver.

    A volume that a pod on the node uses already costs nothing, and one that several volumes of the pod stand for counts
    once. Volumes that are attached to the node count though no pod there uses them.
    """

    node_local = True
    csi_nodes = uses(CsiNodes)
    volumes = uses(CsiVolumes)

    def heeded(self, pod: PendingPod, others: Sequence[PodInfo]) -> Sequence[PodInfo]:
        """Return those that have volumes, where the pod has some."""
        return [other for other in others if other.volumes] if pod.spec.volumes else ()

    def filter(self, pod: PendingPod, nodes: Nodes) -> Skip | list[Refusal]:
        """Add what the pod brings to what is there, one driver after the other."""
        if not self.volumes.concerns(pod):
            return SKIP
        wanted: defaultdict[str, set[AttachedVolume]] = defaultdict(set)
        refusals: list[Refusal] = []
        for found in self.volumes.of_pod(pod):
            if isinstance(found, AttachedVolume):
                wanted[found.driver].add(found)
            elif found.inline:
                refusals.append(Refusal(nodes.take(self.csi_nodes.known), found.text, error=True))
            else:
                return [*refusals, Refusal(None, found.text, resolvable=False, error=not found.missing)]
        if not wanted:
            return refusals
        limited = self.csi_nodes.limited
        refusals += [Refusal(nodes.take(limited & rows), text, error=True) for text, rows in self.volumes.faults()]
        full: BoolArray = np.zeros(nodes.table.capacity, np.bool_)
        for driver, volumes in wanted.items():
            limits = self.csi_nodes.limits(driver)
            if limits is not None:
                new = self.volumes.count_new(volumes)
                full |= (limits != NO_LIMIT) & (new > 0) & (self.volumes.counts(driver) + new > limits)
        return [*refusals, Refusal(nodes.take(full), REASON)]
