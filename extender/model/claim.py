"""Claims on storage: which ones a pod has, whose they are, and what class and volume they have.

Source of the rules: component-helpers ``storage/volume`` and ``storage/ephemeral`` of 1.36.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from extender.model.node import amount
from extender.model.object import ClaimSpec, ObjectMeta, ResourceList, ResourceRequirements, Volume
from extender.model.storage import PersistentVolume, PersistentVolumeClaim, PersistentVolumeSpec

CLASS_ANNOTATION: Final = "volume.beta.kubernetes.io/storage-class"
"""Names the class of a claim or volume, and wins over its spec."""

BIND_COMPLETED: Final = "pv.kubernetes.io/bind-completed"
"""Annotation of claims whose binding is complete, whatever its value."""

SELECTED_NODE: Final = "volume.kubernetes.io/selected-node"
"""Annotation of claims whose volume is being made for one node."""

WAIT_FOR_FIRST_CONSUMER: Final = "WaitForFirstConsumer"
"""The binding mode of classes whose claims are bound once a pod that uses them is placed."""

NO_PROVISIONER: Final = "kubernetes.io/no-provisioner"
"""The provisioner of classes whose volumes are made by hand."""

READ_WRITE_ONCE_POD: Final = "ReadWriteOncePod"
"""The access mode of claims that one pod at a time may use."""

STORAGE: Final = "storage"
"""The resource that claims ask for and volumes have."""


class ClaimUse(NamedTuple):
    """A volume of a pod that is a claim; ``ephemeral`` claims are made for the pod and must be its own."""

    name: str
    ephemeral: bool


def claim_uses(pod_name: str, volumes: Iterable[Volume]) -> Iterator[ClaimUse]:
    """Yield the claims among the volumes of the pod called ``pod_name``, in order."""
    for volume in volumes:
        use = claim_use(pod_name, volume)
        if use is not None:
            yield use


def claim_use(pod_name: str, volume: Volume) -> ClaimUse | None:
    """Return the claim that a volume of the pod called ``pod_name`` stands for, or None for all other volumes."""
    if volume.persistent_volume_claim is not None:
        return ClaimUse(volume.persistent_volume_claim.claim_name or "", ephemeral=False)
    if volume.ephemeral is not None:
        return ClaimUse(f"{pod_name}-{volume.name or ''}", ephemeral=True)
    return None


def claim_key(namespace: str, name: str) -> str:
    """Return what claims are kept under: ``namespace/name``."""
    return f"{namespace}/{name}"


def is_controlled_by(claim: PersistentVolumeClaim, pod_uid: str) -> bool:
    """Say whether the claim was made for the pod, as those of ephemeral volumes must be."""
    owners = (claim.metadata and claim.metadata.owner_references) or ()
    controller = next((owner for owner in owners if owner.controller), None)
    return controller is not None and (controller.uid or "") == pod_uid


def storage_class_name(item: PersistentVolume | PersistentVolumeClaim) -> str:
    """Return the name of the storage class of a claim or volume; empty where it has none."""
    named = _annotation(item, CLASS_ANNOTATION)
    if named is not None:
        return named
    spec: ClaimSpec | PersistentVolumeSpec | None = item.spec
    return (spec and spec.storage_class_name) or ""


def claim_volume_name(claim: PersistentVolumeClaim) -> str:
    """Return the name of the volume that the claim is bound to or asks for; empty where there is none."""
    return (claim.spec and claim.spec.volume_name) or ""


def is_claim_bound(claim: PersistentVolumeClaim) -> bool:
    """Say whether the claim has a volume and its binding is complete."""
    return bool(claim_volume_name(claim)) and _annotation(claim, BIND_COMPLETED) is not None


def requested_bytes(claim: PersistentVolumeClaim) -> int | None:
    """Return how many bytes the claim asks for, rounded up; None where it does not say.

    Raises:
        QuantityError: the amount cannot be read.
    """
    resources = (claim.spec and claim.spec.resources) or ResourceRequirements()
    return _bytes(resources.requests)


def offered_bytes(volume: PersistentVolume) -> int:
    """Return how many bytes the volume has, rounded up.

    Raises:
        QuantityError: the amount cannot be read.
    """
    return _bytes(volume.spec.capacity if volume.spec else None) or 0


def selected_node(claim: PersistentVolumeClaim) -> str | None:
    """Return the node that the claim's volume is being made for, or None where there is no such node yet."""
    return _annotation(claim, SELECTED_NODE)


def _annotation(item: PersistentVolume | PersistentVolumeClaim, key: str) -> str | None:
    meta = item.metadata or ObjectMeta()
    return (meta.annotations or {}).get(key)


def _bytes(resources: ResourceList | None) -> int | None:
    if not resources or STORAGE not in resources:
        return None
    return amount(STORAGE, resources[STORAGE])
