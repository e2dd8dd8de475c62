"""What nodes say of their CSI drivers: how many volumes they take, and which built-in drivers go through CSI."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import numpy as np

from extender.framework.cache import Cache
from extender.framework.reach import compile_terms, select_rows_of_terms
from extender.model.column import BoolArray, IntArray, lengthen
from extender.model.kind import CSI_NODES, NODES, Kind
from extender.model.migration import MIGRATED_PLUGINS, plugin_of, translate_affinity, volume_handle
from extender.model.node import NodeInfo
from extender.model.object import ObjectMeta
from extender.model.storage import CSINode, PersistentVolume, PersistentVolumeSpec
from extender.model.table import NodeTable

NO_LIMIT: Final = -1
"""Stands in a column of limits for rows that have none."""


class CsiNodes(Cache):
    """The CSINode object of each node, by column; rows without a node object have none.

    ``known`` says which rows have one and ``limited`` which of them limit some driver; shape (capacity,), bool.
    """

    kinds = (NODES, CSI_NODES)

    def __init__(self, table: NodeTable) -> None:
        super().__init__(table)
        self.known: BoolArray = np.zeros(table.capacity, np.bool_)
        self.limited: BoolArray = np.zeros(table.capacity, np.bool_)
        self._limits: dict[str, IntArray] = {}
        self._migrated: dict[str, BoolArray] = {}
        self._objects: dict[str, CSINode] = {}

    def grow(self, capacity: int) -> None:
        """Make room for ``capacity`` rows."""
        grown = capacity - len(self.known)
        self.known, self.limited = lengthen(self.known, capacity), lengthen(self.limited, capacity)
        for driver, limits in self._limits.items():
            self._limits[driver] = np.concatenate([limits, np.full(grown, NO_LIMIT)])
        for plugin, rows in self._migrated.items():
            self._migrated[plugin] = lengthen(rows, capacity)

    def add_node(self, row: int, node: NodeInfo) -> None:
        """Note what is known of a node that appeared."""
        item = self._objects.get(node.name)
        if item is not None:
            self._set(row, item)

    def remove_node(self, row: int, node: NodeInfo) -> None:
        """Undo ``add_node``."""
        if node.name in self._objects:
            self._clear(row)

    def add(self, kind: Kind, item: CSINode) -> None:  # noqa: ARG002 - there is one kind
        """Note what a node says."""
        name = (item.metadata or ObjectMeta()).name or ""
        self._objects[name] = item
        row = self.table.index.get(name)
        if row is not None and self.table.present[row]:
            self._set(row, item)

    def remove(self, kind: Kind, item: CSINode) -> None:  # noqa: ARG002
        """Undo ``add``."""
        name = (item.metadata or ObjectMeta()).name or ""
        del self._objects[name]
        row = self.table.index.get(name)
        if row is not None and self.table.present[row]:
            self._clear(row)

    def limits(self, driver: str) -> IntArray | None:
        """Return how many volumes of a driver each row takes, ``NO_LIMIT`` where it does not say; shape (capacity,).

        None where no row ever said.
        """
        return self._limits.get(driver)

    def migrated(self, plugin: str) -> BoolArray | None:
        """Return which rows handle a built-in driver through CSI, shape (capacity,), or None where none ever did."""
        return self._migrated.get(plugin)

    def reach(self, volume: PersistentVolume) -> tuple[BoolArray, BoolArray]:
        """Return the rows that a volume can be reached from, and those for which that cannot be told.

        Shapes (capacity,). Nodes that handle the volume's built-in driver through CSI have the labels of the CSI
        driver; where there is no CSI equivalent of the volume, it cannot be told for them.
        """
        spec = volume.spec or PersistentVolumeSpec()
        affinity = spec.node_affinity
        reached = select_rows_of_terms(self.table, compile_terms(affinity.required if affinity else None))
        unknown: BoolArray = np.zeros(self.table.capacity, np.bool_)
        plugin = plugin_of(spec)
        migrated = self._migrated.get(plugin.name) if plugin else None
        if plugin is None or migrated is None:
            return reached, unknown
        if volume_handle(plugin, volume) is None:
            return reached & ~migrated, migrated
        translated = select_rows_of_terms(self.table, compile_terms(translate_affinity(plugin, volume)))
        return np.where(migrated, translated, reached), unknown

    def dump(self) -> Any:
        """Return limits by driver and migrated drivers for each node that has a node object and a CSINode object."""
        return {
            self.table.name(row): (
                bool(self.limited[row]),
                {driver: int(limits[row]) for driver, limits in self._limits.items() if limits[row] != NO_LIMIT},
                {plugin for plugin, rows in self._migrated.items() if rows[row]},
            )
            for row in np.flatnonzero(self.known).tolist()
        }

    def _set(self, row: int, item: CSINode) -> None:
        limits = _driver_limits(item)
        self.known[row], self.limited[row] = True, bool(limits)
        for driver, limit in limits.items():
            if driver not in self._limits:
                self._limits[driver] = np.full(self.table.capacity, NO_LIMIT)
            self._limits[driver][row] = limit
        for plugin in _migrated_plugins(item):
            if plugin not in self._migrated:
                self._migrated[plugin] = np.zeros(self.table.capacity, np.bool_)
            self._migrated[plugin][row] = True

    def _clear(self, row: int) -> None:
        self.known[row] = self.limited[row] = False
        for limits in self._limits.values():
            limits[row] = NO_LIMIT
        for rows in self._migrated.values():
            rows[row] = False


def _driver_limits(item: CSINode) -> Mapping[str, int]:
    """Return how many volumes a node takes, by driver, for those of which it says so."""
    drivers = (item.spec and item.spec.drivers) or ()
    return {
        driver.name or "": driver.allocatable.count
        for driver in drivers
        if driver.allocatable is not None and driver.allocatable.count is not None
    }


def _migrated_plugins(item: CSINode) -> list[str]:
    annotations = (item.metadata or ObjectMeta()).annotations or {}
    names = annotations.get(MIGRATED_PLUGINS)
    return names.split(",") if names else []
