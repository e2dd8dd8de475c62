"""Placed pods by their controller, and how many pods each controller is to have."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from extender.framework.cache import Cache
from extender.model.bag import RowBag
from extender.model.column import IntArray
from extender.model.kind import REPLICA_SETS, REPLICATION_CONTROLLERS, STATEFUL_SETS, Kind
from extender.model.pod import PodInfo
from extender.model.table import NodeTable
from extender.model.workload import ReplicaSet, ReplicationController, StatefulSet

_NO_ROWS: Final[IntArray] = np.empty(0, np.int64)


class OwnedPods(Cache):
    """The rows of the placed pods of each controller, without those that are being deleted."""

    def __init__(self, table: NodeTable) -> None:
        super().__init__(table)
        self._bags: dict[str, RowBag] = {}

    def add_pod(self, row: int, pod: PodInfo) -> None:
        """Count a pod for its controller."""
        if _counts(pod):
            self._bags.setdefault(pod.owner, RowBag()).add(row)

    def remove_pod(self, row: int, pod: PodInfo) -> None:
        """Undo ``add_pod``; a controller without pods is forgotten."""
        if _counts(pod):
            bag = self._bags[pod.owner]
            bag.remove(row)
            if not len(bag):
                del self._bags[pod.owner]

    def rows(self, owner: str) -> IntArray:
        """Return the row of every pod of a controller, given by uid; shape (pods,), with repeats, not to be written."""
        bag = self._bags.get(owner)
        return _NO_ROWS if bag is None else bag.rows

    def dump(self) -> Any:
        """Return the node names of each controller's pods, sorted, with repeats."""
        return {owner: sorted(self.table.name(row) for row in bag.rows.tolist()) for owner, bag in self._bags.items()}


class DesiredReplicas(Cache):
    """How many pods replica sets, stateful sets and replication controllers are to have, by uid."""

    kinds = (REPLICA_SETS, STATEFUL_SETS, REPLICATION_CONTROLLERS)

    def __init__(self, table: NodeTable) -> None:
        super().__init__(table)
        self._desired: dict[str, int] = {}

    def add(self, kind: Kind, item: ReplicaSet | StatefulSet | ReplicationController) -> None:  # noqa: ARG002
        """Note a controller; one that does not say is to have one pod, as the API has it."""
        stated = item.spec.replicas if item.spec else None
        self._desired[_uid(item)] = 1 if stated is None else stated

    def remove(self, kind: Kind, item: ReplicaSet | StatefulSet | ReplicationController) -> None:  # noqa: ARG002
        """Undo ``add``."""
        self._desired.pop(_uid(item), None)

    def of(self, owner: str) -> int | None:
        """Return the number for a controller, given by uid; None where it is of another kind or not known."""
        return self._desired.get(owner)

    def dump(self) -> Any:
        """Return the numbers by uid."""
        return dict(self._desired)


def _counts(pod: PodInfo) -> bool:
    return bool(pod.owner) and not pod.terminating


def _uid(item: ReplicaSet | StatefulSet | ReplicationController) -> str:
    return (item.metadata and item.metadata.uid) or ""
