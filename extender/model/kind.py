"""Which objects are watched, where the API server serves them, and who receives them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import msgspec

from extender.model.object import Node, ObjectMeta, Pod
from extender.model.storage import (
    CSIDriver,
    CSINode,
    CSIStorageCapacity,
    PersistentVolume,
    PersistentVolumeClaim,
    StorageClass,
    VolumeAttachment,
)
from extender.model.workload import (
    Namespace,
    PodDisruptionBudget,
    ReplicaSet,
    ReplicationController,
    Service,
    StatefulSet,
)


@dataclass(frozen=True)
class Kind:
    """One resource of the API: its place, its decoded type and which of its objects matter.

    ``type`` is the msgspec struct that list items and watch events are decoded into; it must have a ``metadata``
    field of type ``ObjectMeta``. ``field_selector`` leaves objects out on the server.
    """

    plural: str
    name: str
    type: type[msgspec.Struct]
    group: str = ""
    version: str = "v1"
    namespaced: bool = True
    field_selector: str = ""

    @property
    def path(self) -> str:
        """The collection's path over all namespaces, such as ``/api/v1/pods``."""
        root = f"/apis/{self.group}/{self.version}" if self.group else f"/api/{self.version}"
        return f"{root}/{self.plural}"


PODS = Kind("pods", "Pod", Pod, field_selector="status.phase!=Succeeded,status.phase!=Failed")
NODES = Kind("nodes", "Node", Node, namespaced=False)
NAMESPACES = Kind("namespaces", "Namespace", Namespace, namespaced=False)
SERVICES = Kind("services", "Service", Service)
REPLICATION_CONTROLLERS = Kind("replicationcontrollers", "ReplicationController", ReplicationController)
REPLICA_SETS = Kind("replicasets", "ReplicaSet", ReplicaSet, group="apps")
STATEFUL_SETS = Kind("statefulsets", "StatefulSet", StatefulSet, group="apps")
POD_DISRUPTION_BUDGETS = Kind("poddisruptionbudgets", "PodDisruptionBudget", PodDisruptionBudget, group="policy")
PERSISTENT_VOLUMES = Kind("persistentvolumes", "PersistentVolume", PersistentVolume, namespaced=False)
PERSISTENT_VOLUME_CLAIMS = Kind("persistentvolumeclaims", "PersistentVolumeClaim", PersistentVolumeClaim)
STORAGE_CLASSES = Kind("storageclasses", "StorageClass", StorageClass, group="storage.k8s.io", namespaced=False)
CSI_NODES = Kind("csinodes", "CSINode", CSINode, group="storage.k8s.io", namespaced=False)
CSI_DRIVERS = Kind("csidrivers", "CSIDriver", CSIDriver, group="storage.k8s.io", namespaced=False)
CSI_STORAGE_CAPACITIES = Kind("csistoragecapacities", "CSIStorageCapacity", CSIStorageCapacity, group="storage.k8s.io")
VOLUME_ATTACHMENTS = Kind(
    "volumeattachments", "VolumeAttachment", VolumeAttachment, group="storage.k8s.io", namespaced=False
)

KINDS = (
    NODES,
    PODS,
    NAMESPACES,
    SERVICES,
    REPLICATION_CONTROLLERS,
    REPLICA_SETS,
    STATEFUL_SETS,
    POD_DISRUPTION_BUDGETS,
    PERSISTENT_VOLUMES,
    PERSISTENT_VOLUME_CLAIMS,
    STORAGE_CLASSES,
    CSI_NODES,
    CSI_DRIVERS,
    CSI_STORAGE_CAPACITIES,
    VOLUME_ATTACHMENTS,
)
"""Every kind that an algorithm can watch without declaring it itself."""


class Store(Protocol):
    """What receives the objects of one kind, in the order the API server tells of them.

    A reflector calls ``begin``, ``upsert`` for each listed object, and ``finish``: whatever was not upserted since
    ``begin`` no longer exists. Between lists it calls ``upsert`` and ``delete`` for watch events. An object that is
    upserted again at the resource version already held changes nothing.
    """

    def begin(self) -> None:
        """Start a list; objects held so far stay until ``finish``."""

    def upsert(self, item: Any) -> None:
        """Hold ``item``, an instance of the kind's type, in place of one of the same name."""

    def delete(self, item: Any) -> None:
        """Forget the object named as ``item``; unknown names are no error."""

    def finish(self) -> None:
        """End a list: forget what it did not name; from now on the store is complete."""


def object_key(meta: ObjectMeta) -> str:
    """Return ``namespace/name``, or ``name`` for objects outside namespaces."""
    return f"{meta.namespace}/{meta.name}" if meta.namespace else meta.name or ""
