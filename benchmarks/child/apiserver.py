"""The embedded API server with a whole cluster: ``NODES PODS WAITING``.

Told ``{"churn": N}``, it changes pods at once, or ``per_second`` of them; told ``{"bind_seconds": S}``, every bind
takes that long.
"""

from __future__ import annotations

import asyncio
import gc
import sys
from collections.abc import Iterable, Iterator
from time import perf_counter

import uvloop

from benchmarks import cluster
from benchmarks.child import hear, say
from benchmarks.cluster import Json
from benchmarks.detail import detailed_node, detailed_pod
from benchmarks.lifecycle import lifecycle
from extender.cluster.apiserver import ApiServer, Fault

_BEAT_SECONDS = 0.005


def objects(nodes: int, pods: int, waiting: int) -> Iterator[Json]:
    """Yield the cluster, one object at a time."""
    yield from cluster.namespaces()
    yield from map(detailed_node, cluster.nodes(nodes))
    yield from map(detailed_pod, cluster.pods(pods, nodes))
    yield from map(detailed_pod, cluster.waiting(waiting))


async def serve(nodes: int, pods: int, waiting: int) -> None:
    """Serve until the run ends, and let pods come and go when told to."""
    async with ApiServer(objects(nodes, pods, waiting)) as server:
        say(url=server.url)
        async for command in hear():
            if "bind_seconds" in command:
                server.faults.add(
                    Fault(method="POST", path="/binding$", count=None, delay_before=command["bind_seconds"])
                )
                say(slow=True)
            elif "per_second" in command:
                await churn_slowly(server, command["churn"], command["per_second"], nodes)
            else:
                # All at once: the stream then runs from what has piled up, as fast as it can be read.
                churn(server, lifecycle(command["churn"], nodes))


def churn(server: ApiServer, changes: Iterable[tuple[str, Json]]) -> None:
    """Change pods."""
    for type_, pod in changes:
        meta = pod["metadata"]
        if type_ == "ADDED":
            server.storage.create("pods", pod)
        elif type_ == "MODIFIED":
            server.storage.update("pods", pod | {"metadata": meta | {"resourceVersion": None}})
        else:
            server.storage.delete("pods", meta["name"], meta["namespace"])


async def churn_slowly(server: ApiServer, events: int, per_second: int, nodes: int) -> None:
    """Change pods so many times a second; say when it begins, and how often a second it was in the end."""
    changes = list(lifecycle(events, nodes))
    gc.freeze()
    say(begun=True)
    started, done = perf_counter(), 0
    while done < events:
        due = min(events, int((perf_counter() - started) * per_second) + 1)
        churn(server, changes[done:due])
        done = due
        await asyncio.sleep(_BEAT_SECONDS)
    say(per_second=events / (perf_counter() - started))


if __name__ == "__main__":
    uvloop.run(serve(*map(int, sys.argv[1:])))
