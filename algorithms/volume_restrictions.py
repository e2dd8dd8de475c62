"""VolumeRestrictions: some disks, and claims meant for one pod, cannot be used by two pods at once."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence, Set
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np

from extender.framework import (
    READ_WRITE_ONCE_POD,
    SKIP,
    BoolArray,
    Cache,
    EvictedPods,
    Nodes,
    NodeTable,
    PendingPod,
    PodInfo,
    Predicate,
    Refusal,
    Skip,
    StorageObjects,
    Volume,
    claim_key,
    uses,
)

DISK_REASON: Final = "node(s) had no available disk"
"""Why a node is refused where another pod has the disk (source of all reasons: plugins/volumerestrictions of 1.36)."""

CLAIM_REASON: Final = (
    "node(s) unavailable due to PersistentVolumeClaim with ReadWriteOncePod access mode already in-use by another pod"
)
"""Why all nodes are refused where another pod has a claim that one pod at a time may use."""

MISSING_CLAIM: Final = 'persistentvolumeclaim "{}" not found'
"""Why all nodes are refused where a claim of the pod does not exist."""

Key: TypeAlias = tuple[str, ...]


class DiskUse(NamedTuple):
    """One use of a disk; one that is ``shared`` goes together with other shared uses."""

    key: Key
    shared: bool


class VolumeUses(Cache):
    """Which rows have pods that use a disk or a claim, and which have pods that do not share it."""

    def __init__(self, table: NodeTable) -> None:
        super().__init__(table)
        self._any: dict[Key, dict[int, int]] = {}
        self._exclusive: dict[Key, dict[int, int]] = {}

    def add_pod(self, row: int, pod: PodInfo) -> None:
        """Note what a pod uses."""
        for index, key in self._entries(pod):
            rows = index.setdefault(key, {})
            rows[row] = rows.get(row, 0) + 1

    def remove_pod(self, row: int, pod: PodInfo) -> None:
        """Undo ``add_pod``."""
        for index, key in self._entries(pod):
            rows = index[key]
            rows[row] -= 1
            if not rows[row]:
                del rows[row]
                if not rows:
                    del index[key]

    def conflicting(self, use: DiskUse) -> Iterable[int]:
        """Return the rows where a pod uses the same disk in a way that does not go together with ``use``."""
        return (self._exclusive if use.shared else self._any).get(use.key, ())

    def has_claim(self, namespace: str, name: str) -> bool:
        """Say whether a pod on a node that exists uses a claim."""
        rows = self._any.get((claim_key(namespace, name),), ())
        return any(self.table.present[row] for row in rows)

    def dump(self) -> Any:
        """Return how often each disk and claim is used, and how often it is not shared, by node name."""
        return [
            {key: {self.table.name(row): times for row, times in rows.items()} for key, rows in index.items()}
            for index in (self._any, self._exclusive)
        ]

    def _entries(self, pod: PodInfo) -> Iterator[tuple[dict[Key, dict[int, int]], Key]]:
        for name in claim_names(pod):
            yield self._any, (claim_key(pod.pod_class.namespace, name),)
        for volume in pod.volumes:
            for use in disk_uses(volume):
                yield self._any, use.key
                if not use.shared:
                    yield self._exclusive, use.key


class VolumeRestrictions(Predicate):
    """Refuses nodes where another pod has one of the pod's disks, and all nodes where one has its exclusive claim.

    A GCE persistent disk, an iSCSI disk and a Ceph image can be shared by pods that all just read it; an EBS disk
    cannot be shared.
    """

    objects = uses(StorageObjects)
    volumes = uses(VolumeUses)
    evicted = uses(EvictedPods)

    def heeded(self, pod: PendingPod, others: Sequence[PodInfo]) -> Sequence[PodInfo]:
        """Return those that have volumes, where the pod has some."""
        return [other for other in others if other.volumes] if pod.spec.volumes else ()

    def filter(self, pod: PendingPod, nodes: Nodes) -> Skip | list[Refusal]:
        """Mark the rows of each disk, then ask whether anyone has the claims."""
        wanted = [use for volume in pod.spec.volumes or () for use in disk_uses(volume)]
        exclusive: set[str] = set()
        for use in pod.claims:
            if use.ephemeral:
                continue
            claim = self.objects.claim(pod.namespace, use.name)
            if claim is None:
                return [Refusal(None, MISSING_CLAIM.format(use.name), resolvable=False)]
            if READ_WRITE_ONCE_POD in ((claim.spec and claim.spec.access_modes) or ()):
                exclusive.add(use.name)
        in_use = bool(exclusive) and self._any_in_use(pod.namespace, exclusive)
        if not wanted and not in_use:
            return SKIP
        taken: BoolArray = np.zeros(nodes.table.capacity, np.bool_)
        for disk in wanted:
            taken[list(self.volumes.conflicting(disk))] = True
        refusals = [Refusal(nodes.take(taken), DISK_REASON)]
        if in_use:
            refusals.append(Refusal(nodes.take(~taken), CLAIM_REASON))
        return refusals

    def _any_in_use(self, namespace: str, names: Set[str]) -> bool:
        """Say whether a pod has one of the claims.

        Upstream counts each claim in use once, and of an evicted pod it takes off every volume with the name of such a
        claim, in whatever namespace.
        """
        gone = [(pod.pod_class.namespace, name) for _, pod in self.evicted.gone() for name in claim_names(pod)]
        used = sum((namespace, name) in gone or self.volumes.has_claim(namespace, name) for name in names)
        return used > sum(name in names for _, name in gone)


def claim_names(pod: PodInfo) -> Iterator[str]:
    """Yield the name of the claim of each volume that is one."""
    for volume in pod.volumes:
        if volume.persistent_volume_claim is not None:
            yield volume.persistent_volume_claim.claim_name or ""


def disk_uses(volume: Volume) -> Iterator[DiskUse]:
    """Yield the uses of disks that a volume amounts to; a Ceph image is one for each of its monitors."""
    gce, ebs, iscsi, rbd = (volume.gce_persistent_disk, volume.aws_elastic_block_store, volume.iscsi, volume.rbd)
    if gce is not None:
        yield DiskUse(("gce", gce.pd_name or ""), bool(gce.read_only))
    if ebs is not None:
        yield DiskUse(("ebs", ebs.volume_id or ""), shared=False)
    if iscsi is not None:
        yield DiskUse(("iscsi", iscsi.iqn or ""), bool(iscsi.read_only))
    if rbd is not None:
        for monitor in rbd.monitors or ():
            yield DiskUse(("rbd", rbd.pool or "", rbd.image or "", monitor), bool(rbd.read_only))
