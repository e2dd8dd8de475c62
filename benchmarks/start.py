"""A start of the service against an API server in another process, next to reading the same bytes alone."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import msgspec

from benchmarks.process import Child
from benchmarks.report import Row, row
from benchmarks.request import Connection, bodies
from benchmarks.stopwatch import Sample
from benchmarks.workload import Cluster, Plan, Start, Verb

_PAUSE_SECONDS = 0.02


def measure(plan: Plan, workloads: Sequence[Start]) -> Iterator[Row]:  # noqa: ARG001 - as all kinds are measured
    """Yield a row a workload; one start says enough, since it is long."""
    for workload in workloads:
        size = workload.cluster
        with Child("apiserver", size.nodes, size.pods, 0) as api:
            url = api.read()["url"]
            with Child("drain", url) as drain:
                alone = drain.read()
            with Child("service", url) as service:
                said, answers = _ask_meanwhile(service, size)
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
            not_ready_answers=sum(_is_not_ready(answer) for answer, _ in answers),
            longest_answer_milliseconds=max(seconds for _, seconds in answers) * 1e3,
        )


def _ask_meanwhile(service: Child, size: Cluster) -> tuple[dict[str, Any], list[tuple[bytes, float]]]:
    """Return what a service says once it is synced, and its answers until then with the seconds that each took."""
    asked = bodies(Verb(name="", verb="filter", names=1), size, 0)
    with Connection(service.read()["url"]) as connection, ThreadPoolExecutor(1) as reader:
        synced = reader.submit(service.read)
        answers = [connection.post("filter", next(asked))]
        while not synced.done():
            time.sleep(_PAUSE_SECONDS)
            answers.append(connection.post("filter", next(asked)))
        return synced.result(), answers


def _is_not_ready(answer: bytes) -> bool:
    """Return whether the service said that it is not ready.

    Raises:
        RuntimeError: it failed for another reason.
    """
    error = str(msgspec.json.decode(answer).get("Error") or "")
    if error and not error.startswith("not ready"):
        raise RuntimeError(f"/filter failed: {answer!r}")
    return bool(error)
