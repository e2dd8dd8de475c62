"""The devices of all nodes and how much of each is taken, by row and by place on the node."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import chain
from typing import Any, ClassVar, Final

import numpy as np

from extender.framework.cache import Cache
from extender.framework.device import MOST_AMOUNT, MOST_DEVICES, Device, Grant
from extender.framework.device_convention import CONVENTIONS
from extender.framework.device_kind import find_place
from extender.framework.device_text import UNREADABLE
from extender.model.column import BoolArray, IntArray, lengthen
from extender.model.node import NodeInfo
from extender.model.pod import PodInfo
from extender.model.table import NodeTable

PLUGIN_SECONDS: Final = 300
"""A device plug-in that has not served a pod by then never will (source: NodeLockTimeout of HAMi)."""

NONE: Final = -1
"""The convention of a row that declares no devices."""

UNGROUPED: Final = -1
"""The group of a device that is not told to be near to any."""

_USED: Final = ("used_memory", "used_cores", "users")
FIELDS: Final = ("memory", "cores", "sharers", *_USED, "numa", "link_group", "model", "exists", "healthy")
"""The tables with one cell a device."""


class DevicePool(Cache):
    """What each device has and what pods have of it; a table for each field, shape (places, capacity).

    ``memory``, ``cores`` (percent) and ``sharers`` are what a device has; ``used_memory``, ``used_cores`` and
    ``users`` what grants take of it. ``numa`` and ``link_group`` number the groups of one node, or are ``UNGROUPED``;
    ``model`` is a place in ``models``. ``exists`` and ``healthy`` are bool. Of rows that declare no devices, what is
    used is told of those that are numbered after a resource of the node.

    ``convention``, shape (capacity,), is a place in ``CONVENTIONS`` or ``NONE``; ``garbled``, bool, says that the
    declaration cannot be read. ``unknown``, shape (conventions, capacity), counts the devices that pods ask for who do
    not say which ones they got; ``untold``, shape (capacity,) by extended resource, how much of it they ask for.
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
        for field in FIELDS:
            dtype = np.bool_ if field in ("exists", "healthy") else np.int64
            setattr(self, field, np.zeros((1, table.capacity), dtype))
        self.convention: IntArray = np.full(table.capacity, NONE, np.int64)
        self.garbled: BoolArray = np.zeros(table.capacity, np.bool_)
        self.unknown: IntArray = np.zeros((len(CONVENTIONS), table.capacity), np.int64)
        self.untold: dict[str, IntArray] = {}
        self.models: list[str] = []
        self._model_codes: dict[str, int] = {}
        self._devices: dict[int, list[Device]] = {}
        self._places: dict[int, dict[str, int]] = {}
        self._amounts: dict[int, Mapping[str, int]] = {}
        self._taken: dict[int, dict[str, list[int]]] = {}
        self._waiting: dict[int, dict[str, int]] = {}

    @property
    def places(self) -> int:
        """The most devices that any node has had."""
        return len(self.memory)

    def of(self, row: int) -> list[Device]:
        """Return the devices that a row declares, by place."""
        return self._devices.get(row, [])

    def is_waiting(self, row: int, now_seconds: float) -> bool:
        """Say whether a pod was bound to a row lately that its device plug-in has not served."""
        return any(abs(now_seconds - since) < PLUGIN_SECONDS for since in self._waiting.get(row, {}).values())

    def grow(self, capacity: int) -> None:
        """Make room for ``capacity`` rows."""
        for field in (*FIELDS, "unknown", "garbled"):
            setattr(self, field, lengthen(getattr(self, field), capacity))
        self.untold = {resource: lengthen(column, capacity) for resource, column in self.untold.items()}
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
                declared, self.garbled[row] = [], True
            if declared is not None:
                self.convention[row], devices = code, list(declared)
                self._places[row] = {device.id: place for place, device in enumerate(devices)}
                break
        else:
            self._amounts[row] = node.allocatable
        self._widen(len(devices))
        self._describe(row, devices)
        self._show_all(row)

    def remove_node(self, row: int, node: NodeInfo) -> None:  # noqa: ARG002
        """Undo ``add_node``; what pods have taken is kept."""
        self.convention[row] = NONE
        self.garbled[row] = False
        self._places.pop(row, None)
        self._amounts.pop(row, None)
        if self._devices.pop(row, None):
            for field in FIELDS:
                getattr(self, field)[:, row] = 0
        self._show_all(row)

    def add_pod(self, row: int, pod: PodInfo) -> None:
        """Take what a pod was given; what it asks for where it does not say what it was given counts as unknown."""
        self._fold(row, pod, 1)
        for convention in CONVENTIONS.values() if pod.annotations else ():
            since = convention.waiting_since(pod.annotations)
            if since is not None:
                self._waiting.setdefault(row, {})[pod.uid] = since

    def remove_pod(self, row: int, pod: PodInfo) -> None:
        """Undo ``add_pod``."""
        self._fold(row, pod, -1)
        waiting = self._waiting.get(row, {})
        if waiting.pop(pod.uid, None) is not None and not waiting:
            del self._waiting[row]

    def dump(self) -> Any:
        """Return devices, what is taken of each, and what is unknown, by node name."""
        return {
            name: {
                "convention": int(self.convention[row]),
                "garbled": bool(self.garbled[row]),
                "devices": [
                    {field: self._cell(field, place, row) for field in FIELDS} | {"id": device.id}
                    for place, device in enumerate(self.of(row))
                ],
                "taken": {device: tuple(amounts) for device, amounts in sorted(self._taken.get(row, {}).items())},
                "used": {
                    place: [int(getattr(self, field)[place, row]) for field in _USED]
                    for place in np.flatnonzero(self.users[:, row]).tolist()
                },
                "unknown": self.unknown[:, row].tolist(),
                "untold": {resource: int(column[row]) for resource, column in self.untold.items() if column[row]},
                "waiting": dict(self._waiting.get(row, {})),
            }
            for name, row in self.table.index.items()
        }

    def _cell(self, field: str, place: int, row: int) -> Any:
        value = getattr(self, field)[place, row].item()
        return self.models[value] if field == "model" else value

    def _describe(self, row: int, devices: list[Device]) -> None:
        if not devices:
            return
        self._devices[row] = devices
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

    def _fold(self, row: int, pod: PodInfo, sign: int) -> None:
        grants = _grants(pod)
        if grants:
            self._take(row, grants, sign)
            return
        for code, convention in enumerate(CONVENTIONS.values()):
            self.unknown[code, row] += sign * min(convention.demand(pod), MOST_DEVICES)
        for resource, asked in pod.shape.requests.items():
            if "/" in resource:
                if resource not in self.untold:
                    self.untold[resource] = np.zeros(self.table.capacity, np.int64)
                self.untold[resource][row] += sign * min(asked, MOST_DEVICES)

    def _take(self, row: int, grants: list[Grant], sign: int) -> None:
        taken = self._taken.setdefault(row, {})
        for grant in grants:
            amounts = taken.setdefault(grant.device, [0, 0, 0])
            amounts[0] += sign * grant.memory
            amounts[1] += sign * grant.cores
            amounts[2] += sign
            if not amounts[2]:
                del taken[grant.device]
        if not taken:
            del self._taken[row]
        self._show(row, {grant.device for grant in grants})

    def _place(self, row: int, device: str) -> int | None:
        """Return the place of a device; on a row that declares none, what its name says."""
        places = self._places.get(row)
        return find_place(device, self._amounts.get(row, {})) if places is None else places.get(device)

    def _show_all(self, row: int) -> None:
        for field in _USED:
            getattr(self, field)[:, row] = 0
        self._show(row, self._taken.get(row, {}).keys())

    def _show(self, row: int, devices: Iterable[str]) -> None:
        """Bring the tables up to date with what is taken of some devices, bounded: anybody can write a grant."""
        taken = self._taken.get(row, {})
        for place in {self._place(row, device) for device in devices}:
            if place is None:
                continue
            self._widen(place + 1)
            here = [amounts for device, amounts in taken.items() if self._place(row, device) == place]
            for number, field in enumerate(_USED):
                getattr(self, field)[place, row] = min(sum(amounts[number] for amounts in here), MOST_AMOUNT)

    def _widen(self, places: int) -> None:
        """Make room for ``places`` devices on a node."""
        if places <= self.places:
            return
        for field in FIELDS:
            table = getattr(self, field)
            wider = np.zeros((places, table.shape[1]), table.dtype)
            wider[: len(table)] = table
            setattr(self, field, wider)


def _grants(pod: PodInfo) -> list[Grant]:
    if not pod.annotations:
        return []
    return [grant for convention in CONVENTIONS.values() for grant in convention.grants(pod.annotations)]


def _number(groups: list[int | None] | list[str | None]) -> list[int]:
    """Return a number for each device, equal for those of one group; ``UNGROUPED`` for one that is in none."""
    numbers: dict[int | str, int] = {}
    return [UNGROUPED if group is None else numbers.setdefault(group, len(numbers)) for group in groups]
