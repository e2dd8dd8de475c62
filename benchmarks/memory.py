"""What a pod takes in memory, next to its size as JSON."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from benchmarks.process import Child
from benchmarks.report import Row, row
from benchmarks.stopwatch import Sample
from benchmarks.workload import Memory, Plan


def measure(plan: Plan, workloads: Sequence[Memory]) -> Iterator[Row]:
    """Yield a row a number of pods."""
    for workload in workloads:
        with Child("resident", plan.cluster.nodes, *workload.pods) as child:
            for pods in workload.pods:
                said = child.read()
                yield row(
                    workload.name,
                    f"{pods} pods",
                    "pod",
                    Sample(said["wall_seconds"], said["cpu_seconds"]),
                    baseline="bytes of JSON",
                    ratio=said["bytes_per_pod"] / said["json_bytes"],
                    target=workload.target,
                    bytes_per_pod=said["bytes_per_pod"],
                    bytes_per_node=said["bytes_per_node"],
                    baseline_bytes=said["baseline_bytes"],
                )
