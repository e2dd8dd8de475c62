"""The events of placed pods that come, change and go."""

from __future__ import annotations

from collections.abc import Iterator

from benchmarks import cluster
from benchmarks.cluster import Json
from benchmarks.detail import detailed_pod, encode

_FIRST_VERSION = 10_000_000


def lifecycle(events: int, nodes: int) -> Iterator[tuple[str, Json]]:
    """Yield types of events and pods: four events a pod, of which one changes nothing that scheduling sees.

    Versions increase. Names are those of no other pods here.
    """
    version = _FIRST_VERSION
    for place, sparse in enumerate(cluster.pods((events + 3) // 4, nodes)):
        pod = detailed_pod(sparse)
        pod["metadata"] |= {"name": f"fleeting-{place:06d}", "uid": f"{pod['metadata']['uid'][:-6]}{place:06d}"}
        for type_, changed in _changes(pod):
            if version - _FIRST_VERSION == events:
                return
            version += 1
            yield type_, changed | {"metadata": changed["metadata"] | {"resourceVersion": str(version)}}


def _changes(pod: Json) -> Iterator[tuple[str, Json]]:
    restarted = pod | {"status": pod["status"] | {"podIP": "10.1.0.8"}}
    labels = pod["metadata"]["labels"] | {"tier": "canary"}
    relabelled = restarted | {"metadata": pod["metadata"] | {"labels": labels}}
    yield "ADDED", pod
    yield "MODIFIED", restarted
    yield "MODIFIED", relabelled
    yield "DELETED", relabelled


def lines(events: int, nodes: int) -> list[bytes]:
    """Return the events as they stand in a watch."""
    return [encode({"type": type_, "object": pod}) for type_, pod in lifecycle(events, nodes)]
