"""Preemption: which pods on a node have to go so that a pod fits, found by taking them out and looking.

Two questions are answered. Which victims would the default preemption pick on a node, starting from nothing; and are
the victims that kube-scheduler picked enough by the predicates here, or which further ones are needed. Both reprieve as
many pods as possible: the most important first, those that a disruption budget protects before all others.
Source: SelectVictimsOnNode of plugins/defaultpreemption, 1.36.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass

import numpy as np

from extender.framework.algorithm import Predicate
from extender.framework.candidate import Nodes
from extender.framework.eviction import DisruptionBudgets, PlacedPods
from extender.framework.mirror import Mirror
from extender.framework.nomination import ask_heeded, filter_with_nominated
from extender.framework.outcome import Outcome
from extender.framework.runner import Runner
from extender.model.object import PodStatus
from extender.model.pod import PendingPod, PodInfo

NO_VICTIMS = "No preemption victims found for incoming pod"
"""Why a node without pods of lower priority is no candidate."""

NEVER = "Never"
"""The preemption policy of pods that evict nobody."""


@dataclass(frozen=True)
class Eviction:
    """Pods that have to go, most important first, and how many of them a disruption budget protects."""

    victims: Sequence[PodInfo]
    violations: int


class Preemption:
    """Simulates evictions on one node at a time; leaves the mirror as it found it."""

    def __init__(self, mirror: Mirror, runner: Runner) -> None:
        self._mirror = mirror
        self._runner = runner
        self._placed = mirror.cache(PlacedPods)
        self._budgets = mirror.cache(DisruptionBudgets)

    def objection(self, pod: PendingPod, deadline_seconds: float | None = None) -> str:
        """Return why a pod must not evict any others now, or nothing.

        Where room is being made for it already it is to wait, unless it could not use that room.
        Source: PodEligibleToPreemptOthers of plugins/defaultpreemption, 1.36.

        Raises:
            AlgorithmError: a predicate failed.
            CacheError: what is known of placed pods is broken.
            DeadlineExceeded: ``deadline_seconds`` passed.
        """
        if pod.spec.preemption_policy == NEVER:
            return "its preemptionPolicy is Never"
        nominated = (pod.object.status or PodStatus()).nominated_node_name or ""
        row = self._mirror.table.index.get(nominated, -1)
        if row < 0 or not self._mirror.table.present[row]:
            return ""
        self._check_caches()
        if not any(info.making_room and info.priority < pod.priority for info in self._placed.on(row)):
            return ""
        refusal = self._refusal(pod, row, deadline_seconds)
        is_lost = refusal is not None and not refusal.resolvable
        return "" if is_lost else f"pods are being deleted to make room for it on {nominated}"

    def pick(self, pod: PendingPod, row: int) -> Eviction | Outcome:
        """Return the victims the default preemption would pick on a node, or why it would pick none.

        Raises:
            AlgorithmError: a predicate failed.
            CacheError: what is known of placed pods, or of disruption budgets, is broken.
        """
        self._check_caches()
        potential = self._less_important(pod, row)
        if not potential:
            return Outcome((NO_VICTIMS,), False, "DefaultPreemption")
        return self._reprieve(pod, row, potential, None)

    def complete(
        self, pod: PendingPod, row: int, given: Eviction, deadline_seconds: float | None = None
    ) -> Eviction | None:
        """Return ``given`` with the further victims that are needed for the pod to fit, or None where nothing helps.

        Violations are counted again when there are further victims.

        Raises:
            AlgorithmError: a predicate failed.
            CacheError: what is known of placed pods, or of disruption budgets, is broken.
            DeadlineExceeded: ``deadline_seconds`` passed.
        """
        self._check_caches()
        with self._mirror.what_if(without=given.victims):
            if self._refusal(pod, row, deadline_seconds) is None:
                return given
            potential = self._less_important(pod, row)
            further = self._reprieve(pod, row, potential, deadline_seconds) if potential else None
        if not isinstance(further, Eviction):
            return None
        victims = most_important_first([*given.victims, *further.victims])
        return Eviction(victims, len(self._budgets.split(victims)[0]))

    def _check_caches(self) -> None:
        for cache in (self._placed, self._budgets):
            if cache.cache_error is not None:
                raise cache.cache_error.with_traceback(None)  # it is raised again and again, and each adds to its own

    def _less_important(self, pod: PendingPod, row: int) -> list[PodInfo]:
        return most_important_first(info for info in self._placed.on(row) if info.priority < pod.priority)

    def _reprieve(
        self, pod: PendingPod, row: int, potential: list[PodInfo], deadline_seconds: float | None
    ) -> Eviction | Outcome:
        """Take out all of ``potential``, then bring back, one after the other, whichever leaves room for the pod."""
        violating, others = self._budgets.split(potential)
        victims: list[PodInfo] = []
        violations = 0
        with ExitStack() as changes:
            changes.enter_context(self._mirror.what_if(without=potential))
            refusal = self._refusal(pod, row, deadline_seconds)
            if refusal is not None:
                return refusal
            heeding = self._find_heeding(pod, potential)
            for place, info in enumerate((*violating, *others)):
                # Predicates that do not heed this pod said yes without it, and would say so again.
                with ExitStack() as trial:
                    trial.enter_context(self._mirror.what_if(plus=[info]))
                    if self._refusal(pod, row, deadline_seconds, heeding[id(info)]) is None:
                        changes.push(trial.pop_all())
                        continue
                victims.append(info)
                violations += place < len(violating)
        return Eviction(most_important_first(victims), violations)

    def _refusal(
        self,
        pod: PendingPod,
        row: int,
        deadline_seconds: float | None,
        predicates: Sequence[Predicate] | None = None,
    ) -> Outcome | None:
        """Return why some predicates, all of them where not given, refuse the node."""
        runner = self._runner if predicates is None else self._runner.part(predicates)
        nodes = Nodes(self._mirror.table, np.array([row], np.int64))
        return filter_with_nominated(self._mirror, runner, pod, nodes, deadline_seconds).of(0)

    def _find_heeding(self, pod: PendingPod, potential: list[PodInfo]) -> dict[int, list[Predicate]]:
        """Return the predicates that heed each of some pods, by its identity."""
        heeding: dict[int, list[Predicate]] = {id(info): [] for info in potential}
        for predicate in self._runner.profile.predicates:
            for info in ask_heeded(predicate, pod, potential):
                heeding[id(info)].append(predicate)
        return heeding


def most_important_first(pods: Iterable[PodInfo]) -> list[PodInfo]:
    """Return pods by falling priority, and among equals the earliest started first."""
    return sorted(pods, key=lambda info: (-info.priority, info.start_seconds))
