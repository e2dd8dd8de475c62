"""The embedded API server with a whole cluster: ``NODES PODS WAITING``; told ``{"churn": N}``, it changes pods."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import uvloop

from benchmarks import cluster
from benchmarks.child import hear, say
from benchmarks.cluster import Json
from benchmarks.detail import detailed_node, detailed_pod
from benchmarks.lifecycle import lifecycle
from extender.cluster.apiserver import ApiServer


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
            # All at once: the stream then runs from what has piled up, as fast as it can be read.
            churn(server, command["churn"], nodes)


def churn(server: ApiServer, events: int, nodes: int) -> None:
    """Make so many changes to pods."""
    for type_, pod in lifecycle(events, nodes):
        meta = pod["metadata"]
        if type_ == "ADDED":
            server.storage.create("pods", pod)
        elif type_ == "MODIFIED":
            server.storage.update("pods", pod | {"metadata": meta | {"resourceVersion": None}})
        else:
            server.storage.delete("pods", meta["name"], meta["namespace"])


if __name__ == "__main__":
    uvloop.run(serve(*map(int, sys.argv[1:])))
