"""Reads what a start of the service reads, and makes nothing of it: ``API_URL``."""

from __future__ import annotations

import sys
from time import perf_counter, process_time

import aiohttp
import uvloop

from benchmarks.child import say
from extender.cluster.client import READ_BUFFER_BYTES
from extender.model.kind import NODES, PODS

_END_OF_LIST = b"k8s.io/initial-events-end"


async def drain(api_url: str) -> None:
    """Read nodes and pods to the end of their lists."""
    wall, cpu, size = perf_counter(), process_time(), 0
    params = {"watch": "true", "sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan"}
    async with aiohttp.ClientSession(read_bufsize=READ_BUFFER_BYTES) as session:
        for kind in (NODES, PODS):
            query = params | {"allowWatchBookmarks": "true", "fieldSelector": kind.field_selector}
            async with session.get(api_url + kind.path, params=query) as response:
                tail = b""
                while _END_OF_LIST not in tail:
                    chunk = await response.content.readany()
                    size += len(chunk)
                    tail = tail[-len(_END_OF_LIST) :] + chunk[-1000:]
    say(bytes_read=size, wall_seconds=perf_counter() - wall, cpu_seconds=process_time() - cpu)


if __name__ == "__main__":
    uvloop.run(drain(sys.argv[1]))
