"""Nominated pods: pending pods for which preemption made room are counted on their node when others are filtered.

A pod must fit a node without the pods nominated to it, for they may never come, and with them. What a predicate says of
the second is found in as few questions as are right::

    pods that it does not heed                                  ──▶ it says what it said without them
    pods that it heeds, and it is local to a node               ──▶ one question about all their nodes, all placed
    pods that it heeds, and it looks at other nodes too         ──▶ one question for each of their nodes, as upstream
    it counts nominated pods everywhere                         ──▶ one question about all candidates, all placed

Source: RunFilterPluginsWithNominatedPods of framework/runtime, 1.36. The last is a rule of this house.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import groupby

import numpy as np

from extender.errors import FAULTS
from extender.framework.algorithm import Predicate
from extender.framework.cache import Cache
from extender.framework.candidate import Nodes
from extender.framework.mirror import Mirror
from extender.framework.outcome import Filtered, Outcome, join
from extender.framework.runner import Runner
from extender.model.column import BoolArray, IntArray
from extender.model.pod import PendingPod, PodInfo


def filter_with_nominated(
    mirror: Mirror, runner: Runner, pod: PendingPod, nodes: Nodes, deadline_seconds: float | None = None
) -> Filtered:
    """Run the predicates; where pods of equal or higher priority are nominated, with and without these.

    Raises:
        AlgorithmError: a predicate failed.
        DeadlineExceeded: ``deadline_seconds`` passed.
    """
    filtered = runner.filter(pod, nodes, deadline_seconds)
    if not mirror.nominated or not len(nodes):
        return filtered
    question = _Question(mirror, runner, pod, deadline_seconds)
    filtered = question.ask_with_own(nodes, filtered)
    return filtered if runner.everywhere is None else question.ask_with_all(runner.everywhere, nodes, filtered)


def ask_heeded(predicate: Predicate, pod: PendingPod, others: Sequence[PodInfo]) -> Collection[PodInfo]:
    """Return those of some pods that a predicate heeds; all of them where it cannot say."""
    try:
        return predicate.heeded(pod, others)
    except FAULTS:  # whatever is wrong, filtering says it under the predicate's name
        return others


class _Question:
    """One pod, asked about with nominated pods in place."""

    def __init__(self, mirror: Mirror, runner: Runner, pod: PendingPod, deadline_seconds: float | None) -> None:
        self._mirror = mirror
        self._runner = runner
        self._pod = pod
        self._deadline_seconds = deadline_seconds

    def ask_with_own(self, nodes: Nodes, filtered: Filtered) -> Filtered:
        """Return ``filtered`` with what becomes of candidates when the pods nominated to each of them are there."""
        counting = self._counting(_nominated_to(self._mirror, nodes))
        predicates = self._runner.profile.predicates
        heeded = {
            each.name: () if each.counts_nominated_everywhere else ask_heeded(each, self._pod, counting)
            for each in predicates
            if counting
        }
        if not any(heeded.values()):
            return filtered
        rows = np.unique([nodes.table.index[info.node_name] for info in counting])
        found, check_all = Filtered(np.zeros(len(rows), np.int64), []), self._runner.profile.check_all
        for apart, group in groupby(predicates, lambda each: bool(heeded[each.name]) and not each.node_local):
            part = list(group)
            left = np.ones(len(rows), np.bool_) if check_all else found.fits
            heeding = [each for each in part if heeded[each.name]]
            if apart:
                pods = {id(info): info for each in part for info in heeded[each.name]}.values()
                said = self._ask_apart(part, pods, Nodes(nodes.table, rows[left]))
            else:
                said = self._ask_together(part, heeding, counting, Nodes(nodes.table, rows[left]))
            found = join(found, said) if check_all else _append(found, said, left)
        outcomes = list(filtered.outcomes)
        codes: IntArray = np.zeros(nodes.table.capacity, np.int64)
        codes[rows] = np.array([0, *(_code(outcomes, each) for each in found.outcomes)])[found.codes]
        asked = codes[nodes.rows]
        return Filtered(np.where(asked != 0, asked, filtered.codes), outcomes)

    def _ask_together(
        self, predicates: Sequence[Predicate], heeding: Iterable[Predicate], pods: Iterable[PodInfo], nodes: Nodes
    ) -> Filtered:
        """Ask predicates about nodes with all pods in place; those that heed some of them are local to a node."""
        with self._placed({cache for each in heeding for cache in each.held_caches()}, pods):
            return self._ask(predicates, nodes)

    def _ask_apart(self, predicates: Sequence[Predicate], pods: Iterable[PodInfo], nodes: Nodes) -> Filtered:
        """Ask predicates about nodes, each with none but its own pods in place."""
        index, groups = nodes.table.index, dict[int, list[PodInfo]]()
        for info in pods:
            groups.setdefault(index[info.node_name], []).append(info)
        caches = {cache for each in predicates for cache in each.held_caches()}
        alone = np.isin(nodes.rows, list(groups))
        codes: IntArray = np.zeros(len(nodes), np.int64)
        outcomes: list[Outcome] = []
        without = self._ask(predicates, nodes.where(~alone))
        codes[~alone] = np.array([0, *(_code(outcomes, each) for each in without.outcomes)])[without.codes]
        for place in np.flatnonzero(alone).tolist():
            with self._placed(caches, groups[int(nodes.rows[place])]):
                outcome = self._ask(predicates, Nodes(nodes.table, nodes.rows[place : place + 1])).of(0)
            codes[place] = 0 if outcome is None else _code(outcomes, outcome)
        return Filtered(codes, outcomes)

    def _ask(self, predicates: Sequence[Predicate], nodes: Nodes) -> Filtered:
        return self._runner.part(predicates).filter(self._pod, nodes, self._deadline_seconds)

    def ask_with_all(self, everywhere: Runner, nodes: Nodes, filtered: Filtered) -> Filtered:
        """Return ``filtered`` with what becomes of candidates when all nominated pods are where they are to go."""
        counting = self._counting(name for name in self._mirror.nominated if name in self._mirror.table.index)
        predicates = everywhere.profile.predicates
        heeded = {id(info): info for each in predicates for info in ask_heeded(each, self._pod, counting)}.values()
        if not heeded:
            return filtered
        with self._placed({cache for each in predicates for cache in each.held_caches()}, heeded):
            found = everywhere.filter(self._pod, nodes, self._deadline_seconds)
        if everywhere.profile.check_all:
            return join(filtered, found)
        late = (found.codes + len(filtered.outcomes)) * (found.codes != 0)
        return Filtered(np.where(filtered.fits, late, filtered.codes), [*filtered.outcomes, *found.outcomes])

    def _counting(self, names: Iterable[str]) -> list[PodInfo]:
        """Return the pods nominated to nodes that count for the pod."""
        priority, uid, assumed = self._pod.priority, self._pod.uid, self._mirror.assumed
        return [
            info
            for name in names
            for info in self._mirror.nominated[name].values()
            if info.priority >= priority and info.uid != uid and info.uid not in assumed
        ]

    @contextmanager
    def _placed(self, caches: Collection[Cache], pods: Iterable[PodInfo]) -> Iterator[None]:
        """Let the caller look at some caches with pods on their nodes."""
        told, index = [each for each in caches if type(each).folds_pods()], self._mirror.table.index
        placed = [(index[info.node_name], info) for info in pods]
        self._mirror.upkeep.tell_pods(told, "add_pod", placed)
        try:
            yield
        finally:
            self._mirror.upkeep.tell_pods(told, "remove_pod", placed[::-1])


def _nominated_to(mirror: Mirror, nodes: Nodes) -> list[str]:
    """Return the names of the candidates that pods are nominated to."""
    if len(nodes) < len(mirror.nominated):
        return [name for name in dict.fromkeys(nodes.names()) if name in mirror.nominated]
    asked = np.zeros(nodes.table.capacity, np.bool_)
    asked[nodes.rows] = True
    index = nodes.table.index
    return [name for name in mirror.nominated if name in index and asked[index[name]]]


def _append(first: Filtered, second: Filtered, left: BoolArray) -> Filtered:
    """Return both together, where the second is about those that the first left only."""
    codes = first.codes.copy()
    codes[left] = (second.codes + len(first.outcomes)) * (second.codes != 0)
    return Filtered(codes, [*first.outcomes, *second.outcomes])


def _code(outcomes: list[Outcome], outcome: Outcome) -> int:
    if outcome not in outcomes:
        outcomes.append(outcome)
    return outcomes.index(outcome) + 1
