"""An event loop on which time passes only by waiting, and then at once."""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class _Selector(selectors.SelectSelector):
    """Waits by moving the clock of its loop."""

    loop: VirtualLoop

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None:
            raise AssertionError("everything waits for something that will never come")
        self.loop.now += max(0.0, timeout)
        return super().select(0)


class VirtualLoop(asyncio.SelectorEventLoop):
    """``time()`` is the sum of all waits; the loop talks to nobody outside the process."""

    def __init__(self) -> None:
        self.now = 0.0
        selector = _Selector()
        selector.loop = self
        super().__init__(selector)

    def time(self) -> float:
        return self.now


def play(scene: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Run ``scene`` in virtual time and return what it returns."""
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(scene())


def now() -> float:
    """Return the virtual time in seconds since the scene began."""
    return asyncio.get_running_loop().time()


async def until(seconds: float) -> None:
    """Wait until it is so late."""
    await asyncio.sleep(max(0.0, seconds - now()))
