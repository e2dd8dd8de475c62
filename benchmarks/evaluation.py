"""The algorithms alone: what filtering and scoring all nodes takes for one pod."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from benchmarks import cluster
from benchmarks.mirror import Bench
from benchmarks.report import Row, row
from benchmarks.stopwatch import Sample, time_function
from benchmarks.workload import Evaluation, Plan
from extender.framework.candidate import Nodes
from extender.model.object import Pod
from extender.model.pod import PendingPod


def measure(plan: Plan, workloads: Sequence[Evaluation]) -> Iterator[Row]:
    """Yield two rows a pod, next to the first pod's."""
    for workload in workloads:
        size = workload.cluster or plan.cluster
        bench = Bench(workload.profile)
        bench.fold(cluster.big(size.nodes, size.pods)["objects"])
        firsts: dict[str, Sample] = {}
        for name in workload.pods:
            for point, sample, figures in time_points(plan, bench, name):
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


def time_points(plan: Plan, bench: Bench, name: str) -> Iterator[tuple[str, Sample, dict[str, float]]]:
    """Yield what filtering takes for a pod seen for the first time, and then what scoring takes."""
    pod = msgspec.convert((cluster.pending() | {"ports": cluster.with_ports()})[name], Pod)
    table, runner = bench.mirror.table, bench.runner
    rows = table.rows()
    fits = runner.filter(PendingPod(pod), Nodes(table, rows)).fits
    figures = {"nodes": float(len(rows)), "fit": float(fits.sum())}
    yield (
        "filter",
        time_function(lambda: runner.filter(PendingPod(pod), Nodes(table, rows)), plan.rounds, plan.round_seconds / 2),
        figures,
    )
    seen, kept = PendingPod(pod), Nodes(table, rows[fits])
    runner.filter(seen, Nodes(table, rows))
    yield (
        "prioritize",
        time_function(lambda: runner.prioritize(seen, kept), plan.rounds, plan.round_seconds / 2),
        figures,
    )


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
