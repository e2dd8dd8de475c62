"""Events about pods: what ``kubectl describe pod`` shows of the service's decisions.

::

    verb ──a tuple──▶ queue ──▶ series: same pod, reason and text ──▶ waiting ──▶ POST once, PATCH its count later
                      full: dropped     one pod too often: dropped     at a limited rate

A verb pays for a tuple and nothing else; one task makes texts of them, logs them and writes them. Whatever the API
server answers disturbs nobody: an event that it refuses is dropped, one that does not reach it waits its turn.

Facts: the validation of ``events.k8s.io/v1``, which lets nothing but the series change, and the limits of client-go
``tools/events`` and ``tools/record``, 1.36.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any, Final, NamedTuple, Protocol
from urllib.parse import quote

import msgspec

from extender.cluster.backoff import Backoff
from extender.cluster.bucket import TokenBucket
from extender.errors import ApiError

_log = logging.getLogger(__name__)

CONTROLLER: Final = "scheduler-extender"
SERIES_SECONDS = 360.0
"""After so long without a repetition the next one is an event of its own."""
POD_BURST, POD_PER_SECOND = 25, 1 / 300
"""How many writes one pod may cause at once, and over time."""
MOST_NOTE_BYTES = 1024
CREATED, UPDATED = "created", "updated"
QUEUE_FULL, POD_LIMIT, REFUSED, STALE = "queue-full", "pod-limit", "refused", "stale"

_MOST_SERIES = 4096
_MOST_NAME = 253
_MOST_INSTANCE = 128
_TURN = 20
"""Tuples made into texts before requests get their turn; about half a millisecond of work."""
_REQUEST_SECONDS = 5.0
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_TOO_MANY, _NOT_FOUND, _CONFLICT, _FORBIDDEN = 429, 404, 409, 403


class Sender(Protocol):
    """What is asked of the API server's client."""

    async def request(
        self,
        method: str,
        path: str,
        *,
        body: bytes | None = None,
        content_type: str = "application/json",
        timeout_seconds: float | None = 10.0,
    ) -> bytes:
        """Send one request and return the body of the answer; raises ApiError or ApiUnreachable."""


class _Subject(NamedTuple):
    namespace: str
    name: str
    uid: str


class _Message(NamedTuple):
    """What is said; ``family`` is equal for texts that differ in nothing that matters."""

    type: str
    reason: str
    action: str
    note: str
    family: object


class _Series:
    """One thing that is said of one pod, once or again and again; times are nanoseconds since 1970."""

    __slots__ = ("count", "first", "last", "message", "subject", "written")

    def __init__(self, subject: _Subject, message: _Message, first: int) -> None:
        self.subject = subject
        self.message = message
        self.first = self.last = first
        self.count = 0
        self.written = 0
        """The count that the API server knows."""

    @property
    def name(self) -> str:
        """The event's name: the pod's, cut to leave room, and the moment."""
        suffix = f".{self.first:x}"
        return self.subject.name[: _MOST_NAME - len(suffix)].rstrip("-.") + suffix


_Queued = tuple[int, Callable[..., _Message], _Subject, tuple[Any, ...]]
_Key = tuple[_Subject, str, object]


class EventBroadcaster:
    """Takes note of what became of pods, and tells the log and the API server.

    ``written`` counts by ``created`` and ``updated``; ``dropped`` by why: ``queue-full``, ``pod-limit`` (too often of
    one pod), ``refused`` (by the API server) and ``stale`` (still unwritten after the time of a series).
    """

    def __init__(
        self,
        client: Sender,
        *,
        instance: str,
        queue_length: int = 1000,
        per_second: float = 50.0,
        burst: int = 100,
        clock: Callable[[], float] = time.monotonic,
        wall_nanos: Callable[[], int] = time.time_ns,
        backoff: Backoff | None = None,
    ) -> None:
        self.written: Counter[str] = Counter({CREATED: 0, UPDATED: 0})
        self.dropped: Counter[str] = Counter(dict.fromkeys((QUEUE_FULL, POD_LIMIT, REFUSED, STALE), 0))
        self._client = client
        self._instance = instance[:_MOST_INSTANCE]
        self._queue_length = queue_length
        self._clock = clock
        self._wall_nanos = wall_nanos
        self._backoff = backoff or Backoff()
        self._bucket = TokenBucket(per_second, burst, clock)
        self._pod_buckets: OrderedDict[_Subject, TokenBucket] = OrderedDict()
        self._queue: deque[_Queued] = deque()
        self._wake = asyncio.Event()
        self._series: OrderedDict[_Key, _Series] = OrderedDict()
        """The longest unheard of come first."""
        self._waiting: dict[_Series, None] = {}
        """In the order in which they are to be written."""
        self._problem = ""

    # --- what verbs call ---------------------------------------------------------------------------------------------

    def bound(self, namespace: str, name: str, uid: str, node: str) -> None:
        """Note that a pod was bound."""
        self._put(_say_bound, _Subject(namespace, name, uid), node)

    def bind_failed(self, namespace: str, name: str, uid: str, node: str, problem: str) -> None:
        """Note that a pod was not bound, and why."""
        self._put(_say_not_bound, _Subject(namespace, name, uid), node, problem)

    def nothing_fits(
        self, namespace: str, name: str, uid: str, nodes: int, refusals: Sequence[tuple[int, Sequence[str]]]
    ) -> None:
        """Note that none of so many nodes fits a pod; ``refusals`` has numbers of nodes, each with its reasons."""
        self._put(_say_nothing_fits, _Subject(namespace, name, uid), nodes, refusals)

    def _put(self, say: Callable[..., _Message], subject: _Subject, *facts: Any) -> None:
        if len(self._queue) >= self._queue_length:
            self.dropped[QUEUE_FULL] += 1
            return
        self._queue.append((self._wall_nanos(), say, subject, facts))
        self._wake.set()

    # --- the task ----------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Write events until cancelled; nothing that goes wrong with one of them ends it."""
        while True:
            self._wake.clear()
            self._fold(_TURN)
            self._finish_old_series()
            if self._waiting and self._bucket.take():
                await asyncio.sleep(await self._write_next())
            elif self._queue:
                await asyncio.sleep(0)
            else:
                await self._pause(self._bucket.wait_seconds() if self._waiting else SERIES_SECONDS)

    async def flush(self, limit_seconds: float) -> None:
        """Write what is left, once ``run`` has ended, as far as ``limit_seconds`` and the API server allow."""
        self._fold(len(self._queue))
        for series in self._series.values():
            self._await_turn(series)
        with suppress(TimeoutError):
            async with asyncio.timeout(limit_seconds):
                while self._waiting and not await self._write_next():
                    pass
        if self._waiting:
            _log.warning("events lost", extra={"count": len(self._waiting), "problem": self._problem})

    async def _pause(self, seconds: float) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._wake.wait()

    def _fold(self, most: int) -> None:
        """Make series of what was noted, of so many tuples at most."""
        for _ in range(min(most, len(self._queue))):
            moment, say, subject, facts = self._queue.popleft()
            message = say(subject, *facts)
            key = (subject, message.reason, message.family)
            series = self._series.get(key)
            if series is None:
                series = self._begin_series(key, message, moment)
                if series is None:
                    continue
            elif self._take_from_pod(subject):
                self._await_turn(series, repeated=True)
            series.count += 1
            series.last = moment
            self._series.move_to_end(key)

    def _begin_series(self, key: _Key, message: _Message, moment: int) -> _Series | None:
        """Return a new series that waits for being written, or None where there is no room for one."""
        subject = key[0]
        if len(self._waiting) >= self._queue_length:
            self.dropped[QUEUE_FULL] += 1
            return None
        if not self._take_from_pod(subject):
            self.dropped[POD_LIMIT] += 1
            return None
        extra = {"type": message.type, "reason": message.reason, "pod": f"{subject.namespace}/{subject.name}"}
        _log.info("event", extra={**extra, "note": message.note})
        series = self._series[key] = _Series(subject, message, moment)
        self._waiting[series] = None
        return series
