"""What holds memory: by line of code where allocations are traced, else objects by type."""

from __future__ import annotations

import gc
import tracemalloc
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path

import numpy as np

from extender.framework.cache import Cache

_STATUS = Path("/proc/self/status")


def memory_report(cache_bytes: Mapping[str, int], most: int) -> str:
    """Return a page of text; at most so many lines of code, or types."""
    lines = [f"resident {_resident_kibibytes()} KiB", "", "bytes in the arrays of each cache:"]
    lines += [f"{size:>14} {name}" for name, size in sorted(cache_bytes.items(), key=lambda item: -item[1])]
    lines += ["", *(_by_line(most) if tracemalloc.is_tracing() else _by_type(most))]
    lines += ["", f"garbage collector: {gc.get_freeze_count()} objects frozen, counts {gc.get_count()}"]
    lines += [
        f"generation {number}: {stats['collections']} collections, {stats['collected']} collected"
        for number, stats in enumerate(gc.get_stats())
    ]
    return "\n".join(lines) + "\n"


def array_bytes(caches: Iterable[Cache]) -> dict[str, int]:
    """Return the bytes in the arrays that each cache holds itself, by the cache's name."""
    return {type(cache).__name__: sum(map(_bytes, vars(cache).values())) for cache in caches}


def _bytes(value: object) -> int:
    if isinstance(value, np.ndarray):
        return value.nbytes
    if isinstance(value, dict):
        return sum(part.nbytes for part in value.values() if isinstance(part, np.ndarray))
    return 0


def _by_line(most: int) -> list[str]:
    snapshot = tracemalloc.take_snapshot().filter_traces([tracemalloc.Filter(False, tracemalloc.__file__)])
    found = snapshot.statistics("lineno")
    traced, peak = tracemalloc.get_traced_memory()
    lines = [f"traced {traced} bytes now, {peak} at most", f"{'bytes':>14} {'blocks':>10} allocated at"]
    return lines + [
        f"{each.size:>14} {each.count:>10} {each.traceback[0].filename}:{each.traceback[0].lineno}"
        for each in found[:most]
    ]


def _by_type(most: int) -> list[str]:
    counts = Counter(map(type, gc.get_objects()))
    lines = [
        "objects that the garbage collector follows, without frozen ones (PYTHONTRACEMALLOC=1 tells bytes by line):"
    ]
    return lines + [f"{count:>14} {kind.__module__}.{kind.__qualname__}" for kind, count in counts.most_common(most)]


def _resident_kibibytes() -> str:
    found = [line for line in _STATUS.read_text().splitlines() if line.startswith("VmRSS:")]
    return found[0].split()[1] if found else "unknown"
