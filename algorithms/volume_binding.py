"""VolumeBinding: a pod goes where its claims have volumes, can get one that is there, or can have one made."""

from __future__ import annotations

from functools import cached_property
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
    IntArray,
    Nodes,
    NodeTable,
    PendingPod,
    PersistentVolumeClaim,
    Predicate,
    Priority,
    Refusal,
    SelectorError,
    ShapePoint,
    Skip,
    StorageCapacities,
    StorageObjects,
    StorageUse,
    UtilizationShape,
    VolumeChoice,
    check_points,
    claim_key,
    claim_volume_name,
    compile_topologies,
    describe_foreign_claim,
    field_validator,
    is_claim_bound,
    is_controlled_by,
    requested_bytes,
    select_rows_of_terms,
    selected_node,
    storage_class_name,
    uses,
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
    shape: tuple[ShapePoint, ...] | None = Field(default=None, json_schema_extra={"unset": "nodes are not scored"})
    """How nodes are scored by the share of their storage that would be in use; without it they are not."""

    @field_validator("shape")
    @classmethod
    def _check(cls, value: tuple[ShapePoint, ...] | None) -> tuple[ShapePoint, ...] | None:
        return value if value is None else check_points(value)

    @cached_property
    def rule(self) -> UtilizationShape | None:
        """How nodes are scored; None where they are not."""
        return UtilizationShape(shape=self.shape) if self.shape else None


class VolumeBinding(Predicate, Priority):
    """Refuses nodes that a bound volume cannot be reached from, and those where an unbound claim gets no volume.

    A claim that waits for its pod gets the smallest free volume that suits it and that the node reaches; failing that,
    one is made if its class can do so there. A claim that does not wait must be bound before its pod is placed.
    Nodes are scored by the volumes that waiting claims would get there, where the arguments say how.
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
        modes = [self._binding_mode(claim) for claim in unbound]
        if None in modes:
            return [Refusal(None, NO_MODE.format(storage_class_name(unbound[modes.index(None)])), error=True)]
        if any(map(claim_volume_name, unbound)) or any(mode != WAIT_FOR_FIRST_CONSUMER for mode in modes):
            return [Refusal(None, IMMEDIATE_REASON, resolvable=False)]
        columns = _Columns(nodes.table)
        self._check_bound([claim for claim in claims if is_claim_bound(claim)], columns)
        if unbound:
            self._check_unbound(unbound, columns)
        refusals = [Refusal(nodes.take(rows), reason, resolvable=False) for reason, rows in columns.refused.items()]
        if columns.failed.any():
            refusals.append(Refusal(nodes.take(columns.failed), UNKNOWN_REASON, error=True))
        return refusals

    def prioritize(self, pod: PendingPod, nodes: Nodes) -> Skip | IntArray:
        """Rate what the waiting claims would use of the volumes that are there, or else of what new ones are made from.

        Upstream has this behind a feature gate that is off, and skips.
        """
        if self.args.rule is None:
            return SKIP
        claims = [self.objects.claim(pod.namespace, use.name) for use in pod.claims]
        waiting = [claim for claim in claims if claim is not None and not is_claim_bound(claim)]
        if not waiting:
            return SKIP
        taken, made = StorageUse(nodes.table.capacity), StorageUse(nodes.table.capacity)
        for claim, sizes in self._match(waiting):
            class_name, asked = storage_class_name(claim), requested_bytes(claim)
            taken.add(class_name, asked or 0, sizes)
            storage_class = self.objects.classes.get(class_name)
            if asked is not None and storage_class and self.capacities.publishes(storage_class.provisioner or ""):
                space = self.capacities.largest(class_name, asked)
                made.add(class_name, asked, np.where(sizes < 0, space, -1), shared=True)
        (scores, anything), (others, _) = taken.rate(self.args.rule), made.rate(self.args.rule)
        return nodes.take(np.where(anything, scores, others))

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
        left: BoolArray = np.ones(self.objects.table.capacity, np.bool_)
        for claim in claims:
            volume = self.objects.volumes.get(claim_volume_name(claim))
            if volume is None:
                columns.refuse(GONE_REASON, left)
                return
            reached, failed = self.csi_nodes.reach(volume)
            columns.failed |= left & failed
            columns.refuse(AFFINITY_REASON, left & ~reached)
            left &= reached

    def _check_unbound(self, claims: list[PersistentVolumeClaim], columns: _Columns) -> None:
        """Refuse rows by the first claim that gets no volume there, smaller claims first."""
        left = ~columns.failed
        for node in (name for claim in claims if (name := selected_node(claim)) is not None):
            columns.refuse(UNMATCHED_REASON, left & ~columns.only(node))
            left &= columns.only(node)
        try:
            matched = self._match(claims)
        except SelectorError:
            columns.failed |= left
            return
        for claim, sizes in matched:
            left &= ~self._provision(claim, left & (sizes < 0), columns)

    def _match(self, claims: list[PersistentVolumeClaim]) -> list[tuple[PersistentVolumeClaim, IntArray]]:
        """Return each claim with the size of its volume on each row, -1 where one has to be made; see VolumeChoice.

        Claims whose volume is being made come first, the others from the smallest to the largest.
        """
        choice = VolumeChoice(self.free)
        unmatched = np.full(self.objects.table.capacity, -1)
        waiting = sorted(claims, key=lambda claim: requested_bytes(claim) or 0)
        return [
            *((claim, unmatched) for claim in claims if selected_node(claim) is not None),
            *((claim, choice.choose(claim)) for claim in waiting if selected_node(claim) is None),
        ]

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


class _Columns:
    """Which rows are refused, by reason, and which could not be judged; shapes (capacity,)."""

    def __init__(self, table: NodeTable) -> None:
        self._table = table
        self.failed: BoolArray = np.zeros(table.capacity, np.bool_)
        self.refused: dict[str, BoolArray] = {}

    def refuse(self, reason: str, rows: BoolArray) -> None:
        """Refuse some rows, maybe among others."""
        self.refused[reason] = self.refused[reason] | rows if reason in self.refused else rows.copy()

    def only(self, node: str) -> BoolArray:
        """Return a column of the row of a node."""
        named: BoolArray = np.zeros(self._table.capacity, np.bool_)
        if node in self._table.index:
            named[self._table.index[node]] = True
        return named
