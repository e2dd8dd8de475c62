"""Faults on demand: what a test makes the server do wrong, to which requests and how often."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Literal

from extender.cluster.apiserver.answer import Answer, answer_error
from extender.cluster.apiserver.status import StatusError


class Interruption(StrEnum):
    """What happens to a watch."""

    HANG = "hang"
    """Nothing is sent any more; the connection stays, as if the peer had vanished."""
    END = "end"
    """The stream ends in good order."""
    CUT = "cut"
    """The connection is reset."""
    GARBAGE = "garbage"
    """A line that is no JSON is sent, then the watch goes on."""
    TRUNCATED = "truncated"
    """The stream ends in the middle of a line."""
    EXPIRED = "expired"
    """The stream says 410 and ends."""


@dataclass(eq=False)
class Fault:
    """One fault; it strikes requests that match all of ``method``, ``path`` and ``watch``.

    ``path`` is a regular expression searched in the request's path, without its query. ``count`` is how many requests
    are struck, None for all until the fault is removed. Delays are seconds, or an event to wait for. The order is:
    ``delay_before``, then ``cut="before"`` (reset, nothing done) or ``status`` (nothing done, this answer), then the
    request is done, ``delay_after``, ``cut="after"`` (done, but the connection is reset before the answer). A watch is
    interrupted once it has sent ``after_lines`` lines.
    """

    method: str | None = None
    path: str = ""
    watch: bool | None = None
    count: int | None = 1
    delay_before: float | asyncio.Event = 0.0
    status: int | None = None
    body: bytes | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    delay_after: float | asyncio.Event = 0.0
    cut: Literal["before", "after"] | None = None
    interruption: Interruption | None = None
    after_lines: int = 0
    hits: int = 0
    """How many requests were struck so far."""

    def matches(self, method: str, path: str, watch: bool) -> bool:
        """Tell whether the fault strikes such a request, if any is left to strike."""
        return (
            (self.count is None or self.hits < self.count)
            and self.method in (None, method)
            and self.watch in (None, watch)
            and re.search(self.path, path) is not None
        )

    def answer(self) -> Answer | None:
        """Return what is answered instead of doing what was asked for."""
        if self.status is None:
            return None
        if self.body is None:
            failure = answer_error(StatusError(self.status, "the request was refused on demand"))
            return Answer(self.status, failure.pieces, self.headers)
        return Answer(self.status, (self.body,), self.headers)


class FaultList:
    """The faults of one server, in the order in which they were added."""

    def __init__(self) -> None:
        self._faults: list[Fault] = []

    def add(self, fault: Fault) -> Fault:
        """Let a fault strike from now on, after those that are there, and return it."""
        self._faults.append(fault)
        return fault

    def remove(self, fault: Fault) -> None:
        """Let a fault strike no more."""
        self._faults.remove(fault)

    def clear(self) -> None:
        """Remove all faults."""
        self._faults.clear()

    def strike(self, method: str, path: str, watch: bool) -> Fault | None:
        """Return the first fault that strikes a request, and count the strike."""
        for fault in self._faults:
            if fault.matches(method, path, watch):
                fault.hits += 1
                return fault
        return None


async def pass_delay(delay: float | asyncio.Event) -> None:
    """Wait for some seconds or for an event."""
    if isinstance(delay, asyncio.Event):
        await delay.wait()
    elif delay:
        await asyncio.sleep(delay)
