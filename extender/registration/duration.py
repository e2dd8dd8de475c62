"""Durations as Go reads and writes them, in whole nanoseconds. Source: time.ParseDuration and Duration.String of Go."""

from __future__ import annotations

import re
from decimal import Decimal

_NANOSECONDS = {
    "ns": 1,
    "us": 10**3,
    "µs": 10**3,
    "μs": 10**3,
    "ms": 10**6,
    "s": 10**9,
    "m": 60 * 10**9,
    "h": 3600 * 10**9,
}
_PART = re.compile(r"(\d+\.?\d*|\.\d+)(ns|us|µs|μs|ms|s|m|h)", re.ASCII)
_WHOLE = re.compile(rf"([-+]?)((?:{_PART.pattern})+)", re.ASCII)
_LIMIT = 2**63


def parse_duration(text: str) -> int:
    """Return the nanoseconds of a text such as ``1m30s``. Raises ValueError where Go refuses it."""
    if text in ("0", "+0", "-0"):
        return 0
    found = _WHOLE.fullmatch(text)
    if found is None:
        raise ValueError(f"{text!r} is no duration; write a number with a unit, such as 5s or 500ms")
    total = sum(int(Decimal(number) * _NANOSECONDS[unit]) for number, unit in _PART.findall(found[2]))
    if total >= _LIMIT:
        raise ValueError(f"{text!r} is longer than 292 years")
    return -total if found[1] == "-" else total


def format_duration(nanoseconds: int) -> str:
    """Return a text that ``parse_duration`` takes back, with the largest unit that leaves whole numbers."""
    for unit in ("s", "ms", "us"):
        if nanoseconds % _NANOSECONDS[unit] == 0:
            return f"{nanoseconds // _NANOSECONDS[unit]}{unit}"
    return f"{nanoseconds}ns"
