"""The objects of one resource, the bounded history of their changes, and consistent states of the recent past."""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from collections import OrderedDict, deque
from operator import attrgetter

from extender.cluster.apiserver.entry import Entry, Event
from extender.cluster.apiserver.resource import Resource
from extender.cluster.apiserver.status import expired

_SNAPSHOTS_KEPT = 8


class HistoryLost(Exception):
    """A reader fell behind the kept history, or asks for changes from before it."""


class Table:
    """Current objects by key, and the last changes in order.

    Changes are numbered from the first one ever recorded; a *position* is the number of the next change to read, so a
    reader is nothing but a position, and a slow one costs no memory. ``compacted`` is the resource version after which
    all changes are still known.
    """

    def __init__(self, resource: Resource, history_events: int) -> None:
        """Start empty; ``history_events`` is how many changes are kept."""
        self.resource = resource
        self.entries: dict[str, Entry] = {}
        self.compacted = 0
        self._history: deque[Event] = deque(maxlen=history_events)
        self._recorded = 0
        self._snapshots: OrderedDict[int, list[Entry]] = OrderedDict()
        self._waiting: set[asyncio.Future[None]] = set()

    def load(self, entry: Entry) -> None:
        """Take an object that was there from the start: no change is recorded."""
        self.entries[entry.key] = entry

    def put(self, entry: Entry) -> None:
        """Create or replace an object."""
        previous = self.entries.get(entry.key)
        self.entries[entry.key] = entry
        self._record(Event("ADDED" if previous is None else "MODIFIED", entry, previous))

    def remove(self, last: Entry) -> None:
        """Delete an object; ``last`` is its last state under the deletion's resource version."""
        previous = self.entries.pop(last.key)
        self._record(Event("DELETED", last, previous))

    def compact(self, resource_version: int) -> None:
        """Forget all changes up to now, which is ``resource_version``."""
        self.compacted = resource_version
        self._history.clear()
        self._snapshots.clear()

    @property
    def end(self) -> int:
        """The position after the last change."""
        return self._recorded

    def position_after(self, resource_version: int) -> int:
        """Return the position of the first change newer than a resource version; raise ``HistoryLost`` if forgotten."""
        if resource_version < self.compacted:
            raise HistoryLost
        return self._start + bisect_right(self._history, resource_version, key=_event_version)

    def read(self, position: int, limit: int) -> list[Event]:
        """Return up to ``limit`` changes from a position on; raise ``HistoryLost`` if some are forgotten."""
        first = position - self._start
        if first < 0:
            raise HistoryLost
        return [self._history[index] for index in range(first, min(first + limit, len(self._history)))]

    async def wait_beyond(self, position: int, timeout_seconds: float) -> None:
        """Return once there is a change at the position, on ``wake``, or after the timeout."""
        if position < self._recorded:
            return
        future = asyncio.get_running_loop().create_future()
        self._waiting.add(future)
        try:
            async with asyncio.timeout(timeout_seconds):
                await future
        except TimeoutError:
            pass
        finally:
            self._waiting.discard(future)

    def wake(self) -> None:
        """Let all waiting readers look around."""
        for future in self._waiting:
            if not future.done():
                future.set_result(None)
        self._waiting.clear()

    def at(self, resource_version: int) -> list[Entry]:
        """Return the objects as they were at a resource version, sorted by key; the list is shared, do not change it.

        Raises ``StatusError`` 410 if that is no longer known.
        """
        try:
            position = self.position_after(resource_version)
        except HistoryLost:
            raise expired("The resourceVersion for the provided list is too old.") from None
        snapshot = self._snapshots.get(position)
        if snapshot is None:
            snapshot = sorted(self._undo_to(position).values(), key=attrgetter("key"))
            self._snapshots[position] = snapshot
            if len(self._snapshots) > _SNAPSHOTS_KEPT:
                self._snapshots.popitem(last=False)
        self._snapshots.move_to_end(position)
        return snapshot

    @property
    def _start(self) -> int:
        """The position of the oldest change that is still known."""
        return self._recorded - len(self._history)

    def _record(self, event: Event) -> None:
        if len(self._history) == self._history.maxlen:
            self.compacted = _event_version(self._history[0])
        self._history.append(event)
        self._recorded += 1
        if self._waiting:
            self.wake()

    def _undo_to(self, position: int) -> dict[str, Entry]:
        """Return the objects as they were before the change at a position."""
        if position == self._recorded:
            return self.entries
        entries = dict(self.entries)
        for back in range(1, self._recorded - position + 1):
            event = self._history[-back]
            if event.previous is None:
                del entries[event.entry.key]
            else:
                entries[event.entry.key] = event.previous
        return entries


def _event_version(event: Event) -> int:
    return event.entry.resource_version
