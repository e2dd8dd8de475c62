"""A changed configuration: how long building the caches of new algorithms holds up the event loop."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain
from time import perf_counter, process_time

from benchmarks import cluster
from benchmarks.mirror import Bench
from benchmarks.report import Row, row
from benchmarks.stopwatch import Sample, settled
from benchmarks.workload import Plan, Reload
from extender.framework.cache import Cache
from extender.framework.mirror import Mirror


def measure(plan: Plan, workloads: Sequence[Reload]) -> Iterator[Row]:
    """Yield a row a workload: all caches of the default set built anew, in steps and next to each in one turn."""
    for workload in workloads:
        size = workload.cluster or plan.cluster
        bench = Bench()
        bench.fold(chain(cluster.namespaces(), cluster.nodes(size.nodes), cluster.pods(size.pods, size.nodes)))
        caches = [type(cache) for cache in bench.mirror.caches]
        with settled():
            whole, longest_whole = _build(bench.mirror, caches, size.nodes + size.pods)
            stepped, longest_step = _build(bench.mirror, caches)
        yield row(
            workload.name,
            f"{size.nodes} nodes, {size.pods} pods",
            "reload",
            stepped,
            baseline="each cache in one turn",
            ratio=stepped.cpu_seconds / whole.cpu_seconds,
            target=workload.target,
            longest_turn_milliseconds=longest_step * 1e3,
            longest_cache_milliseconds=longest_whole * 1e3,
            caches=len(caches),
        )


def _build(mirror: Mirror, caches: list[type[Cache]], *objects_a_step: int) -> tuple[Sample, float]:
    """Build caches anew one after the other; return what all take, and the longest time that one step does."""
    wall, cpu, longest = perf_counter(), process_time(), 0.0
    for cache in caches:
        mirror.drop_cache(cache)
        begun = perf_counter()
        for _ in mirror.build_cache(cache, *objects_a_step):
            longest, begun = max(longest, perf_counter() - begun), perf_counter()
        longest = max(longest, perf_counter() - begun)
    return Sample(perf_counter() - wall, process_time() - cpu), longest
