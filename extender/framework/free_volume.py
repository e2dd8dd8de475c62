"""Persistent volumes that wait for a claim, and those that are kept for one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import numpy as np

from extender.errors import QuantityError
from extender.framework.cache import Cache
from extender.framework.reach import Pairs, Reach, Terms, Thing, compile_terms, select_rows_of_terms
from extender.model.claim import claim_key, offered_bytes, requested_bytes, storage_class_name
from extender.model.column import BoolArray, IntArray
from extender.model.kind import PERSISTENT_VOLUMES, Kind, object_key
from extender.model.object import ClaimSpec, ObjectMeta
from extender.model.selector import LabelMatcher, compile_label_selector
from extender.model.storage import (
    ClaimReference,
    PersistentVolume,
    PersistentVolumeClaim,
    PersistentVolumeSpec,
    PersistentVolumeStatus,
)
from extender.model.table import NodeTable

_NOTHING: Final = -1
_NO_SIZE: Final = np.iinfo(np.int64).max


class VolumeForm(NamedTuple):
    """What of a volume decides, besides its size and place, whether it suits a claim."""

    mode: str
    attributes_class: str
    access_modes: frozenset[str]
    labels: tuple[tuple[str, str], ...]


class FreeVolumes(Cache):
    """Volumes without a claim by class, those that look alike together, and others by the claim they are kept for."""

    kinds = (PERSISTENT_VOLUMES,)

    def __init__(self, table: NodeTable) -> None:
        super().__init__(table)
        self._free: dict[str, Reach[VolumeForm]] = {}
        self._kept: dict[str, tuple[PersistentVolume, ...]] = {}

    def add(self, kind: Kind, item: PersistentVolume) -> None:  # noqa: ARG002 - there is one kind
        """Note a volume, unless it is being deleted."""
        claim, thing = _claim_of(item), _read(item)
        if claim:
            self._kept[claim] = tuple(sorted((*self._kept.get(claim, ()), item), key=_name))
        elif thing is not None:
            self._free.setdefault(storage_class_name(item), Reach(self.table)).add(thing)

    def remove(self, kind: Kind, item: PersistentVolume) -> None:  # noqa: ARG002
        """Undo ``add``."""
        claim, thing = _claim_of(item), _read(item)
        if claim:
            left = tuple(each for each in self._kept[claim] if _name(each) != _name(item))
            if left:
                self._kept[claim] = left
            else:
                del self._kept[claim]
        elif thing is not None:
            reach = self._free[storage_class_name(item)]
            reach.remove(thing)
            if not len(reach):
                del self._free[storage_class_name(item)]

    def free(self, class_name: str) -> Reach[VolumeForm] | None:
        """Return the volumes of a class that have no claim, by size in bytes; None where there are none."""
        return self._free.get(class_name)

    def kept(self, claim: PersistentVolumeClaim) -> list[PersistentVolume]:
        """Return the volumes that are bound to the claim or kept for it, by name."""
        meta = claim.metadata or ObjectMeta()
        return [
            volume
            for volume in self._kept.get(object_key(meta), ())
            if _reference(volume).uid in (None, "", meta.uid)
            and storage_class_name(volume) == storage_class_name(claim)
        ]

    def dump(self) -> Any:
        """Return the free volumes by class, and the names of the others by the claim they are kept for."""
        return {
            "free": {
                name: {thing: int(reach.counts[slot]) for slot, thing in reach.occupied()}
                for name, reach in self._free.items()
            },
            "kept": {claim: list(volumes) for claim, volumes in self._kept.items()},
        }


class VolumeChoice:
    """Chooses, for the claims of one pod one after the other, a volume on each row.

    A volume that an earlier claim has on a row is not given to a later one there. Source: FindMatchingVolume of
    component-helpers ``storage/volume``, 1.36; of volumes of one size upstream takes any.
    """

    def __init__(self, volumes: FreeVolumes) -> None:
        self._volumes = volumes
        self._capacity = volumes.table.capacity
        self._codes: dict[str, int] = {}
        self._taken_of_class: dict[str, _Taken] = {}

    def choose(self, claim: PersistentVolumeClaim) -> IntArray:
        """Return the size in bytes of the claim's volume on each row, -1 where there is none; shape (capacity,).

        Raises:
            SelectorError: the claim's selector cannot be read.
            QuantityError: the claim's size cannot be read.
        """
        wanted = _Wanted.by(claim)
        sizes: IntArray = np.full(self._capacity, -1)
        found: IntArray = np.full(self._capacity, _NOTHING)
        open_rows: BoolArray = np.ones(self._capacity, np.bool_)
        for volume in self._volumes.kept(claim):
            if wanted.suits(volume):
                code = self._codes.setdefault(_name(volume), _NOTHING - 1 - len(self._codes))
                offered = open_rows & (self._taken(wanted.class_name).of(code) == 0)
                reached = offered & select_rows_of_terms(self._volumes.table, _terms(volume))
                found[reached], sizes[reached] = code, offered_bytes(volume)
                open_rows &= ~offered
        reach = self._volumes.free(wanted.class_name)
        if reach is not None and open_rows.any():
            found[open_rows] = self._smallest(reach, wanted)[open_rows]
            free = found > _NOTHING
            sizes[free] = reach.numbers[found[free]]
        self._taken(wanted.class_name).claims.append(found)
        return sizes

    def _smallest(self, reach: Reach[VolumeForm], wanted: _Wanted) -> IntArray:
        """Return the slot of the smallest volume that is large enough on each row; shape (capacity,)."""
        forms = np.fromiter((form is not None and wanted.accepts(form) for form in reach.kinds.values), np.bool_)
        usable = forms[reach.kinds.codes] & (reach.numbers >= wanted.size_bytes)
        sizes: IntArray = np.full(self._capacity, _NO_SIZE)
        found: IntArray = np.full(self._capacity, _NOTHING)
        pairs = reach.pairs()
        left = usable[pairs.slots] & (self._taken(wanted.class_name).by_pair(pairs) < reach.counts[pairs.slots])
        rows, slots = pairs.rows[left], pairs.slots[left]
        np.minimum.at(sizes, rows, reach.numbers[slots])
        best = reach.numbers[slots] == sizes[rows]
        found[rows[best]] = slots[best]
        self._add_columns(reach, usable, wanted.class_name, sizes, found)
        return found

    def _add_columns(
        self, reach: Reach[VolumeForm], usable: BoolArray, class_name: str, sizes: IntArray, found: IntArray
    ) -> None:
        """Go on to volumes that many rows reach, the smallest first, and write them where they are better."""
        columns = reach.columns()
        offers = sorted((int(reach.numbers[slot]), slot) for slot in columns if usable[slot])
        # An earlier claim takes one volume on a row, so of those in one place no more than these can be left over.
        taken = self._taken(class_name)
        most = 1 + len(taken.claims)
        offered: Counter[int] = Counter()
        for size, slot in offers:
            offered[id(columns[slot])] += 1
            if offered[id(columns[slot])] > most:
                continue
            better = columns[slot] & (sizes > size)
            if most > 1:
                better &= taken.of(slot) < reach.counts[slot]
            sizes[better], found[better] = size, slot

    def _taken(self, class_name: str) -> _Taken:
        """Return what earlier claims of a class have."""
        if class_name not in self._taken_of_class:
            self._taken_of_class[class_name] = _Taken(self._capacity)
        return self._taken_of_class[class_name]


class _Taken:
    """How many of the earlier claims of a class have each volume on each row; each claim is counted once a question."""

    def __init__(self, capacity: int) -> None:
        self.claims: list[IntArray] = []
        """The slot or the code of the volume that each claim has on each row; shapes (capacity,)."""
        self._capacity = capacity
        self._counts: dict[int | None, tuple[int, IntArray]] = {}

    def of(self, code: int) -> IntArray:
        """Return how many have one volume on each row; shape (capacity,)."""
        return self._count(code, slice(None), code)

    def by_pair(self, pairs: Pairs) -> IntArray:
        """Return how many have the volume of each pair on its row, always of the same pairs; shape (pairs,)."""
        return self._count(None, pairs.rows, pairs.slots)

    def _count(self, question: int | None, rows: IntArray | slice, codes: int | IntArray) -> IntArray:
        """Add to the answer of last time the claims that came since."""
        known, counts = self._counts.get(question, (0, np.zeros(self._capacity, np.int64)[rows]))
        for chosen in self.claims[known:]:
            counts = counts + (chosen[rows] == codes)
        self._counts[question] = len(self.claims), counts
        return counts


class _Wanted(NamedTuple):
    """What a claim asks of a volume."""

    class_name: str
    size_bytes: int
    mode: str
    attributes_class: str
    access_modes: frozenset[str]
    labels: LabelMatcher | None

    @classmethod
    def by(cls, claim: PersistentVolumeClaim) -> _Wanted:
        spec = claim.spec or ClaimSpec()
        return cls(
            storage_class_name(claim),
            requested_bytes(claim) or 0,
            _mode(spec),
            spec.volume_attributes_class_name or "",
            frozenset(spec.access_modes or ()),
            compile_label_selector(spec.selector) if spec.selector is not None else None,
        )

    def suits(self, volume: PersistentVolume) -> bool:
        """Say whether a volume that is kept for the claim can be bound to it."""
        spec = volume.spec or PersistentVolumeSpec()
        return (
            offered_bytes(volume) >= self.size_bytes
            and _mode(spec) == self.mode
            and (spec.volume_attributes_class_name or "") == self.attributes_class
        )

    def accepts(self, form: VolumeForm) -> bool:
        """Say whether a volume of that form can be bound to the claim."""
        return (
            form.mode == self.mode
            and form.attributes_class == self.attributes_class
            and form.access_modes >= self.access_modes
            and (self.labels is None or self.labels.matches(dict(form.labels)))
        )


def _claim_of(volume: PersistentVolume) -> str:
    """Return the key of the claim that a volume is kept for; empty where it is for any, or being deleted."""
    reference = volume.spec.claim_ref if volume.spec else None
    if reference is None or (volume.metadata or ObjectMeta()).deletion_timestamp is not None:
        return ""
    return claim_key(reference.namespace or "", reference.name or "")


def _read(volume: PersistentVolume) -> Thing[VolumeForm] | None:
    """Return a volume that a claim could have, or None for all others."""
    meta, spec = volume.metadata or ObjectMeta(), volume.spec or PersistentVolumeSpec()
    phase = (volume.status or PersistentVolumeStatus()).phase
    if spec.claim_ref is not None or meta.deletion_timestamp is not None or phase != "Available":
        return None
    try:
        size = offered_bytes(volume)
    except QuantityError:
        return None
    labels: Mapping[str, str] = meta.labels or {}
    form = VolumeForm(
        _mode(spec),
        spec.volume_attributes_class_name or "",
        frozenset(spec.access_modes or ()),
        tuple(sorted(labels.items())),
    )
    return Thing(form, _terms(volume), size)


def _terms(volume: PersistentVolume) -> Terms:
    affinity = volume.spec.node_affinity if volume.spec else None
    return compile_terms(affinity.required if affinity else None)


def _mode(spec: ClaimSpec | PersistentVolumeSpec) -> str:
    return "Filesystem" if spec.volume_mode is None else spec.volume_mode


def _reference(volume: PersistentVolume) -> ClaimReference:
    return (volume.spec or PersistentVolumeSpec()).claim_ref or ClaimReference()


def _name(volume: PersistentVolume) -> str:
    return (volume.metadata or ObjectMeta()).name or ""
