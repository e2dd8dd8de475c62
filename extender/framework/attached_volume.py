"""Which volumes are in use on each row, each counted once however many pods share it.

What a claim stands for can change while a pod uses it: it is bound, its volume appears or goes, its class does. A claim
in use is therefore kept with its rows, and moved as a whole when something it depends on changes.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from typing import Any, ClassVar, Final, NamedTuple, TypeVar

import numpy as np

from extender.framework.cache import Cache
from extender.framework.volume import StorageObject, StorageObjects
from extender.model.claim import ClaimUse, claim_key, claim_use, claim_volume_name, is_controlled_by, storage_class_name
from extender.model.column import BoolArray, IntArray, lengthen
from extender.model.kind import PERSISTENT_VOLUME_CLAIMS, PERSISTENT_VOLUMES, PODS, Kind, object_key
from extender.model.object import ObjectMeta, Volume
from extender.model.pod import PendingPod, PodInfo
from extender.model.storage import PersistentVolume, PersistentVolumeClaim
from extender.model.table import NodeTable

K = TypeVar("K", bound=Hashable)

NO_NAME: Final = "PersistentVolumeClaim had no name"
"""What is wrong with a volume that names no claim."""


class AttachedVolume(NamedTuple):
    """A volume by its driver and what that knows it by, or where ``unbound`` the claim that it will be made for."""

    driver: str
    handle: str
    unbound: bool = False


class Fault(NamedTuple):
    """Why it cannot be told which volume a pod's is; ``missing`` says that the claim does not exist."""

    text: str
    missing: bool = False
    inline: bool = False
    """Whether it is about a volume that is no claim."""


class _UsedClaim:
    """A claim that pods on some rows use: how often on each, and for which pods it is ephemeral."""

    __slots__ = ("depends", "pods", "rows", "volume")

    def __init__(self) -> None:
        self.rows: dict[int, int] = {}
        self.pods: tuple[tuple[int, PodInfo], ...] = ()
        self.volume: AttachedVolume | None = None
        self.depends = ("", "")
        """The volume and the class that it was looked up by."""


class AttachedVolumes(Cache):
    """Counts the volumes of the pods on each row; subclasses say what a volume is."""

    kinds: ClassVar[tuple[Kind, ...]] = (PODS, *StorageObjects.kinds)

    def __init__(self, table: NodeTable) -> None:
        super().__init__(table)
        self._storage = StorageObjects(table)
        self._counts: dict[str, IntArray] = {}
        self._uses: dict[AttachedVolume, dict[int, int]] = {}
        self._claims: dict[str, _UsedClaim] = {}
        self._by_volume: dict[str, set[str]] = {}
        self._by_class: dict[str, set[str]] = {}
        self._faults: dict[str, dict[int, int]] = {}

    # --- what a volume is --------------------------------------------------------------------------------------------

    @abstractmethod
    def _of_volume(self, volume: PersistentVolume) -> AttachedVolume | None:
        """Return what a persistent volume is, or None where it does not count."""

    @abstractmethod
    def _of_source(self, volume: Volume) -> AttachedVolume | Fault | None:
        """Return what a pod's volume that is no claim is, or None where it does not count."""

    @abstractmethod
    def _driver_of(self, provisioner: str) -> str | None:
        """Return the driver of the volumes that a class will make, or None where they do not count."""

    # --- events ------------------------------------------------------------------------------------------------------

    def grow(self, capacity: int) -> None:
        """Make room for ``capacity`` rows."""
        self._counts = {driver: lengthen(counts, capacity) for driver, counts in self._counts.items()}

    def add_pod(self, row: int, pod: PodInfo) -> None:
        """Count the volumes of a pod."""
        for volume in pod.volumes:
            use = claim_use(pod.name, volume)
            if use is not None and use.name:
                self._use(claim_key(pod.pod_class.namespace, use.name), use, row, pod)
                continue
            found = Fault(NO_NAME) if use is not None else self._of_source(volume)
            if isinstance(found, Fault):
                increase(self._faults, found.text, row)
            elif found is not None:
                self._attach(found, row)

    def remove_pod(self, row: int, pod: PodInfo) -> None:
        """Undo ``add_pod``."""
        for volume in pod.volumes:
            use = claim_use(pod.name, volume)
            if use is not None and use.name:
                self._release(claim_key(pod.pod_class.namespace, use.name), use, row, pod)
                continue
            found = Fault(NO_NAME) if use is not None else self._of_source(volume)
            if isinstance(found, Fault):
                decrease(self._faults, found.text, row)
            elif found is not None:
                self._detach(found, row)

    def add(self, kind: Kind, item: StorageObject) -> None:
        """Note an object, and what it makes of the claims in use."""
        self._change(kind, item, self._storage.add)

    def remove(self, kind: Kind, item: StorageObject) -> None:
        """Undo ``add``."""
        self._change(kind, item, self._storage.remove)

    # --- questions ---------------------------------------------------------------------------------------------------

    def concerns(self, pod: PendingPod) -> bool:
        """Say whether any volume of a pod could count."""
        return bool(pod.claims) or any(self._of_source(volume) is not None for volume in pod.spec.volumes or ())

    def of_pod(self, pod: PendingPod) -> Iterator[AttachedVolume | Fault]:
        """Yield what the volumes of a pod are, in order, as far as they count."""
        for volume in pod.spec.volumes or ():
            use = claim_use(pod.name, volume)
            found = self._of_source(volume) if use is None else self._of_claim(pod, use)
            if found is not None:
                yield found

    def counts(self, driver: str) -> IntArray:
        """Return how many volumes of a driver are on each row; shape (capacity,), not to be written to."""
        found = self._counts.get(driver)
        return np.zeros(self.table.capacity, np.int64) if found is None else found

    def count_new(self, volumes: Iterable[AttachedVolume]) -> IntArray:
        """Return how many of ``volumes`` no pod on a row uses yet; shape (capacity,)."""
        wanted = set(volumes)
        new: IntArray = np.full(self.table.capacity, len(wanted))
        for volume in wanted:
            new[list(self._uses.get(volume, ()))] -= 1
        return new

    def faults(self) -> Iterator[tuple[str, BoolArray]]:
        """Yield each thing that is wrong with volumes of placed pods, and on which rows; shape (capacity,)."""
        for text, rows in self._faults.items():
            mask: BoolArray = np.zeros(self.table.capacity, np.bool_)
            mask[list(rows)] = True
            yield text, mask

    def dump(self) -> Any:
        """Return counts by driver, uses by volume and faults, all by node name, and the claims in use."""
        return {
            "objects": self._storage.dump(),
            "counts": {
                driver: self._named({row: int(counts[row]) for row in np.flatnonzero(counts).tolist()})
                for driver, counts in self._counts.items()
                if counts.any()
            },
            "uses": {tuple(volume): self._named(rows) for volume, rows in self._uses.items()},
            "faults": {text: self._named(rows) for text, rows in self._faults.items()},
            "claims": {
                key: (self._named(claim.rows), sorted(pod.key for _, pod in claim.pods), claim.volume, claim.depends)
                for key, claim in self._claims.items()
            },
            "dependents": {
                "volumes": {name: set(keys) for name, keys in self._by_volume.items()},
                "classes": {name: set(keys) for name, keys in self._by_class.items()},
            },
        }

    # --- inside ------------------------------------------------------------------------------------------------------

    def _of_claim(self, pod: PendingPod, use: ClaimUse) -> AttachedVolume | Fault | None:
        if not use.name:
            return Fault(NO_NAME)
        key = claim_key(pod.namespace, use.name)
        claim = self._storage.claims.get(key)
        if claim is None:
            return Fault(f'looking up PVC {key}: persistentvolumeclaim "{use.name}" not found', missing=True)
        if use.ephemeral and not is_controlled_by(claim, pod.uid):
            return Fault(describe_foreign_claim(key, pod.key))
        return self._look_up(key, claim)[0]

    def _look_up(self, key: str, claim: PersistentVolumeClaim) -> tuple[AttachedVolume | None, tuple[str, str]]:
        """Return what a claim is, and the names of the volume and the class that this depends on."""
        name = claim_volume_name(claim)
        volume = self._storage.volumes.get(name)
        if volume is not None:
            return self._of_volume(volume), (name, "")
        class_name = storage_class_name(claim)
        found = self._storage.classes.get(class_name)
        driver = self._driver_of(found.provisioner or "") if found else None
        return AttachedVolume(driver, key, unbound=True) if driver else None, (name, class_name)

    def _use(self, key: str, use: ClaimUse, row: int, pod: PodInfo) -> None:
        claim = self._claims.get(key)
        if claim is None:
            claim = self._claims[key] = _UsedClaim()
            self._link(key)
        claim.rows[row] = claim.rows.get(row, 0) + 1
        if claim.volume is not None:
            self._attach(claim.volume, row)
        if use.ephemeral:
            claim.pods += ((row, pod),)
            if self._is_foreign(key, pod):
                increase(self._faults, describe_foreign_claim(key, pod.key), row)

    def _release(self, key: str, use: ClaimUse, row: int, pod: PodInfo) -> None:
        claim = self._claims[key]
        claim.rows[row] -= 1
        if not claim.rows[row]:
            del claim.rows[row]
        if claim.volume is not None:
            self._detach(claim.volume, row)
        if use.ephemeral:
            claim.pods = tuple(each for each in claim.pods if each[1] is not pod)
            if self._is_foreign(key, pod):
                decrease(self._faults, describe_foreign_claim(key, pod.key), row)
        if not claim.rows:
            self._unlink(key)
            del self._claims[key]

    def _is_foreign(self, key: str, pod: PodInfo) -> bool:
        claim = self._storage.claims.get(key)
        return claim is not None and not is_controlled_by(claim, pod.uid)

    def _change(self, kind: Kind, item: StorageObject, change: Callable[[Kind, Any], None]) -> None:
        """Change an object while the claims that depend on it are out of the count."""
        name = object_key(item.metadata or ObjectMeta())
        if kind is PERSISTENT_VOLUME_CLAIMS:
            keys = [name] if name in self._claims else []
        else:
            keys = list((self._by_volume if kind is PERSISTENT_VOLUMES else self._by_class).get(name, ()))
        for key in keys:
            self._unlink(key)
        change(kind, item)
        for key in keys:
            self._link(key)

    def _link(self, key: str) -> None:
        """Count a claim in use as the volume that it is now."""
        used, claim = self._claims[key], self._storage.claims.get(key)
        if claim is None:
            return
        used.volume, used.depends = self._look_up(key, claim)
        volume, class_name = used.depends
        if volume:
            self._by_volume.setdefault(volume, set()).add(key)
        if class_name:
            self._by_class.setdefault(class_name, set()).add(key)
        if used.volume is not None:
            for row, times in used.rows.items():
                self._attach(used.volume, row, times)
        for row, pod in used.pods:
            if self._is_foreign(key, pod):
                increase(self._faults, describe_foreign_claim(key, pod.key), row)

    def _unlink(self, key: str) -> None:
        """Undo ``_link``."""
        used = self._claims[key]
        if used.volume is not None:
            for row, times in used.rows.items():
                self._detach(used.volume, row, times)
        for row, pod in used.pods:
            if self._is_foreign(key, pod):
                decrease(self._faults, describe_foreign_claim(key, pod.key), row)
        for index, name in zip((self._by_volume, self._by_class), used.depends, strict=True):
            if name:
                index[name].discard(key)
                if not index[name]:
                    del index[name]
        used.volume, used.depends = None, ("", "")

    def _attach(self, volume: AttachedVolume, row: int, times: int = 1) -> None:
        if increase(self._uses, volume, row, times):
            self._count(volume, row, 1)

    def _detach(self, volume: AttachedVolume, row: int, times: int = 1) -> None:
        if decrease(self._uses, volume, row, times):
            self._count(volume, row, -1)

    def _count(self, volume: AttachedVolume, row: int, change: int) -> None:
        """Count a volume that the first pod on a row uses, or that the last one does not use any more."""
        counts = self._counts.get(volume.driver)
        if counts is None:
            counts = self._counts[volume.driver] = np.zeros(self.table.capacity, np.int64)
        counts[row] += change

    def _named(self, rows: Mapping[int, int]) -> dict[str, int]:
        return {self.table.name(row): number for row, number in rows.items()}


def describe_foreign_claim(key: str, pod_key: str) -> str:
    """Return what is wrong with the claim of an ephemeral volume that was not made for its pod."""
    return f"PVC {key} was not created for pod {pod_key} (pod is not owner)"


def increase(index: dict[K, dict[int, int]], key: K, row: int, times: int = 1) -> bool:
    """Add to the number kept for a row under ``key``; say whether there was none before."""
    rows = index.setdefault(key, {})
    before = rows.get(row, 0)
    rows[row] = before + times
    return not before


def decrease(index: dict[K, dict[int, int]], key: K, row: int, times: int = 1) -> bool:
    """Undo ``increase``; say whether none is left."""
    rows = index[key]
    rows[row] -= times
    if rows[row]:
        return False
    del rows[row]
    if not rows:
        del index[key]
    return True
