"""A cluster in memory to try algorithms on, built from plain objects as they stand in YAML or JSON."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np

from extender.framework.algorithm import SKIP, Predicate, Priority, Skip
from extender.framework.candidate import Nodes
from extender.framework.mirror import Mirror
from extender.framework.outcome import Outcome
from extender.framework.profile import bind
from extender.framework.runner import NoRecorder, Profile, Runner
from extender.model.kind import KINDS, Kind, Store
from extender.model.object import Pod
from extender.model.pod import PendingPod


@dataclass(frozen=True)
class Scores:
    """What a priority made of each node, by name: its raw scores and the same brought to 0..100."""

    raw: dict[str, int]
    normalized: dict[str, int]


class Lab:
    """Holds a mirror and evaluates single algorithms on it.

    Objects are folded in the order given, through the same stores that informers deliver to. Objects without a
    namespace go to ``default`` where their kind has one; kinds that nothing can watch are left out.
    """

    def __init__(self, objects: Iterable[Mapping[str, Any]] = (), *, kinds: Iterable[Kind] = KINDS) -> None:
        self.mirror = Mirror()
        self.mirror.reader.keep("*")  # an algorithm that is tried later may read any annotation
        self._stores: dict[str, tuple[Kind, Store]] = {kind.name: (kind, self.mirror.store(kind)) for kind in kinds}
        self._runner = Runner(Profile([], []), NoRecorder())
        self.apply(*objects)

    def apply(self, *objects: Mapping[str, Any]) -> None:
        """Create or replace objects.

        Raises:
            CacheError: a cache raised; its cause is what it raised.
        """
        for item in objects:
            found = self._stores.get(item["kind"])
            if found is not None and not _has_ended(item):
                found[1].upsert(decode(item, found[0]))
        self._check_caches()

    def delete(self, *objects: Mapping[str, Any]) -> None:
        """Delete objects, each named as the one given.

        Raises:
            CacheError: a cache raised; its cause is what it raised.
        """
        for item in objects:
            kind, store = self._stores[item["kind"]]
            store.delete(decode(item, kind))
        self._check_caches()

    def _check_caches(self) -> None:
        for cache in self.mirror.upkeep.broken.values():
            if cache.cache_error is not None:
                raise cache.cache_error

    def nodes(self, names: Sequence[str] | None = None) -> Nodes:
        """Return the named nodes as candidates, all of them where none are named."""
        table = self.mirror.table
        if names is None:
            return Nodes(table, table.rows())
        return Nodes(table, np.array([table.index[name] for name in names], np.int64))

    def filter(
        self,
        algorithm: type[Predicate],
        pod: Mapping[str, Any],
        args: Mapping[str, Any] | None = None,
        nodes: Sequence[str] | None = None,
    ) -> Skip | dict[str, Outcome]:
        """Return the nodes that a predicate refuses, by name; SKIP where it has no opinion on the pod.

        Raises:
            AlgorithmError: the predicate raised, or returned what it must not.
        """
        candidates = self.nodes(names=nodes)
        predicate = bind(algorithm, algorithm.Arguments.model_validate(args or {}), self.mirror)
        verdict = self._runner.evaluate(predicate, pending(pod), candidates)
        if verdict is SKIP:
            return SKIP
        found = ((name, verdict.of(place)) for place, name in enumerate(candidates.names()))
        return {name: outcome for name, outcome in found if outcome is not None}

    def score(
        self,
        algorithm: type[Priority],
        pod: Mapping[str, Any],
        args: Mapping[str, Any] | None = None,
        nodes: Sequence[str] | None = None,
    ) -> Skip | Scores:
        """Return what a priority makes of each node; SKIP where it has no opinion on the pod.

        Raises:
            AlgorithmError: the priority raised, or its scores are out of range.
        """
        candidates = self.nodes(names=nodes)
        priority = bind(algorithm, algorithm.Arguments.model_validate(args or {}), self.mirror)
        scores = self._runner.score(priority, pending(pod), candidates)
        if scores is SKIP:
            return SKIP
        names = candidates.names()
        raw, normalized = (dict(zip(names, array.tolist(), strict=True)) for array in scores)
        return Scores(raw, normalized)


def pending(pod: Mapping[str, Any]) -> PendingPod:
    """Return a plain pod object as the one to be placed."""
    return PendingPod(msgspec.convert(_in_default_namespace(pod), Pod))


def decode(item: Mapping[str, Any], kind: Kind) -> Any:
    """Return a plain object as ``kind`` decodes it."""
    return msgspec.convert(_in_default_namespace(item) if kind.namespaced else item, kind.type)


def _in_default_namespace(item: Mapping[str, Any]) -> Mapping[str, Any]:
    return {**item, "metadata": {"namespace": "default", **(item.get("metadata") or {})}}


def _has_ended(item: Mapping[str, Any]) -> bool:
    """Say whether an object is a pod that a watch would not show any more."""
    return item["kind"] == "Pod" and (item.get("status") or {}).get("phase") in ("Succeeded", "Failed")
