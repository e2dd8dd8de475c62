"""Kubernetes quantities as exact integers.

A parsed quantity is a plain ``int`` of billionths ("nanos"), the finest step of the Kubernetes API, so that sums are
exact and rounding happens once, at the end. Source of the rules: apimachinery ``pkg/api/resource/quantity.go``, 1.36;
where upstream's int64 wraps around, the results here stay at the nearest int64.
"""

from __future__ import annotations

import re
from functools import lru_cache

from extender.errors import QuantityError

MAX_INT64 = 2**63 - 1
"""The largest value upstream can hold; greater quantities stay at it."""

MIN_INT64 = -(2**63)
"""The smallest value upstream can hold; lesser quantities stay at it."""

_NANOS_PER_UNIT = 10**9
_NANOS_PER_MILLI = 10**6
_DECIMAL_POWERS = {"": 0, "n": -9, "u": -6, "m": -3, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_BINARY_POWERS = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}

# Digits may be missing altogether ("m" is zero), as in upstream's scanner, but the text may not be empty.
_PATTERN = re.compile(r"(?!\Z)([+-]?)([0-9]*)(?:\.([0-9]*))?([numkMGTPE]?|[KMGTPE]i|[eE][+-]?[0-9]+)")
_LONGEST_TEXT = 256
# Beyond this power of ten a text of the longest kind is already above every int64, or below one nano.
_LARGEST_POWER = 2 * _LONGEST_TEXT


def parse(value: str | int | float) -> int:
    """Return ``value`` in billionths, rounded away from zero where it is finer than that.

    A bare number counts as it is written in JSON. Raises ``QuantityError`` for anything that is not a quantity; blanks
    around the text are not part of one.
    """
    return _parse_text(value if isinstance(value, str) else repr(value))


def to_units(value: str | int | float) -> int:
    """Return ``value`` in whole units (bytes, devices), rounded away from zero. Raises ``QuantityError``."""
    return round_to_units(parse(value))


def to_millis(value: str | int | float) -> int:
    """Return ``value`` in thousandths (millicores), rounded away from zero. Raises ``QuantityError``."""
    return round_to_millis(parse(value))


def round_to_units(nanos: int) -> int:
    """Return a sum of parsed quantities in whole units, rounded away from zero and kept within int64."""
    return _scale(nanos, _NANOS_PER_UNIT)


def round_to_millis(nanos: int) -> int:
    """Return a sum of parsed quantities in thousandths, rounded away from zero and kept within int64."""
    return _scale(nanos, _NANOS_PER_MILLI)


def _scale(nanos: int, divisor: int) -> int:
    magnitude = -(-abs(nanos) // divisor)
    return min(magnitude, MAX_INT64) if nanos >= 0 else max(-magnitude, MIN_INT64)


@lru_cache(maxsize=4096)  # a cluster repeats a few hundred texts; the bound is against hostile ones
def _parse_text(text: str) -> int:
    match = _PATTERN.fullmatch(text) if len(text) <= _LONGEST_TEXT else None
    if match is None:
        raise QuantityError(
            f"{text[:_LONGEST_TEXT]!r} is not a quantity: write a number, without blanks, followed by nothing, by one"
            " of n u m k M G T P E Ki Mi Gi Ti Pi Ei, or by an exponent such as e3"
        )
    sign, whole, fraction, suffix = match.groups(default="")
    amount = int(whole + fraction or "0")
    power = 9 - len(fraction)
    if suffix in _BINARY_POWERS:
        amount <<= _BINARY_POWERS[suffix]
    elif suffix in _DECIMAL_POWERS:
        power += _DECIMAL_POWERS[suffix]
    else:
        power += int(suffix[1:])
    ten_to_power: int = 10 ** min(abs(power), _LARGEST_POWER)
    nanos = amount * ten_to_power if power >= 0 else -(-amount // ten_to_power)
    return -nanos if sign == "-" else nanos
