"""How an algorithm is run: whether its answer counts, what its failure means, and how long it may take.

A treatment wraps the runs of one algorithm at one point. Those that are treated as usual are run as they are.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from time import perf_counter
from typing import Any, Final, Protocol, TypeAlias, TypeVar

import numpy as np

from extender.errors import AlgorithmError
from extender.framework.algorithm import SKIP, Predicate, Priority, Refusal, Reserver, Skip
from extender.framework.candidate import Nodes
from extender.framework.outcome import Filtered
from extender.model.column import BoolArray, IntArray
from extender.model.node import NodeInfo
from extender.model.pod import PendingPod

_log = logging.getLogger(__name__)

FILTER: Final = "filter"
PRIORITIZE: Final = "prioritize"
RESERVE: Final = "reserve"

LOG_SECONDS: Final = 10.0
"""How long an algorithm that is logged for one thing is not logged for it again."""
_NAMED_NODES: Final = 5

T = TypeVar("T")
Reserved: TypeAlias = Mapping[str, str] | Refusal | None
Evaluate: TypeAlias = Callable[[Predicate, PendingPod, Nodes, BoolArray | None], Skip | Filtered]
Score: TypeAlias = Callable[[Priority, PendingPod, Nodes], Skip | tuple[IntArray, IntArray]]
Reserve: TypeAlias = Callable[[Reserver, PendingPod, NodeInfo, float, Mapping[str, str]], Reserved]


@dataclass(frozen=True)
class Treatment:
    """What is made of the runs of one algorithm at one point.

    In ``shadow`` its answer, on the nodes that it is asked about, is counted and thrown away. With ``ignore_errors`` a
    failure is an answer of ``SKIP``; in shadow it always is. Runs over ``budget_seconds`` are reported.
    """

    shadow: bool = False
    ignore_errors: bool = False
    budget_seconds: float | None = None


USUAL: Final = Treatment()


class TreatmentRecorder(Protocol):
    """Receives what treatments bring about."""

    def would_refuse(self, algorithm: str, reason: str, nodes: int) -> None:
        """Note that an algorithm in shadow would have refused some nodes."""

    def passed_over(self, algorithm: str, point: str) -> None:
        """Note that an algorithm raised, and its failure was ignored."""

    def overran(self, algorithm: str, point: str) -> None:
        """Note that a run took longer than its algorithm may."""


class Attendant:
    """Runs algorithms as their treatments say; one for each runner."""

    def __init__(self, recorder: TreatmentRecorder, now_seconds: Callable[[], float]) -> None:
        self._recorder = recorder
        self._pace = _Pace(now_seconds)

    def filtering(self, treatment: Treatment, evaluate: Evaluate) -> Evaluate:
        """Return ``evaluate`` with the treatment around it."""
        if treatment == USUAL:
            return evaluate

        def treated(predicate: Predicate, pod: PendingPod, nodes: Nodes, left: BoolArray | None) -> Skip | Filtered:
            found = self._run(treatment, predicate.name, FILTER, pod, lambda: evaluate(predicate, pod, nodes, left))
            if found is None or found is SKIP:
                return SKIP
            if not treatment.shadow:
                return found
            counts = np.bincount(found.codes, minlength=len(found.outcomes) + 1).tolist()[1:]
            for count, outcome in zip(counts, found.outcomes, strict=True):
                for reason in outcome.reasons:
                    self._recorder.would_refuse(predicate.name, reason, count)
            texts = {outcome.text: count for count, outcome in zip(counts, found.outcomes, strict=True)}
            _tell("would refuse", predicate.name, pod, nodes.where(~found.fits), candidates=len(nodes), by=texts)
            return SKIP

        return treated

    def scoring(self, treatment: Treatment, score: Score) -> Score:
        """Return ``score`` with the treatment around it."""
        if treatment == USUAL:
            return score

        def treated(priority: Priority, pod: PendingPod, nodes: Nodes) -> Skip | tuple[IntArray, IntArray]:
            found = self._run(treatment, priority.name, PRIORITIZE, pod, lambda: score(priority, pod, nodes))
            if found is None or found is SKIP:
                return SKIP
            if not treatment.shadow:
                return found
            best = int(found[1].max(initial=0))
            _tell("would prefer", priority.name, pod, nodes.where(found[1] == best), candidates=len(nodes), score=best)
            return SKIP

        return treated

    def reserving(self, treatment: Treatment, reserve: Reserve) -> Reserve:
        """Return ``reserve`` with the treatment around it; what is in shadow must not reserve at all."""
        if treatment == USUAL:
            return reserve

        def treated(
            reserver: Reserver, pod: PendingPod, node: NodeInfo, wall_seconds: float, others: Mapping[str, str]
        ) -> Reserved:
            work = partial(reserve, reserver, pod, node, wall_seconds, others)
            return self._run(treatment, reserver.name, RESERVE, pod, work)

        return treated

    def _run(
        self, treatment: Treatment, algorithm: str, point: str, pod: PendingPod, work: Callable[[], T]
    ) -> T | None:
        """Return what ``work`` does, or None where it failed and that is to be ignored."""
        start = perf_counter()
        try:
            return work()
        except AlgorithmError as error:
            if not (treatment.ignore_errors or treatment.shadow):
                raise
            self._recorder.passed_over(algorithm, point)
            failed = {"pod": pod.key, "error": str(error)}
            self._warn("algorithm failed and is passed over", algorithm, point, failed, error.__cause__)
            return None
        finally:
            seconds = perf_counter() - start
            if treatment.budget_seconds is not None and seconds > treatment.budget_seconds:
                self._recorder.overran(algorithm, point)
                took = {"pod": pod.key, "seconds": round(seconds, 6), "budget_seconds": treatment.budget_seconds}
                self._warn("algorithm over its time budget", algorithm, point, took)

    def _warn(
        self, message: str, algorithm: str, point: str, fields: dict[str, Any], cause: BaseException | None = None
    ) -> None:
        held_back = self._pace.admit((message, algorithm, point))
        if held_back is not None:
            extra = {"algorithm": algorithm, "point": point, **fields, "held_back": held_back}
            _log.warning(message, extra=extra, exc_info=cause)


class _Pace:
    """Lets one of a kind through every so often, and counts those that it holds back."""

    def __init__(self, now_seconds: Callable[[], float]) -> None:
        self._now_seconds = now_seconds
        self._last: dict[object, tuple[float, int]] = {}

    def admit(self, key: object) -> int | None:
        """Return how many were held back since the last one that was let through, or None to hold this one back."""
        now = self._now_seconds()
        last, held_back = self._last.get(key, (now - LOG_SECONDS, 0))
        if now - last < LOG_SECONDS:
            self._last[key] = (last, held_back + 1)
            return None
        self._last[key] = (now, 0)
        return held_back


def _tell(message: str, algorithm: str, pod: PendingPod, nodes: Nodes, **fields: Any) -> None:
    if len(nodes) and _log.isEnabledFor(logging.DEBUG):
        some = nodes.names()[:_NAMED_NODES]
        _log.debug(
            message, extra={"algorithm": algorithm, "pod": pod.key, "nodes": len(nodes), "such_as": some, **fields}
        )
