"""An algorithm that needs what is not there before: a cache of its own, annotations of pods, and another kind."""

from __future__ import annotations

from typing import Any

from extender.framework import Cache, Nodes, NodeTable, PendingPod, PodInfo, Predicate, Refusal, uses
from extender.model.kind import SERVICES


class Taken(Cache):
    """Which rows a pod's annotation takes."""

    annotations = ("example/taken",)
    kinds = (*Cache.kinds, SERVICES)

    def __init__(self, table: NodeTable) -> None:
        super().__init__(table)
        self.rows: list[int] = []

    def add_pod(self, row: int, pod: PodInfo) -> None:
        if pod.annotations.get("example/taken"):
            self.rows.append(row)

    def remove_pod(self, row: int, pod: PodInfo) -> None:
        if pod.annotations.get("example/taken"):
            self.rows.remove(row)

    def dump(self) -> Any:
        return sorted(self.table.name(row) for row in self.rows)


class Untaken(Predicate):
    """Refuses nodes that are taken."""

    taken = uses(Taken)

    def filter(self, pod: PendingPod, nodes: Nodes) -> list[Refusal]:
        return [Refusal(nodes.rows == row, "node(s) were taken") for row in self.taken.rows]
