"""The devices of all nodes and how much of each is taken, by row and by place on the node."""

from __future__ import annotations

from itertools import chain
from typing import Any, ClassVar, Final

import numpy as np

from extender.framework.cache import Cache
from extender.framework.device import MOST_DEVICES, Device, Grant
from extender.framework.device_convention import CONVENTIONS, UNREADABLE
from extender.model.column import BoolArray, IntArray, lengthen
from extender.model.node import NodeInfo
from extender.model.pod import PodInfo
from extender.model.table import NodeTable

_NAMES: Final = tuple(CONVENTIONS)
NONE: Final = -1
"""The convention of a row without devices."""

GARBLED: Final = -2
"""The convention of a row whose declaration cannot be read."""

_FIELDS: Final = (
    *("memory", "cores", "sharers", "used_memory", "used_cores", "users"),
    *("numa", "link_group", "model", "exists", "healthy"),
)


class DevicePool(Cache):
    """What each device has and what pods have of it; a table for each field, shape (places, capacity).

    ``memory``, ``cores`` (percent) and ``sharers`` are what a device has; ``used_memory``, ``used_cores`` and
    ``users`` what grants take of it. ``numa`` and ``link_group`` number the groups of one node, ``model`` is a place in
    ``models``. ``exists`` and ``healthy`` are bool. ``convention``, shape (capacity,), is a place in ``CONVENTIONS``,
    or ``NONE`` or ``GARBLED``. ``unknown``, shape (capacity,), counts the devices that pods ask for who do not say
    which ones they got.
    """

    annotations: ClassVar[tuple[str, ...]] = tuple(
        chain.from_iterable(each.annotations for each in CONVENTIONS.values())
    )

    memory: IntArray
    cores: IntArray
    sharers: IntArray
    used_memory: IntArray
    used_cores: IntArray
    users: IntArray
    numa: IntArray
    link_group: IntArray
    model: IntArray
    exists: BoolArray
    healthy: BoolArray

    def __init__(self, table: NodeTable) -> None:
        super().__init__(table)
        for field in _FIELDS:
            dtype = np.bool_ if field in ("exists", "healthy") else np.int64
            setattr(self, field, np.zeros((1, table.capacity), dtype))
        self.convention: IntArray = np.full(table.capacity, NONE, np.int64)
        self.unknown: IntArray = np.zeros(table.capacity, np.int64)
        self.models: list[str] = []
        self._model_codes: dict[str, int] = {}
        self._devices: dict[int, list[Device]] = {}
        self._taken: dict[int, dict[str, list[int]]] = {}

    @property
    def places(self) -> int:
        """The most devices that any node has had."""
        return len(self.memory)

    def of(self, row: int) -> list[Device]:
        """Return the devices of a row, by place."""
        return self._devices.get(row, [])

    def grow(self, capacity: int) -> None:
        """Make room for ``capacity`` rows."""
        for field in _FIELDS:
            setattr(self, field, lengthen(getattr(self, field), capacity))
        self.unknown = lengthen(self.unknown, capacity)
        grown: IntArray = np.full(capacity, NONE, np.int64)
        grown[: len(self.convention)] = self.convention
        self.convention = grown

    def add_node(self, row: int, node: NodeInfo) -> None:
        """Read the devices that a node declares, in the first convention in which it does."""
        devices: list[Device] = []
        for code, convention in enumerate(CONVENTIONS.values()):
            try:
                declared = convention.devices(node)
            except UNREADABLE:
                self.convention[row] = GARBLED
                return
            if declared is not None:
                self.convention[row], devices = code, list(declared)
                break
        if len(devices) > self.places:
            self._widen(len(devices))
        if devices:
            self._devices[row] = devices
            self._describe(row, devices)
            taken = self._taken.get(row, {})
            for place, device in enumerate(devices):
                self._show(row, place, taken.get(device.id, (0, 0, 0)))

    def remove_node(self, row: int, node: NodeInfo) -> None:  # noqa: ARG002
        """Undo ``add_node``; what pods have taken is kept."""
        self.convention[row] = NONE
        if self._devices.pop(row, None):
            for field in _FIELDS:
                getattr(self, field)[:, row] = 0

    def add_pod(self, row: int, pod: PodInfo) -> None:
        """Take what a pod was given; what it asks for where it does not say what it was given counts as unknown."""
        grants = _grants(pod)
        if grants:
            self._fold(row, grants, 1)
        else:
            self.unknown[row] += _demand(pod)

    def remove_pod(self, row: int, pod: PodInfo) -> None:
        """Undo ``add_pod``."""
        grants = _grants(pod)
        if grants:
            self._fold(row, grants, -1)
        else:
            self.unknown[row] -= _demand(pod)

    def dump(self) -> Any:
        """Return devices, what is taken of each, and what is unknown, by node name."""
        return {
            name: {
                "convention": int(self.convention[row]),
                "devices": [
                    {field: self._cell(field, place, row) for field in _FIELDS} | {"id": device.id}
                    for place, device in enumerate(self.of(row))
                ],
                "taken": {device: tuple(amounts) for device, amounts in sorted(self._taken.get(row, {}).items())},
                "unknown": int(self.unknown[row]),
            }
            for name, row in self.table.index.items()
        }

    def _cell(self, field: str, place: int, row: int) -> Any:
        value = getattr(self, field)[place, row].item()
        return self.models[value] if field == "model" else value

    def _describe(self, row: int, devices: list[Device]) -> None:
        for place, device in enumerate(devices):
            self.memory[place, row] = device.memory
            self.cores[place, row] = device.cores
            self.sharers[place, row] = device.sharers
            self.exists[place, row] = True
            self.healthy[place, row] = device.healthy
            self.model[place, row] = self._model_code(device.model)
        self.numa[: len(devices), row] = _number([device.numa for device in devices])
        self.link_group[: len(devices), row] = _number([device.link_group for device in devices])

    def _model_code(self, model: str) -> int:
        code = self._model_codes.get(model)
        if code is None:
            code = self._model_codes[model] = len(self.models)
            self.models.append(model)
        return code

    def _fold(self, row: int, grants: list[Grant], sign: int) -> None:
        taken = self._taken.setdefault(row, {})
        places = {device.id: place for place, device in enumerate(self.of(row))}
        for grant in grants:
            amounts = taken.setdefault(grant.device, [0, 0, 0])
            amounts[0] += sign * grant.memory
            amounts[1] += sign * grant.cores
            amounts[2] += sign
            place = places.get(grant.device)
            if place is not None:
                self._show(row, place, amounts)
            if not amounts[2]:
                del taken[grant.device]
        if not taken:
            del self._taken[row]

    def _show(self, row: int, place: int, amounts: list[int] | tuple[int, int, int]) -> None:
        self.used_memory[place, row], self.used_cores[place, row], self.users[place, row] = amounts

    def _widen(self, places: int) -> None:
        """Make room for ``places`` devices on a node."""
        for field in _FIELDS:
            table = getattr(self, field)
            wider = np.zeros((places, table.shape[1]), table.dtype)
            wider[: len(table)] = table
            setattr(self, field, wider)


def _grants(pod: PodInfo) -> list[Grant]:
    if not pod.annotations:
        return []
    return [grant for convention in CONVENTIONS.values() for grant in convention.grants(pod.annotations)]


def _demand(pod: PodInfo) -> int:
    return min(max(convention.demand(pod) for convention in CONVENTIONS.values()), MOST_DEVICES)


def _number(groups: list[int] | list[int | None] | list[str | None]) -> list[int]:
    """Return a number for each device, equal for those of one group; one that is in none gets a number of its own."""
    numbers: dict[object, int] = {}
    return [
        numbers.setdefault(place if group is None else (group,), len(numbers)) for place, group in enumerate(groups)
    ]
