"""What is said of a pod in an Event, and how often.

Facts: the validation of ``events.k8s.io/v1``, 1.36, which lets nothing but the series of an event change.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final, NamedTuple

import msgspec

CONTROLLER: Final = "scheduler-extender"
MOST_NOTE_BYTES = 1024

_MOST_NAME = 253
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Subject(NamedTuple):
    """The pod that an event is about."""

    namespace: str
    name: str
    uid: str


class Message(NamedTuple):
    """What is said; ``family`` is equal for texts that differ in nothing that matters."""

    type: str
    reason: str
    action: str
    note: str
    family: object


class Series:
    """One thing that is said of one pod, once or again and again; times are nanoseconds since 1970.

    ``number`` tells it from others that began at the same moment.
    """

    __slots__ = ("count", "first", "last", "message", "number", "subject", "written")

    def __init__(self, subject: Subject, message: Message, first: int, number: int) -> None:
        self.subject = subject
        self.message = message
        self.first = self.last = first
        self.number = number
        self.count = 0
        self.written = 0
        """The count that the API server knows."""

    @property
    def key(self) -> tuple[object, ...]:
        """What tells it from other series."""
        return (self.subject, self.message.reason, self.message.family)

    @property
    def name(self) -> str:
        """The event's name: the pod's, cut to leave room, and the moment with the number."""
        suffix = f".{self.first // 1000:x}{self.number % 4096:03x}"
        return self.subject.name[: _MOST_NAME - len(suffix)].rstrip("-.") + suffix

    @property
    def repetition(self) -> dict[str, Any] | None:
        """The part of the event that changes; None for what happened once."""
        return {"count": self.count, "lastObservedTime": _micro_time(self.last)} if self.count > 1 else None

    @property
    def fields(self) -> dict[str, str]:
        """What the log says of it."""
        subject, message = self.subject, self.message
        return {"pod": f"{subject.namespace}/{subject.name}", "reason": message.reason, "note": message.note}

    def encode(self, instance: str) -> bytes:
        """Return the Event as it stands now, reported by the replica called ``instance``."""
        subject, message = self.subject, self.message
        event = {
            "apiVersion": "events.k8s.io/v1",
            "kind": "Event",
            "metadata": {"namespace": subject.namespace, "name": self.name},
            "eventTime": _micro_time(self.first),
            "type": message.type,
            "reason": message.reason,
            "action": message.action,
            "note": _cut(message.note),
            "regarding": {"apiVersion": "v1", "kind": "Pod", **subject._asdict()},
            "reportingController": CONTROLLER,
            "reportingInstance": instance,
        }
        return msgspec.json.encode(event | ({"series": self.repetition} if self.repetition else {}))


def say_bound(subject: Subject, node: str) -> Message:
    """Return the text for a pod that was bound."""
    return Message("Normal", "Bound", "Binding", f"Bound {subject.namespace}/{subject.name} to {node}", node)


def say_bind_failed(_: Subject, node: str, problem: str) -> Message:
    """Return the text for a pod that was not bound."""
    # Numbers in a problem are times, versions and ports: texts that differ in them alone are one.
    return Message("Warning", "FailedBinding", "Binding", problem, (node, re.sub(r"\d+", "0", problem)))


def say_nothing_fits(_: Subject, nodes: int, refusals: Sequence[tuple[int, Sequence[str]]]) -> Message:
    """Return the text for a pod that fits on no node, with the nodes of each reason; the most frequent comes first."""
    counts: Counter[str] = Counter()
    for count, reasons in refusals:
        for reason in reasons:
            counts[reason] += count
    ordered = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    note = f"0/{nodes} nodes fit: {', '.join(f'{count} {reason}' for reason, count in ordered)}"
    return Message("Warning", "FailedFilter", "Filtering", note, frozenset(counts))


def _micro_time(nanos: int) -> str:
    """Return a time as the API writes microseconds: six digits, also where they are zeros."""
    return (_EPOCH + timedelta(microseconds=nanos // 1000)).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def _cut(note: str) -> str:
    """Return a note of no more bytes than the server takes."""
    content = note.encode()
    return note if len(content) <= MOST_NOTE_BYTES else content[: MOST_NOTE_BYTES - 3].decode(errors="ignore") + "..."
