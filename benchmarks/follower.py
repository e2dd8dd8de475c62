"""A reflector of pods whose store is timed."""

from __future__ import annotations

import asyncio
from time import perf_counter, process_time
from typing import Any

from benchmarks.stopwatch import Sample, middle
from extender.cluster.client import Client
from extender.cluster.reflector import Reflector
from extender.model.kind import PODS, Store


class Meter:
    """A store that passes everything on, and takes the time of ``rounds`` equal parts of the events after the list."""

    def __init__(self, store: Store, events: int, rounds: int) -> None:
        self._store = store
        self._step = max(1, (events - 1) // rounds)
        self._events = events
        self._seen = 0
        self._listing = False
        self._marks: list[Sample] = []
        self.listed = asyncio.Event()
        self.done = asyncio.Event()

    def begin(self) -> None:
        """Start a list; an empty one must not delete what is there already."""
        self._listing = True

    def upsert(self, item: Any) -> None:
        """Pass on an object."""
        self._store.upsert(item)
        self._count()

    def delete(self, item: Any) -> None:
        """Pass on a name."""
        self._store.delete(item)
        self._count()

    def finish(self) -> None:
        """End the list; the clock starts."""
        self._listing = False
        self.listed.set()

    def _count(self) -> None:
        if self._listing:
            return
        if self._seen % self._step == 0:
            self._marks.append(Sample(perf_counter(), process_time()))
        self._seen += 1
        if self._seen == self._events:
            self.done.set()

    def sample(self) -> Sample:
        """Return what one event takes, the median over the parts."""
        steps = zip(self._marks, self._marks[1:], strict=False)
        return middle(
            [
                Sample(
                    (after.wall_seconds - before.wall_seconds) / self._step,
                    (after.cpu_seconds - before.cpu_seconds) / self._step,
                )
                for before, after in steps
            ]
        )


async def follow(client: Client, meter: Meter) -> Sample:
    """Follow the pods of a server until the events that the meter expects have come; return what one takes."""
    task = asyncio.create_task(Reflector(PODS, client, meter).run())
    await meter.done.wait()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    return meter.sample()
