"""Volumes of the drivers that Kubernetes once had built in, and the CSI drivers that took their place.

Which disk a volume is, is written otherwise for the one and the other, and so is where it can be reached from.
Source of the rules: ``csi-translation-lib`` of 1.36.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final
from urllib.parse import unquote

from extender.model.object import DiskSource, NodeSelector, NodeSelectorTerm, ObjectMeta, Requirement, Volume
from extender.model.storage import PersistentVolume, PersistentVolumeSpec

ZONE, REGION = "topology.kubernetes.io/zone", "topology.kubernetes.io/region"
BETA_ZONE, BETA_REGION = "failure-domain.beta.kubernetes.io/zone", "failure-domain.beta.kubernetes.io/region"

ZONE_DELIMITER: Final = "__"
"""Stands between the zones of a volume that is in several, in the value of one label."""

MIGRATED_PLUGINS: Final = "storage.alpha.kubernetes.io/migrated-plugins"
"""Annotation of a CSINode: the built-in drivers whose volumes the node handles through CSI, with commas between."""

_UNSPECIFIED: Final = "UNSPECIFIED"
_AWS_URL: Final = re.compile(r"aws://[^/?#]*([^?#]*)")
_AWS_ID: Final = re.compile(r"vol-[^/]*")


@dataclass(frozen=True)
class InTreePlugin:
    """One built-in driver: the field of a volume that is its source, and what it is called as a CSI driver.

    ``handle`` returns what the CSI driver knows a disk by, given its source and the zones of its volume, or None where
    there is no such thing. ``topology_key`` replaces the key of zones in node affinity.
    """

    name: str
    driver: str
    field: str
    handle: Callable[[DiskSource, list[str]], str | None]
    topology_key: str = ""

    def source(self, item: Volume | PersistentVolumeSpec) -> DiskSource | None:
        """Return the disk where the volume is one of this driver's."""
        found: DiskSource | None = getattr(item, self.field)
        return found


def _aws_handle(source: DiskSource, _zones: list[str]) -> str | None:
    text = source.volume_id or ""
    url = _AWS_URL.match(text)
    if url is None:
        return text
    volume = unquote(url[1]).strip("/")
    return volume if _AWS_ID.fullmatch(volume) else None


def _gce_handle(source: DiskSource, zones: list[str]) -> str | None:
    place = f"zones/{zones[0] if zones else _UNSPECIFIED}"
    if len(zones) > 1:
        parts = [zone.split("-") for zone in zones]
        regions = {"-".join(part[:2]) for part in parts}
        if len(regions) != 1 or any(len(part) != 3 for part in parts):
            return None
        place = f"regions/{regions.pop()}"
    return f"projects/{_UNSPECIFIED}/{place}/disks/{source.pd_name or ''}"


def _azure_handle(source: DiskSource, _zones: list[str]) -> str | None:
    managed = source.kind is None or source.kind.lower() == "managed"
    return source.disk_uri or "" if managed else None


def _volume_id(source: DiskSource, _zones: list[str]) -> str:
    return source.volume_id or ""


AWS_EBS: Final = InTreePlugin(
    "kubernetes.io/aws-ebs", "ebs.csi.aws.com", "aws_elastic_block_store", _aws_handle, "topology.ebs.csi.aws.com/zone"
)
GCE_PD: Final = InTreePlugin(
    "kubernetes.io/gce-pd", "pd.csi.storage.gke.io", "gce_persistent_disk", _gce_handle, "topology.gke.io/zone"
)
AZURE_DISK: Final = InTreePlugin("kubernetes.io/azure-disk", "disk.csi.azure.com", "azure_disk", _azure_handle)
_CINDER: Final = InTreePlugin(
    "kubernetes.io/cinder", "cinder.csi.openstack.org", "cinder", _volume_id, "topology.cinder.csi.openstack.org/zone"
)
_PORTWORX: Final = InTreePlugin("kubernetes.io/portworx-volume", "pxd.portworx.com", "portworx_volume", _volume_id)

IN_TREE_PLUGINS: Final = (AWS_EBS, GCE_PD, AZURE_DISK, _CINDER, _PORTWORX)
"""The built-in drivers whose volumes count as those of their CSI driver."""

_DRIVERS: Final[Mapping[str, str | None]] = {
    "kubernetes.io/azure-file": None,
    "kubernetes.io/vsphere-volume": None,
    **{plugin.name: plugin.driver for plugin in IN_TREE_PLUGINS},
}


def driver_of_provisioner(provisioner: str) -> str | None:
    """Return the CSI driver that makes a class's volumes; None where they are not counted at all."""
    return _DRIVERS.get(provisioner, provisioner)


def plugin_of(item: Volume | PersistentVolumeSpec) -> InTreePlugin | None:
    """Return the built-in driver that a volume is of, or None for all others."""
    return next((plugin for plugin in IN_TREE_PLUGINS if plugin.source(item) is not None), None)


def inline_handle(plugin: InTreePlugin, volume: Volume) -> str | None:
    """Return what the CSI driver knows the disk of a pod's volume by, or None where there is no such thing."""
    return plugin.handle(plugin.source(volume) or DiskSource(), [])


def volume_handle(plugin: InTreePlugin, volume: PersistentVolume) -> str | None:
    """Return what the CSI driver knows the disk of a persistent volume by, or None where there is no such thing."""
    labels = (volume.metadata or ObjectMeta()).labels or {}
    zones = labels.get(BETA_ZONE) or labels.get(ZONE)
    source = plugin.source(volume.spec or PersistentVolumeSpec())
    return plugin.handle(source or DiskSource(), zones.split(ZONE_DELIMITER) if zones else [])


def translate_affinity(plugin: InTreePlugin, volume: PersistentVolume) -> NodeSelector | None:
    """Return the nodes that the volume can be reached from, in the terms of the CSI driver; None for everywhere."""
    affinity = volume.spec and volume.spec.node_affinity
    required = affinity.required if affinity else None
    if not plugin.topology_key:
        return required
    terms = (required and required.node_selector_terms) or []
    labels = (volume.metadata or ObjectMeta()).labels or {}
    zone, region = _topology_keys(terms, labels)
    renamed: dict[str | None, str] = {}
    added: list[str] = []
    if _values(terms, zone):
        renamed[zone] = plugin.topology_key
    elif zone in labels:
        added = sorted({name.strip() for name in labels[zone].split(ZONE_DELIMITER)} - {""})
    if region == BETA_REGION and _values(terms, region):
        renamed[region] = REGION
    if not renamed and not added:
        return required
    extra = [Requirement(plugin.topology_key, "In", added)] if added else []
    return NodeSelector([_translate_term(term, renamed, extra) for term in terms or [NodeSelectorTerm()]])


def _topology_keys(terms: list[NodeSelectorTerm], labels: Mapping[str, str]) -> tuple[str, str]:
    """Return the keys that the volume has zone and region under: the ones in use now, or those from before 1.17."""
    keys = {each.key for each in _requirements(terms)}
    for known in (keys, labels):
        if ZONE in known:
            return ZONE, REGION
        if BETA_ZONE in known:
            return BETA_ZONE, BETA_REGION
    return ZONE, REGION


def _translate_term(
    term: NodeSelectorTerm, renamed: Mapping[str | None, str], extra: list[Requirement]
) -> NodeSelectorTerm:
    expressions = [
        Requirement(renamed.get(each.key, each.key), each.operator, each.values)
        for each in term.match_expressions or ()
    ]
    return NodeSelectorTerm([*expressions, *extra], term.match_fields)


def _values(terms: list[NodeSelectorTerm], key: str) -> bool:
    """Say whether any term names a value of ``key``."""
    return any(each.key == key and each.values for each in _requirements(terms))


def _requirements(terms: list[NodeSelectorTerm]) -> Iterator[Requirement]:
    for term in terms:
        yield from term.match_expressions or ()
