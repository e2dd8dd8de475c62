"""The service with a profile: ``API_URL PROFILE``, as JSON; says where it serves and what its start took."""

from __future__ import annotations

import gc
import sys
from time import perf_counter, process_time

import uvloop

from benchmarks.child import say, until, wait_for_end
from benchmarks.stopwatch import resident_bytes_of
from extender.cluster.connection import connect
from extender.config import load_configuration
from extender.runtime import Runtime
from extender.server import serving
from extender.telemetry import set_up_logging

_SETTINGS = ("server.host=127.0.0.1", "server.port=0", "management.host=127.0.0.1", "management.port=0")


async def serve(api_url: str, profile: str = "{}") -> None:
    """Serve until the run ends."""
    configuration = load_configuration(settings=(*_SETTINGS, f"profiles=[{profile}]"))
    set_up_logging("warning", "text")
    runtime = Runtime(configuration, connect(url=api_url))
    before, wall, cpu = resident_bytes_of(), perf_counter(), process_time()
    async with serving(runtime) as ports:
        await until(lambda: not runtime.missing())
        wall, cpu = perf_counter() - wall, process_time() - cpu
        await until(gc.isenabled)  # what was synced is then out of the collector's sight
        say(url=ports.url, wall_seconds=wall, cpu_seconds=cpu, resident_bytes=resident_bytes_of() - before)
        await wait_for_end()


if __name__ == "__main__":
    uvloop.run(serve(*sys.argv[1:]))
