"""Persistent volumes, the claims on them, and what nodes and drivers say about attaching them."""

from __future__ import annotations

import msgspec

from extender.model.object import (
    ClaimSpec,
    CsiSource,
    DiskSource,
    Int32,
    KubernetesObject,
    LabelSelector,
    NodeSelector,
    ObjectMeta,
    ResourceList,
)


class PersistentVolumeClaimStatus(KubernetesObject):
    """Whether a claim is bound."""

    phase: str | None = None


class PersistentVolumeClaim(KubernetesObject):
    """A claim on a volume."""

    metadata: ObjectMeta | None = None
    spec: ClaimSpec | None = None
    status: PersistentVolumeClaimStatus | None = None


class ClaimReference(KubernetesObject):
    """The claim a volume is bound to, or kept for."""

    namespace: str | None = None
    name: str | None = None
    uid: str | None = None


class VolumeNodeAffinity(KubernetesObject):
    """From which nodes a volume can be reached."""

    required: NodeSelector | None = None


class PersistentVolumeSpec(KubernetesObject):
    """What a volume offers, and where it lies."""

    access_modes: list[str] | None = None
    capacity: ResourceList | None = None
    claim_ref: ClaimReference | None = None
    node_affinity: VolumeNodeAffinity | None = None
    storage_class_name: str | None = None
    volume_mode: str | None = None
    volume_attributes_class_name: str | None = None
    csi: CsiSource | None = None
    gce_persistent_disk: DiskSource | None = None
    aws_elastic_block_store: DiskSource | None = None
    azure_disk: DiskSource | None = None
    cinder: DiskSource | None = None
    portworx_volume: DiskSource | None = None


class PersistentVolumeStatus(KubernetesObject):
    """Whether a volume is available."""

    phase: str | None = None


class PersistentVolume(KubernetesObject):
    """A persistent volume."""

    metadata: ObjectMeta | None = None
    spec: PersistentVolumeSpec | None = None
    status: PersistentVolumeStatus | None = None


class TopologyRequirement(KubernetesObject):
    """A label key and the values allowed for it."""

    key: str | None = None
    values: list[str] | None = None


class TopologyTerm(KubernetesObject):
    """Requirements that must all hold."""

    match_label_expressions: list[TopologyRequirement] | None = None


class StorageClass(KubernetesObject):
    """How volumes of a class are made, when they are bound, and where they may lie."""

    metadata: ObjectMeta | None = None
    provisioner: str | None = None
    volume_binding_mode: str | None = None
    allowed_topologies: list[TopologyTerm] | None = None


class DriverAllocatable(KubernetesObject):
    """How many volumes of a driver a node takes."""

    count: Int32 | None = None


class NodeDriver(KubernetesObject):
    """A CSI driver on a node."""

    name: str | None = None
    node_id: str | None = msgspec.field(name="nodeID", default=None)
    topology_keys: list[str] | None = None
    allocatable: DriverAllocatable | None = None


class CSINodeSpec(KubernetesObject):
    """The CSI drivers of a node."""

    drivers: list[NodeDriver] | None = None


class CSINode(KubernetesObject):
    """What a node says of its CSI drivers; it bears the node's name."""

    metadata: ObjectMeta | None = None
    spec: CSINodeSpec | None = None


class CSIDriverSpec(KubernetesObject):
    """Whether a driver publishes its free capacity."""

    storage_capacity: bool | None = None


class CSIDriver(KubernetesObject):
    """A CSI driver."""

    metadata: ObjectMeta | None = None
    spec: CSIDriverSpec | None = None


class CSIStorageCapacity(KubernetesObject):
    """How much of a storage class is free on some of the nodes."""

    metadata: ObjectMeta | None = None
    node_topology: LabelSelector | None = None
    storage_class_name: str | None = None
    capacity: str | int | float | None = None
    maximum_volume_size: str | int | float | None = None


class VolumeAttachmentSource(KubernetesObject):
    """What is attached."""

    persistent_volume_name: str | None = None


class VolumeAttachmentSpec(KubernetesObject):
    """Which driver attaches a volume to which node."""

    attacher: str | None = None
    node_name: str | None = None
    source: VolumeAttachmentSource | None = None


class VolumeAttachment(KubernetesObject):
    """A volume that is attached to a node, or about to be, whether or not a pod uses it."""

    metadata: ObjectMeta | None = None
    spec: VolumeAttachmentSpec | None = None
