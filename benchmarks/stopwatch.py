"""Wall and processor time: of a function here, and of another process from outside."""

from __future__ import annotations

import gc
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from time import clock_gettime, perf_counter, process_time
from typing import Any, NamedTuple

_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


class Sample(NamedTuple):
    """What one operation took."""

    wall_seconds: float
    cpu_seconds: float


def middle(samples: list[Sample]) -> Sample:
    """Return the medians of some samples."""
    return Sample(median(each.wall_seconds for each in samples), median(each.cpu_seconds for each in samples))


def time_function(function: Callable[[], Any], rounds: int, round_seconds: float) -> Sample:
    """Return what one call takes, the median over ``rounds``; each calls as often as fits into ``round_seconds``."""
    with settled():
        times = max(1, round(round_seconds / max(_time_calls(function, 3).wall_seconds, 1e-7)))
        return middle([_time_calls(function, times) for _ in range(rounds)])


def _time_calls(function: Callable[[], Any], times: int) -> Sample:
    wall, cpu = perf_counter(), process_time()
    for _ in range(times):
        function()
    return Sample((perf_counter() - wall) / times, (process_time() - cpu) / times)


@contextmanager
def settled() -> Iterator[None]:
    """Keep the collector off everything that exists by now, as the service does once it is synced."""
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()


def cpu_seconds_of(pid: int) -> float:
    """Return the processor time that a process has used, all its threads together, to the nanosecond.

    The clock's number is made from the pid as Linux makes it (source: ``clock_getcpuclockid`` of its C libraries).
    """
    return clock_gettime(~pid << 3 | 2)


def resident_bytes_of(pid: int | str = "self") -> int:
    """Return the memory of a process that is resident."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * _PAGE_BYTES
