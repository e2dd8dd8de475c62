"""An algorithm whose cache is built late, and can fail at that; named in profiles as ``tests.extender.late:Late``."""

from __future__ import annotations

from typing import Any, ClassVar

from extender.framework import Cache, Nodes, PendingPod, Predicate, Refusal, Skip, uses
from extender.model.kind import SERVICES, Kind


class Tally(Cache):
    """Counts what it holds; ``made`` are all that there were, and one with ``fails_at`` pods takes no more."""

    kinds = (*Cache.kinds, SERVICES)

    made: ClassVar[list[Tally]] = []
    fails_at: ClassVar[int | None] = None

    def __init__(self, table: Any) -> None:
        super().__init__(table)
        self.nodes: list[str] = []
        self.pods: list[str] = []
        self.services: list[str] = []
        self.made.append(self)

    def add_node(self, row: int, node: Any) -> None:
        self.nodes.append(node.name)

    def remove_node(self, row: int, node: Any) -> None:
        self.nodes.remove(node.name)

    def add_pod(self, row: int, pod: Any) -> None:
        if len(self.pods) == self.fails_at:
            raise RuntimeError("enough")
        self.pods.append(pod.key)

    def remove_pod(self, row: int, pod: Any) -> None:
        self.pods.remove(pod.key)

    def add(self, kind: Kind, item: Any) -> None:
        self.services.append(item.metadata.name)

    def remove(self, kind: Kind, item: Any) -> None:
        self.services.remove(item.metadata.name)

    def dump(self) -> Any:
        return sorted(self.nodes), sorted(self.pods), sorted(self.services)


class Late(Predicate):
    """Fits everywhere."""

    tally = uses(Tally)

    def filter(self, pod: PendingPod, nodes: Nodes) -> Skip | list[Refusal]:
        return []
