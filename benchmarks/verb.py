"""The verbs over HTTP, next to a bare handler that gets the same bodies."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from itertools import islice
from statistics import median
from typing import Any

import msgspec

from benchmarks.process import Child
from benchmarks.report import Row, row
from benchmarks.request import Connection, bodies
from benchmarks.stopwatch import Sample, middle
from benchmarks.workload import Plan, Verb

_GROUP = 4
"""Requests between two readings of the server's clock; fewer than the service remembers lists of names."""

_WARM_UP = 2 * _GROUP
_BINDS_A_ROUND = 16


class Side:
    """One of the two servers that are compared."""

    def __init__(self, child: Child, connection: Connection) -> None:
        self._child = child
        self._connection = connection

    def time(self, verb: str, requests: Sequence[bytes], prelude: str = "") -> Sample:
        """Return what one of some requests takes; with ``prelude``, each was sent to that verb before, unmeasured."""
        wall = cpu = 0.0
        for start in range(0, len(requests), _GROUP):
            group = requests[start : start + _GROUP]
            if prelude:
                for body in group:
                    self._connection.post(prelude, body)
            before = self._child.cpu_seconds()
            for body in group:
                answer, seconds = self._connection.post(verb, body)
                wall += seconds
            cpu += self._child.cpu_seconds() - before
            _check(verb, msgspec.json.decode(answer))
        return Sample(wall / len(requests), cpu / len(requests))


def measure(plan: Plan, workloads: Sequence[Verb]) -> Iterator[Row]:
    """Yield a row a workload; all of them share one cluster and its servers."""
    waiting = 2 * (_WARM_UP + plan.rounds * _BINDS_A_ROUND)
    with ExitStack() as stack:
        api = stack.enter_context(Child("apiserver", plan.cluster.nodes, plan.cluster.pods, waiting))
        api_url = api.read()["url"]
        profile = msgspec.json.encode(plan.profile).decode()
        children = [
            stack.enter_context(Child(*program)) for program in (("service", api_url, profile), ("floor", api_url))
        ]
        ours, floor = (Side(child, stack.enter_context(Connection(child.read()["url"]))) for child in children)
        children[0].read()  # it is synced
        for workload in workloads:
            yield _measure(plan, workload, ours, floor, waiting)


def _measure(plan: Plan, workload: Verb, ours: Side, floor: Side, waiting: int) -> Row:
    verb = workload.verb
    supply = bodies(workload, plan.cluster, waiting)
    # A request to prioritize follows one to filter for the same pod and nodes.
    prelude = "filter" if verb == "prioritize" else ""

    def draw(count: int) -> tuple[list[bytes], list[bytes]]:
        """Return requests for the two; a pod can be bound once only."""
        drawn = list(islice(supply, count))
        return drawn, list(islice(supply, count)) if verb == "bind" else drawn

    mine, theirs = draw(_WARM_UP)
    warm = (ours.time(verb, mine, prelude), floor.time(verb, theirs))
    slowest_seconds = max(sample.wall_seconds for sample in warm)
    count = _BINDS_A_ROUND if verb == "bind" else max(_GROUP, round(plan.round_seconds / slowest_seconds))
    pairs = []
    for _ in range(plan.rounds):
        mine, theirs = draw(count)
        pairs.append((ours.time(verb, mine, prelude), floor.time(verb, theirs)))
    least = middle([pair[1] for pair in pairs])
    return row(
        workload.name,
        "",
        "request",
        middle([pair[0] for pair in pairs]),
        baseline="bare ASGI handler",
        ratio=median(mine.cpu_seconds / theirs.cpu_seconds for mine, theirs in pairs),
        target=workload.target,
        floor_cpu_seconds=least.cpu_seconds,
        floor_wall_seconds=least.wall_seconds,
        body_bytes=len(mine[0]),
        requests=plan.rounds * count,
    )


def _check(verb: str, answer: Any) -> None:
    """Refuse to measure failures.

    Raises:
        RuntimeError: the answer is one.
    """
    failed = answer.get("Error") if isinstance(answer, dict) else not answer
    if verb == "preempt":
        failed = failed or not answer["NodeNameToMetaVictims"]
    if failed:
        raise RuntimeError(f"/{verb} failed: {answer}")
