"""Which rows each of many things can be reached from: volumes, say, of which thousands are on one node each.

A thing that many rows reach is kept as a column, and one that few rows reach as pairs of row and thing, so that all of
the second kind are looked at in one go. Which rows these are is found when it is asked for, and found again only where
nodes or things changed.
"""

from __future__ import annotations

import itertools
from collections.abc import Hashable, Iterable, Iterator
from typing import Final, Generic, NamedTuple, TypeAlias, TypeVar

import numpy as np

from extender.model.column import BoolArray, IntArray, Interned, lengthen
from extender.model.object import NodeSelector, NodeSelectorTerm, Requirement
from extender.model.selector import Operator, compile_node_selector
from extender.model.selector import Requirement as LabelRequirement
from extender.model.storage import TopologyTerm
from extender.model.table import NodeTable

T = TypeVar("T", bound=Hashable)

Terms: TypeAlias = tuple[tuple[LabelRequirement, ...], ...]
"""Nodes by their labels: all requirements of one of the terms must hold."""

EVERYWHERE: Final[Terms] = ((),)

_FEW_ROWS: Final = 64
_FIRST_CAPACITY: Final = 16


def compile_terms(required: NodeSelector | None) -> Terms:
    """Return the nodes that a volume's affinity names, everywhere without one.

    Conditions on fields of nodes hold always, and terms that cannot be read never, as CheckNodeAffinity of
    component-helpers ``storage/volume`` 1.36 has it.
    """
    if required is None:
        return EVERYWHERE
    return tuple(term.labels for term in compile_node_selector(required).terms or ())


def compile_topologies(allowed: Iterable[TopologyTerm] | None) -> Terms:
    """Return the nodes that volumes of a class may be made for, everywhere where it does not say.

    Source: MatchTopologySelectorTerms of apis/core/v1/helper, 1.36.
    """
    terms = [
        NodeSelectorTerm([Requirement(each.key, "In", each.values) for each in term.match_label_expressions or ()])
        for term in allowed or ()
    ]
    return compile_terms(NodeSelector(terms) if terms else None)


def select_rows_of_terms(table: NodeTable, terms: Terms) -> BoolArray:
    """Return which nodes one of ``terms`` names; shape (capacity,)."""
    selected: BoolArray = np.zeros(table.capacity, np.bool_)
    for term in terms:
        named: BoolArray = np.ones(table.capacity, np.bool_)
        for requirement in term:
            named &= table.matching(requirement)
        selected |= named
    return selected


class Thing(NamedTuple, Generic[T]):
    """One thing: its kind, the nodes that reach it, and a number."""

    kind: T
    terms: Terms
    number: int


class Pairs(NamedTuple):
    """Rows and the slots of things they reach; two arrays of shape (pairs,), int64."""

    rows: IntArray
    slots: IntArray


_NO_PAIRS: Final = Pairs(np.empty(0, np.int64), np.empty(0, np.int64))


class _Places(NamedTuple):
    """Where things are: those that one value of a label pins, by its key and by slot, and others by slot."""

    pinned: dict[str, dict[int, str]]
    others: dict[int, Terms]

    def put(self, slot: int, terms: Terms) -> None:
        """Note where a thing is."""
        pin = _pin(terms)
        if pin is None:
            self.others[slot] = terms
        else:
            self.pinned.setdefault(pin[0], {})[slot] = pin[1]

    def drop(self, slot: int, terms: Terms) -> None:
        """Undo ``put``, where it was done."""
        pin = _pin(terms)
        (self.others if pin is None else self.pinned.get(pin[0], {})).pop(slot, None)

    def clear(self) -> None:
        """Forget all."""
        self.pinned.clear()
        self.others.clear()


class Reach(Generic[T]):
    """Things, equal ones together, each in a slot.

    ``numbers`` and ``counts`` have one entry a slot, shape (slots,), int64: the number of what is in it, and how many
    equal things there are. ``kinds`` is a column of slots.
    """

    def __init__(self, table: NodeTable) -> None:
        self._table = table
        self.kinds: Interned[T | None] = Interned(_FIRST_CAPACITY, empty=None)
        self.numbers: IntArray = np.zeros(_FIRST_CAPACITY, np.int64)
        self.counts: IntArray = np.zeros(_FIRST_CAPACITY, np.int64)
        self._slots: dict[Thing[T], int] = {}
        self._free: list[int] = list(range(_FIRST_CAPACITY - 1, -1, -1))
        self._places = _Places({}, {})
        self._new = _Places({}, {})
        self._gone: set[int] = set()
        self._generation = -1
        self._pairs = _NO_PAIRS
        self._columns: dict[int, BoolArray] = {}
        self._column_of_terms: dict[Terms, BoolArray] = {}

    def __len__(self) -> int:
        """Return how many different things there are."""
        return len(self._slots)

    def add(self, thing: Thing[T]) -> None:
        """Put in a thing once more."""
        slot = self._slots.get(thing)
        if slot is None:
            slot = self._slots[thing] = self._new_slot(thing)
        self.counts[slot] += 1

    def remove(self, thing: Thing[T]) -> None:
        """Undo ``add``."""
        slot = self._slots[thing]
        self.counts[slot] -= 1
        if not self.counts[slot]:
            del self._slots[thing]
            self.kinds.set(slot, None)
            self._places.drop(slot, thing.terms)
            self._new.drop(slot, thing.terms)
            self._gone.add(slot)

    def pairs(self) -> Pairs:
        """Return what few rows reach, by row."""
        self._update()
        return self._pairs

    def columns(self) -> dict[int, BoolArray]:
        """Return what many rows reach: by slot which rows, shape (capacity,); not to be written to.

        Things that the same nodes reach have the same array.
        """
        self._update()
        return self._columns

    def occupied(self) -> Iterator[tuple[int, Thing[T]]]:
        """Yield each slot that is in use and what is in it."""
        for thing, slot in self._slots.items():
            yield slot, thing

    def _new_slot(self, thing: Thing[T]) -> int:
        if not self._free:
            before = len(self.counts)
            self._free = list(range(2 * before - 1, before - 1, -1))
            self.numbers, self.counts = lengthen(self.numbers, 2 * before), lengthen(self.counts, 2 * before)
            self.kinds.grow(2 * before)
        slot = self._free.pop()
        self.numbers[slot] = thing.number
        self.kinds.set(slot, thing.kind)
        self._places.put(slot, thing.terms)
        self._new.put(slot, thing.terms)
        return slot

    def _update(self) -> None:
        """Bring pairs and columns up to date: wholly when nodes changed, else as far as things did."""
        if self._generation != self._table.generation:
            self._generation = self._table.generation
            self._pairs = _NO_PAIRS
            self._columns.clear()
            self._column_of_terms.clear()
            self._locate(self._places)
        else:
            if self._gone:
                self._drop_gone()
            if self._new.pinned or self._new.others:
                self._locate(self._new)
        self._new.clear()
        self._free += self._gone
        self._gone.clear()

    def _drop_gone(self) -> None:
        gone: BoolArray = np.zeros(len(self.counts), np.bool_)
        gone[list(self._gone)] = True
        keep = ~gone[self._pairs.slots]
        self._pairs = Pairs(self._pairs.rows[keep], self._pairs.slots[keep])
        for slot in self._gone:
            self._columns.pop(slot, None)

    def _locate(self, places: _Places) -> None:
        found = [self._pairs, *itertools.starmap(self._locate_pinned, places.pinned.items())]
        for slot, terms in places.others.items():
            rows = np.flatnonzero(select_rows_of_terms(self._table, terms))
            if len(rows) > _FEW_ROWS:
                self._columns[slot] = self._column(terms)
            else:
                found.append(Pairs(rows, np.full(len(rows), slot)))
        self._pairs = Pairs(*map(np.concatenate, zip(*found, strict=True)))

    def _locate_pinned(self, key: str, values: dict[int, str]) -> Pairs:
        """Find the rows of all things that ``values``, by slot, of one label pin: sort the rows by value once."""
        column = self._table.label(key)
        known = [(slot, code) for slot, value in values.items() if (code := column.code(value)) is not None]
        if not known:
            return _NO_PAIRS
        slots, codes = np.array(known, np.int64).T
        order = np.argsort(column.codes, kind="stable")
        starts = np.searchsorted(column.codes[order], np.arange(len(column.values) + 1))
        sizes = starts[codes + 1] - starts[codes]
        for slot in slots[sizes > _FEW_ROWS].tolist():
            self._columns[slot] = self._column(((LabelRequirement(key, Operator.IN, frozenset((values[slot],))),),))
        few = sizes <= _FEW_ROWS
        slots, firsts, sizes = slots[few], starts[codes][few], sizes[few]
        within = np.arange(sizes.sum()) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        return Pairs(order[np.repeat(firsts, sizes) + within], np.repeat(slots, sizes))

    def _column(self, terms: Terms) -> BoolArray:
        column = self._column_of_terms.get(terms)
        if column is None:
            column = self._column_of_terms[terms] = select_rows_of_terms(self._table, terms)
        return column


def _pin(terms: Terms) -> tuple[str, str] | None:
    """Return the label and the only value that ``terms`` ask for, as those of a local volume do; None for others."""
    if len(terms) != 1 or len(terms[0]) != 1:
        return None
    (requirement,) = terms[0]
    if requirement.operator is not Operator.IN or len(requirement.values) != 1:
        return None
    return requirement.key, next(iter(requirement.values))
