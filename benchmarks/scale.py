"""The default algorithms in a large cluster, in processes of their own so that memory can be told."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from benchmarks.process import Child
from benchmarks.report import Row, row
from benchmarks.stopwatch import Sample
from benchmarks.workload import Cluster, Plan, Scale


def measure(plan: Plan, workloads: Sequence[Scale]) -> Iterator[Row]:
    """Yield two rows a pod, each next to what a node costs in the cluster compared with."""
    for workload in workloads:
        small, large = workload.baseline, workload.cluster
        _, small_samples = _evaluate(plan, small, workload.pods)
        resident_bytes, large_samples = _evaluate(plan, large, workload.pods)
        for case, sample in large_samples.items():
            per_node = small_samples[case].cpu_seconds / small.nodes
            yield row(
                workload.name,
                case,
                "evaluation",
                sample,
                baseline=f"a node of {small.nodes}",
                ratio=sample.cpu_seconds / large.nodes / per_node,
                target=workload.target,
                nodes=large.nodes,
                placed=large.pods,
                nanoseconds_per_node=sample.cpu_seconds / large.nodes * 1e9,
                resident_megabytes=resident_bytes / 1e6,
            )


def _evaluate(plan: Plan, size: Cluster, pods: list[str]) -> tuple[float, dict[str, Sample]]:
    """Return the resident bytes of a process with such a cluster, and what each case takes there."""
    with Child("evaluation", size.nodes, size.pods, plan.rounds, plan.round_seconds, *pods) as child:
        resident_bytes = child.read()["resident_bytes"]
        samples = {case: Sample(*sample) for case, sample in child.read().items()}
    return resident_bytes, samples
