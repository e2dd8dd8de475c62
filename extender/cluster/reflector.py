"""Lists and watches one kind and keeps a ``Store`` up to date, whatever happens to the connection.

::

                 stream refused, or ended early
    streaming list ─────────────> list in pages <──────────┐
          │ bookmark: list ends        │                   │ version lost: 410, "too large"
          v                            v                   │
        ┌──────────── watch from the last version ─────────┘
        └── ends, breaks, is silent: again from there ──┘

Facts of the protocol: client-go ``tools/cache/reflector.go`` and the API conventions of 1.36.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from datetime import datetime

import msgspec

from extender.cluster.backoff import Backoff
from extender.cluster.client import Client
from extender.cluster.status import api_error
from extender.cluster.watch import UNREADABLE, Unreadable, WatchDecoder, is_end_of_list
from extender.errors import ApiError, ClusterError
from extender.model.kind import Kind, Store, object_key
from extender.model.object import ObjectMeta

_log = logging.getLogger(__name__)

YIELD_EVERY = 200
"""Objects taken in before requests get their turn; some milliseconds of work."""

_SHORTEST, _LONGEST = 0.5, 0.75
"""Parts of the silence allowed after which a watch is asked to end, at random between them, so that watches spread out.

An API server says nothing of what does not change, bookmarks included, where its etcd is not told to report progress.
That it ends a watch in time is then the only sign that it is there.
"""

_ALMOST = 0.9
"""A stream that was given up when it had been quiet for this part of the time allowed was given up for being quiet."""

STREAM_REFUSED = (400, 422, 500)
"""Codes with which servers refuse a streaming list: in the stream, as the answer, or as invalid options."""


class Reflector:
    """Follows one kind; ``run`` does not end, and the other members say how it fares.

    ``synced`` stays true once the store has been complete. ``failing`` is why the last attempt failed, None while a
    watch is open. ``events`` counts by type, ``STALE`` being those older than what is known and ``UNREADABLE`` the
    objects left out. ``lists`` counts lists that were completed, ``watches`` streams that were opened, ``failures``
    attempts that failed, by why: a status code, ``unreachable``, ``garbled`` or ``store``.

    A list that fails is begun again: the store's ``begin`` may be called without a ``finish`` in between.
    """

    def __init__(
        self,
        kind: Kind,
        client: Client,
        store: Store,
        *,
        page_size: int = 500,
        silence_seconds: float = 55.0,
        healthy_seconds: float = 10.0,
        backoff: Backoff | None = None,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        random_source: Callable[[], float] = random.random,
        observe_lag: Callable[[str, float], None] = lambda *_: None,
        reached: Callable[[], None] = lambda: None,
    ) -> None:
        """A watch that says nothing for ``silence_seconds`` is dead; one that is alive is asked to end before.

        ``observe_lag`` is told the resource and the seconds from creation to store of each new object. ``reached`` is
        called when a watch is open after failures: others may ``rouse`` then.
        An attempt that lasts for ``healthy_seconds`` makes the next one start without delay, or with the shortest.
        """
        self.kind = kind
        self.synced = False
        self.failing: str | None = "not started"
        self.resource_version: str | None = None
        self.last_event_seconds: float | None = None
        self.lists = 0
        self.watches = 0
        self.events: Counter[str] = Counter()
        self.failures: Counter[str] = Counter()
        self._client = client
        self._store = store
        self._page_size = page_size
        self._silence_seconds = silence_seconds
        self._healthy_seconds = healthy_seconds
        self._backoff = backoff or Backoff()
        self._clock = clock
        self._sleep = sleep
        self._random = random_source
        self._observe_lag = observe_lag
        self._reached = reached
        self._rest: asyncio.Future[None] | None = None
        self._may_rouse = self._may_hurry = True
        """Whether the wait that goes on, or the next one, may be cut short: each once between two times of health."""
        self._failing_since = clock()
        self._fell_silent = False
        self._decoder = WatchDecoder(kind)
        self._may_stream = True
        self._is_listing = False
        self._taken = 0

    def age_seconds(self) -> float:
        """Return the seconds since the server was last heard of; infinite before the first time."""
        return float("inf") if self.last_event_seconds is None else self._clock() - self.last_event_seconds

    def failing_seconds(self) -> float:
        """Return for how long no watch has been open."""
        return 0.0 if self.failing is None else self._clock() - self._failing_since

    def silent_seconds(self) -> float:
        """Return for how long a watch that is open has said nothing, those before it included that fell silent."""
        return self.age_seconds() if self.failing is None else 0.0

    async def run(self) -> None:
        """Keep the store up to date until cancelled; every failure is logged, shown in ``failing``, and tried again."""
        while True:
            started = self._clock()
            failure: Exception | None = None
            try:
                await self._attempt()
            except Exception as error:
                self._take_note(error)
                failure = error
            # A server that ends each watch at once is not well, though nothing fails.
            if self._clock() - started >= min(self._healthy_seconds, _ALMOST * _SHORTEST * self._silence_seconds):
                self._backoff.reset()
                self._may_rouse = self._may_hurry = True
                if failure is None:
                    continue
            await self._pause(failure)

    def rouse(self) -> None:
        """Try again now instead of after the present wait, because the server has been reached by somebody else."""
        if self._rest is not None and self._may_rouse:
            self._may_rouse = False
            self._rest.cancel()

    async def _pause(self, failure: Exception | None) -> None:
        """Wait before the next attempt; ``rouse`` ends it early, but for a wait that the server asked for."""
        retry_after = failure.retry_after_seconds if isinstance(failure, ApiError) else None
        seconds = self._backoff.next(retry_after)
        if isinstance(failure, ApiError) and _is_version_lost(failure) and self._may_hurry:
            # The server is well, and what it has is to be listed: nothing to wait for.
            self._may_hurry = False
            seconds = self._backoff.shortest()
        rest = asyncio.ensure_future(self._sleep(seconds))
        self._rest = None if retry_after else rest
        try:
            await asyncio.wait([rest])
        finally:
            rest.cancel()
            self._rest = None

    async def _attempt(self) -> None:
        """Follow one stream to its end, after a list where one is needed."""
        if self.resource_version is None and self._may_stream:
            self._may_stream = await self._list_by_stream()
            if self._may_stream:
                return
        if self.resource_version is None:
            await self._list_by_pages()
        await self._follow({"resourceVersion": self.resource_version or ""})

    async def _list_by_stream(self) -> bool:
        """List and watch over one stream; False if the server cannot, or ended the stream before the list."""
        try:
            self._begin()
            await self._follow({"sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan"})
        except ApiError as error:
            if not self._is_listing or error.code not in STREAM_REFUSED:
                raise
            _log.info("no streaming lists", extra={"resource": self.kind.plural, "problem": str(error)})
        return not self._is_listing

    async def _list_by_pages(self) -> None:
        """List in pages of one consistent state; when that state expires half-way, once more in a single piece."""
        try:
            await self._list(self._page_size)
        except ApiError as error:
            if error.code != 410:
                raise
            _log.info("list expired between pages", extra={"resource": self.kind.plural})
            await self._list(0)

    async def _list(self, limit: int) -> None:
        params = {"fieldSelector": self.kind.field_selector} if self.kind.field_selector else {}
        if limit:
            params["limit"] = str(limit)
        self._begin()
        while True:
            body = await self._client.request(
                "GET", self.kind.path, params=params, timeout_seconds=None, silence_seconds=self._silence_seconds
            )
            page = self._decoder.page(body)
            self.last_event_seconds = self._clock()
            for raw in page.items:
                item = self._decoder.item(raw)
                if isinstance(item, Unreadable):
                    self._leave_out(item)
                else:
                    self._store.upsert(item)
                await self._breathe()
            if not page.continue_token:
                break
            params["continue"] = page.continue_token
        self._finish(page.resource_version)

    async def _follow(self, params: dict[str, str]) -> None:
        """Open a stream and take in what it says until it ends. Raises ApiError for an ERROR event."""
        seconds = self._silence_seconds * (_SHORTEST + (_LONGEST - _SHORTEST) * self._random())
        params |= {"watch": "true", "allowWatchBookmarks": "true", "timeoutSeconds": str(max(1, int(seconds)))}
        if self.kind.field_selector:
            params["fieldSelector"] = self.kind.field_selector
        fell_silent, self._fell_silent = self._fell_silent, False
        async with self._client.stream(self.kind.path, params=params, silence_seconds=self._silence_seconds) as batches:
            self.watches += 1
            if self.failing is not None:
                self.failing = None
                self._reached()
            if not fell_silent:  # else an open stream proves nothing: the one before it was open as well
                self.last_event_seconds = self._clock()
            try:
                async for lines in batches:
                    self.last_event_seconds = self._clock()
                    for line in lines:
                        self._take_in(line)
                        await self._breathe()
            finally:
                self._fell_silent = self.age_seconds() >= _ALMOST * self._silence_seconds

    def _take_in(self, line: bytes) -> None:
        event = self._decoder.event(line)
        type_, item = event.type, event.object
        self.events[type_] += 1
        if type_ == "ERROR":
            raise api_error(500, bytes(item))
        if type_ == UNREADABLE:
            self._leave_out(item)
            item = item.item
        meta: ObjectMeta = item.metadata
        if self._is_stale(meta.resource_version):
            self.events["STALE"] += 1
            return
        if type_ in ("ADDED", "MODIFIED"):
            self._store.upsert(item)
            if type_ == "ADDED" and not self._is_listing and meta.creation_timestamp:
                self._note_lag(meta.creation_timestamp)
        elif type_ == "DELETED":
            self._store.delete(item)
        elif type_ == "BOOKMARK" and self._is_listing and is_end_of_list(meta):
            self._finish(meta.resource_version)
        # The objects of a streaming list come in the order of their names: their versions say nothing of progress.
        if not self._is_listing:
            self.resource_version = meta.resource_version or self.resource_version

    def _is_stale(self, version: str | None) -> bool:
        """Return whether ``version`` is below the last one seen, so that the event has been told before.

        Versions are decimal numbers that can be compared within one resource; others are never called stale.
        """
        seen = self.resource_version
        if not version or not seen or self._is_listing or not (version.isdecimal() and seen.isdecimal()):
            return False
        return (len(version), version) < (len(seen), seen)

    def _note_lag(self, created: str) -> None:
        with contextlib.suppress(ValueError):
            self._observe_lag(self.kind.plural, time.time() - datetime.fromisoformat(created).timestamp())

    async def _breathe(self) -> None:
        """Let requests be served while many objects come in at once."""
        self._taken += 1
        if self._taken % YIELD_EVERY == 0:
            await asyncio.sleep(0)

    def _begin(self) -> None:
        self._is_listing = True
        self._store.begin()

    def _finish(self, resource_version: str | None) -> None:
        self._store.finish()
        self._is_listing = False
        self.resource_version = resource_version or None
        self.synced = True
        self.lists += 1

    def _leave_out(self, item: Unreadable) -> None:
        """Log an object without the shape of its kind; if it is gone, forget it all the same."""
        if item.was == "DELETED":
            self._store.delete(item.item)
        _log.error(
            "object left out",
            extra={"resource": self.kind.plural, "object": object_key(item.item.metadata), "problem": item.problem},
        )

    def _take_note(self, error: Exception) -> None:
        """Log a failure, show it in ``failing``, and forget the version when it is of no more use."""
        if self.failing is None:
            self._failing_since = self._clock()
        self.failing = f"{self.kind.plural}: {error}"
        resource = self.kind.plural
        self.failures[_reason(error)] += 1
        if isinstance(error, ApiError):
            if error.code == 403:
                self.failing += f"; let the service account list and watch {self.kind.group or 'core'} {resource}"
            if _is_version_lost(error):
                self.resource_version = None
            _log.warning("API server refuses", extra={"resource": resource, "problem": str(error)})
        elif isinstance(error, ClusterError):
            _log.warning("stream lost", extra={"resource": resource, "problem": str(error)})
        elif isinstance(error, msgspec.DecodeError):
            self.failing = f"{resource}: an answer is cut off or no JSON of an API server: {error}"
            _log.warning("stream garbled", extra={"resource": resource, "problem": str(error)})
        else:
            # A fault of the store: what it holds is in doubt, so it is told everything again.
            self.resource_version = None
            _log.exception("store failed", extra={"resource": resource})


def _reason(error: Exception) -> str:
    """Return by what a failure is counted."""
    if isinstance(error, ApiError):
        return str(error.code)
    if isinstance(error, ClusterError):
        return "unreachable"
    return "garbled" if isinstance(error, msgspec.DecodeError) else "store"


def _is_version_lost(error: ApiError) -> bool:
    """Return whether a watch can no longer start from its version: expired, refused, or ahead of the server."""
    return error.code in (400, 410) or (error.code == 504 and "too large resource version" in error.message.lower())
