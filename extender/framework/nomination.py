"""Nominated pods: pending pods for which preemption made room are counted on their node when others are filtered."""

from __future__ import annotations

import numpy as np

from extender.framework.candidate import Nodes
from extender.framework.mirror import Mirror
from extender.framework.outcome import Filtered, Outcome
from extender.framework.runner import Runner
from extender.model.pod import PendingPod, PodInfo


def filter_with_nominated(
    mirror: Mirror, runner: Runner, pod: PendingPod, nodes: Nodes, deadline_seconds: float | None = None
) -> Filtered:
    """Run the predicates; where pods of equal or higher priority are nominated, with and without these.

    A pod must fit both ways, because a nominated pod may come and may not: affinity could need it, resources could miss
    it. Source: RunFilterPluginsWithNominatedPods of framework/runtime, 1.36.

    Raises:
        AlgorithmError: a predicate failed.
        DeadlineExceeded: ``deadline_seconds`` passed.
    """
    filtered = runner.filter(pod, nodes, deadline_seconds)
    if not mirror.nominated:
        return filtered
    codes, outcomes = filtered.codes.copy(), list(filtered.outcomes)
    for name in mirror.nominated:
        row = mirror.table.index.get(name, -1)
        places = np.flatnonzero(nodes.rows == row)
        others = _counting(mirror, pod, name)
        if not len(places) or not others:
            continue
        with mirror.what_if(plus=others):
            outcome = runner.filter(pod, Nodes(mirror.table, nodes.rows[places[:1]]), deadline_seconds).of(0)
        if outcome is not None:
            codes[places] = _code(outcomes, outcome)
    return Filtered(codes, outcomes)


def _counting(mirror: Mirror, pod: PendingPod, name: str) -> list[PodInfo]:
    """Return the pods nominated for a node that count for ``pod``, as if they were there."""
    return [
        mirror.reader.placed_on(info, name)
        for info in mirror.nominated[name].values()
        if info.priority >= pod.priority and info.uid != pod.uid and info.uid not in mirror.assumed
    ]


def _code(outcomes: list[Outcome], outcome: Outcome) -> int:
    if outcome not in outcomes:
        outcomes.append(outcome)
    return outcomes.index(outcome) + 1
