"""Requested resources: what nodes have and what their pods take, shared by all algorithms that reckon with it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from extender.framework.cache import Cache
from extender.framework.candidate import Nodes
from extender.model.column import IntArray, lengthen
from extender.model.node import CPU, EPHEMERAL_STORAGE, MEMORY, PODS_RESOURCE, NodeInfo
from extender.model.pod import PendingPod, PodInfo
from extender.model.table import NodeTable

_FIRST_RESOURCES = (CPU, MEMORY, EPHEMERAL_STORAGE)
_NONZERO_RESOURCES = (CPU, MEMORY)


class Share(NamedTuple):
    """One resource of the candidates as scores see it.

    ``allocatable`` and ``requested``, without the pod to place, have shape (candidates,), int64; ``asked`` is what the
    pod would add. In millicores for cpu and whole units for everything else.
    """

    allocatable: IntArray
    requested: IntArray
    asked: int


class RequestedResources(Cache):
    """Sums by resource and row, as upstream's NodeInfo keeps them (source: framework/types.go of 1.36).

    ``allocatable`` and ``requested`` have shape (resources, capacity), int64, in millicores for cpu and whole units
    for everything else; ``index`` names their first axis. ``nonzero`` has shape (2, capacity): millicores and bytes
    with the defaults that scoring assumes for containers that ask for nothing. ``pods`` and ``allowed_pods`` have
    shape (capacity,).
    """

    def __init__(self, table: NodeTable) -> None:
        super().__init__(table)
        self.index: dict[str, int] = {resource: i for i, resource in enumerate(_FIRST_RESOURCES)}
        self.allocatable: IntArray = np.zeros((len(self.index), table.capacity), np.int64)
        self.requested: IntArray = np.zeros_like(self.allocatable)
        self.nonzero: IntArray = np.zeros((2, table.capacity), np.int64)
        self.pods: IntArray = np.zeros(table.capacity, np.int64)
        self.allowed_pods: IntArray = np.zeros(table.capacity, np.int64)
        self._look_into_arrays()

    def grow(self, capacity: int) -> None:
        """Make room for ``capacity`` rows."""
        for name in ("allocatable", "requested", "nonzero", "pods", "allowed_pods"):
            setattr(self, name, lengthen(getattr(self, name), capacity))
        self._look_into_arrays()

    def add_node(self, row: int, node: NodeInfo) -> None:
        """Note what a node has."""
        for resource, amount in node.allocatable.items():
            if resource == PODS_RESOURCE:
                self.allowed_pods[row] = amount
            else:
                position = self._position(resource)
                self.allocatable[position, row] = amount

    def remove_node(self, row: int, node: NodeInfo) -> None:  # noqa: ARG002
        """Undo ``add_node``."""
        self.allowed_pods[row] = 0
        self.allocatable[:, row] = 0

    def add_pod(self, row: int, pod: PodInfo) -> None:
        """Add what a pod takes."""
        self._fold(row, pod, 1)

    def remove_pod(self, row: int, pod: PodInfo) -> None:
        """Subtract what a pod took."""
        self._fold(row, pod, -1)

    def amounts(self, table: IntArray, resource: str) -> IntArray | None:
        """Return the row of ``table`` for ``resource``, shape (capacity,), or None where nothing has or takes it."""
        position = self.index.get(resource)
        return None if position is None else table[position]

    def share(self, pod: PendingPod, resource: str, nodes: Nodes, *, nonzero: bool = False) -> Share | None:
        """Return what ``nodes`` have and give of ``resource``; None where it does not count in scores for ``pod``.

        That is so where no node has it, and for all but cpu, memory and ephemeral storage where the pod does not ask
        for it. With ``nonzero``, containers that ask for no cpu or memory count with the defaults that scoring assumes.
        Source: plugins/noderesources/resource_allocation.go of 1.36.
        """
        position = self.index.get(resource)
        if position is None:
            return None
        if nonzero and resource in _NONZERO_RESOURCES:
            requested, asked = self.nonzero, pod.shape.nonzero[position]
        else:
            # Scores that reckon with defaults leave out what is asked for the pod as a whole, huge pages among it.
            asked_for = pod.container_requests if nonzero else pod.requests
            requested, asked = self.requested, asked_for.get(resource, 0)
        if not asked and resource not in _FIRST_RESOURCES:
            return None
        return Share(nodes.take(self.allocatable[position]), nodes.take(requested[position]), asked)

    def dump(self) -> Any:
        """Return what every named row has and takes, zeros left out."""
        state = {}
        for name, row in self.table.index.items():
            entry = {
                "allocatable": self._named(self.allocatable, row),
                "requested": self._named(self.requested, row),
                "nonzero": self.nonzero[:, row].tolist(),
                "pods": int(self.pods[row]),
                "allowedPods": int(self.allowed_pods[row]),
            }
            state[name] = entry
        return state

    def _fold(self, row: int, pod: PodInfo, sign: int) -> None:
        shape, nonzero = pod.shape, self._nonzero_cells
        self._pod_cells[row] += sign
        nonzero[0, row] += sign * shape.nonzero[0]
        nonzero[1, row] += sign * shape.nonzero[1]
        for resource, amount in shape.requests.items():
            position = self.index.get(resource)
            if position is None:
                position = self._position(resource)
            self._requested_cells[position, row] += sign * amount

    def _position(self, resource: str) -> int:
        """Return the place of ``resource``, made if need be; the tables are then new arrays."""
        position = self.index.get(resource)
        if position is None:
            position = self.index[resource] = len(self.index)
            self.allocatable = _widen(self.allocatable)
            self.requested = _widen(self.requested)
            self._look_into_arrays()
        return position

    def _look_into_arrays(self) -> None:
        """Look at single cells as plain numbers, which takes half the time that arrays need for it."""
        self._pod_cells, self._nonzero_cells = self.pods.data, self.nonzero.data
        self._requested_cells = self.requested.data

    def _named(self, table: IntArray, row: int) -> Mapping[str, int]:
        return {resource: int(table[i, row]) for resource, i in self.index.items() if table[i, row]}


def _widen(table: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return ``table`` with one more, empty, resource."""
    return np.concatenate([table, np.zeros((1, table.shape[1]), np.int64)])
