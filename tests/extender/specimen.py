"""Algorithms that behave, and misbehave, as tests need it; named in profiles as ``tests.extender.specimen:Name``."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Annotated, Any

import numpy as np

from extender.framework import (
    SKIP,
    Args,
    Field,
    IntArray,
    NodeInfo,
    NodePredicate,
    NodePriority,
    Nodes,
    PendingPod,
    Predicate,
    Priority,
    Refusal,
    Skip,
)

PATH = "tests.extender.specimen"


def profile(predicates: Iterable[str] = (), priorities: Iterable[str] = (), **args: Any) -> dict[str, Any]:
    """A configuration whose profile enables just the named specimens; ``args`` are the arguments by name."""

    def entries(names: Iterable[str]) -> list[dict[str, Any]]:
        return [{"name": f"{PATH}:{name}", "args": args.get(name)} for name in names]

    return {
        "profiles": [{"predicates": {"enabled": entries(predicates)}, "priorities": {"enabled": entries(priorities)}}]
    }


class Labelled(Predicate):
    """Refuses nodes by their labels: ``refuse`` has the reasons, and ``hopeless`` says that no eviction helps."""

    def filter(self, pod: PendingPod, nodes: Nodes) -> Skip | list[Refusal]:
        infos = list(nodes.infos())
        refusals = []
        for reason in dict.fromkeys(info.labels["refuse"] for info in infos if "refuse" in info.labels):
            for hopeless in (False, True):
                mask = np.array(
                    [info.labels.get("refuse") == reason and ("hopeless" in info.labels) == hopeless for info in infos]
                )
                if mask.any():
                    refusals.append(Refusal(mask, reason, resolvable=not hopeless))
        return refusals


class Graded(NodePriority):
    """Scores a node by its label ``score``."""

    def score(self, pod: PendingPod, node: NodeInfo) -> int:
        return int(node.labels.get("score", "0"))


class Picky(NodePredicate):
    """Refuses the nodes named in its arguments, whatever is evicted there."""

    class Arguments(Args):
        names: tuple[str, ...] = ()

    def fits(self, pod: PendingPod, node: NodeInfo) -> str | None:
        return "node(s) not to its taste" if node.name in self.args.names else None


class Bounded(Predicate):
    """Fits everywhere; its argument has bounds to be broken."""

    class Arguments(Args):
        most: Annotated[int, Field(ge=1, le=10)] = 1

    def filter(self, pod: PendingPod, nodes: Nodes) -> Skip:
        return SKIP


class Sleepy(Predicate):
    """Takes its time, as long as the pod's annotation ``seconds`` says."""

    def filter(self, pod: PendingPod, nodes: Nodes) -> Skip:
        time.sleep(float(pod.annotations.get("seconds", "0")))
        return SKIP


class SleepyPriority(Priority):
    """The same for scores."""

    def prioritize(self, pod: PendingPod, nodes: Nodes) -> Skip:
        time.sleep(float(pod.annotations.get("seconds", "0")))
        return SKIP


class Broken(Predicate):
    """Raises for pods with the annotation ``break``."""

    def filter(self, pod: PendingPod, nodes: Nodes) -> Skip:
        if "break" in pod.annotations:
            raise ZeroDivisionError("division by zero nodes")
        return SKIP


class BrokenPriority(Priority):
    """The same for scores."""

    def prioritize(self, pod: PendingPod, nodes: Nodes) -> IntArray:
        if "break" in pod.annotations:
            raise ZeroDivisionError("division by zero nodes")
        return np.zeros(len(nodes), np.int64)


class Keyed(Predicate):
    """Fits everywhere; its argument is nobody's business."""

    class Arguments(Args):
        api_token: str = ""

    def filter(self, pod: PendingPod, nodes: Nodes) -> Skip:
        return SKIP


class Always(Predicate):
    """Fits everywhere, and runs in every profile."""

    mandatory = True

    def filter(self, pod: PendingPod, nodes: Nodes) -> Skip:
        return SKIP
