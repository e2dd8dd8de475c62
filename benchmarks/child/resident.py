"""Folds pods and says what they take: ``NODES PODS...``; another process makes the pods, so that only they remain."""

from __future__ import annotations

import gc
import subprocess
import sys
from itertools import islice
from time import perf_counter, process_time

from benchmarks.child import say
from benchmarks.mirror import Bench
from benchmarks.stopwatch import resident_bytes_of
from extender.cluster.watch import WatchDecoder
from extender.model.kind import NODES, PODS


def measure(nodes: int, sizes: list[int]) -> None:
    """Say at each of ``sizes`` what the pods so far take."""
    bench = Bench()
    node_decoder, pod_decoder = WatchDecoder(NODES), WatchDecoder(PODS)
    baseline = _resident()
    with subprocess.Popen(
        [sys.executable, "-m", "benchmarks.child.objects", str(nodes), str(sizes[-1])], stdout=subprocess.PIPE
    ) as maker:
        assert maker.stdout is not None
        for line in islice(maker.stdout, nodes):
            bench.nodes.upsert(node_decoder.event(line).object)
        before = _resident()
        wall, cpu, json_bytes, folded = perf_counter(), process_time(), 0, 0
        for size in sizes:
            for line in islice(maker.stdout, size - folded):
                bench.pods.upsert(pod_decoder.event(line).object)
                json_bytes += len(line)
            folded = size
            elapsed_wall, elapsed_cpu = perf_counter() - wall, process_time() - cpu
            say(
                bytes_per_pod=(_resident() - before) / size,
                bytes_per_node=(before - baseline) / nodes,
                baseline_bytes=baseline,
                json_bytes=json_bytes / size,
                wall_seconds=elapsed_wall / size,
                cpu_seconds=elapsed_cpu / size,
            )


def _resident() -> int:
    gc.collect()
    return resident_bytes_of()


if __name__ == "__main__":
    measure(int(sys.argv[1]), [int(size) for size in sys.argv[2:]])
