"""Persistent volumes, the claims on them and their classes, by name."""

from __future__ import annotations

from typing import Any, TypeAlias

from extender.framework.cache import Cache
from extender.model.claim import claim_key
from extender.model.kind import PERSISTENT_VOLUME_CLAIMS, PERSISTENT_VOLUMES, STORAGE_CLASSES, Kind, object_key
from extender.model.object import ObjectMeta
from extender.model.storage import PersistentVolume, PersistentVolumeClaim, StorageClass
from extender.model.table import NodeTable

StorageObject: TypeAlias = PersistentVolume | PersistentVolumeClaim | StorageClass


class StorageObjects(Cache):
    """What exists: ``claims`` by namespace and name, ``volumes`` and ``classes`` by name."""

    kinds = (PERSISTENT_VOLUMES, PERSISTENT_VOLUME_CLAIMS, STORAGE_CLASSES)

    def __init__(self, table: NodeTable) -> None:
        super().__init__(table)
        self.claims: dict[str, PersistentVolumeClaim] = {}
        self.volumes: dict[str, PersistentVolume] = {}
        self.classes: dict[str, StorageClass] = {}

    def add(self, kind: Kind, item: StorageObject) -> None:
        """Note an object."""
        self._of(kind)[_key(item)] = item

    def remove(self, kind: Kind, item: StorageObject) -> None:
        """Undo ``add``."""
        del self._of(kind)[_key(item)]

    def claim(self, namespace: str, name: str) -> PersistentVolumeClaim | None:
        """Return a claim, or None where there is no such thing."""
        return self.claims.get(claim_key(namespace, name))

    def dump(self) -> Any:
        """Return the objects by kind and name."""
        return {kind.name: dict(self._of(kind)) for kind in self.kinds}

    def _of(self, kind: Kind) -> dict[str, Any]:
        if kind is PERSISTENT_VOLUME_CLAIMS:
            return self.claims
        return self.volumes if kind is PERSISTENT_VOLUMES else self.classes


def _key(item: StorageObject) -> str:
    return object_key(item.metadata or ObjectMeta())
