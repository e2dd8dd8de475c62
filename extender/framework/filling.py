"""A cache that is being built while events arrive: what exists is folded bit by bit, and nothing twice."""

from __future__ import annotations

from typing import Any

from extender.framework.cache import Cache
from extender.model.kind import Kind
from extender.model.node import NodeInfo
from extender.model.pod import PodInfo


class Filling:
    """Stands before a cache that does not hold everything yet, and takes events as the cache would.

    An object that was folded already is not folded again; one that was not yet and is removed is not missed. Objects
    are told apart by identity: ``remove_*`` is called with the very object that was added. ``cache`` is the one behind.
    """

    def __init__(self, cache: Cache) -> None:
        self.kinds = cache.kinds
        self.cache = cache
        self._folded: set[int] = set()

    def folds_pods(self) -> bool:
        """Say that pods must be told, whatever the cache does with them: what is folded is told apart by identity."""
        return True

    def grow(self, capacity: int) -> None:
        """Make room for ``capacity`` rows."""
        self.cache.grow(capacity)

    def add_node(self, row: int, node: NodeInfo) -> None:
        """Fold a node unless it is."""
        if self._is_new(node):
            self.cache.add_node(row, node)

    def remove_node(self, row: int, node: NodeInfo) -> None:
        """Take out a node if it was folded."""
        if self._was_folded(node):
            self.cache.remove_node(row, node)

    def add_pod(self, row: int, pod: PodInfo) -> None:
        """Fold a pod unless it is."""
        if self._is_new(pod):
            self.cache.add_pod(row, pod)

    def remove_pod(self, row: int, pod: PodInfo) -> None:
        """Take out a pod if it was folded."""
        if self._was_folded(pod):
            self.cache.remove_pod(row, pod)

    def evict_pod(self, row: int, pod: PodInfo) -> None:
        """Take out a pod for a moment if it was folded."""
        if id(pod) in self._folded:
            self.cache.evict_pod(row, pod)

    def restore_pod(self, row: int, pod: PodInfo) -> None:
        """Undo ``evict_pod``."""
        if id(pod) in self._folded:
            self.cache.restore_pod(row, pod)

    def add(self, kind: Kind, item: Any) -> None:
        """Fold an object of another kind unless it is."""
        if self._is_new(item):
            self.cache.add(kind, item)

    def remove(self, kind: Kind, item: Any) -> None:
        """Take out an object of another kind if it was folded."""
        if self._was_folded(item):
            self.cache.remove(kind, item)

    def _is_new(self, item: object) -> bool:
        """Note that an object is folded; return whether it was not."""
        before = len(self._folded)
        self._folded.add(id(item))
        return len(self._folded) > before

    def _was_folded(self, item: object) -> bool:
        """Note that an object is not folded any more, since another may get its identity; return whether it was."""
        before = len(self._folded)
        self._folded.discard(id(item))
        return len(self._folded) < before
