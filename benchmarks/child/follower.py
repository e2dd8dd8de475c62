"""Follows an API server's pods into every cache: ``API_URL EVENTS ROUNDS``; says when it is synced, then figures."""

from __future__ import annotations

import asyncio
import gc
import sys

import uvloop

from benchmarks.child import say
from benchmarks.follower import Meter, follow
from benchmarks.mirror import Bench
from extender.cluster.client import Client
from extender.cluster.connection import connect


async def run(api_url: str, events: int, rounds: int) -> None:
    """Sync, say so, and measure what comes then."""
    bench = Bench()
    meter = Meter(bench.pods, events, rounds)
    client = Client(connect(url=api_url))
    following = asyncio.create_task(follow(client, meter))
    await meter.listed.wait()
    gc.freeze()
    say(synced=True)
    sample = await following
    await client.close()
    say(**sample._asdict())


if __name__ == "__main__":
    uvloop.run(run(sys.argv[1], int(sys.argv[2]), int(sys.argv[3])))
