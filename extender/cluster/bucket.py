"""How much may be done at once and how much over time: a bucket from which tokens are taken and that fills up again."""

from __future__ import annotations

import time
from collections.abc import Callable

_ROUNDING = 1e-6
"""What waiting for just as long as a token takes may fall short of it."""


class TokenBucket:
    """Holds ``burst`` tokens at most and gets ``per_second`` new ones; it is full at the start."""

    __slots__ = ("_burst", "_clock", "_filled_at", "_per_second", "_tokens")

    def __init__(self, per_second: float, burst: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._per_second = per_second
        self._burst = burst
        self._clock = clock
        self._tokens = float(burst)
        self._filled_at = clock()

    def take(self) -> bool:
        """Take a token if there is one."""
        self._fill()
        if self._tokens < 1 - _ROUNDING:
            return False
        self._tokens -= 1
        return True

    def wait_seconds(self) -> float:
        """Return how long it takes until there is a token."""
        self._fill()
        return max(0.0, (1 - self._tokens) / self._per_second)

    def _fill(self) -> None:
        now = self._clock()
        self._tokens = min(float(self._burst), self._tokens + (now - self._filled_at) * self._per_second)
        self._filled_at = now
