"""The columnar node table: one row a node, strings interned, rows reused.

A row belongs to a node *name*. It is held by the node object and by everything else that refers to the name, so pods
that arrive before their node, or stay after it, keep their row. Arrays are over-allocated; ``capacity`` is their
length and ``present`` says which rows have a node object.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import numpy as np

from extender.model.column import BoolArray, IntArray, Interned, LabelColumn, lengthen
from extender.model.name_index import NameIndex
from extender.model.name_list import NameList
from extender.model.node import NodeInfo
from extender.model.object import Taint
from extender.model.selector import Requirement

_FIRST_CAPACITY = 64
_REMEMBERED_MATCHES = 512


class NodeTable:
    """Names, labels, taints and the unschedulable flag of every node, by row."""

    def __init__(self) -> None:
        self.capacity = _FIRST_CAPACITY
        self.index: dict[str, int] = {}
        self.infos: list[NodeInfo | None] = [None] * self.capacity
        self.present: BoolArray = np.zeros(self.capacity, np.bool_)
        self.unschedulable: BoolArray = np.zeros(self.capacity, np.bool_)
        self.taints: Interned[tuple[Taint, ...]] = Interned(self.capacity, empty=())
        self.generation = 0
        """Changes with every change of a row's name or node object."""
        self._named: NameIndex | None = None
        self._holds: list[int] = [0] * self.capacity
        self._names: list[str] = [""] * self.capacity
        self._free: list[int] = list(range(self.capacity - 1, -1, -1))
        self._labels: dict[str, LabelColumn] = {}
        self._annotations: dict[str, LabelColumn] = {}
        self._matches: dict[Requirement, BoolArray] = {}
        self._grow_listeners: list[Callable[[int], None]] = []

    def __len__(self) -> int:
        """Return the number of node objects."""
        return int(np.count_nonzero(self.present))

    # --- rows --------------------------------------------------------------------------------------------------------

    def on_grow(self, listener: Callable[[int], None]) -> None:
        """Have ``listener(capacity)`` called whenever arrays must become longer."""
        self._grow_listeners.append(listener)

    def forget_listener(self, listener: Callable[[int], None]) -> None:
        """Undo ``on_grow``."""
        self._grow_listeners.remove(listener)

    def hold(self, name: str) -> int:
        """Return the row of ``name``, made if need be, and keep it until ``drop``."""
        row = self.index.get(name)
        if row is None:
            if not self._free:
                self._grow()
            row = self._free.pop()
            self.index[name] = row
            self._names[row] = name
            self._rename()
        self._holds[row] += 1
        return row

    def drop(self, row: int) -> None:
        """Undo one ``hold``; the last one frees the row for another name."""
        self._holds[row] -= 1
        if not self._holds[row]:
            del self.index[self._names[row]]
            self._names[row] = ""
            self._free.append(row)
            self._rename()

    def name(self, row: int) -> str:
        """Return the name a held row belongs to."""
        return self._names[row]

    def rows(self) -> IntArray:
        """Return the rows that have a node object, ascending; shape (nodes,)."""
        return np.flatnonzero(self.present)

    def rows_of(self, names: NameList) -> IntArray:
        """Return the row of each name, -1 where none is held for it; shape (names,)."""
        if self._named is None:
            self._named = NameIndex(self.index)
        return self._named.rows(names)

    # --- node objects ------------------------------------------------------------------------------------------------

    def add(self, info: NodeInfo) -> int:
        """Put a node object into its row and return the row; the row must have none."""
        row = self.hold(info.name)
        self.infos[row] = info
        self.present[row] = True
        self.unschedulable[row] = info.unschedulable
        self.taints.set(row, info.taints)
        for key, column in self._labels.items():
            column.set(row, info.labels.get(key))
        for key, column in self._annotations.items():
            column.set(row, info.annotations.get(key))
        self._changed()
        return row

    def remove(self, row: int) -> None:
        """Take the node object out of ``row``."""
        self.infos[row] = None
        self.present[row] = False
        self.unschedulable[row] = False
        self.taints.set(row, ())
        for column in self._columns():
            column.set(row, None)
        self._changed()
        self.drop(row)

    # --- columns -----------------------------------------------------------------------------------------------------

    def label(self, key: str) -> LabelColumn:
        """Return the column of label ``key``; built at first use, kept up to date from then on."""
        column = self._labels.get(key)
        if column is None:
            column = self._labels[key] = self._build(key, lambda info: info.labels)
        return column

    def annotation(self, key: str) -> LabelColumn:
        """Return the column of annotation ``key``; built at first use, kept up to date from then on.

        Made for annotations of which many nodes have the same value.
        """
        column = self._annotations.get(key)
        if column is None:
            column = self._annotations[key] = self._build(key, lambda info: info.annotations)
        return column

    def matching(self, requirement: Requirement) -> BoolArray:
        """Return which rows' labels meet ``requirement``; shape (capacity,), not to be written to.

        Decided once for each distinct value of the label, and remembered until a node changes.
        """
        found = self._matches.get(requirement)
        if found is None:
            if len(self._matches) >= _REMEMBERED_MATCHES:
                self._matches.clear()
            found = self.label(requirement.key).matching(requirement)
            found.flags.writeable = False
            self._matches[requirement] = found
        return found

    # --- inside ------------------------------------------------------------------------------------------------------

    def _build(self, key: str, named: Callable[[NodeInfo], Mapping[str, str]]) -> LabelColumn:
        column = LabelColumn(self.capacity)
        for row in self.rows().tolist():
            info = self.infos[row]
            if info is not None and key in named(info):
                column.set(row, named(info)[key])
        return column

    def _columns(self) -> Iterator[LabelColumn]:
        yield from self._labels.values()
        yield from self._annotations.values()

    def _rename(self) -> None:
        self.generation += 1
        self._named = None

    def _changed(self) -> None:
        self.generation += 1
        self._matches.clear()

    def _grow(self) -> None:
        old, self.capacity = self.capacity, self.capacity * 2
        self.infos += [None] * old
        self._holds += [0] * old
        self._names += [""] * old
        self._free += range(self.capacity - 1, old - 1, -1)
        self.present = lengthen(self.present, self.capacity)
        self.unschedulable = lengthen(self.unschedulable, self.capacity)
        self.taints.grow(self.capacity)
        self._matches.clear()
        for column in self._columns():
            column.grow(self.capacity)
        for listener in self._grow_listeners:
            listener(self.capacity)
