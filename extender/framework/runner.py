"""Runs the enabled algorithms of one profile over the candidates of one request.

Everything that is the same for all algorithms lives here: order, first refusal, weights, checks of what an algorithm
returns, the name in its errors, its time and its counts, and the deadline.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import compress
from time import monotonic, perf_counter
from typing import Final, Protocol

import numpy as np
from numpy.typing import NDArray

from extender.errors import AlgorithmError, DeadlineExceeded, ExtenderError
from extender.framework.algorithm import MAX_NODE_SCORE, SKIP, Predicate, Priority, Refusal, Reserver, Skip
from extender.framework.candidate import Nodes
from extender.model.column import BoolArray, IntArray
from extender.model.node import NodeInfo
from extender.model.pod import PendingPod

_BITS: Final = 8
"""So many refusals have a bit each in a key of one byte."""


class Recorder(Protocol):
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


@dataclass(frozen=True)
class Outcome:
    """Why some of the candidates were refused."""

    reasons: tuple[str, ...]
    resolvable: bool
    algorithm: str
    error: bool = False
    """Whether the algorithm could not judge these candidates."""

    @classmethod
    def of(cls, refusals: Sequence[Refusal], algorithm: str) -> Outcome:
        """Return what all these refusals together mean for the candidates that they name."""
        reasons = tuple(dict.fromkeys(refusal.reason for refusal in refusals))
        error = any(refusal.error for refusal in refusals)
        return cls(reasons, not error and all(refusal.resolvable for refusal in refusals), algorithm, error)

    def joined(self, *others: Outcome) -> Outcome:
        """Return what this and others mean together; named after this one."""
        every = (self, *others)
        reasons = tuple(dict.fromkeys(reason for outcome in every for reason in outcome.reasons))
        error = any(outcome.error for outcome in every)
        return Outcome(reasons, all(outcome.resolvable for outcome in every), self.algorithm, error)

    @property
    def code(self) -> str:
        """Upstream's name for the kind of refusal."""
        if self.error:
            return "Error"
        return "Unschedulable" if self.resolvable else "UnschedulableAndUnresolvable"

    @property
    def text(self) -> str:
        """All reasons in one line, as kube-scheduler shows them."""
        return ", ".join(self.reasons)


@dataclass(frozen=True)
class Filtered:
    """What became of each candidate: ``codes``, shape (candidates,), is 0 where the pod fits, else an outcome's place.

    ``outcomes[code - 1]`` says why.
    """

    codes: NDArray[np.int64]
    outcomes: Sequence[Outcome]

    @property
    def fits(self) -> BoolArray:
        """Which candidates the pod fits; shape (candidates,)."""
        fits: BoolArray = self.codes == 0
        return fits

    def of(self, position: int) -> Outcome | None:
        """Return why the candidate at ``position`` was refused, or None where the pod fits."""
        code = int(self.codes[position])
        return self.outcomes[code - 1] if code else None


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
    weight_sum: int = field(init=False)
    reservers: Sequence[Reserver] = field(init=False)
    """Those of the algorithms that reserve, each once."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "weight_sum", sum(weighted.weight for weighted in self.priorities))
        algorithms = (*self.predicates, *(weighted.priority for weighted in self.priorities))
        reservers = {algorithm.name: algorithm for algorithm in algorithms if isinstance(algorithm, Reserver)}
        object.__setattr__(self, "reservers", tuple(reservers.values()))


class Runner:
    """Evaluates a profile; ``now_seconds`` is the clock that deadlines are read on."""

    def __init__(self, profile: Profile, recorder: Recorder, now_seconds: Callable[[], float] = monotonic) -> None:
        self.profile = profile
        self._recorder = recorder
        self._now_seconds = now_seconds

    def filter(self, pod: PendingPod, nodes: Nodes, deadline_seconds: float | None = None) -> Filtered:
        """Run the predicates in order; a candidate is out at its first refusal, unless all are to be checked.

        Raises:
            AlgorithmError: a predicate raised, or returned what it must not; names it.
            DeadlineExceeded: ``deadline_seconds`` passed between two predicates.
        """
        if self.profile.check_all:
            return self._filter_by_all(pod, nodes, deadline_seconds)
        codes: NDArray[np.int64] = np.zeros(len(nodes), np.int64)
        outcomes: list[Outcome] = []
        left, positions = nodes, None
        for predicate in self.profile.predicates:
            if not len(left):
                break
            self._check(deadline_seconds, predicate.name)
            verdict = self.evaluate(predicate, pod, left)
            if verdict is SKIP or not verdict:
                continue
            found, first = combine(verdict, len(left), predicate.name, len(outcomes)), len(outcomes)
            if not found.outcomes:
                continue
            outcomes += found.outcomes
            self._count(found, first)
            if positions is None:
                codes = found.codes
                positions = np.flatnonzero(codes == 0)
                left = nodes.where(codes == 0)
            else:
                codes[positions] = found.codes
                keep = found.codes == 0
                positions, left = positions[keep], left.where(keep)
        return Filtered(codes, outcomes)

    def _filter_by_all(self, pod: PendingPod, nodes: Nodes, deadline_seconds: float | None) -> Filtered:
        filtered = Filtered(np.zeros(len(nodes), np.int64), [])
        for predicate in self.profile.predicates if len(nodes) else ():
            self._check(deadline_seconds, predicate.name)
            verdict = self.evaluate(predicate, pod, nodes)
            if verdict is not SKIP and verdict:
                found = combine(verdict, len(nodes), predicate.name)
                self._count(found, 0)
                filtered = join(filtered, found)
        return filtered

    def evaluate(self, predicate: Predicate, pod: PendingPod, nodes: Nodes) -> Skip | list[Refusal]:
        """Run one predicate over all of ``nodes``.

        Raises:
            AlgorithmError: the predicate raised.
        """
        start = perf_counter()
        try:
            verdict = predicate.filter(pod, nodes)
            refusals = verdict if verdict is SKIP else list(verdict)
        except Exception as error:
            raise self._failure(predicate.name, "filter", error) from error
        self._recorder.ran(predicate.name, "filter", perf_counter() - start, skipped=verdict is SKIP)
        return refusals

    def score(self, priority: Priority, pod: PendingPod, nodes: Nodes) -> Skip | tuple[IntArray, IntArray]:
        """Run one priority; return raw and normalised scores, each of shape (candidates,), int64.

        Raises:
            AlgorithmError: the priority raised, or its scores do not fit the candidates or 0..100.
        """
        start = perf_counter()
        try:
            raw = priority.prioritize(pod, nodes)
            normalized = raw if raw is SKIP else priority.normalize(pod, nodes, raw)
        except Exception as error:
            raise self._failure(priority.name, "prioritize", error) from error
        self._recorder.ran(priority.name, "prioritize", perf_counter() - start, skipped=raw is SKIP)
        if raw is SKIP or normalized is SKIP:
            return SKIP
        _check_scores(priority.name, normalized, len(nodes))
        return raw, normalized

    def prioritize(self, pod: PendingPod, nodes: Nodes, deadline_seconds: float | None = None) -> IntArray:
        """Return the sum of weight times normalised score over the priorities; shape (candidates,), int64.

        A priority that skips adds nothing. The greatest possible value is ``100 * profile.weight_sum``.

        Raises:
            AlgorithmError: a priority raised, or returned what it must not; names it.
            DeadlineExceeded: ``deadline_seconds`` passed between two priorities.
        """
        total: IntArray = np.zeros(len(nodes), np.int64)
        for weighted in self.profile.priorities:
            self._check(deadline_seconds, weighted.priority.name)
            scores = self.score(weighted.priority, pod, nodes)
            if scores is not SKIP:
                total += scores[1] * weighted.weight
        return total

    def reserve(self, pod: PendingPod, node: NodeInfo, wall_seconds: float) -> dict[str, str] | Outcome:
        """Have the reservers choose for a pod on a node; return the annotations of all, or why one of them cannot.

        Raises:
            AlgorithmError: a reserver raised, or returned what it must not; names it.
        """
        chosen: dict[str, str] = {}
        for reserver in self.profile.reservers:
            start = perf_counter()
            try:
                found = reserver.reserve(pod, node, wall_seconds)
            except Exception as error:
                raise self._failure(reserver.name, "reserve", error) from error
            self._recorder.ran(reserver.name, "reserve", perf_counter() - start, skipped=found is None)
            if isinstance(found, Refusal):
                return Outcome.of([found], reserver.name)
            _check_annotations(reserver.name, found or {}, chosen)
            chosen |= found or {}
        return chosen

    def _check(self, deadline_seconds: float | None, algorithm: str) -> None:
        if deadline_seconds is not None and self._now_seconds() > deadline_seconds:
            raise DeadlineExceeded(f"gave up before {algorithm}: the time kube-scheduler allows has passed")

    def _failure(self, algorithm: str, point: str, error: Exception) -> ExtenderError:
        self._recorder.failed(algorithm, point)
        if not isinstance(error, ExtenderError):
            return AlgorithmError(algorithm, f"{type(error).__name__}: {error}")
        failure = AlgorithmError(algorithm, str(error))
        failure.status = error.status  # a quantity or selector of the pod may be at fault
        return failure

    def _count(self, found: Filtered, first: int) -> None:
        if not found.outcomes:
            return
        counts = np.bincount(found.codes, minlength=first + len(found.outcomes) + 1)
        for place, outcome in enumerate(found.outcomes, first + 1):
            for reason in outcome.reasons:
                self._recorder.refused(outcome.algorithm, reason, int(counts[place]))


def join(left: Filtered, right: Filtered) -> Filtered:
    """Return what two predicates, or groups of them, together make of the same candidates, with the reasons of both."""
    pairs = left.codes * (len(right.outcomes) + 1) + right.codes
    distinct, codes = np.unique(np.append(pairs, 0), return_inverse=True)
    outcomes = []
    for pair in distinct.tolist()[1:]:
        codes_of_pair = zip((left, right), divmod(pair, len(right.outcomes) + 1), strict=True)
        first, *second = (filtered.outcomes[code - 1] for filtered, code in codes_of_pair if code)
        outcomes.append(first.joined(*second))
    return Filtered(codes[:-1].astype(np.int64, copy=False), outcomes)


def combine(refusals: Iterable[Refusal], candidates: int, algorithm: str, first: int = 0) -> Filtered:
    """Give each candidate one code from all refusals of one predicate; codes begin at ``first + 1``.

    Raises:
        AlgorithmError: a refusal has no reason, or its mask does not fit the candidates.
    """
    kept = list(refusals)
    for refusal in kept:
        _check_refusal(algorithm, refusal, candidates)
    if len(kept) == 1:
        only = kept[0]
        outcome = Outcome.of(kept, algorithm)
        if only.nodes is None:
            return Filtered(np.full(candidates, first + 1, np.int64), [outcome])
        codes = only.nodes * np.int64(first + 1)
        return Filtered(codes, [outcome] if codes.any() else [])
    keys, named_by_key = _group(kept, candidates)
    outcomes: list[Outcome] = []
    codes_by_key = np.zeros(max(named_by_key, default=0) + 1, np.int64)
    for key, named in named_by_key.items():
        outcomes.append(Outcome.of(named, algorithm))
        codes_by_key[key] = first + len(outcomes)
    return Filtered(codes_by_key.take(keys), outcomes)


def _group(refusals: list[Refusal], candidates: int) -> tuple[NDArray[np.intp], dict[int, list[Refusal]]]:
    """Return a key a candidate, equal for candidates that the same refusals name, and these refusals by key, ascending.

    Keys have shape (candidates,); that of candidates that nothing names is 0 and has no entry.
    """
    if len(refusals) > _BITS:
        return _group_many(refusals, candidates)
    bits = [1 << place for place in range(_BITS - 1, _BITS - 1 - len(refusals), -1)]
    packed = np.zeros(candidates, np.uint8)
    for refusal, bit in zip(refusals, bits, strict=True):
        packed |= np.uint8(bit) if refusal.nodes is None else refusal.nodes * np.uint8(bit)
    keys = packed.astype(np.intp)
    found: list[int] = np.flatnonzero(np.bincount(keys)).tolist()
    members = {key: [refusal for refusal, bit in zip(refusals, bits, strict=True) if key & bit] for key in found if key}
    return keys, members


def _group_many(refusals: list[Refusal], candidates: int) -> tuple[NDArray[np.intp], dict[int, list[Refusal]]]:
    """Do the same for more refusals than a byte has bits: the keys number the distinct sets, in the same order."""
    masks: BoolArray = np.empty((candidates, len(refusals)), np.bool_)
    for place, refusal in enumerate(refusals):
        masks[:, place] = True if refusal.nodes is None else refusal.nodes
    packed = np.packbits(masks, axis=1)
    _, places, keys = np.unique(packed.view(f"V{packed.shape[1]}").ravel(), return_index=True, return_inverse=True)
    members = {key: list(compress(refusals, named)) for key, named in enumerate(masks[places].tolist()) if any(named)}
    return keys, members


def _check_refusal(algorithm: str, refusal: object, candidates: int) -> None:
    if not isinstance(refusal, Refusal):
        raise AlgorithmError(algorithm, f"a predicate must return refusals, got {_kind(refusal)}")
    if not refusal.reason:
        raise AlgorithmError(algorithm, "a refusal must have a reason")
    mask = refusal.nodes
    if mask is not None and not (_has_shape(mask, candidates) and mask.dtype == np.bool_):
        raise AlgorithmError(algorithm, f"a refusal's nodes must be bool of shape ({candidates},), got {_kind(mask)}")


def _check_scores(algorithm: str, scores: IntArray, candidates: int) -> None:
    if not (_has_shape(scores, candidates) and scores.dtype.kind == "i"):
        raise AlgorithmError(algorithm, f"scores must be integers of shape ({candidates},), got {_kind(scores)}")
    if candidates and (int(scores.min()) < 0 or int(scores.max()) > MAX_NODE_SCORE):
        raise AlgorithmError(
            algorithm,
            f"normalised scores must be 0 to {MAX_NODE_SCORE}, got {int(scores.min())} to {int(scores.max())}",
        )


def _check_annotations(algorithm: str, annotations: object, others: Mapping[str, str]) -> None:
    if not isinstance(annotations, Mapping) or not all(
        isinstance(text, str) for pair in annotations.items() for text in pair
    ):
        raise AlgorithmError(algorithm, f"a reserver must return annotations of text, got {annotations!r}")
    taken = sorted(annotations.keys() & others.keys())
    if taken:
        raise AlgorithmError(algorithm, f"annotation {taken[0]!r} is set by another algorithm as well")


def _has_shape(value: object, candidates: int) -> bool:
    return isinstance(value, np.ndarray) and value.shape == (candidates,)


def _kind(value: object) -> str:
    return f"{value.dtype} of shape {value.shape}" if isinstance(value, np.ndarray) else type(value).__name__
