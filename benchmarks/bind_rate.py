"""How many binds a second go through while the API server takes its time, next to a bare handler."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from itertools import islice
from time import perf_counter
from urllib.parse import urlsplit

import msgspec

from benchmarks.process import Child
from benchmarks.report import Row, row
from benchmarks.request import bodies
from benchmarks.stopwatch import Sample
from benchmarks.workload import BindRate, Plan, Verb


def measure(plan: Plan, workloads: Sequence[BindRate]) -> Iterator[Row]:
    """Yield a row a workload."""
    for workload in workloads:
        yield _measure(plan, workload)


def _measure(plan: Plan, workload: BindRate) -> Row:
    size, waiting = plan.cluster, 2 * workload.binds
    with ExitStack() as stack:
        api = stack.enter_context(Child("apiserver", size.nodes, size.pods, waiting))
        api_url = api.read()["url"]
        ours = stack.enter_context(Child("service", api_url))
        floor = stack.enter_context(Child("floor", api_url))
        ours_url, floor_url = ours.read()["url"], floor.read()["url"]
        ours.read()  # it is synced
        api.write(bind_seconds=workload.latency_millis / 1000)
        api.read()
        supply = bodies(Verb(name="", verb="bind"), size, waiting)
        mine, theirs = list(islice(supply, workload.binds)), list(supply)
        least = _time(floor, floor_url, theirs, workload.concurrent)
        sample = _time(ours, ours_url, mine, workload.concurrent)
    return row(
        workload.name,
        f"{workload.concurrent} at a time, {workload.latency_millis} ms each",
        "bind",
        sample,
        baseline="bare ASGI handler",
        ratio=sample.cpu_seconds / least.cpu_seconds,
        target=workload.target,
        binds_per_second=1 / sample.wall_seconds,
        floor_binds_per_second=1 / least.wall_seconds,
        possible_per_second=workload.concurrent / workload.latency_millis * 1000,
    )


def _time(child: Child, url: str, requests: list[bytes], concurrent: int) -> Sample:
    """Return what one of the binds takes of the whole time, and of the server's processor time."""
    wall, cpu = perf_counter(), child.cpu_seconds()
    asyncio.run(_send(url, requests, concurrent))
    wall, cpu = perf_counter() - wall, child.cpu_seconds() - cpu
    return Sample(wall / len(requests), cpu / len(requests))


async def _send(url: str, requests: list[bytes], concurrent: int) -> None:
    left = iter(requests)
    async with asyncio.TaskGroup() as group:
        for _ in range(concurrent):
            group.create_task(_bind_on_one_connection(url, left))


async def _bind_on_one_connection(url: str, left: Iterator[bytes]) -> None:
    """Bind one after the other until none is left.

    Raises:
        RuntimeError: a bind failed.
    """
    parts = urlsplit(url)
    reader, writer = await asyncio.open_connection(parts.hostname, parts.port)
    for body in left:
        writer.write(b"POST /bind HTTP/1.1\r\nHost: %b\r\n" % parts.netloc.encode())
        writer.write(b"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body))
        head = (await reader.readuntil(b"\r\n\r\n")).lower()
        answer = await reader.readexactly(int(head.partition(b"content-length:")[2].split(b"\r\n")[0]))
        if not head.startswith(b"http/1.1 200 ") or msgspec.json.decode(answer).get("Error"):
            raise RuntimeError(f"/bind failed: {answer!r}")
    writer.close()
