"""The embedded API server with a whole cluster: ``NODES PODS WAITING``.

Told ``{"churn": N}``, it changes pods at once, or ``per_second`` of them; told ``{"bind_seconds": S}``, every bind
takes that long.
"""

from __future__ import annotations

import asyncio
import gc
import sys
from collections.abc import Iterator
from time import perf_counter

import uvloop

from benchmarks import cluster
from benchmarks.child import hear, say
from benchmarks.cluster import Json
from benchmarks.detail import detailed_node, detailed_pod
from benchmarks.lifecycle import lifecycle
from extender.cluster.apiserver import ApiServer, Fault, Storage

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
                churn(server.storage, command["churn"], nodes)


def churn(storage: Storage, events: int, nodes: int) -> None:
    """Change pods so many times."""
    for type_, pod in lifecycle(events, nodes):
        meta = pod["metadata"]
        if type_ == "ADDED":
            storage.create("pods", pod)
        elif type_ == "MODIFIED":
            storage.update("pods", pod | {"metadata": meta | {"resourceVersion": None}})
        else:
            storage.delete("pods", meta["name"], meta["namespace"])


async def churn_slowly(server: ApiServer, events: int, per_second: int, nodes: int) -> None:
    """Change pods so many times a second; say when it begins, and how often a second it was in the end."""
    # Made up front in a storage of their own, so that the server has nothing to do but to tell of them.
    scratch, storage = Storage(), server.storage
    churn(scratch, events, nodes)
    pods = storage.catalogue.named("pods")
    changes, table = scratch.table(pods).read(0, events), storage.table(pods)
    gc.freeze()
    say(begun=True)
    started, done = perf_counter(), 0
    while done < events:
        due = min(events, int((perf_counter() - started) * per_second) + 1)
        for change in changes[done:due]:
            storage.resource_version += 1
            entry = change.entry.at_version(storage.resource_version)
            if change.type == "DELETED":
                table.remove(entry)
            else:
                table.put(entry)
        done = due
        await asyncio.sleep(_BEAT_SECONDS)
    say(per_second=events / (perf_counter() - started))


if __name__ == "__main__":
    uvloop.run(serve(*map(int, sys.argv[1:])))
