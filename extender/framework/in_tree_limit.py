"""What the limits of single clouds have in common: how many disks of one built-in driver a node takes."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Annotated, ClassVar, Final

import numpy as np
from pydantic import Field

from extender.framework.algorithm import SKIP, Args, Predicate, Refusal, Skip, uses
from extender.framework.attached_volume import Fault
from extender.framework.candidate import Nodes
from extender.framework.csi_node import NO_LIMIT, CsiNodes
from extender.framework.in_tree_volume import InTreeVolumes
from extender.model.column import BoolArray, IntArray
from extender.model.migration import InTreePlugin
from extender.model.pod import PendingPod, PodInfo
from extender.model.table import NodeTable

REASON: Final = "node(s) exceed max volume count"
"""Why a node is refused; evicting pods can help (source: plugins/nodevolumelimits/non_csi.go of 1.29)."""


class InTreeLimitArgs(Args):
    """How many disks a node takes."""

    max_volumes: Annotated[int, Field(ge=1, le=2**31 - 1)] | None = Field(
        default=None, json_schema_extra={"unset": "as many as the cloud is known to allow"}
    )
    """Holds for nodes whose allocatable resources do not tell; in place of what is known of the cloud."""


class InTreeLimits(Predicate):
    """Refuses nodes where the pod's disks of one driver would be more than the node takes.

    Nodes that handle the driver through CSI are left to NodeVolumeLimits.
    """

    plugin: ClassVar[InTreePlugin]

    Arguments = InTreeLimitArgs
    args: InTreeLimitArgs
    node_local = True
    csi_nodes = uses(CsiNodes)
    volumes = uses(InTreeVolumes)

    @abstractmethod
    def known_limits(self, table: NodeTable) -> IntArray | int:
        """Return how many disks nodes of this cloud take; shape (capacity,), or one number for all."""

    def heeded(self, pod: PendingPod, others: Sequence[PodInfo]) -> Sequence[PodInfo]:
        """Return those that have volumes, where the pod has some."""
        return [other for other in others if other.volumes] if pod.spec.volumes else ()

    def filter(self, pod: PendingPod, nodes: Nodes) -> Skip | list[Refusal]:
        """Add the disks the pod brings to those that are there."""
        if not pod.claims and not any(self.plugin.source(volume) for volume in pod.spec.volumes or ()):
            return SKIP
        wanted = set()
        for found in self.volumes.of_pod(pod):
            if isinstance(found, Fault):
                return [Refusal(None, found.text, resolvable=False, error=not found.missing)]
            if found.driver == self.plugin.name:
                wanted.add(found)
        if not wanted:
            return []
        migrated = self.csi_nodes.migrated(self.plugin.name)
        judged: BoolArray = np.ones(nodes.table.capacity, np.bool_) if migrated is None else ~migrated
        refusals = [Refusal(nodes.take(judged & rows), text, error=True) for text, rows in self.volumes.faults()]
        after = self.volumes.counts(self.plugin.name) + self.volumes.count_new(wanted)
        return [*refusals, Refusal(nodes.take(judged & (after > self._limits(nodes.table))), REASON)]

    def _limits(self, table: NodeTable) -> IntArray:
        told = self.volumes.limits(self.plugin.name)
        return np.where(told != NO_LIMIT, told, self.args.max_volumes or self.known_limits(table))
