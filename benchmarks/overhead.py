"""What HTTP and JSON add to the default algorithms: the verbs from outside, less the same calls in process."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from benchmarks import cluster
from benchmarks.evaluation import time_pair
from benchmarks.mirror import Bench
from benchmarks.process import Child
from benchmarks.report import Row, row
from benchmarks.request import Connection, bodies
from benchmarks.stopwatch import Sample, middle
from benchmarks.workload import Overhead, Plan, Verb

_LISTS = 32
_PAIRS_A_ROUND = 4


def measure(plan: Plan, workloads: Sequence[Overhead]) -> Iterator[Row]:
    """Yield a row a workload."""
    for workload in workloads:
        inside = _in_process(plan, workload.names)
        outside = _over_http(plan, workload.names)
        yield row(
            workload.name,
            "filter and prioritize",
            "pod",
            outside,
            baseline="in process",
            ratio=outside.cpu_seconds / inside.cpu_seconds,
            target=workload.target,
            overhead_milliseconds=(outside.wall_seconds - inside.wall_seconds) * 1e3,
            overhead_cpu_milliseconds=(outside.cpu_seconds - inside.cpu_seconds) * 1e3,
            inside_milliseconds=inside.wall_seconds * 1e3,
        )


def _in_process(plan: Plan, names: int) -> Sample:
    size = plan.cluster
    bench = Bench()
    bench.fold([*cluster.namespaces(), *cluster.nodes(size.nodes), *cluster.pods(size.pods, size.nodes)])
    return time_pair(plan, bench, names)


def _over_http(plan: Plan, names: int) -> Sample:
    size = plan.cluster
    asked = bodies(Verb(name="", verb="filter", names=names, lists=_LISTS), size, 0)
    samples = []
    with Child("apiserver", size.nodes, size.pods, 0) as api, Child("service", api.read()["url"]) as service:
        url = service.read()["url"]
        service.read()  # it is synced
        with Connection(url) as connection:
            for _ in range(plan.rounds + 1):
                wall, cpu = 0.0, service.cpu_seconds()
                for _ in range(_PAIRS_A_ROUND):
                    body = next(asked)
                    wall += connection.post("filter", body)[1] + connection.post("prioritize", body)[1]
                cpu = service.cpu_seconds() - cpu
                samples.append(Sample(wall / _PAIRS_A_ROUND, cpu / _PAIRS_A_ROUND))
    return middle(samples[1:])  # without the round that warmed up
