"""A start of the service against an API server in another process, next to reading the same bytes alone."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from benchmarks.process import Child
from benchmarks.report import Row, row
from benchmarks.stopwatch import Sample
from benchmarks.workload import Plan, Start


def measure(plan: Plan, workloads: Sequence[Start]) -> Iterator[Row]:  # noqa: ARG001 - as all kinds are measured
    """Yield a row a workload; one start says enough, since it is long."""
    for workload in workloads:
        size = workload.cluster
        with Child("apiserver", size.nodes, size.pods, 0) as api:
            url = api.read()["url"]
            with Child("drain", url) as drain:
                alone = drain.read()
            with Child("service", url) as service:
                said = service.read()
        yield row(
            workload.name,
            f"{size.nodes} nodes, {size.pods} pods",
            "start",
            Sample(said["wall_seconds"], said["cpu_seconds"]),
            baseline="reading alone",
            ratio=said["cpu_seconds"] / alone["cpu_seconds"],
            target=workload.target,
            bytes_read=alone["bytes_read"],
            floor_cpu_seconds=alone["cpu_seconds"],
            floor_wall_seconds=alone["wall_seconds"],
            resident_bytes=said["resident_bytes"],
        )
