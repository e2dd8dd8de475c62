"""The volumes of CSI drivers on each row, those of built-in drivers that CSI drivers took over among them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from extender.framework.attached_volume import AttachedVolume, AttachedVolumes, Fault, decrease, increase
from extender.model.kind import NODES, PERSISTENT_VOLUMES, VOLUME_ATTACHMENTS, Kind
from extender.model.migration import driver_of_provisioner, inline_handle, plugin_of, volume_handle
from extender.model.node import NodeInfo
from extender.model.object import ObjectMeta, Volume
from extender.model.storage import (
    PersistentVolume,
    PersistentVolumeSpec,
    VolumeAttachment,
    VolumeAttachmentSource,
    VolumeAttachmentSpec,
)
from extender.model.table import NodeTable


class CsiVolumes(AttachedVolumes):
    """Counts the volumes that pods use, and those that are attached to a node though no pod there uses them.

    Volumes of built-in drivers count as those of the CSI driver in their place; rows without a CSINode object, where
    upstream does not count them, have no limits. Source: plugins/nodevolumelimits/csi.go of 1.36.
    """

    kinds = (NODES, *AttachedVolumes.kinds, VOLUME_ATTACHMENTS)

    def __init__(self, table: NodeTable) -> None:
        super().__init__(table)
        self._attached: dict[AttachedVolume, dict[int, int]] = {}
        self._attachments: dict[str, VolumeAttachmentSpec] = {}
        self._names_by_node: dict[str, set[str]] = {}
        self._names_by_volume: dict[str, set[str]] = {}

    # --- events ------------------------------------------------------------------------------------------------------

    def add_node(self, row: int, node: NodeInfo) -> None:
        """Count what is attached to a node."""
        for name in self._names_by_node.get(node.name, ()):
            self._count_attachment(self._attachments[name], row, added=True)

    def remove_node(self, row: int, node: NodeInfo) -> None:
        """Undo ``add_node``."""
        for name in self._names_by_node.get(node.name, ()):
            self._count_attachment(self._attachments[name], row, added=False)

    def add(self, kind: Kind, item: Any) -> None:
        """Note an object, and what it makes of the volumes on each row."""
        if kind is not VOLUME_ATTACHMENTS:
            super().add(kind, item)
            return
        name, spec = _read(item)
        self._attachments[name] = spec
        for index, key in self._places(spec):
            index.setdefault(key, set()).add(name)
        self._count_present(spec, added=True)

    def remove(self, kind: Kind, item: Any) -> None:
        """Undo ``add``."""
        if kind is not VOLUME_ATTACHMENTS:
            super().remove(kind, item)
            return
        name, spec = _read(item)
        self._count_present(spec, added=False)
        for index, key in self._places(spec):
            index[key].discard(name)
            if not index[key]:
                del index[key]
        del self._attachments[name]

    def dump(self) -> Any:
        """Return what ``AttachedVolumes`` does, and what is attached, by volume and node name."""
        attached = {tuple(volume): self._named(rows) for volume, rows in self._attached.items()}
        return {**super().dump(), "attached": attached, "attachments": dict(self._attachments)}

    # --- what a volume is --------------------------------------------------------------------------------------------

    def _of_volume(self, volume: PersistentVolume) -> AttachedVolume | None:
        spec = volume.spec or PersistentVolumeSpec()
        if spec.csi is not None:
            driver, handle = spec.csi.driver or "", spec.csi.volume_handle
        else:
            plugin = plugin_of(spec)
            if plugin is None:
                return None
            driver, handle = plugin.driver, volume_handle(plugin, volume)
        return AttachedVolume(driver, handle) if driver and handle else None

    def _of_source(self, volume: Volume) -> AttachedVolume | Fault | None:
        plugin = plugin_of(volume)
        if plugin is None:
            return None
        handle = inline_handle(plugin, volume)
        if handle is None:
            return Fault(f"converting volume({volume.name}) from inline to csi: not possible", inline=True)
        return AttachedVolume(plugin.driver, handle)

    def _driver_of(self, provisioner: str) -> str | None:
        return driver_of_provisioner(provisioner)

    # --- inside ------------------------------------------------------------------------------------------------------

    def _change(self, kind: Kind, item: Any, change: Callable[[Kind, Any], None]) -> None:
        name = (item.metadata or ObjectMeta()).name or ""
        names = self._names_by_volume.get(name, ()) if kind is PERSISTENT_VOLUMES else ()
        for attachment in names:
            self._count_present(self._attachments[attachment], added=False)
        super()._change(kind, item, change)
        for attachment in names:
            self._count_present(self._attachments[attachment], added=True)

    def _places(self, spec: VolumeAttachmentSpec) -> tuple[tuple[dict[str, set[str]], str], ...]:
        """Return each index and the key in it under which an attachment is found."""
        return (self._names_by_node, spec.node_name or ""), (self._names_by_volume, _volume_name(spec))

    def _count_present(self, spec: VolumeAttachmentSpec, *, added: bool) -> None:
        """Fold an attachment where its node has a node object."""
        row = self.table.index.get(spec.node_name or "")
        if row is not None and self.table.present[row]:
            self._count_attachment(spec, row, added=added)

    def _count_attachment(self, spec: VolumeAttachmentSpec, row: int, *, added: bool) -> None:
        volume = self._storage.volumes.get(_volume_name(spec))
        csi = volume.spec.csi if volume is not None and volume.spec else None
        if csi is None or not spec.attacher:
            return
        attached = AttachedVolume(spec.attacher, csi.volume_handle or "")
        changed = (increase if added else decrease)(self._attached, attached, row)
        if changed and row not in self._uses.get(attached, {}):
            super()._count(attached, row, 1 if added else -1)

    def _count(self, volume: AttachedVolume, row: int, change: int) -> None:
        """Count a volume that pods use unless it counts as attached."""
        if row not in self._attached.get(volume, {}):
            super()._count(volume, row, change)


def _read(item: VolumeAttachment) -> tuple[str, VolumeAttachmentSpec]:
    return (item.metadata or ObjectMeta()).name or "", item.spec or VolumeAttachmentSpec()


def _volume_name(spec: VolumeAttachmentSpec) -> str:
    return (spec.source or VolumeAttachmentSource()).persistent_volume_name or ""
