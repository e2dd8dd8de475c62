"""The service with a profile: ``API_URL PROFILE``, as JSON; says where it serves, then what its start took."""

from __future__ import annotations

import gc
import sys
from time import perf_counter, process_time
from typing import Any

import uvloop

from benchmarks.child import say, until, wait_for_end
from benchmarks.stopwatch import resident_bytes_of
from extender.cluster.connection import connect
from extender.config import load_configuration
from extender.runtime import Runtime
from extender.server import serving
from extender.telemetry import set_up_logging

_SETTINGS = ("server.host=127.0.0.1", "server.port=0", "management.host=127.0.0.1", "management.port=0")


class Pauses:
    """A callback of the garbage collector that keeps the longest time it held up the program."""

    def __init__(self) -> None:
        self.longest_seconds = 0.0
        self._started = 0.0

    def __call__(self, phase: str, _: dict[str, Any]) -> None:
        """Note the beginning or the end of a collection."""
        if phase == "start":
            self._started = perf_counter()
        else:
            self.longest_seconds = max(self.longest_seconds, perf_counter() - self._started)


async def serve(api_url: str, profile: str = "{}") -> None:
    """Serve until the run ends."""
    configuration = load_configuration(settings=(*_SETTINGS, f"profiles=[{profile}]"))
    set_up_logging("error", "text")  # what overload makes it warn of is measured, and would bury the table
    runtime = Runtime(configuration, connect(url=api_url))
    pauses = Pauses()
    gc.callbacks.append(pauses)
    before, wall, cpu = resident_bytes_of(), perf_counter(), process_time()
    async with serving(runtime) as ports:
        say(url=ports.url, management_url=ports.management_url)
        await until(lambda: not runtime.missing())
        wall, cpu = perf_counter() - wall, process_time() - cpu
        await until(gc.isenabled)  # what was synced is then out of the collector's sight
        at_sync_seconds, pauses.longest_seconds = pauses.longest_seconds, 0.0
        gc.collect()
        gc.callbacks.remove(pauses)
        say(
            wall_seconds=wall,
            cpu_seconds=cpu,
            resident_bytes=resident_bytes_of(),
            grown_bytes=resident_bytes_of() - before,
            sync_gc_seconds=at_sync_seconds,
            gc_seconds=pauses.longest_seconds,
        )
        await wait_for_end()


if __name__ == "__main__":
    uvloop.run(serve(*sys.argv[1:]))
