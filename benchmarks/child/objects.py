"""Writes nodes and then pods as lines of a watch: ``NODES PODS``."""

from __future__ import annotations

import sys
from itertools import chain

from benchmarks import cluster
from benchmarks.detail import detailed_node, detailed_pod, encode


def write(nodes: int, pods: int) -> None:
    """Write all objects to stdout."""
    items = chain(map(detailed_node, cluster.nodes(nodes)), map(detailed_pod, cluster.pods(pods, nodes)))
    for item in items:
        sys.stdout.buffer.write(b'{"type":"ADDED","object":%b}\n' % encode(item))


if __name__ == "__main__":
    write(int(sys.argv[1]), int(sys.argv[2]))
