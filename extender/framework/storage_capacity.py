"""How much storage the CSI drivers that publish it have left, and from which nodes it can be reached."""

from __future__ import annotations

from typing import Any

import numpy as np

from extender.errors import QuantityError, SelectorError
from extender.framework.cache import Cache
from extender.framework.reach import Reach, Thing
from extender.model.claim import STORAGE
from extender.model.column import BoolArray, IntArray
from extender.model.kind import CSI_DRIVERS, CSI_STORAGE_CAPACITIES, Kind
from extender.model.node import amount
from extender.model.object import ObjectMeta
from extender.model.selector import compile_label_selector
from extender.model.storage import CSIDriver, CSIDriverSpec, CSIStorageCapacity
from extender.model.table import NodeTable


class StorageCapacities(Cache):
    """Free capacity by class, and the drivers that publish theirs.

    Source: hasEnoughCapacity of plugins/volumebinding/binder.go, 1.36.
    """

    kinds = (CSI_DRIVERS, CSI_STORAGE_CAPACITIES)

    def __init__(self, table: NodeTable) -> None:
        super().__init__(table)
        self._publishing: set[str] = set()
        self._by_class: dict[str, Reach[int]] = {}

    def add(self, kind: Kind, item: CSIDriver | CSIStorageCapacity) -> None:  # noqa: ARG002 - the type tells the kind
        """Note whether a driver publishes, or how much of a class is free on some nodes."""
        if isinstance(item, CSIDriver):
            if _publishes(item):
                self._publishing.add(_name(item))
            return
        free = _read(item)
        if free is not None:
            self._by_class.setdefault(item.storage_class_name or "", Reach(self.table)).add(free)

    def remove(self, kind: Kind, item: CSIDriver | CSIStorageCapacity) -> None:  # noqa: ARG002
        """Undo ``add``."""
        if isinstance(item, CSIDriver):
            self._publishing.discard(_name(item))
            return
        free = _read(item)
        if free is not None:
            reach = self._by_class[item.storage_class_name or ""]
            reach.remove(free)
            if not len(reach):
                del self._by_class[item.storage_class_name or ""]

    def publishes(self, driver: str) -> bool:
        """Say whether volumes of a driver are made only where it published enough free capacity."""
        return driver in self._publishing

    def select_rows(self, class_name: str, size_bytes: int) -> BoolArray:
        """Return from which rows a volume of a class and size could be made; shape (capacity,)."""
        enough: BoolArray = np.zeros(self.table.capacity, np.bool_)
        reach = self._by_class.get(class_name)
        if reach is None:
            return enough
        rows, slots = reach.pairs()
        enough[rows[reach.numbers[slots] >= size_bytes]] = True
        for slot, column in reach.columns().items():
            if reach.numbers[slot] >= size_bytes:
                enough |= column
        return enough

    def largest(self, class_name: str, size_bytes: int) -> IntArray:
        """Return the most free bytes among what could take a volume of a class and size, -1 where nothing can.

        Shape (capacity,). Upstream takes any of them.
        """
        free: IntArray = np.full(self.table.capacity, -1)
        reach = self._by_class.get(class_name)
        if reach is None:
            return free
        amounts = np.array([-1 if amount is None else amount for amount in reach.kinds.values])[reach.kinds.codes]
        rows, slots = reach.pairs()
        enough = reach.numbers[slots] >= size_bytes
        np.maximum.at(free, rows[enough], amounts[slots[enough]])
        for slot, column in reach.columns().items():
            if reach.numbers[slot] >= size_bytes:
                free[column] = np.maximum(free[column], amounts[slot])
        return free

    def dump(self) -> Any:
        """Return the publishing drivers, and for each class how much is free where, and how often that is said."""
        return {
            "drivers": set(self._publishing),
            "classes": {
                name: {thing: int(reach.counts[slot]) for slot, thing in reach.occupied()}
                for name, reach in self._by_class.items()
            },
        }


def _publishes(item: CSIDriver) -> bool:
    return bool((item.spec or CSIDriverSpec()).storage_capacity)


def _name(item: CSIDriver) -> str:
    return (item.metadata or ObjectMeta()).name or ""


def _read(item: CSIStorageCapacity) -> Thing[int] | None:
    """Return how large a volume can be and where, or None where there is no saying."""
    limit = item.capacity if item.maximum_volume_size is None else item.maximum_volume_size
    if limit is None or item.node_topology is None:
        return None
    try:
        requirements = compile_label_selector(item.node_topology).requirements or ()
        free = amount(STORAGE, limit if item.capacity is None else item.capacity)
        return Thing(free, (requirements,), amount(STORAGE, limit))
    except (QuantityError, SelectorError):
        return None
