"""Runs the enabled algorithms of one profile over the candidates of one request.

Everything that is the same for all algorithms lives here: order, first refusal, weights, checks of what an algorithm
returns, the name in its errors, its time and its counts, and the deadline. What is special for one is its treatment.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from time import monotonic, perf_counter
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from extender.errors import FAULTS, AlgorithmError, DeadlineExceeded, ExtenderError
from extender.framework.algorithm import SKIP, Algorithm, NodePredicate, Predicate, Priority, Refusal, Reserver, Skip
from extender.framework.candidate import Nodes
from extender.framework.check import check_reserved, check_scores
from extender.framework.outcome import Filtered, Outcome, combine, join
from extender.framework.treatment import (
    FILTER,
    PRIORITIZE,
    RESERVE,
    USUAL,
    Attendant,
    Reserved,
    Treatment,
    TreatmentRecorder,
)
from extender.model.column import BoolArray, IntArray
from extender.model.node import NodeInfo
from extender.model.pod import PendingPod

_log = logging.getLogger(__name__)


class Recorder(TreatmentRecorder, Protocol):
    """Receives what the runner observes."""

    def ran(self, algorithm: str, point: str, seconds: float, *, skipped: bool) -> None:
        """Note one run of an algorithm at ``filter`` or ``prioritize``."""

    def refused(self, algorithm: str, reason: str, nodes: int) -> None:
        """Note that an algorithm refused some nodes."""

    def failed(self, algorithm: str, point: str) -> None:
        """Note that an algorithm raised."""


class NoRecorder:
    """Takes what a runner observes and keeps nothing: for simulations."""

    def ran(self, algorithm: str, point: str, seconds: float, *, skipped: bool) -> None:
        """Ignore a run."""

    def refused(self, algorithm: str, reason: str, nodes: int) -> None:
        """Ignore refusals."""

    def failed(self, algorithm: str, point: str) -> None:
        """Ignore a failure."""

    def would_refuse(self, algorithm: str, reason: str, nodes: int) -> None:
        """Ignore refusals that do not count."""

    def passed_over(self, algorithm: str, point: str) -> None:
        """Ignore a failure that does not count."""

    def overran(self, algorithm: str, point: str) -> None:
        """Ignore a run that took long."""


@dataclass(frozen=True)
class Weighted:
    """A priority with the weight it has in a profile."""

    priority: Priority
    weight: int


@dataclass(frozen=True)
class Profile:
    """The bound algorithms of one scheduler name, in the order they run.

    With ``check_all`` every predicate is asked about every candidate, so that all reasons against it are reported.
    """

    predicates: Sequence[Predicate]
    priorities: Sequence[Weighted]
    check_all: bool = False
    treatments: Mapping[tuple[str, str], Treatment] = field(default_factory=dict)
    """How algorithms are run that are not run as usual, by point and name."""
    weight_sum: int = field(init=False)
    """Of the priorities that count."""
    reservers: Sequence[Reserver] = field(init=False)
    """Those of the algorithms that reserve, each once; what is in shadow does not."""

    def __post_init__(self) -> None:
        counting = [w for w in self.priorities if not self.treatment(PRIORITIZE, w.priority.name).shadow]
        object.__setattr__(self, "weight_sum", sum(weighted.weight for weighted in counting))
        reservers: dict[str, Reserver] = {}
        treatments = dict(self.treatments)
        for point, algorithm in self._algorithms():
            treatment = self.treatment(point, algorithm.name)
            if isinstance(algorithm, Reserver) and algorithm.name not in reservers and not treatment.shadow:
                reservers[algorithm.name] = algorithm
                treatments[RESERVE, algorithm.name] = treatment
        object.__setattr__(self, "reservers", tuple(reservers.values()))
        object.__setattr__(self, "treatments", treatments)

    def treatment(self, point: str, algorithm: str) -> Treatment:
        """Return how an algorithm is run at a point; where it reserves, as its predicate, or else its priority."""
        return self.treatments.get((point, algorithm), USUAL)

    @property
    def algorithms(self) -> list[Algorithm]:
        """Every algorithm of the profile; one that filters and scores is there twice."""
        return [algorithm for _, algorithm in self._algorithms()]

    @property
    def enforced(self) -> Profile:
        """The profile without what is in shadow."""
        return Profile(
            [each for each in self.predicates if not self.treatment(FILTER, each.name).shadow],
            [each for each in self.priorities if not self.treatment(PRIORITIZE, each.priority.name).shadow],
            self.check_all,
            self.treatments,
        )

    def _algorithms(self) -> Iterator[tuple[str, Algorithm]]:
        yield from ((FILTER, predicate) for predicate in self.predicates)
        yield from ((PRIORITIZE, weighted.priority) for weighted in self.priorities)


_WORTH_JUDGING = 0.75
"""Candidates that are out are left out of further questions when fewer than this share of those asked about remain."""


_MANY_REASONS = 100
"""More different reasons than this for one pod tell that they are made for each node."""


class Runner:
    """Evaluates a profile; ``now_seconds`` is the clock that deadlines are read on."""

    def __init__(self, profile: Profile, recorder: Recorder, now_seconds: Callable[[], float] = monotonic) -> None:
        self.profile = profile
        self._recorder = recorder
        self._now_seconds = now_seconds
        self._minded: set[str] = set()
        self._parts: dict[tuple[str, ...], Runner] = {}
        attendant, treatment = Attendant(recorder, now_seconds), profile.treatment
        self._predicates = [
            (predicate, attendant.filtering(treatment(FILTER, predicate.name), self.evaluate))
            for predicate in profile.predicates
        ]
        self._priorities = [
            (weighted, attendant.scoring(treatment(PRIORITIZE, weighted.priority.name), self.score))
            for weighted in profile.priorities
        ]
        self._reservers = [
            (reserver, attendant.reserving(treatment(RESERVE, reserver.name), self.ask_to_reserve))
            for reserver in profile.reservers
        ]

    @cached_property
    def everywhere(self) -> Runner | None:
        """Those of its predicates that count nominated pods everywhere, apart from the others; None without any."""
        predicates = [each for each in self.profile.predicates if each.counts_nominated_everywhere]
        return self.part(predicates) if predicates else None

    def part(self, predicates: Sequence[Predicate]) -> Runner:
        """Return a runner of some of its predicates, treated as they are here; one for each such part."""
        names = tuple(each.name for each in predicates)
        found = self._parts.get(names)
        if found is None:
            profile = Profile(predicates, [], self.profile.check_all, self.profile.treatments)
            found = self._parts[names] = Runner(profile, self._recorder, self._now_seconds)
        return found

    def filter(self, pod: PendingPod, nodes: Nodes, deadline_seconds: float | None = None) -> Filtered:
        """Run the predicates in order; a candidate is out at its first refusal, unless all are to be checked.

        A predicate that answers by column may be asked about candidates that are out already. What it says of these
        does not count, and where it raises it is asked once more, without them.

        Raises:
            AlgorithmError: a predicate raised, or returned what it must not; names it.
            DeadlineExceeded: ``deadline_seconds`` passed between two predicates.
        """
        if self.profile.check_all:
            return self._filter_by_all(pod, nodes, deadline_seconds)
        codes: NDArray[np.int64] = np.zeros(len(nodes), np.int64)
        outcomes: list[Outcome] = []
        asked: Nodes = nodes
        positions: slice | NDArray[np.intp] = slice(None)
        left: BoolArray | None = None  # which of those asked about are not out; None where none is
        for predicate, evaluate in self._predicates:
            if left is not None and isinstance(predicate, NodePredicate):
                positions, asked, left = np.flatnonzero(codes == 0), asked.where(left), None
            if not len(asked):
                break
            self._check(deadline_seconds, predicate.name)
            found = evaluate(predicate, pod, asked, left)
            if found is SKIP or not found.outcomes:
                continue
            refused = found.codes if left is None else found.codes * left
            self._count(Filtered(refused, found.outcomes))
            codes[positions] += refused + len(outcomes) * (refused != 0) if outcomes else refused
            outcomes += found.outcomes
            left = codes[positions] == 0
            # Passing over a few refused candidates would cost more than judging them again: columns become copies.
            if np.count_nonzero(left) < _WORTH_JUDGING * len(asked):
                positions, asked, left = np.flatnonzero(codes == 0), asked.where(left), None
        return Filtered(codes, outcomes)

    def _filter_by_all(self, pod: PendingPod, nodes: Nodes, deadline_seconds: float | None) -> Filtered:
        filtered = Filtered(np.zeros(len(nodes), np.int64), [])
        for predicate, evaluate in self._predicates if len(nodes) else ():
            self._check(deadline_seconds, predicate.name)
            found = evaluate(predicate, pod, nodes, filtered.fits if filtered.outcomes else None)
            if found is not SKIP and found.outcomes:
                self._count(found)
                filtered = join(filtered, found) if filtered.outcomes else found
        return filtered

    def evaluate(
        self, predicate: Predicate, pod: PendingPod, nodes: Nodes, left: BoolArray | None = None
    ) -> Skip | Filtered:
        """Run one predicate over all of ``nodes``, and where that fails over those that ``left`` says, if it says any.

        ``left`` has shape (candidates,); what it leaves out is not refused then.

        Raises:
            AlgorithmError: the predicate raised, or returned what it must not.
        """
        start = perf_counter()
        try:
            found = _ask(predicate, pod, nodes, left)
        except FAULTS as error:
            raise self._failure(predicate.name, FILTER, error) from error
        self._recorder.ran(predicate.name, FILTER, perf_counter() - start, skipped=found is SKIP)
        if found is not SKIP and len(found.outcomes) > _MANY_REASONS:
            self._mind(predicate.name, found.outcomes)
        return found

    def score(self, priority: Priority, pod: PendingPod, nodes: Nodes) -> Skip | tuple[IntArray, IntArray]:
        """Run one priority; return raw and normalised scores, each of shape (candidates,), int64.

        Raises:
            AlgorithmError: the priority raised, or its scores do not fit the candidates or 0..100.
        """
        start = perf_counter()
        try:
            _check_caches(priority)
            raw = priority.prioritize(pod, nodes)
            normalized = raw if raw is SKIP else priority.normalize(pod, nodes, raw)
            if normalized is not SKIP:
                check_scores(normalized, len(nodes))
        except FAULTS as error:
            raise self._failure(priority.name, PRIORITIZE, error) from error
        self._recorder.ran(priority.name, PRIORITIZE, perf_counter() - start, skipped=raw is SKIP)
        return SKIP if raw is SKIP or normalized is SKIP else (raw, normalized)

    def prioritize(self, pod: PendingPod, nodes: Nodes, deadline_seconds: float | None = None) -> IntArray:
        """Return the sum of weight times normalised score over the priorities; shape (candidates,), int64.

        A priority that skips adds nothing. The greatest possible value is ``100 * profile.weight_sum``.

        Raises:
            AlgorithmError: a priority raised, or returned what it must not; names it.
            DeadlineExceeded: ``deadline_seconds`` passed between two priorities.
        """
        total: IntArray = np.zeros(len(nodes), np.int64)
        for weighted, score in self._priorities:
            self._check(deadline_seconds, weighted.priority.name)
            scores = score(weighted.priority, pod, nodes)
            if scores is not SKIP:
                total += scores[1] * weighted.weight
        return total

    def reserve(self, pod: PendingPod, node: NodeInfo, wall_seconds: float) -> dict[str, str] | Outcome:
        """Have the reservers choose for a pod on a node; return the annotations of all, or why one of them cannot.

        Raises:
            AlgorithmError: a reserver raised, or returned what it must not; names it.
        """
        chosen: dict[str, str] = {}
        for reserver, ask in self._reservers:
            found = ask(reserver, pod, node, wall_seconds, chosen)
            if isinstance(found, Refusal):
                return Outcome.of([found], reserver.name)
            chosen |= found or {}
        return chosen

    def ask_to_reserve(
        self, reserver: Reserver, pod: PendingPod, node: NodeInfo, wall_seconds: float, others: Mapping[str, str]
    ) -> Reserved:
        """Run one reserver; ``others`` are the annotations that those before it chose.

        Raises:
            AlgorithmError: the reserver raised, or returned what it must not.
        """
        start = perf_counter()
        try:
            _check_caches(reserver)
            found = reserver.reserve(pod, node, wall_seconds)
            check_reserved(found, others)
        except FAULTS as error:
            raise self._failure(reserver.name, RESERVE, error) from error
        self._recorder.ran(reserver.name, RESERVE, perf_counter() - start, skipped=found is None)
        return found

    def _check(self, deadline_seconds: float | None, algorithm: str) -> None:
        if deadline_seconds is not None and self._now_seconds() > deadline_seconds:
            raise DeadlineExceeded(f"gave up before {algorithm}: the time kube-scheduler allows has passed")

    def _mind(self, algorithm: str, outcomes: Sequence[Outcome]) -> None:
        """Log, once, that the reasons of an algorithm are many."""
        if algorithm not in self._minded:
            self._minded.add(algorithm)
            extra = {"algorithm": algorithm, "reasons": len(outcomes), "such_as": outcomes[0].text}
            _log.warning("reasons differ from node to node, which is slow; they should be constants", extra=extra)

    def _failure(self, algorithm: str, point: str, error: BaseException) -> ExtenderError:
        self._recorder.failed(algorithm, point)
        if not isinstance(error, ExtenderError):
            return AlgorithmError(algorithm, f"{type(error).__name__}: {error}")
        failure = AlgorithmError(algorithm, str(error))
        failure.status = error.status  # a quantity or selector of the pod may be at fault
        return failure

    def _count(self, found: Filtered) -> None:
        if len(found.outcomes) == 1:
            counts = [int(np.count_nonzero(found.codes))]
        else:
            counts = np.bincount(found.codes, minlength=len(found.outcomes) + 1)[1:].tolist()
        for count, outcome in zip(counts, found.outcomes, strict=True):
            for reason in outcome.reasons if count else ():
                self._recorder.refused(outcome.algorithm, reason, count)


def _ask(predicate: Predicate, pod: PendingPod, nodes: Nodes, left: BoolArray | None) -> Skip | Filtered:
    """Return what a predicate makes of ``nodes``, or where it cannot be asked about all of them, of those ``left``."""
    _check_caches(predicate)
    try:
        verdict = predicate.filter(pod, nodes)
        return SKIP if verdict is SKIP else combine(verdict, len(nodes), predicate.name)
    except FAULTS:
        if left is None:
            raise
    found = _ask(predicate, pod, nodes.where(left), None)
    if found is SKIP:
        return SKIP
    codes = np.zeros(len(nodes), np.int64)
    codes[left] = found.codes
    return Filtered(codes, found.outcomes)


def _check_caches(algorithm: Algorithm) -> None:
    """Raise what a cache raised that the algorithm reads.

    Raises:
        CacheError: nobody knows the state of the cache.
    """
    for cache in algorithm.held_caches():
        if cache.cache_error is not None:
            raise cache.cache_error.with_traceback(None)  # it is raised again and again, and each adds to its own
