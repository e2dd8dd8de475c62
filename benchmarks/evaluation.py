"""The algorithms alone: what filtering and scoring all nodes takes for one pod."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from itertools import count
from typing import Final

import msgspec

from benchmarks import cluster
from benchmarks.mirror import Bench
from benchmarks.report import Row, row
from benchmarks.stopwatch import Sample, time_function
from benchmarks.workload import Cluster, Evaluation, Plan
from extender.framework.candidate import Nodes
from extender.framework.nomination import filter_with_nominated
from extender.model.object import Pod
from extender.model.pod import PendingPod

_STAYING: Final = 100
"""So many pods that came are there at a time."""


def measure(plan: Plan, workloads: Sequence[Evaluation]) -> Iterator[Row]:
    """Yield two rows a pod, next to the first pod's."""
    for workload in workloads:
        size = workload.cluster or plan.cluster
        bench = Bench(workload.profile)
        objects = cluster.big(size.nodes, size.pods)["objects"]
        if workload.own_labels:
            objects = [_label(item, place) for place, item in enumerate(objects)]
        bench.fold([*objects, *cluster.nominated(min(workload.nominated, size.nodes))])
        between = _arrivals(bench, size) if workload.own_labels else nothing
        firsts: dict[str, Sample] = {}
        for name in workload.pods:
            for point, sample, figures in time_points(plan, bench, name, between):
                first = firsts.setdefault(point, sample)
                yield row(
                    workload.name,
                    f"{name}: {point}",
                    "evaluation",
                    sample,
                    baseline=workload.pods[0],
                    ratio=sample.cpu_seconds / first.cpu_seconds,
                    target=workload.target,
                    **figures,
                )


def nothing() -> None:
    """Do nothing between two requests."""


def time_points(
    plan: Plan, bench: Bench, name: str, between: Callable[[], None] = nothing
) -> Iterator[tuple[str, Sample, dict[str, float]]]:
    """Yield what filtering takes for a pod seen for the first time, and then what scoring takes.

    What ``between`` does before each of them is measured with it.
    """
    kinds = cluster.pending() | {"ports": cluster.with_ports()} | cluster.with_selectors()
    pod = msgspec.convert(kinds[name], Pod)
    table, runner = bench.mirror.table, bench.runner
    rows = table.rows()
    fits = runner.filter(PendingPod(pod), Nodes(table, rows)).fits
    figures = {"nodes": float(len(rows)), "fit": float(fits.sum())}

    def ask() -> None:
        between()
        filter_with_nominated(bench.mirror, runner, PendingPod(pod), Nodes(table, rows))

    yield "filter", time_function(ask, plan.rounds, plan.round_seconds / 2), figures
    seen, kept = PendingPod(pod), Nodes(table, rows[fits])
    runner.filter(seen, Nodes(table, rows))

    def score() -> None:
        between()
        runner.prioritize(seen, kept)

    yield "prioritize", time_function(score, plan.rounds, plan.round_seconds / 2), figures


def _label(item: cluster.Json, place: int) -> cluster.Json:
    return cluster.with_own_label(item, place) if item["kind"] == "Pod" else item


def _arrivals(bench: Bench, size: Cluster) -> Callable[[], None]:
    """Return what has a pod come with a label of its own, and another one go after a while, at each call."""
    template = next(cluster.pods(1, size.nodes))
    held: deque[Pod] = deque()
    numbers = count(size.pods)

    def arrive() -> None:
        number = next(numbers)
        item = cluster.with_own_label(template, number)
        meta = {**item["metadata"], "name": f"own-{number}", "uid": f"uid-own-{number}"}
        held.append(msgspec.convert({**item, "metadata": meta}, Pod))
        bench.pods.upsert(held[-1])
        if len(held) > _STAYING:
            bench.pods.delete(held.popleft())

    return arrive


def time_pair(plan: Plan, bench: Bench, names: int) -> Sample:
    """Return what filtering and then scoring so many nodes takes for a pod seen for the first time."""
    pod = msgspec.convert(cluster.pending()["plain"], Pod)
    table, runner = bench.mirror.table, bench.runner
    nodes = Nodes(table, table.rows()[:names])

    def evaluate() -> None:
        seen = PendingPod(pod)
        runner.filter(seen, nodes)
        runner.prioritize(seen, nodes)

    return time_function(evaluate, plan.rounds, plan.round_seconds)
