"""A provider: a set of algorithms by name that a profile begins with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Provider:
    """Which algorithms run where a profile names none; they are named as text, and loaded when they are enabled."""

    name: str
    mandatory: Sequence[str] = ()
    """Predicates that run in every profile, in this order."""
    predicates: Sequence[str] = ()
    """The predicates of a profile that names none, in the order they run."""
    priorities: Mapping[str, int] = field(default_factory=dict)
    """The priorities of a profile that names none, with their weights."""
    args: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Arguments by algorithm, for profiles that give it none."""
