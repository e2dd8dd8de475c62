"""Watches: the changes of one resource from some point on, as lines of JSON.

Sources: ``apiserver/pkg/storage/cacher`` and ``apimachinery/pkg/apis/meta/internalversion`` of Kubernetes 1.36.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterator, Mapping

from extender.cluster.apiserver.check import Problem
from extender.cluster.apiserver.entry import Event
from extender.cluster.apiserver.listing import forbid_option, parse_number, refuse_match, refuse_options
from extender.cluster.apiserver.option import ServerOptions
from extender.cluster.apiserver.resource import Resource
from extender.cluster.apiserver.selector import parse_selector
from extender.cluster.apiserver.status import StatusError, expired, too_large_version
from extender.cluster.apiserver.storage import Storage
from extender.cluster.apiserver.table import HistoryLost

_BATCH_EVENTS = 256


class Watch:
    """One client's view of the changes of a resource."""

    def __init__(
        self,
        storage: Storage,
        resource: Resource,
        namespace: str,
        query: Mapping[str, str],
        options: ServerOptions,
    ) -> None:
        """Understand the request; raise ``StatusError`` 400, 422 or 504 for one that cannot be answered."""
        _check_options(query, options.streaming_lists)
        self._storage = storage
        self._table = storage.table(resource)
        self._resource = resource
        self._selector = parse_selector(resource, namespace, query)
        self._from_version = parse_number(query, "resourceVersion")
        if self._from_version > storage.resource_version:
            raise too_large_version(self._from_version, storage.resource_version)
        self._bookmarks = query.get("allowWatchBookmarks") in ("true", "1")
        self._progress = options.progress
        self._bookmark_interval = options.bookmark_interval_seconds
        self._timeout = float(parse_number(query, "timeoutSeconds")) or options.watch_timeout_seconds
        asked = query.get("sendInitialEvents")
        self._initial = asked in ("true", "1") if asked else not self._from_version
        # A server with streaming lists takes a watch from nowhere for one, and marks the end of the initial events.
        self._marks_initial_end = self._initial and self._bookmarks and options.streaming_lists
        object_head = f'{{"kind":"{resource.kind}","apiVersion":"{resource.api_version}",'
        self._heads = {
            kind: f'{{"type":"{kind}","object":{object_head}'.encode()
            for kind in ("ADDED", "MODIFIED", "DELETED", "BOOKMARK")
        }

    def wake(self) -> None:
        """Make ``batches`` yield soon, changes or not."""
        self._table.wake()

    async def batches(self) -> AsyncGenerator[list[bytes], None]:
        """Yield lines as they come about; a batch may be empty. Ends when the watch is over."""
        version = self._storage.resource_version
        if self._initial:
            position = self._table.end
            for lines in self._initial_lines(version):
                yield lines
        elif not self._from_version:
            position = self._table.end
        else:
            try:
                position = self._table.position_after(self._from_version)
            except HistoryLost:
                yield [self.expired_line()]
                return
            version = self._from_version
        async for lines in self._changes(position, version):
            yield lines

    async def _changes(self, position: int, version: int) -> AsyncGenerator[list[bytes], None]:
        now = asyncio.get_running_loop().time
        end = now() + self._timeout
        next_bookmark, start = now() + self._bookmark_interval, version
        while now() < end:
            try:
                events = self._table.read(position, _BATCH_EVENTS)
            except HistoryLost:
                return  # as upstream: a watcher too slow for the cache is cut off and has to come back
            if events:
                position += len(events)
                version = events[-1].entry.resource_version
                yield [line for line in map(self._line, events) if line]
            if position == self._table.end and self._progress:
                version = self._storage.resource_version
            if self._bookmarks and now() >= next_bookmark:
                next_bookmark = now() + self._bookmark_interval
                yield self._news(version, start)
            if not events:
                yield []  # so that whoever writes can act on an interruption before all falls asleep
                wake_at = min(end, next_bookmark) if self._bookmarks else end
                await self._table.wait_beyond(position, wake_at - now())
        if self._bookmarks:
            yield self._news(version, start)

    def _news(self, version: int, start: int) -> list[bytes]:
        """Return a bookmark, unless it would say no more than the watch has begun with."""
        return [self._bookmark(version)] if self._progress or version > start else []

    def _initial_lines(self, version: int) -> Iterator[list[bytes]]:
        """Yield an ADDED line for each object there is, then the bookmark that ends them."""
        entries = self._table.at(version)
        head = self._heads["ADDED"]
        for first in range(0, len(entries), _BATCH_EVENTS):
            chosen = filter(self._selector.admits, entries[first : first + _BATCH_EVENTS])
            yield [b"%b%b}\n" % (head, entry.body) for entry in chosen]
        if self._marks_initial_end:
            yield [self._bookmark(version, '"annotations":{"k8s.io/initial-events-end":"true"}')]

    def _line(self, event: Event) -> bytes:
        """Return the line for a change, empty if the selection does not know the object before or after."""
        kind, entry = event.type, event.entry
        if self._selector:
            is_in = kind != "DELETED" and self._selector.admits(entry)
            was_in = event.previous is not None and self._selector.admits(event.previous)
            if is_in:
                kind = "MODIFIED" if was_in else "ADDED"
            elif was_in and event.previous is not None:
                # What leaves the selection is shown as it was in it, at the version at which it left.
                kind, entry = "DELETED", event.previous.at_version(entry.resource_version)
            else:
                return b""
        return b"%b%b}\n" % (self._heads[kind], entry.body)

    def _bookmark(self, version: int, annotations: str = "") -> bytes:
        metadata = f'"metadata":{{"resourceVersion":"{version}"{"," if annotations else ""}{annotations}}}'
        blank = self._resource.blank or ('"spec":{},"status":{}' if self._resource.status else "")
        body = f"{metadata},{blank}" if blank else metadata
        return b"%b%b}}\n" % (self._heads["BOOKMARK"], body.encode())

    def expired_line(self) -> bytes:
        """Return the line that says that the version watched from is too old."""
        message = f"too old resource version: {self._from_version} ({self._table.compacted})"
        return error_line(expired(message))


def error_line(error: StatusError) -> bytes:
    """Return a failure as it stands in a stream whose HTTP status is 200 already."""
    return b'{"type":"ERROR","object":%b}\n' % error.encode()


def _check_options(query: Mapping[str, str], streaming_lists: bool) -> None:
    problems: list[Problem] = []
    match = query.get("resourceVersionMatch", "")
    asks_initial = "sendInitialEvents" in query
    if asks_initial:
        if match != "NotOlderThan":
            why = "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan"
            problems.append(forbid_option("resourceVersionMatch", why))
        if not streaming_lists:
            why = "sendInitialEvents is forbidden for watch unless the WatchList feature gate is enabled"
            problems.append(forbid_option("sendInitialEvents", why))
    if match:
        if not asks_initial:
            why = "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided"
            problems.append(forbid_option("resourceVersionMatch", why))
        if match != "NotOlderThan":
            problems.append(refuse_match(match, '"NotOlderThan"'))
        if query.get("continue"):
            why = "resourceVersionMatch is forbidden when continue is provided"
            problems.append(forbid_option("resourceVersionMatch", why))
    refuse_options(problems)
