"""The volumes of built-in drivers on each row, as the limits of single clouds count them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import numpy as np

from extender.framework.attached_volume import AttachedVolume, AttachedVolumes
from extender.framework.csi_node import NO_LIMIT
from extender.model.column import IntArray
from extender.model.kind import NODES
from extender.model.migration import AWS_EBS, AZURE_DISK, GCE_PD, InTreePlugin
from extender.model.node import NodeInfo
from extender.model.object import DiskSource, Volume
from extender.model.storage import PersistentVolume, PersistentVolumeSpec
from extender.model.table import NodeTable

_PLUGINS: Final = {plugin.name: plugin for plugin in (AWS_EBS, GCE_PD, AZURE_DISK)}

_LIMIT_RESOURCES: Final[Mapping[str, str]] = {
    "attachable-volumes-aws-ebs": AWS_EBS.name,
    "attachable-volumes-gce-pd": GCE_PD.name,
    "attachable-volumes-azure-disk": AZURE_DISK.name,
}
"""The allocatable resources by which a node says how many volumes it takes."""


class InTreeVolumes(AttachedVolumes):
    """Counts the EBS, GCE PD and Azure disks that pods use by what their sources name them, under the driver's name.

    Source: plugins/nodevolumelimits/non_csi.go of 1.29; which nodes handle a driver through CSI they say themselves.
    """

    kinds = (NODES, *AttachedVolumes.kinds)

    def __init__(self, table: NodeTable) -> None:
        super().__init__(table)
        self._limits: dict[str, IntArray] = {
            plugin: np.full(table.capacity, NO_LIMIT) for plugin in _LIMIT_RESOURCES.values()
        }

    def grow(self, capacity: int) -> None:
        """Make room for ``capacity`` rows."""
        super().grow(capacity)
        for plugin, limits in self._limits.items():
            self._limits[plugin] = np.concatenate([limits, np.full(capacity - len(limits), NO_LIMIT)])

    def add_node(self, row: int, node: NodeInfo) -> None:
        """Note how many volumes a node says it takes."""
        for resource, plugin in _LIMIT_RESOURCES.items():
            self._limits[plugin][row] = node.allocatable.get(resource, NO_LIMIT)

    def remove_node(self, row: int, node: NodeInfo) -> None:  # noqa: ARG002
        """Undo ``add_node``."""
        for limits in self._limits.values():
            limits[row] = NO_LIMIT

    def limits(self, plugin: str) -> IntArray:
        """Return how many volumes of a driver each row takes, ``NO_LIMIT`` where it does not say; shape (capacity,)."""
        return self._limits[plugin]

    def dump(self) -> Any:
        """Return what ``AttachedVolumes`` does, and the limits by driver and node name."""
        limits = {
            plugin: self._named({row: int(limits[row]) for row in np.flatnonzero(limits != NO_LIMIT).tolist()})
            for plugin, limits in self._limits.items()
        }
        return {**super().dump(), "limits": limits}

    def _of_volume(self, volume: PersistentVolume) -> AttachedVolume | None:
        return _identify(volume.spec or PersistentVolumeSpec())

    def _of_source(self, volume: Volume) -> AttachedVolume | None:
        return _identify(volume)

    def _driver_of(self, provisioner: str) -> str | None:
        return provisioner if provisioner in _PLUGINS else None


def _identify(item: Volume | PersistentVolumeSpec) -> AttachedVolume | None:
    for plugin in _PLUGINS.values():
        source = plugin.source(item)
        if source is not None:
            return AttachedVolume(plugin.name, _name_of(plugin, source))
    return None


def _name_of(plugin: InTreePlugin, source: DiskSource) -> str:
    named = {AWS_EBS.name: source.volume_id, GCE_PD.name: source.pd_name, AZURE_DISK.name: source.disk_name}
    return named[plugin.name] or ""
