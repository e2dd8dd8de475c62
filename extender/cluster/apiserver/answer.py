"""What a request is answered with, apart from watches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

import msgspec

from extender.cluster.apiserver.entry import Entry, object_prefix
from extender.cluster.apiserver.resource import Resource
from extender.cluster.apiserver.status import StatusError


@dataclass(frozen=True)
class Answer:
    """One whole answer; the body is in pieces so that a list refers to its objects rather than copying them."""

    status: int
    pieces: Sequence[bytes]
    headers: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    content_type: str = "application/json"


def answer_entry(resource: Resource, entry: Entry, status: int = 200) -> Answer:
    """Answer with one object."""
    return Answer(status, (object_prefix(resource), entry.body))


def answer_value(value: Any) -> Answer:
    """Answer with a value as JSON."""
    return Answer(200, (msgspec.json.encode(value),))


def answer_error(error: StatusError) -> Answer:
    """Answer with a Failure Status."""
    return Answer(error.code, (error.encode(),), error.headers)
