"""Classes of pods by namespace and by label: which of them a selector selects, decided by column."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final, NamedTuple

import numpy as np

from extender.model.bag import RowBag
from extender.model.column import BoolArray, IntArray, Interned, lengthen
from extender.model.pod import PodClass
from extender.model.selector import LabelMatcher, Operator, Requirement

_FIRST_CAPACITY: Final = 64
_HAVING: Final = (Operator.IN, Operator.EXISTS)


class Wanted(NamedTuple):
    """What a selection asks for; ``namespaces`` of None are all."""

    namespaces: frozenset[str] | None
    matcher: LabelMatcher
    terminating: bool
    """Whether pods that are being deleted count."""


class ValueIndex:
    """The classes that have one label, each with the value it has of it."""

    __slots__ = ("_ids", "_unused", "_values", "held")

    def __init__(self) -> None:
        self.held = RowBag()
        """The code of each class, with a number for its value."""
        self._ids: dict[str, int] = {}
        self._values: list[str] = []
        self._unused: list[int] = []

    def add(self, code: int, value: str) -> None:
        """Enter a class."""
        number = self._ids.get(value)
        if number is None:
            if self._unused:
                number = self._unused.pop()
                self._values[number] = value
            else:
                number = len(self._values)
                self._values.append(value)
            self._ids[value] = number
        self.held.add(code, number)

    def remove(self, gone: BoolArray) -> None:
        """Take out the classes for whose codes ``gone`` is true; values that no class has are forgotten."""
        leaving = gone[self.held.rows]
        candidates = np.unique(self.held.numbers[leaving])
        self.held.retain(~leaving)
        for number in np.setdiff1d(candidates, self.held.numbers).tolist():
            del self._ids[self._values[number]]
            self._values[number] = ""
            self._unused.append(number)

    def find(self, values: Collection[str]) -> IntArray:
        """Return the classes that have one of ``values``, of all values where none is named; shape (classes,)."""
        if not values:
            return self.held.rows
        numbers = [self._ids[value] for value in values if value in self._ids]
        if len(numbers) == 1:
            having: BoolArray = self.held.numbers == numbers[0]
        else:
            named: BoolArray = np.zeros(len(self._values), np.bool_)
            named[numbers] = True
            having = named[self.held.numbers]
        found: IntArray = self.held.rows[having]
        return found


class ClassIndex:
    """Classes by their codes; one that is ``terminating`` is that of pods that are being deleted."""

    def __init__(self) -> None:
        self._classes: dict[int, PodClass] = {}
        self._present: BoolArray = np.zeros(_FIRST_CAPACITY, np.bool_)
        self._terminating: BoolArray = np.zeros(_FIRST_CAPACITY, np.bool_)
        self._namespaces: Interned[str | None] = Interned(_FIRST_CAPACITY, empty=None)
        self._labels: dict[str, ValueIndex] = {}

    def add(self, code: int, pod_class: PodClass, *, terminating: bool) -> None:
        """Enter a class."""
        if code >= len(self._present):
            capacity = 2 * code
            self._present = lengthen(self._present, capacity)
            self._terminating = lengthen(self._terminating, capacity)
            self._namespaces.grow(capacity)
        self._classes[code] = pod_class
        self._present[code] = True
        self._terminating[code] = terminating
        self._namespaces.set(code, pod_class.namespace)
        for key, value in pod_class.labels.items():
            index = self._labels.get(key)
            if index is None:
                index = self._labels[key] = ValueIndex()
            index.add(code, value)

    def remove(self, codes: Collection[int]) -> list[tuple[PodClass, bool]]:
        """Undo ``add`` for many classes at once, and return what was given to it."""
        gone: BoolArray = np.zeros_like(self._present)
        gone[list(codes)] = True
        taken = [(self._classes.pop(code), bool(self._terminating[code])) for code in codes]
        self._present[gone] = False
        for code in codes:
            self._namespaces.set(code, None)
        for key in {key for pod_class, _ in taken for key in pod_class.labels}:
            self._labels[key].remove(gone)
            if not len(self._labels[key].held):
                del self._labels[key]
        return taken

    def choose(self, codes: Collection[int], wanted: Wanted) -> list[int]:
        """Return those of a few classes that are selected, as ``find`` would."""
        return [
            code
            for code in codes
            if (wanted.namespaces is None or self._classes[code].namespace in wanted.namespaces)
            and (wanted.terminating or not self._terminating[code])
            and wanted.matcher.matches(self._classes[code].labels)
        ]

    def find(self, wanted: Wanted) -> IntArray:
        """Return the classes that are selected, ascending; shape (classes,)."""
        chosen = self._present.copy()
        for requirement in wanted.matcher.requirements or ():
            named = self._having(requirement)
            if requirement.operator in _HAVING:
                column: BoolArray = np.zeros_like(chosen)
                column[named] = True
                chosen &= column
            else:
                chosen[named] = False
        if wanted.namespaces is not None:
            known = (self._namespaces.code(name) for name in wanted.namespaces)
            chosen &= np.isin(self._namespaces.codes, [code for code in known if code is not None])
        if not wanted.terminating:
            chosen &= ~self._terminating
        return np.flatnonzero(chosen) if wanted.matcher.requirements is not None else np.empty(0, np.int64)

    def _having(self, requirement: Requirement) -> IntArray:
        """Return the classes that have the label, with one of the values where the requirement names some."""
        index = self._labels.get(requirement.key)
        return np.empty(0, np.int64) if index is None else index.find(requirement.values)
