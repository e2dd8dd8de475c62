"""VolumeBinding: a pod goes where its claims have volumes, can get one that is there, or can have one made."""

from __future__ import annotations

from typing import Annotated, Final

import numpy as np

from extender.framework import (
    NO_PROVISIONER,
    SKIP,
    WAIT_FOR_FIRST_CONSUMER,
    Args,
    BoolArray,
    ClaimUse,
    CsiNodes,
    Field,
    FreeVolumes,
    Nodes,
    NodeTable,
    PendingPod,
    PersistentVolume,
    PersistentVolumeClaim,
    Predicate,
    Refusal,
    SelectorError,
    Skip,
    StorageCapacities,
    StorageObjects,
    VolumeChoice,
    claim_key,
    claim_volume_name,
    compile_terms,
    compile_topologies,
    describe_foreign_claim,
    is_claim_bound,
    is_controlled_by,
    plugin_of,
    requested_bytes,
    select_rows_of_terms,
    selected_node,
    storage_class_name,
    translate_affinity,
    uses,
    volume_handle,
)

AFFINITY_REASON: Final = "node(s) didn't match PersistentVolume's node affinity"
"""Why a node is refused that a bound volume cannot be reached from (source of all: plugins/volumebinding of 1.36)."""

UNMATCHED_REASON: Final = "node(s) didn't find available persistent volumes to bind"
"""Why a node is refused where a claim can neither have a volume that is there nor have one made."""

SPACE_REASON: Final = "node(s) did not have enough free storage"
"""Why a node is refused where a volume could be made but for the space."""

GONE_REASON: Final = "node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s)"
"""Why a node is refused where a bound volume does not exist."""

IMMEDIATE_REASON: Final = "pod has unbound immediate PersistentVolumeClaims"
"""Why all nodes are refused while a claim that does not wait for the pod is not bound."""

NO_MODE: Final = 'VolumeBindingMode not set for StorageClass "{}"'
"""Why no node can be judged where the class of a claim does not say when its claims are bound."""

UNKNOWN_REASON: Final = "could not tell where a volume can be reached from: it cannot be translated, or its claim read"
"""Why a node could not be judged: a built-in volume has no CSI equivalent, or a claim's selector cannot be read."""


class VolumeBindingArgs(Args):
    """Arguments as in kube-scheduler's VolumeBindingArgs."""

    bind_timeout_seconds: Annotated[int, Field(ge=0)] = 600
    """How long kube-scheduler waits for the volumes that it binds; means nothing here, where none are bound."""


class _Columns:
    """Which rows are refused, by reason, and which could not be judged; shapes (capacity,)."""

    def __init__(self, table: NodeTable) -> None:
        self._capacity = table.capacity
        self.failed: BoolArray = self.none()
        self.refused: dict[str, BoolArray] = {}

    def none(self) -> BoolArray:
        """Return a column of no rows."""
        return np.zeros(self._capacity, np.bool_)

    def every(self) -> BoolArray:
        """Return a column of all rows."""
        return np.ones(self._capacity, np.bool_)

    def refuse(self, reason: str, rows: BoolArray) -> None:
        """Refuse some rows, maybe among others."""
        self.refused[reason] = self.refused.get(reason, self.none()) | rows


class VolumeBinding(Predicate):
    """Refuses nodes that a bound volume cannot be reached from, and those where an unbound claim gets no volume.

    A claim that waits for its pod gets the smallest free volume that suits it and that the node reaches; failing that,
    one is made if its class can do so there. A claim that does not wait must be bound before its pod is placed.
    """

    Arguments = VolumeBindingArgs
    args: VolumeBindingArgs
    objects = uses(StorageObjects)
    csi_nodes = uses(CsiNodes)
    free = uses(FreeVolumes)
    capacities = uses(StorageCapacities)

    def filter(self, pod: PendingPod, nodes: Nodes) -> Skip | list[Refusal]:
        """Sort the claims by what is to be done with them, then decide claim by claim for all nodes at once."""
        if not pod.claims:
            return SKIP
        claims: list[PersistentVolumeClaim] = []
        for use in pod.claims:
            claim = self._claim(pod, use)
            if isinstance(claim, str):
                return [Refusal(None, claim, resolvable=False)]
            claims.append(claim)
        unbound = [claim for claim in claims if not is_claim_bound(claim)]
        immediate = False
        for claim in unbound:
            mode = self._binding_mode(claim)
            if mode is None:
                return [Refusal(None, NO_MODE.format(storage_class_name(claim)), error=True)]
            immediate |= mode != WAIT_FOR_FIRST_CONSUMER or bool(claim_volume_name(claim))
        if immediate:
            return [Refusal(None, IMMEDIATE_REASON, resolvable=False)]
        columns = _Columns(nodes.table)
        self._check_bound([claim for claim in claims if is_claim_bound(claim)], columns)
        if unbound:
            self._check_unbound(unbound, columns)
        refusals = [Refusal(nodes.take(rows), reason, resolvable=False) for reason, rows in columns.refused.items()]
        if columns.failed.any():
            refusals.append(Refusal(nodes.take(columns.failed), UNKNOWN_REASON, error=True))
        return refusals

    def _claim(self, pod: PendingPod, use: ClaimUse) -> PersistentVolumeClaim | str:
        """Return a claim of the pod, or why no node can be found while it is as it is."""
        claim = self.objects.claim(pod.namespace, use.name)
        if claim is None:
            missing = f'persistentvolumeclaim "{use.name}"'
            waiting = f"waiting for ephemeral volume controller to create the {missing}"
            return waiting if use.ephemeral else f"{missing} not found"
        if claim.status is not None and claim.status.phase == "Lost":
            volume = claim_volume_name(claim)
            return f'persistentvolumeclaim "{use.name}" bound to non-existent persistentvolume "{volume}"'
        if claim.metadata is not None and claim.metadata.deletion_timestamp is not None:
            return f'persistentvolumeclaim "{use.name}" is being deleted'
        if use.ephemeral and not is_controlled_by(claim, pod.uid):
            return describe_foreign_claim(claim_key(pod.namespace, use.name), pod.key)
        return claim

    def _binding_mode(self, claim: PersistentVolumeClaim) -> str | None:
        """Return when a claim is bound, empty where it has no class that exists; None where its class does not say."""
        storage_class = self.objects.classes.get(storage_class_name(claim))
        return "" if storage_class is None else storage_class.volume_binding_mode

    def _check_bound(self, claims: list[PersistentVolumeClaim], columns: _Columns) -> None:
        """Refuse rows by the first bound volume that does not exist or cannot be reached from there."""
        left = columns.every()
        for claim in claims:
            volume = self.objects.volumes.get(claim_volume_name(claim))
            if volume is None:
                columns.refuse(GONE_REASON, left)
                return
            reached, failed = self._reach(volume, columns)
            columns.failed |= left & failed
            columns.refuse(AFFINITY_REASON, left & ~reached)
            left &= reached

    def _reach(self, volume: PersistentVolume, columns: _Columns) -> tuple[BoolArray, BoolArray]:
        """Return the rows that a volume can be reached from, and those for which that cannot be told.

        On nodes that handle its built-in driver through CSI the labels of the CSI driver count.
        """
        table, spec = self.objects.table, volume.spec
        affinity = spec.node_affinity if spec else None
        reached = select_rows_of_terms(table, compile_terms(affinity.required if affinity else None))
        plugin = plugin_of(spec) if spec else None
        migrated = self.csi_nodes.migrated(plugin.name) if plugin else None
        if plugin is None or migrated is None:
            return reached, columns.none()
        if volume_handle(plugin, volume) is None:
            return reached & ~migrated, migrated
        translated = select_rows_of_terms(table, compile_terms(translate_affinity(plugin, volume)))
        return np.where(migrated, translated, reached), columns.none()

    def _check_unbound(self, claims: list[PersistentVolumeClaim], columns: _Columns) -> None:
        """Refuse rows by the first claim that gets no volume there, smaller claims first."""
        left, table = ~columns.failed, self.objects.table
        for claim in claims:
            node = selected_node(claim)
            if node is not None:
                elsewhere = columns.every()
                elsewhere[[row for row in (table.index.get(node),) if row is not None]] = False
                columns.refuse(UNMATCHED_REASON, ~columns.failed & elsewhere)
                left &= ~elsewhere
        choice = VolumeChoice(self.free)
        lacking = [(claim, left) for claim in claims if selected_node(claim) is not None]
        matching = [claim for claim in claims if selected_node(claim) is None]
        try:
            for claim in sorted(matching, key=lambda claim: requested_bytes(claim) or 0):
                lacking.append((claim, left & ~choice.choose(claim)))  # noqa: PERF401 - one choice builds on the other
        except SelectorError:
            columns.failed |= left
            return
        for claim, rows in lacking:
            left &= ~self._provision(claim, left & rows, columns)

    def _provision(self, claim: PersistentVolumeClaim, rows: BoolArray, columns: _Columns) -> BoolArray:
        """Refuse those of ``rows`` that no volume can be made for, and return them."""
        storage_class = self.objects.classes[storage_class_name(claim)]
        provisioner = storage_class.provisioner or ""
        if provisioner in ("", NO_PROVISIONER):
            columns.refuse(UNMATCHED_REASON, rows)
            return rows
        allowed = select_rows_of_terms(self.objects.table, compile_topologies(storage_class.allowed_topologies))
        columns.refuse(UNMATCHED_REASON, rows & ~allowed)
        size_bytes = requested_bytes(claim)
        if size_bytes is None or not self.capacities.publishes(provisioner):
            return rows & ~allowed
        enough = self.capacities.select_rows(storage_class_name(claim), size_bytes)
        columns.refuse(SPACE_REASON, rows & allowed & ~enough)
        return rows & ~(allowed & enough)
