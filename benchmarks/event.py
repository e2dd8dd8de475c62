"""Watch events on their way from bytes into every cache, next to decoding them alone."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from typing import cast

from benchmarks import cluster
from benchmarks.follower import Meter, follow
from benchmarks.lifecycle import lines
from benchmarks.mirror import Bench
from benchmarks.process import Child
from benchmarks.report import Row, row
from benchmarks.stopwatch import Sample, settled, time_function
from benchmarks.workload import Event, Plan
from extender.cluster.client import Client
from extender.cluster.watch import WatchDecoder
from extender.model.kind import PODS

_END_OF_LIST = (
    b'{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"1",'
    b'"annotations":{"k8s.io/initial-events-end":"true"}}}}'
)
_LINES_A_READ = 20
"""As many as come at a time over a busy connection: about 128 KiB."""


def measure(plan: Plan, workloads: Sequence[Event]) -> Iterator[Row]:
    """Yield a row a workload."""
    for workload in workloads:
        said = lines(workload.events, plan.cluster.nodes)
        alone = _decode_alone(said, plan)
        sample = _over_loopback(workload, plan) if workload.loopback else _in_process(said, plan)
        yield row(
            workload.name,
            "",
            "event",
            sample,
            baseline="decoding alone",
            ratio=sample.cpu_seconds / alone.cpu_seconds,
            target=workload.target,
            per_second=1 / sample.wall_seconds,
            per_cpu_second=1 / sample.cpu_seconds,
            event_bytes=sum(map(len, said)) / len(said),
        )


def _decode_alone(said: list[bytes], plan: Plan) -> Sample:
    decoder = WatchDecoder(PODS)
    some = said[:1000]

    def decode() -> None:
        for line in some:
            decoder.event(line)

    whole = time_function(decode, plan.rounds, plan.round_seconds / 2)
    return Sample(whole.wall_seconds / len(some), whole.cpu_seconds / len(some))


def _in_process(said: list[bytes], plan: Plan) -> Sample:
    bench = Bench()
    bench.fold([*cluster.nodes(plan.cluster.nodes), *cluster.pods(plan.cluster.pods, plan.cluster.nodes)])
    with settled():
        return asyncio.run(follow(cast(Client, _Script(said)), Meter(bench.pods, len(said), plan.rounds)))


def _over_loopback(workload: Event, plan: Plan) -> Sample:
    size = plan.cluster
    with (
        Child("apiserver", size.nodes, size.pods, 0) as api,
        Child("follower", api.read()["url"], workload.events, plan.rounds) as follower,
    ):
        follower.read()
        api.write(churn=workload.events)
        return Sample(**follower.read())


class _Script:
    """A client whose one watch says given lines after an empty list, and then is silent."""

    def __init__(self, said: list[bytes]) -> None:
        self._said = said

    @asynccontextmanager
    async def stream(self, *_: object, **__: object) -> AsyncIterator[AsyncIterator[list[bytes]]]:
        """Open the watch, whatever is asked for."""
        yield self._batches()

    async def _batches(self) -> AsyncIterator[list[bytes]]:
        yield [_END_OF_LIST]
        for first in range(0, len(self._said), _LINES_A_READ):
            yield self._said[first : first + _LINES_A_READ]
        await asyncio.Event().wait()
