"""The devices of some candidates, whether the nodes declare them or have them by the number of a resource."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import numpy as np

from extender.framework.candidate import Nodes
from extender.framework.device import MOST_DEVICES, UNLIMITED, DeviceAsk, DeviceRequest
from extender.framework.device_convention import CONVENTIONS
from extender.framework.device_kind import DeviceKind, name_device
from extender.framework.device_pool import FIELDS, NONE, UNGROUPED, DevicePool
from extender.framework.resource import RequestedResources
from extender.model.column import BoolArray, IntArray
from extender.model.name import is_qualified_name
from extender.model.pod import PendingPod
from extender.model.request import is_extended_resource

_OWN: Final = list(CONVENTIONS).index("own")


class DeviceTables:
    """What devices have and what is taken of them; tables of shape (places, candidates), one cell a device.

    They are as in ``DevicePool``, ``models`` by model code and ``unknown``, shape (candidates,), for one convention.
    """

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

    def __init__(self, pool: DevicePool, nodes: Nodes, code: int) -> None:
        for field in FIELDS:
            setattr(self, field, nodes.take(getattr(pool, field)))
        self.unknown: IntArray = nodes.take(pool.unknown[code])
        self.models: list[str] = pool.models

    def show(self, here: BoolArray, **fields: IntArray | int) -> None:
        """Add devices ``here``, where there are none; a table of as many places or more, with what they have."""
        numbers = here.astype(np.int64)
        for field in FIELDS:
            known = getattr(self, field)
            if field not in fields and len(known) == len(here):
                continue
            shown = here.copy() if known.dtype == np.bool_ else numbers * fields.get(field, 0)
            shown[: len(known)] += known
            setattr(self, field, shown)


class DeviceSource:
    """Finds the devices that a request is about; ``kinds`` says what those have that nodes do not declare.

    On a node that declares its devices the declaration counts; of several resources that a node has, the first of
    ``kinds``.
    """

    def __init__(self, pool: DevicePool, resources: RequestedResources, kinds: Mapping[str, DeviceKind]) -> None:
        self._pool = pool
        self._resources = resources
        self._kinds = kinds
        self._names = list(kinds)
        self._found: tuple[int, IntArray, IntArray] | None = None

    def requests(self, pod: PendingPod) -> Iterator[DeviceRequest]:
        """Yield what a pod asks for by naming resources: whole devices.

        Raises:
            QuantityError: a quantity cannot be read.
        """
        for resource in self._names:
            count = min(pod.requests.get(resource, 0), MOST_DEVICES + 1)
            if count > 0:
                whole = DeviceAsk(count, exclusive=True, whole=True)
                yield DeviceRequest(CONVENTIONS["own"], (whole,), resource=resource)

    def having(self, request: DeviceRequest, nodes: Nodes) -> BoolArray:
        """Return which candidates have devices in the convention of ``request``; shape (candidates,)."""
        code = _code(request)
        found: BoolArray = (nodes.take(self._pool.convention) == code) & ~nodes.take(self._pool.garbled)
        if self._kinds and code == _OWN:
            kind, _ = self._find(nodes)
            found = found | ((kind == self._names.index(request.resource)) if request.resource else (kind != NONE))
        return found

    def garbled(self, request: DeviceRequest, nodes: Nodes) -> BoolArray:
        """Return which candidates declare devices in a way that cannot be read; shape (candidates,).

        An optional request is concerned only with those of its own convention.
        """
        garbled: BoolArray = nodes.take(self._pool.garbled)
        return garbled & (nodes.take(self._pool.convention) == _code(request)) if request.optional else garbled

    def tables(self, request: DeviceRequest, candidates: Nodes, having: BoolArray) -> DeviceTables:
        """Return the devices of those candidates that have some in the convention of ``request``."""
        nodes = candidates if having.all() else candidates.where(having)
        tables = DeviceTables(self._pool, nodes, _code(request))
        if not self._kinds or _code(request) != _OWN:
            return tables
        for resource in self._names:
            if resource in self._pool.untold:
                tables.unknown = tables.unknown + nodes.take(self._pool.untold[resource])
        kind, count = self._find(nodes)
        here = np.arange(max(len(tables.memory), int(count.max(initial=0))))[:, None] < count
        memory, cores = np.array([(each.memory, each.cores) for each in self._kinds.values()], np.int64).T
        tables.show(
            here,
            memory=memory[kind],
            cores=cores[kind],
            sharers=UNLIMITED,
            numa=UNGROUPED,
            link_group=UNGROUPED,
            model=len(tables.models) + kind,
            exists=True,
            healthy=True,
        )
        tables.models = [*tables.models, *(each.model for each in self._kinds.values())]
        return tables

    def name(self, row: int, place: int) -> str:
        """Return what the device at a place of a row is called."""
        declared = self._pool.of(row)
        return declared[place].id if declared else name_device(self._names[int(self._find_all()[0][row])], place)

    def _find(self, nodes: Nodes) -> tuple[IntArray, IntArray]:
        """Return the kind of each candidate's devices, ``NONE`` where there is none, and how many it has."""
        kind, count = self._find_all()
        return nodes.take(kind), nodes.take(count)

    def _find_all(self) -> tuple[IntArray, IntArray]:
        """Return the same for all nodes, shape (capacity,); reckoned again only where nodes changed."""
        table = self._pool.table
        if self._found is None or self._found[0] != table.generation:
            kind, count = np.full(table.capacity, NONE, np.int64), np.zeros(table.capacity, np.int64)
            for code, resource in enumerate(self._names):
                has = self._resources.amounts(self._resources.allocatable, resource)
                if has is not None:
                    first = (self._pool.convention == NONE) & (kind == NONE) & (has > 0)
                    kind[first], count[first] = code, np.minimum(has[first], MOST_DEVICES)
            self._found = table.generation, kind, count
        return self._found[1:]


def check_kinds(kinds: Mapping[str, DeviceKind], conventions: Sequence[str]) -> None:
    """Check conventions, and resources that are to tell devices beside them.

    Raises:
        ValueError: they do not go together; says why.
    """
    if len(set(conventions)) < len(conventions):
        raise ValueError("conventions: one is named twice")
    for resource in kinds:
        if not (is_qualified_name(resource) and is_extended_resource(resource)):
            raise ValueError(f"resources: {resource!r} is not an extended resource")
        for name in conventions:
            if resource in CONVENTIONS[name].resources:
                raise ValueError(f"resources: {resource} means something in {name}; leave one of them out")
    if kinds and "own" not in conventions:
        raise ValueError("resources: conventions must have own")


def _code(request: DeviceRequest) -> int:
    return list(CONVENTIONS).index(request.convention.name)
