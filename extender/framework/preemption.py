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

from extender.framework.candidate import Nodes
from extender.framework.eviction import DisruptionBudgets, PlacedPods
from extender.framework.mirror import Mirror
from extender.framework.nomination import filter_with_nominated
from extender.framework.outcome import Outcome
from extender.framework.runner import Runner
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

    def pick(self, pod: PendingPod, row: int) -> Eviction | Outcome:
        """Return the victims the default preemption would pick on a node, or why it would pick none.

        Raises:
            AlgorithmError: a predicate failed.
        """
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
            DeadlineExceeded: ``deadline_seconds`` passed.
        """
        with self._mirror.what_if(without=given.victims):
            if self._refusal(pod, row, deadline_seconds) is None:
                return given
            potential = self._less_important(pod, row)
            further = self._reprieve(pod, row, potential, deadline_seconds) if potential else None
        if not isinstance(further, Eviction):
            return None
        victims = most_important_first([*given.victims, *further.victims])
        return Eviction(victims, len(self._budgets.split(victims)[0]))

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
            for place, info in enumerate((*violating, *others)):
                with ExitStack() as trial:
                    trial.enter_context(self._mirror.what_if(plus=[info]))
                    if self._refusal(pod, row, deadline_seconds) is None:
                        changes.push(trial.pop_all())
                        continue
                victims.append(info)
                violations += place < len(violating)
        return Eviction(most_important_first(victims), violations)

    def _refusal(self, pod: PendingPod, row: int, deadline_seconds: float | None) -> Outcome | None:
        nodes = Nodes(self._mirror.table, np.array([row], np.int64))
        return filter_with_nominated(self._mirror, self._runner, pod, nodes, deadline_seconds).of(0)


def most_important_first(pods: Iterable[PodInfo]) -> list[PodInfo]:
    """Return pods by falling priority, and among equals the earliest started first."""
    return sorted(pods, key=lambda info: (-info.priority, info.start_seconds))
