"""VolumeZone: a pod goes to the zone and the region that its bound volumes are labelled with."""

from __future__ import annotations

from typing import Final

import numpy as np

from extender.framework import (
    BETA_REGION,
    BETA_ZONE,
    REGION,
    SKIP,
    WAIT_FOR_FIRST_CONSUMER,
    ZONE,
    ZONE_DELIMITER,
    BoolArray,
    Nodes,
    NodeTable,
    Operator,
    PendingPod,
    PersistentVolume,
    PersistentVolumeClaim,
    Predicate,
    Refusal,
    Requirement,
    Skip,
    StorageObjects,
    claim_volume_name,
    storage_class_name,
    uses,
)

REASON: Final = "node(s) had no available volume zone"
"""Why a node in another zone is refused (source of all reasons: plugins/volumezone of 1.36)."""

NO_CLAIM_NAME: Final = "PersistentVolumeClaim had no name"
NO_CLASS: Final = "PersistentVolumeClaim had no pv name and storageClass name"
NO_VOLUME: Final = "PersistentVolume had no name"
NO_MODE: Final = 'VolumeBindingMode not set for StorageClass "{}"'
NOT_FOUND: Final = '{} "{}" not found'
"""Why all nodes are refused where it cannot be told which volume a claim has; evictions cannot help."""

_NEWER_KEYS: Final = {BETA_ZONE: ZONE, BETA_REGION: REGION, ZONE: ZONE, REGION: REGION}
"""The labels that count, each with the one that stands for it on nodes that do not have it."""


class VolumeZone(Predicate):
    """Refuses nodes outside the zones of the pod's volumes; a node without any label of zone or region is not refused.

    A claim that is bound only once the pod is placed has no zone yet.
    """

    objects = uses(StorageObjects)

    def filter(self, pod: PendingPod, nodes: Nodes) -> Skip | list[Refusal]:
        """Look the volumes up, and compare each of their labels with all nodes at once."""
        allowed: set[tuple[str, frozenset[str]]] = set()
        for use in pod.claims:
            if use.ephemeral:
                continue
            if not use.name:
                return [Refusal(None, NO_CLAIM_NAME, resolvable=False)]
            claim = self.objects.claim(pod.namespace, use.name)
            if claim is None:
                return [Refusal(None, NOT_FOUND.format("persistentvolumeclaim", use.name), resolvable=False)]
            found = self._volume(claim)
            if isinstance(found, str):
                return [Refusal(None, found, resolvable=False)]
            if found is not None:
                allowed |= _topologies(found)
        if not allowed:
            return SKIP
        fits: BoolArray = np.ones(nodes.table.capacity, np.bool_)
        for key, values in allowed:
            fits &= _select(nodes.table, key, values)
        labelled: BoolArray = np.zeros(nodes.table.capacity, np.bool_)
        for key in _NEWER_KEYS:
            labelled |= nodes.table.matching(Requirement(key, Operator.EXISTS))
        return [Refusal(nodes.take(labelled & ~fits), REASON, resolvable=False)]

    def _volume(self, claim: PersistentVolumeClaim) -> PersistentVolume | str | None:
        """Return the claim's volume, None where it waits for the pod, or why there is neither."""
        name = claim_volume_name(claim)
        if name:
            return self.objects.volumes.get(name) or NOT_FOUND.format("persistentvolume", name)
        class_name = storage_class_name(claim)
        if not class_name:
            return NO_CLASS
        storage_class = self.objects.classes.get(class_name)
        if storage_class is None:
            return NOT_FOUND.format("storageclass.storage.k8s.io", class_name)
        if storage_class.volume_binding_mode is None:
            return NO_MODE.format(class_name)
        return None if storage_class.volume_binding_mode == WAIT_FOR_FIRST_CONSUMER else NO_VOLUME


def _topologies(volume: PersistentVolume) -> set[tuple[str, frozenset[str]]]:
    """Return keys and values that the volume allows; a label that names an empty zone counts for nothing."""
    labels = (volume.metadata and volume.metadata.labels) or {}
    named = (
        (key, frozenset(map(str.strip, labels[key].split(ZONE_DELIMITER)))) for key in _NEWER_KEYS if key in labels
    )
    return {(key, values) for key, values in named if "" not in values}


def _select(table: NodeTable, key: str, values: frozenset[str]) -> BoolArray:
    """Return which rows have one of ``values`` under ``key``, or without that under the newer key."""
    newer = _NEWER_KEYS[key]
    named = table.matching(Requirement(key, Operator.IN, values))
    if newer == key:
        return named
    absent = table.matching(Requirement(key, Operator.DOES_NOT_EXIST))
    return named | (absent & table.matching(Requirement(newer, Operator.IN, values)))
