"""Events about pods: what ``kubectl describe pod`` shows of the service's decisions.

::

    verb ──a fact──▶ queue ──▶ series: same pod, reason and text ──▶ waiting ──▶ POST once, PATCH its count later
                     full: dropped     one pod too often: dropped     at a limited rate

A verb pays for a fact, which is a tuple, and nothing else; one task makes texts of facts, logs them and writes them.
Whatever the API server answers disturbs nobody: an event that it refuses is dropped, one that does not reach it waits.
A server that has just started knows no roles yet, and denies what it allows a moment later: that is waited out.

Limits: client-go ``tools/events`` and ``tools/record``, 1.36.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import math
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, Protocol
from urllib.parse import quote

import msgspec

from extender.cluster.backoff import Backoff
from extender.cluster.bucket import TokenBucket
from extender.cluster.event_series import Message, Series, Subject, say_bind_failed, say_bound, say_nothing_fits
from extender.errors import ApiError, ClusterError

_log = logging.getLogger(__name__)

SERIES_SECONDS = 360.0
"""After so long without a repetition the next one is an event of its own."""
POD_BURST, POD_PER_SECOND = 25, 1 / 300
"""How many writes one pod may cause at once, and over time."""
CREATED, UPDATED = "created", "updated"
QUEUE_FULL, POD_LIMIT, REFUSED, STALE = "queue-full", "pod-limit", "refused", "stale"

_MOST_SERIES = 4096
_MOST_DENIALS = 4
"""So many in a row make a refusal; with the pauses between them, two seconds."""
_MOST_INSTANCE = 128
_TURN = 20
"""Facts made into texts before requests get their turn; about half a millisecond of work."""
_REQUEST_SECONDS = 5.0


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


class EventBroadcaster:
    """Takes note of what became of pods, and tells the log and the API server.

    ``written`` counts by ``created`` and ``updated``; ``dropped`` by why: ``queue-full``, ``pod-limit`` (too often of
    one pod), ``refused`` (by the API server) and ``stale`` (not written within the time of a series).
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
        """``queue_length`` is how many facts, and how many texts, wait at most; the oldest text makes room."""
        self.written = dict.fromkeys((CREATED, UPDATED), 0)
        self.dropped = dict.fromkeys((QUEUE_FULL, POD_LIMIT, REFUSED, STALE), 0)
        self._client = client
        self._instance = instance[:_MOST_INSTANCE]
        self._queue_length = queue_length
        self._clock = clock
        self._wall_nanos = wall_nanos
        self._backoff = backoff or Backoff()
        self._bucket = TokenBucket(per_second, burst, clock)
        self._pod_buckets: OrderedDict[Subject, TokenBucket] = OrderedDict()
        self._queue: deque[tuple[int, Callable[..., Message], Subject, tuple[Any, ...]]] = deque()
        self._wake = asyncio.Event()
        self._numbers = itertools.count()
        self._series: OrderedDict[tuple[object, ...], Series] = OrderedDict()
        """By key; the longest unheard of come first."""
        self._waiting: dict[Series, None] = {}
        """To be written, in this order."""
        self._held_until = -math.inf
        """Nothing is written before, on ``clock``, because the API server has failed or said so."""
        self._problem = ""
        self._denials = 0

    # --- what verbs call ---------------------------------------------------------------------------------------------

    def bound(self, namespace: str, name: str, uid: str, node: str) -> None:
        """Note that a pod was bound."""
        self._put(say_bound, Subject(namespace, name, uid), node)

    def bind_failed(self, namespace: str, name: str, uid: str, node: str, problem: str) -> None:
        """Note that a pod was not bound, and why."""
        self._put(say_bind_failed, Subject(namespace, name, uid), node, problem)

    def nothing_fits(
        self, namespace: str, name: str, uid: str, nodes: int, refusals: Sequence[tuple[int, Sequence[str]]]
    ) -> None:
        """Note that none of so many nodes fits a pod; ``refusals`` has numbers of nodes, each with their reasons."""
        self._put(say_nothing_fits, Subject(namespace, name, uid), nodes, refusals)

    def _put(self, say: Callable[..., Message], subject: Subject, *facts: Any) -> None:
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
            self._finish_series()
            held_seconds = self._held_until - self._clock()
            if self._waiting and held_seconds <= 0 and self._bucket.take():
                await self._write_next()
            elif self._queue:
                await asyncio.sleep(0)
            elif self._waiting:
                await self._pause(max(held_seconds, self._bucket.wait_seconds()))
            else:
                await self._pause(SERIES_SECONDS)

    async def flush(self, limit_seconds: float) -> None:
        """Write what is left, once ``run`` has ended, as far as ``limit_seconds`` and the API server allow."""
        self._fold(len(self._queue))
        self._waiting |= dict.fromkeys(series for series in self._series.values() if series.count > series.written)
        with suppress(TimeoutError):
            async with asyncio.timeout(limit_seconds):
                while self._waiting and await self._write_next():
                    pass
        if self._waiting:
            _log.warning("events not written", extra={"count": len(self._waiting), "problem": self._problem})

    async def _pause(self, seconds: float) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._wake.wait()

    # --- from facts to series ----------------------------------------------------------------------------------------

    def _fold(self, most: int) -> None:
        """Make series of what was noted, of so many facts at most."""
        for _ in range(min(most, len(self._queue))):
            moment, say, subject, facts = self._queue.popleft()
            fresh = Series(subject, say(subject, *facts), moment, next(self._numbers))
            series = self._series.get(fresh.key)
            if series not in self._waiting:
                if self._may_write_of(subject):
                    self._wait(series or fresh)
                elif series is None:
                    self.dropped[POD_LIMIT] += 1
                    continue
            if series is None:
                series = self._series[fresh.key] = fresh
                _log.info("event", extra=fresh.fields)
            series.count += 1
            series.last = moment
            self._series.move_to_end(series.key)

    def _wait(self, series: Series) -> None:
        if len(self._waiting) >= self._queue_length:
            self._forget(next(iter(self._waiting)), QUEUE_FULL)
        self._waiting[series] = None

    def _may_write_of(self, subject: Subject) -> bool:
        bucket = self._pod_buckets.get(subject)
        if bucket is None:
            bucket = self._pod_buckets[subject] = TokenBucket(POD_PER_SECOND, POD_BURST, self._clock)
            if len(self._pod_buckets) > _MOST_SERIES:
                self._pod_buckets.popitem(last=False)
        self._pod_buckets.move_to_end(subject)
        return bucket.take()

    def _finish_series(self) -> None:
        """End the series that were not heard of lately, with one more write where their count has grown."""
        oldest = self._oldest()
        while self._series:
            series = next(iter(self._series.values()))
            if series.last >= oldest and len(self._series) <= _MOST_SERIES:
                break
            del self._series[series.key]
            if series.count > series.written:
                self._waiting[series] = None

    def _oldest(self) -> int:
        return self._wall_nanos() - int(SERIES_SECONDS * 1e9)

    def _forget(self, series: Series, why: str) -> None:
        del self._waiting[series]
        if self._series.get(series.key) is series:
            del self._series[series.key]
        self.dropped[why] += 1

    # --- from series to the API server -------------------------------------------------------------------------------

    async def _write_next(self) -> bool:
        """Write the series whose turn it is; return whether the API server is well."""
        series = next(iter(self._waiting))
        if not series.written and series.last < self._oldest():
            self._forget(series, STALE)
            return True
        count = series.count
        try:
            operation = await self._write(series)
        except Exception as error:
            return self._take_note(series, error)
        del self._waiting[series]
        series.written = count
        self.written[operation] += 1
        self._backoff.reset()
        self._problem, self._denials = "", 0
        return True

    async def _write(self, series: Series) -> str:
        """Create the event, or bring its count up to date; return which of the two was done."""
        path = f"/apis/events.k8s.io/v1/namespaces/{quote(series.subject.namespace, safe='')}/events"
        if series.written:
            try:
                await self._client.request(
                    "PATCH",
                    f"{path}/{quote(series.name, safe='')}",
                    body=msgspec.json.encode({"series": series.repetition}),
                    content_type="application/merge-patch+json",
                    timeout_seconds=_REQUEST_SECONDS,
                )
                return UPDATED
            except ApiError as error:
                if error.code != 404:  # events are deleted after an hour
                    raise
        try:
            await self._client.request(
                "POST", path, body=series.encode(self._instance), timeout_seconds=_REQUEST_SECONDS
            )
        except ApiError as error:
            if error.code != 409:  # created before, by a request whose answer was lost
                raise
        return CREATED

    def _take_note(self, series: Series, error: Exception) -> bool:
        """Forget an event that the server refuses, keep one that did not reach it; return whether the server is well.

        A failure is logged once as long as it stays the same.
        """
        problem = str(error) if isinstance(error, ClusterError) else repr(error)
        refusal = error if isinstance(error, ApiError) and error.code < 500 and error.code != 429 else None
        if refusal and refusal.code == 403:
            problem += "; let the service account create and patch events.events.k8s.io"
        level = logging.DEBUG if problem == self._problem else logging.WARNING
        _log.log(level, "event not written", extra={**series.fields, "problem": problem})
        self._problem = problem
        is_denied = refusal is not None and refusal.code in (401, 403) and "being terminated" not in refusal.message
        self._denials += is_denied
        if is_denied and self._denials < _MOST_DENIALS:
            pass
        elif refusal or not isinstance(error, ClusterError):
            self._forget(series, REFUSED)
        else:
            self._waiting[series] = self._waiting.pop(series)  # others may fare better
        if refusal and not is_denied:
            return True
        pause_seconds = self._backoff.next(error.retry_after_seconds if isinstance(error, ApiError) else None)
        self._held_until = self._clock() + pause_seconds
        return False
