"""NodePreferAvoidPods: keeps replicas off the nodes that an annotation asks their controller to avoid.

Sources of the rules: plugins/nodepreferavoidpods and component-helpers ``scheduling/corev1/helpers.go`` of 1.22, where
its weight is 10,000, so that it outweighs all others.
"""

from __future__ import annotations

import json
from typing import Any, Final, TypeAlias, TypeVar

import numpy as np

from extender.framework import (
    MAX_NODE_SCORE,
    NODES,
    Cache,
    IntArray,
    NodeInfo,
    Nodes,
    NodeTable,
    PendingPod,
    Priority,
    RowBag,
    uses,
)

ANNOTATION: Final = "scheduler.alpha.kubernetes.io/preferAvoidPods"
"""The annotation of nodes; its text is a JSON object."""

CONTROLLER_KINDS: Final = ("ReplicationController", "ReplicaSet")
"""The controllers whose pods can be kept off."""

Controller: TypeAlias = tuple[str, str]
"""Kind and uid of a controller."""

T = TypeVar("T", str, list[Any], dict[str, Any])


class AvoidedControllers(Cache):
    """Which rows ask to be avoided by the pods of a controller; an annotation is read once for each node event."""

    kinds = (NODES,)

    def __init__(self, table: NodeTable) -> None:
        super().__init__(table)
        self._by_row: dict[int, frozenset[Controller]] = {}
        self._bags: dict[Controller, RowBag] = {}

    def add_node(self, row: int, node: NodeInfo) -> None:
        """Note the controllers in a node's annotation."""
        controllers = read_controllers(node.annotations.get(ANNOTATION, ""))
        if controllers:
            self._by_row[row] = controllers
            for controller in controllers:
                self._bags.setdefault(controller, RowBag()).add(row)

    def remove_node(self, row: int, node: NodeInfo) -> None:  # noqa: ARG002 - what was read of it is kept by row
        """Undo ``add_node``."""
        for controller in self._by_row.pop(row, ()):
            bag = self._bags[controller]
            bag.remove(row)
            if not len(bag):
                del self._bags[controller]

    def rows(self, controller: Controller) -> IntArray | None:
        """Return the rows that a controller's pods are to avoid, shape (rows,); None where there are none."""
        bag = self._bags.get(controller)
        return None if bag is None else bag.rows

    def dump(self) -> Any:
        """Return the node names by controller, sorted, and the controllers by node name."""
        name = self.table.name
        return {
            "nodes": {each: sorted(map(name, bag.rows.tolist())) for each, bag in self._bags.items()},
            "controllers": {name(row): sorted(controllers) for row, controllers in self._by_row.items()},
        }


class NodePreferAvoidPods(Priority):
    """Scores 0 for nodes that ask the pod's replication controller or replica set to stay away, 100 for all others."""

    default_weight = 10_000
    avoided = uses(AvoidedControllers)

    def prioritize(self, pod: PendingPod, nodes: Nodes) -> IntArray:
        """Look up the pod's controller; pods that none of the two kinds controls avoid no node."""
        scores = np.full(len(nodes), MAX_NODE_SCORE, np.int64)
        owner = pod.controller
        if owner is not None and owner.kind in CONTROLLER_KINDS:
            rows = self.avoided.rows((owner.kind, owner.uid or ""))
            if rows is not None:
                avoided = np.zeros(nodes.table.capacity, np.bool_)
                avoided[rows] = True
                scores[nodes.take(avoided)] = 0
        return scores


def read_controllers(text: str) -> frozenset[Controller]:
    """Return the controllers that an annotation names; none where it cannot be read.

    Keys are found whatever their case, as Go finds them; values that are not needed are not looked at.
    """
    if not text:
        return frozenset()
    try:
        return frozenset(map(_read_controller, _get(json.loads(text), "preferAvoidPods", list)))
    except (ValueError, RecursionError):
        return frozenset()


def _read_controller(entry: Any) -> Controller:
    controller = _get(_get(entry, "podSignature", dict), "podController", dict)
    return _get(controller, "kind", str), _get(controller, "uid", str)


def _get(holder: Any, key: str, kind: type[T]) -> T:
    """Return the value of a key, empty where it or its holder is null or absent.

    Raises:
        ValueError: the holder is no object, or the value of another kind.
    """
    if not isinstance(holder, dict | None):
        raise ValueError(f"what has {key} is not an object")
    value = {name.lower(): value for name, value in (holder or {}).items()}.get(key.lower())
    if not isinstance(value, kind | None):
        raise ValueError(f"{key} is not of {kind}")
    return kind() if value is None else value
