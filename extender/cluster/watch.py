"""What lists and watches say, decoded into the objects of one kind."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import msgspec

from extender.model.kind import Kind
from extender.model.object import ObjectMeta

T = TypeVar("T")

INITIAL_EVENTS_END = "k8s.io/initial-events-end"
"""Annotation of the bookmark that ends the list at the beginning of a streaming list."""

UNREADABLE = "UNREADABLE"
"""Type given to an event whose object does not have the shape of its kind."""


class Event(msgspec.Struct, Generic[T], gc=False):
    """One line of a watch; ``type`` is ADDED, MODIFIED, DELETED, BOOKMARK, ERROR, or ``UNREADABLE``."""

    type: str
    object: T


@dataclass(frozen=True)
class Unreadable:
    """An object that does not have the shape of its kind; ``item`` has nothing but its metadata."""

    item: Any
    was: str
    problem: str


@dataclass(frozen=True)
class Page:
    """One page of a list; ``items`` are not decoded yet and keep the whole answer alive."""

    items: list[msgspec.Raw]
    resource_version: str
    continue_token: str


class _ListMeta(msgspec.Struct, gc=False, rename="camel"):
    resource_version: str | None = None
    continue_token: str | None = msgspec.field(name="continue", default=None)


class _List(msgspec.Struct, gc=False):
    metadata: _ListMeta
    items: list[msgspec.Raw] | None = None


class _Bare(msgspec.Struct, gc=False):
    metadata: msgspec.Raw


class WatchDecoder:
    """Decoders for one kind; they raise msgspec.DecodeError for what is not JSON or not from an API server at all."""

    def __init__(self, kind: Kind) -> None:
        self._item: msgspec.json.Decoder[Any] = msgspec.json.Decoder(kind.type)
        self._event: msgspec.json.Decoder[Event[Any]] = msgspec.json.Decoder(Event[kind.type])  # type: ignore[name-defined]
        self._raw_event = msgspec.json.Decoder(Event[msgspec.Raw])
        self._page = msgspec.json.Decoder(_List)
        self._bare = msgspec.json.Decoder(_Bare)

    def event(self, line: bytes) -> Event[Any]:
        """Return the event on a line: of an object of the kind, of ``Raw`` for ERROR, or of ``Unreadable``."""
        try:
            event = self._event.decode(line)
            if event.type == "ERROR":
                return self._raw_event.decode(line)
            if event.object.metadata is None:
                raise msgspec.ValidationError("Object missing required field `metadata`")
            return event
        except msgspec.ValidationError as error:
            raw = self._raw_event.decode(line)
            return raw if raw.type == "ERROR" else Event(UNREADABLE, self._unreadable(raw.object, raw.type, error))

    def page(self, body: bytes) -> Page:
        """Return a page of a list; a null list of items reads as empty."""
        page = self._page.decode(body)
        return Page(page.items or [], page.metadata.resource_version or "", page.metadata.continue_token or "")

    def item(self, raw: msgspec.Raw) -> Any:
        """Return an item of a page: an object of the kind, or ``Unreadable``."""
        try:
            item = self._item.decode(raw)
            if item.metadata is None:
                raise msgspec.ValidationError("Object missing required field `metadata`")
            return item
        except msgspec.ValidationError as error:
            return self._unreadable(raw, "listed", error)

    def _unreadable(self, raw: msgspec.Raw, was: str, error: msgspec.ValidationError) -> Unreadable:
        metadata = self._bare.decode(raw).metadata
        return Unreadable(self._item.decode(b'{"metadata":' + bytes(metadata) + b"}"), was, str(error))


def is_end_of_list(meta: ObjectMeta) -> bool:
    """Return whether a bookmark with this metadata ends the list at the beginning of a streaming list."""
    return meta.annotations is not None and meta.annotations.get(INITIAL_EVENTS_END) == "true"
