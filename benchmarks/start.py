"""A start of the service against an API server in another process, next to reading the same bytes alone."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from benchmarks.process import Child
from benchmarks.report import Row, row
from benchmarks.request import Connection, bodies
from benchmarks.stopwatch import Sample
from benchmarks.workload import Cluster, Plan, Start, Verb

_PAUSE_SECONDS = 0.02
_LEAST_ASKED = 3


def measure(plan: Plan, workloads: Sequence[Start]) -> Iterator[Row]:  # noqa: ARG001 - as all kinds are measured
    """Yield a row a workload; one start says enough, since it is long."""
    for workload in workloads:
        size = workload.cluster
        with Child("apiserver", size.nodes, size.pods, 0) as api:
            url = api.read()["url"]
            with Child("drain", url) as drain:
                alone = drain.read()
            with Child("service", url) as service:
                said, waits = _ask_meanwhile(service, size)
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
            resident_megabytes=said["resident_bytes"] / 1e6,
            grown_megabytes=said["grown_bytes"] / 1e6,
            gc_milliseconds=said["gc_seconds"] * 1e3,
            sync_gc_milliseconds=said["sync_gc_seconds"] * 1e3,
            answered_meanwhile=len(waits),
            longest_answer_milliseconds=max(waits) * 1e3,
        )


def _ask_meanwhile(service: Child, size: Cluster) -> tuple[dict[str, Any], list[float]]:
    """Return what a service says once it is synced, and how long each answer took that was asked for until then."""
    waits: list[float] = []
    asked = bodies(Verb(name="", verb="filter", names=1), size, 0)
    with Connection(service.read()["url"]) as connection, ThreadPoolExecutor(1) as reader:
        synced = reader.submit(service.read)
        while not synced.done() or len(waits) < _LEAST_ASKED:
            waits.append(connection.post("filter", next(asked))[1])
            time.sleep(_PAUSE_SECONDS)
        return synced.result(), waits
