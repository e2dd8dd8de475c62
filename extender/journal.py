"""What one request goes through, noted on the way: whom it is about, its phases, and the algorithms that ran.

The application opens an entry for each request; whoever works on the request adds to it through the functions here,
which do nothing where there is no entry. Notes cost a fraction of a microsecond each and are read only where a request
was slow, failed, or is traced.
"""

from __future__ import annotations

from contextvars import ContextVar
from itertools import pairwise
from time import perf_counter
from typing import Any

_MOST_NAMED = 10


class Entry:
    """One request; times are those of ``perf_counter``, in seconds.

    ``runs`` has algorithm, point, end and duration of each run, in order. ``nodes`` and ``fitting`` are -1 where the
    request did not get so far.
    """

    __slots__ = ("_marks", "body_bytes", "fitting", "identity", "nodes", "pod", "runs", "start", "uid", "verb")

    def __init__(self, verb: str, identity: str) -> None:
        self.verb = verb
        self.identity = identity
        self.pod = self.uid = ""
        self.body_bytes = 0
        self.nodes = self.fitting = -1
        self.start = perf_counter()
        self.runs: list[tuple[str, str, float, float]] = []
        self._marks: list[tuple[str, float]] = [("read", self.start)]

    def enter(self, phase: str) -> None:
        """Note that a phase begins, and the one before it ends."""
        self._marks.append((phase, perf_counter()))

    def close(self) -> None:
        """Note that the last phase ends."""
        self.enter("")

    @property
    def seconds(self) -> float:
        """How long the request took; it must be closed."""
        return self._marks[-1][1] - self.start

    def phases(self) -> list[tuple[str, float, float]]:
        """Return name, start and duration of each phase."""
        return [(name, start, end - start) for (name, start), (_, end) in pairwise(self._marks)]

    def algorithms(self) -> dict[str, float]:
        """Return the seconds of each algorithm, all its runs together, the slowest first."""
        seconds: dict[str, float] = {}
        for algorithm, _, _, duration in self.runs:
            seconds[algorithm] = seconds.get(algorithm, 0.0) + duration
        return dict(sorted(seconds.items(), key=lambda item: -item[1]))

    def subject(self) -> dict[str, Any]:
        """Return the fields by which a log tells whom the request is about; what is not known is left out."""
        fields = {"verb": self.verb, "pod": self.pod, "uid": self.uid}
        return {name: value for name, value in fields.items() if value} | {"seconds": round(self.seconds, 6)}

    def breakdown(self) -> dict[str, Any]:
        """Return the fields by which a log tells what took the time: seconds by phase and of the slowest algorithms."""
        fields: dict[str, Any] = {"body_bytes": self.body_bytes}
        if self.nodes >= 0:
            fields |= {"nodes": self.nodes, "fitting": self.fitting}
        fields["phases"] = {name: round(seconds, 6) for name, _, seconds in self.phases()}
        if self.runs:
            slowest = list(self.algorithms().items())[:_MOST_NAMED]
            fields["algorithms"] = {name: round(seconds, 6) for name, seconds in slowest}
            fields["runs"] = len(self.runs)
        return fields


_current: ContextVar[Entry | None] = ContextVar("entry", default=None)


def open_entry(verb: str, identity: str) -> Entry:
    """Begin the entry of a request; it is the current one for all that the calling task does, and its subtasks."""
    entry = Entry(verb, identity)
    _current.set(entry)
    return entry


def current_identity() -> str:
    """Return the id of the request that is worked on here, or nothing."""
    entry = _current.get()
    return "" if entry is None else entry.identity


def about(pod: str, uid: str) -> None:
    """Note the pod, as ``namespace/name``, and its UID."""
    entry = _current.get()
    if entry is not None:
        entry.pod, entry.uid = pod, uid


def enter(phase: str) -> None:
    """Note that a phase begins, and the one before it ends."""
    entry = _current.get()
    if entry is not None:
        entry.enter(phase)


def counted(nodes: int, fitting: int) -> None:
    """Note how many nodes were asked about, and how many of them remain."""
    entry = _current.get()
    if entry is not None:
        entry.nodes, entry.fitting = nodes, fitting


def ran(algorithm: str, point: str, seconds: float) -> None:
    """Note one run of an algorithm that ends now."""
    entry = _current.get()
    if entry is not None:
        entry.runs.append((algorithm, point, perf_counter(), seconds))
