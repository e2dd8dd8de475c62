"""The default algorithms with a whole cluster: ``NODES PODS ROUNDS ROUND_SECONDS POD...``; says memory, then times."""

from __future__ import annotations

import gc
import sys
from itertools import chain

from benchmarks import cluster
from benchmarks.child import say
from benchmarks.evaluation import time_points
from benchmarks.mirror import Bench
from benchmarks.stopwatch import resident_bytes_of
from benchmarks.workload import Cluster, Plan


def evaluate(size: Cluster, rounds: int, round_seconds: float, pods: list[str]) -> None:
    """Say what the cluster takes in memory, and what filtering and scoring take for each pod."""
    bench = Bench()
    # One object at a time: only what the service keeps of them is to remain.
    bench.fold(chain(cluster.namespaces(), cluster.nodes(size.nodes), cluster.pods(size.pods, size.nodes)))
    gc.collect()
    say(resident_bytes=resident_bytes_of())
    plan = Plan(rounds=rounds, round_seconds=round_seconds, cluster=size, workloads=[])
    say(**{f"{name}: {point}": sample for name in pods for point, sample, _ in time_points(plan, bench, name)})


if __name__ == "__main__":
    nodes, placed, rounds, round_seconds, *names = sys.argv[1:]
    evaluate(Cluster(int(nodes), int(placed)), int(rounds), float(round_seconds), names)
