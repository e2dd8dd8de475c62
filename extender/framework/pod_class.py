"""Placed pods by namespace and labels, so that a selector is matched once for all pods that look alike."""

from __future__ import annotations

from array import array
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from extender.framework.cache import Cache
from extender.framework.class_index import ClassIndex, Wanted
from extender.model.bag import RowBags
from extender.model.column import BoolArray, IntArray
from extender.model.pod import PodClass, PodInfo
from extender.model.selector import LabelMatcher
from extender.model.table import NodeTable

_REMEMBERED_SELECTIONS: Final = 1024
_REMEMBERED_CLASSES: Final = 2**22
_REMEMBERED_COUNTS: Final = 64
_REMEMBERED_CHANGES: Final = 2**14
_MOST_EMPTY: Final = 1024
"""Classes without pods are forgotten when there are more of them: the pods of many come again."""

_FEW_CLASSES: Final = 128
"""Of more classes, or where pods are more than a quarter of the rows, the pods of a selection are counted by row."""

_SHARE: Final = 256
"""So small a part of a selection may be out of order."""

_MOST_NEW: Final = 256
"""A selection is made anew when there are more classes that it does not know."""


class Selection:
    """The classes that a selector names, until the next change of any pod; made by ``PodClasses.select``."""

    __slots__ = ("changes", "classes", "counts", "few", "many", "wanted")

    def __init__(self, wanted: Wanted, codes: IntArray, classes: int) -> None:
        self.wanted = wanted
        self.many = codes
        """The classes, ascending, but for some that were new later."""
        self.few: list[int] = []
        """Those; lengthening the others for each of them would take long."""
        self.classes = classes
        """How many of the new classes it knows."""
        self.counts: IntArray | None = None
        self.changes = 0
        """How many of the changes ``counts`` has."""

    def __len__(self) -> int:
        """Return the number of classes."""
        return len(self.many) + len(self.few)

    @property
    def codes(self) -> IntArray:
        """The classes, in no order; shape (classes,)."""
        return np.append(self.many, self.few).astype(np.int64) if self.few else self.many

    def replace(self, codes: IntArray) -> None:
        """Set the classes; ``codes`` must be ascending."""
        self.many = codes
        self.few.clear()

    def add(self, codes: list[int]) -> None:
        """Add classes."""
        self.few += codes
        if len(self.few) > len(self.many) // _SHARE:
            self.replace(np.sort(self.codes))

    def has(self, codes: IntArray) -> BoolArray:
        """Return which of ``codes`` are among the classes; shape as they have."""
        places = np.searchsorted(self.many, codes)
        found: BoolArray = np.isin(codes, self.few)
        inside = places < len(self.many)
        found[inside] |= self.many[places[inside]] == codes[inside]
        return found


class PodClasses(Cache):
    """Placed pods grouped by namespace, labels and whether they are being deleted.

    A selector names classes; how many selected pods each node has is then a sum over the rows of these classes. What a
    selector names is remembered, and where that is much, so are the sums: later changes are added to both when they are
    asked for again.
    """

    def __init__(self, table: NodeTable) -> None:
        super().__init__(table)
        self._bags = RowBags()
        self._index = ClassIndex()
        self._codes: dict[PodClass, int] = {}
        self._terminating_codes: dict[PodClass, int] = {}
        self._empty: set[int] = set()
        self._selections: dict[Wanted, Selection] = {}
        self._remembered_classes = 0
        self._new_classes: list[int] = []
        self._counted: list[Selection] = []
        self._changes = array("q")

    def grow(self, capacity: int) -> None:  # noqa: ARG002
        """Count anew from now on."""
        self._forget_counts()

    def add_pod(self, row: int, pod: PodInfo) -> None:
        """Count a pod in its class."""
        codes = self._terminating_codes if pod.terminating else self._codes
        code = codes.get(pod.pod_class)
        if code is None:
            code = codes[pod.pod_class] = self._new_class(pod.pod_class, terminating=pod.terminating)
        self._bags.add(code, row)
        self._empty.discard(code)
        if self._counted:
            self._note(code, row, 1)

    def remove_pod(self, row: int, pod: PodInfo) -> None:
        """Undo ``add_pod``; a class without pods is forgotten, sooner or later."""
        code = (self._terminating_codes if pod.terminating else self._codes)[pod.pod_class]
        if self._counted:
            self._note(code, row, 0)
        if not self._bags.remove(code, row):
            self._empty.add(code)
            if len(self._empty) > _MOST_EMPTY:
                self._forget_empty()

    def select(
        self, matcher: LabelMatcher, namespaces: frozenset[str] | None = None, *, terminating: bool = True
    ) -> Selection:
        """Return the classes that ``matcher`` selects in ``namespaces``, in all where None.

        ``terminating`` says whether pods that are being deleted count.
        """
        wanted = Wanted(namespaces, matcher, terminating)
        found = self._selections.get(wanted)
        if found is None:
            found = Selection(wanted, self._index.find(wanted), len(self._new_classes))
            self._remember(found)
        self._learn(found)
        return found

    def rows(self, selection: Selection) -> IntArray:
        """Return the row of every pod of a selection, shape (pods,), with repeats; not to be written to."""
        self._learn(selection)
        codes = selection.codes
        return self._bags.rows(int(codes[0])) if len(codes) == 1 else self._bags.rows_of(codes)

    def counts(self, selection: Selection) -> IntArray:
        """Return how many pods of a selection each row has; shape (capacity,), not to be written to."""
        rows = self._few_rows(selection)
        if rows is not None:
            return np.bincount(rows, minlength=self.table.capacity)
        if selection.counts is None:
            if len(self._counted) >= _REMEMBERED_COUNTS:
                self._counted.pop(0).counts = None
            self._counted.append(selection)
            selection.counts = np.bincount(self.rows(selection), minlength=self.table.capacity)
        elif selection.changes < len(self._changes):
            self._fold_changes(selection.counts, selection)
        selection.changes = len(self._changes)
        return selection.counts

    def sums(
        self, selection: Selection, codes: NDArray[np.integer[Any]], size: int, where: BoolArray | None = None
    ) -> IntArray:
        """Return how many pods of a selection are on the rows of each code; shape (size,).

        ``codes``, shape (capacity,), all below ``size``, are those of rows, as a label column has them. With ``where``,
        shape (capacity,), only those rows count for which it is true.
        """
        rows = self._few_rows(selection)
        if rows is not None:
            return np.bincount(codes[rows if where is None else rows[where[rows]]], minlength=size)
        counts = self.counts(selection)
        weights = counts if where is None else counts * where
        return np.bincount(codes, weights=weights, minlength=size).astype(np.int64)

    def dump(self) -> Any:
        """Return the node names of each class that has pods, sorted, with repeats."""
        return {
            (pod_class.namespace, tuple(sorted(pod_class.labels.items())), terminating): sorted(
                self.table.name(row) for row in self._bags.rows(code).tolist()
            )
            for terminating, codes in ((False, self._codes), (True, self._terminating_codes))
            for pod_class, code in codes.items()
            if code not in self._empty
        }

    # --- classes -----------------------------------------------------------------------------------------------------

    def _new_class(self, pod_class: PodClass, *, terminating: bool) -> int:
        code = self._bags.open()
        self._index.add(code, pod_class, terminating=terminating)
        if self._selections:
            self._new_classes.append(code)
        return code

    def _forget_empty(self) -> None:
        """Forget the classes without pods, and all selections with them: codes are given to other classes."""
        self._forget_selections()
        for pod_class, terminating in self._index.remove(self._empty):
            del (self._terminating_codes if terminating else self._codes)[pod_class]
        for code in self._empty:
            self._bags.close(code)
        self._empty.clear()

    # --- selections --------------------------------------------------------------------------------------------------

    def _remember(self, selection: Selection) -> None:
        self._remembered_classes += len(selection)
        if len(self._selections) >= _REMEMBERED_SELECTIONS or self._remembered_classes > _REMEMBERED_CLASSES:
            self._forget_selections()
            selection.classes, self._remembered_classes = 0, len(selection)
        self._selections[selection.wanted] = selection

    def _learn(self, selection: Selection) -> None:
        """Have a selection know the classes that are new."""
        if selection.classes == len(self._new_classes):
            return
        new = self._new_classes[selection.classes :]
        if len(new) > _MOST_NEW:
            selection.replace(self._index.find(selection.wanted))
            self._forget_counts_of(selection)
        else:
            chosen = self._index.choose(new, selection.wanted)
            if chosen:
                selection.add(chosen)
        selection.classes = len(self._new_classes)

    def _forget_selections(self) -> None:
        self._forget_counts()
        self._selections.clear()
        self._new_classes.clear()
        self._remembered_classes = 0

    # --- counts ------------------------------------------------------------------------------------------------------

    def _few_rows(self, selection: Selection) -> IntArray | None:
        """Return the row of every pod where they are few, None where counts are kept of them."""
        self._learn(selection)
        if selection.counts is not None or len(selection) > _FEW_CLASSES:
            return None
        rows = self.rows(selection)
        return rows if len(rows) <= self.table.capacity // 4 else None

    def _note(self, code: int, row: int, added: int) -> None:
        """Note a change for the selections whose counts are remembered; see ``_fold_changes``."""
        if len(self._changes) >= _REMEMBERED_CHANGES:
            self._forget_counts()
        else:
            self._changes.append(code << 32 | row << 1 | added)

    def _fold_changes(self, counts: IntArray, selection: Selection) -> None:
        changes = np.array(self._changes[selection.changes :], np.int64)
        concerned = changes[selection.has(changes >> 32)]
        np.add.at(counts, concerned >> 1 & 0x7FFFFFFF, (concerned & 1) * 2 - 1)

    def _forget_counts(self) -> None:
        for selection in self._counted:
            selection.counts = None
        self._counted.clear()
        self._changes = array("q")

    def _forget_counts_of(self, selection: Selection) -> None:
        if selection.counts is not None:
            selection.counts = None
            self._counted.remove(selection)
