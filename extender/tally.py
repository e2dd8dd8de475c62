"""Counts of what happens a dozen times a request: plain numbers, turned into series only when they are scraped.

One event loop adds to them without a lock; a scrape on another thread may see a run whose time is not added yet.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable
from itertools import accumulate

from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

_BOUNDS_SECONDS = (0.00005, 0.0001, 0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.05, 0.25, 1.0)
_LABELS = ("algorithm", "point")


class RunTally(Collector):
    """Times and skips of algorithms, by algorithm and point."""

    def __init__(self, prefix: str) -> None:
        self._prefix = prefix
        self._runs: dict[tuple[str, str], _Runs] = {}

    def add(self, algorithm: str, point: str, seconds: float, *, skipped: bool) -> None:
        """Note one run."""
        runs = self._runs.get((algorithm, point))
        if runs is None:
            runs = self._runs[algorithm, point] = _Runs()
        runs.counts[bisect_left(_BOUNDS_SECONDS, seconds)] += 1
        runs.seconds += seconds
        if skipped:
            runs.skips += 1

    def collect(self) -> Iterable[Metric]:
        """Return the series of all algorithms that ran."""
        times = HistogramMetricFamily(
            f"{self._prefix}_algorithm_duration_seconds", "Time of one algorithm in one request.", labels=_LABELS
        )
        skips = CounterMetricFamily(
            f"{self._prefix}_algorithm_skips", "Requests an algorithm had no opinion on.", labels=_LABELS
        )
        bounds = [*map(str, _BOUNDS_SECONDS), "+Inf"]
        for labels, runs in list(self._runs.items()):
            times.add_metric(labels, list(zip(bounds, accumulate(runs.counts), strict=True)), runs.seconds)
            if runs.skips:
                skips.add_metric(labels, runs.skips)
        return [times, skips]


class _Runs:
    """Runs of one algorithm at one point: how many by bucket, not summed up, their seconds, and skips among them."""

    __slots__ = ("counts", "seconds", "skips")

    def __init__(self) -> None:
        self.counts = [0] * (len(_BOUNDS_SECONDS) + 1)
        self.seconds = 0.0
        self.skips = 0
