"""Placed pods by namespace and labels, so that a selector is matched once for all pods that look alike."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping
from typing import Any, TypeVar

import numpy as np

from extender.framework.cache import Cache
from extender.model.bag import RowBag
from extender.model.column import IntArray
from extender.model.pod import PodClass, PodInfo
from extender.model.selector import LabelMatcher, Operator, Requirement
from extender.model.table import NodeTable

K = TypeVar("K", bound=Hashable)

_REMEMBERED_SELECTIONS = 1024


class PodClasses(Cache):
    """Placed pods grouped by namespace, labels and whether they are being deleted.

    A selector names classes; how many selected pods each node has is then a sum over the rows of these classes.
    """

    def __init__(self, table: NodeTable) -> None:
        super().__init__(table)
        self._codes: dict[tuple[PodClass, bool], int] = {}
        self._classes: list[tuple[PodClass, bool] | None] = []
        self._bags: list[RowBag] = []
        self._free: list[int] = []
        self._by_label: dict[tuple[str, str], set[int]] = {}
        self._by_namespace: dict[str, set[int]] = {}
        self._selections: dict[tuple[frozenset[str] | None, LabelMatcher, bool], list[int]] = {}

    def add_pod(self, row: int, pod: PodInfo) -> None:
        """Count a pod in its class."""
        key = (pod.pod_class, pod.terminating)
        code = self._codes.get(key)
        if code is None:
            code = self._new_class(key)
        self._bags[code].add(row)

    def remove_pod(self, row: int, pod: PodInfo) -> None:
        """Undo ``add_pod``; a class without pods is forgotten."""
        key = (pod.pod_class, pod.terminating)
        code = self._codes[key]
        self._bags[code].remove(row)
        if not len(self._bags[code]):
            self._drop_class(key, code)

    def select(
        self, matcher: LabelMatcher, namespaces: frozenset[str] | None = None, *, terminating: bool = True
    ) -> list[int]:
        """Return the classes that ``matcher`` selects in ``namespaces``, in all where None; not to be changed.

        ``terminating`` says whether pods that are being deleted count.
        """
        key = (namespaces, matcher, terminating)
        found = self._selections.get(key)
        if found is None:
            if len(self._selections) >= _REMEMBERED_SELECTIONS:
                self._selections.clear()
            found = self._selections[key] = sorted(self._matching(matcher, namespaces, terminating))
        return found

    def rows(self, classes: Iterable[int]) -> IntArray:
        """Return the row of every pod of the classes, shape (pods,), with repeats; not to be written to."""
        bags = [self._bags[code].rows for code in classes]
        if not bags:
            return np.empty(0, np.int64)
        return bags[0] if len(bags) == 1 else np.concatenate(bags)

    def counts(self, classes: Iterable[int]) -> IntArray:
        """Return how many pods of the classes each row has; shape (capacity,)."""
        return np.bincount(self.rows(classes), minlength=self.table.capacity)

    def dump(self) -> Any:
        """Return the node names of each class, sorted, with repeats."""
        return {
            (pod_class.namespace, tuple(sorted(pod_class.labels.items())), terminating): sorted(
                self.table.name(row) for row in self._bags[code].rows.tolist()
            )
            for (pod_class, terminating), code in self._codes.items()
        }

    def _matching(self, matcher: LabelMatcher, namespaces: frozenset[str] | None, terminating: bool) -> Iterator[int]:
        """Yield the selected classes: intersect what the indexes know of, and ask only those left for the rest."""
        if matcher.requirements is None:
            return
        known = [self._with_label(each) for each in matcher.requirements if each.operator is Operator.IN]
        if namespaces is not None and (len(namespaces) == 1 or not known):
            known.append(_union(self._by_namespace, namespaces))
        rest = [each for each in matcher.requirements if each.operator is not Operator.IN]
        for code in set[int].intersection(*known) if known else self._codes.values():
            entry = self._classes[code]
            if entry is None or (entry[1] and not terminating):
                continue
            pod_class = entry[0]
            if (namespaces is None or pod_class.namespace in namespaces) and all(
                each.accepts(pod_class.labels.get(each.key)) for each in rest
            ):
                yield code

    def _with_label(self, requirement: Requirement) -> set[int]:
        return _union(self._by_label, [(requirement.key, value) for value in requirement.values])

    def _new_class(self, key: tuple[PodClass, bool]) -> int:
        if self._free:
            code = self._free.pop()
            self._classes[code] = key
        else:
            code = len(self._classes)
            self._classes.append(key)
            self._bags.append(RowBag())
        self._codes[key] = code
        for index, entry in self._entries(key[0]):
            index.setdefault(entry, set()).add(code)
        self._selections.clear()
        return code

    def _drop_class(self, key: tuple[PodClass, bool], code: int) -> None:
        del self._codes[key]
        self._classes[code] = None
        self._free.append(code)
        for index, entry in self._entries(key[0]):
            index[entry].discard(code)
            if not index[entry]:
                del index[entry]
        self._selections.clear()

    def _entries(self, pod_class: PodClass) -> Iterator[tuple[dict[Any, set[int]], Any]]:
        """Return each index and the entry in it under which a class is found."""
        yield self._by_namespace, pod_class.namespace
        for pair in pod_class.labels.items():
            yield self._by_label, pair


def _union(index: Mapping[K, set[int]], entries: Collection[K]) -> set[int]:
    """Return the classes under any of the entries; not to be changed."""
    found = [index[entry] for entry in entries if entry in index]
    return found[0] if len(found) == 1 else set[int]().union(*found)
