"""What a cache is: arrays by row that events are folded into, one by one.

Two laws hold for every cache, and the test kit checks them: folding events one by one gives the same state as building
from what exists at the end, and folding an event and then its inverse leaves no trace. They are what lets preemption
and assumed pods be simulated by applying events and undoing them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar

from extender.errors import CacheError
from extender.model.kind import NODES, PODS, Kind
from extender.model.node import NodeInfo
from extender.model.pod import PodInfo
from extender.model.table import NodeTable


class Cache(ABC):
    """Folds events into its own arrays, which are indexed by the rows of the node table.

    ``remove_*`` is called with the very object that was added. An update is a removal and an addition. Pods are folded
    only while they are placed, and possibly before their node's object is known. Nothing here may block or raise: one
    that raises is told nothing more, and the algorithms that read it fail until it was built anew.
    """

    kinds: ClassVar[tuple[Kind, ...]] = (NODES, PODS)
    """Which kinds must be watched for this cache."""

    annotations: ClassVar[tuple[str, ...]] = ()
    """Which annotations of pods it reads, by name or, with ``*`` at the end, by prefix; records keep no others."""

    cache_error: CacheError | None = None
    """Why nothing is folded into it any more, set by the framework; None while it is up to date."""

    def __init__(self, table: NodeTable) -> None:
        """Start empty, with arrays of ``table.capacity`` entries."""
        self.table = table

    @classmethod
    def folds_pods(cls) -> bool:
        """Say whether the cache does anything with pods."""
        methods = ("add_pod", "remove_pod", "evict_pod", "restore_pod")
        return any(getattr(cls, name) is not getattr(Cache, name) for name in methods)

    def grow(self, capacity: int) -> None:  # noqa: B027 - a cache without arrays has nothing to do
        """Make room for ``capacity`` rows."""

    def add_node(self, row: int, node: NodeInfo) -> None:  # noqa: B027
        """Fold a node object that appeared in ``row``."""

    def remove_node(self, row: int, node: NodeInfo) -> None:  # noqa: B027
        """Undo ``add_node``."""

    def add_pod(self, row: int, pod: PodInfo) -> None:  # noqa: B027
        """Fold a pod that was placed on ``row``."""

    def remove_pod(self, row: int, pod: PodInfo) -> None:  # noqa: B027
        """Undo ``add_pod``."""

    def evict_pod(self, row: int, pod: PodInfo) -> None:
        """Take a pod out to see what its eviction would bring; ``remove_pod`` unless upstream simulates otherwise."""
        self.remove_pod(row, pod)

    def restore_pod(self, row: int, pod: PodInfo) -> None:
        """Undo ``evict_pod``; evictions are undone in reverse order."""
        self.add_pod(row, pod)

    def add(self, kind: Kind, item: Any) -> None:  # noqa: B027
        """Fold an object of one of the other ``kinds``, decoded as the kind's type."""

    def remove(self, kind: Kind, item: Any) -> None:  # noqa: B027
        """Undo ``add``."""

    @abstractmethod
    def dump(self) -> Any:
        """Return the whole state as plain, comparable values keyed by node name, for tests and for debugging."""
