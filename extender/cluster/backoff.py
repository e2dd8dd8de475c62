"""How long to wait before trying again: capped exponential growth, made uneven by chance."""

from __future__ import annotations

import random
from collections.abc import Callable

MAX_RETRY_AFTER_SECONDS = 300.0
"""Longest ``Retry-After`` that is honoured; a larger one is a mistake or an attack."""


class Backoff:
    """Delays between failed attempts, each between half and all of a ceiling that doubles up to a cap.

    The lower half is kept free of chance so that the rate has a bound: with the defaults no minute holds more than ten
    attempts, however the dice fall.
    """

    def __init__(
        self,
        base_seconds: float = 0.4,
        cap_seconds: float = 30.0,
        random_source: Callable[[], float] = random.random,
    ) -> None:
        self._base_seconds = base_seconds
        self._cap_seconds = cap_seconds
        self._random = random_source
        self._ceiling_seconds = base_seconds

    def next(self, retry_after_seconds: float | None = None) -> float:
        """Return the seconds to wait now, and make the next wait longer.

        ``retry_after_seconds`` is what the server asked for; it is waited out before the delay of one's own.
        """
        delay = self._ceiling_seconds * (0.5 + 0.5 * self._random())
        self._ceiling_seconds = min(self._ceiling_seconds * 2, self._cap_seconds)
        return delay + min(max(retry_after_seconds or 0.0, 0.0), MAX_RETRY_AFTER_SECONDS)

    def shortest(self) -> float:
        """Return the seconds to wait before an attempt that is known to be worth it; the next wait stays as it is."""
        return self._base_seconds * (0.5 + 0.5 * self._random())

    def reset(self) -> None:
        """Start over with the shortest delay, once things have been well for a while."""
        self._ceiling_seconds = self._base_seconds
