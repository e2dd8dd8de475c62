"""The ``Status`` object with which the API server explains a failure, as an exception."""

from __future__ import annotations

from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

import msgspec

from extender.errors import ApiError


class StatusDetails(msgspec.Struct, gc=False, rename="camel"):
    """The part of a ``Status`` that says when to try again."""

    retry_after_seconds: float | None = None


class Status(msgspec.Struct, gc=False):
    """A ``meta/v1`` Status as far as it is shown or acted upon."""

    message: str | None = None
    reason: str | None = None
    code: int | None = None
    details: StatusDetails | None = None


_DECODER = msgspec.json.Decoder(Status)


def api_error(code: int, body: bytes, retry_after: str | None = None) -> ApiError:
    """Return the exception for an answer of HTTP status ``code``, whether or not its body is a ``Status``.

    ``retry_after`` is the header of that name; it counts before the number inside the ``Status``.
    """
    try:
        status = _DECODER.decode(body)
    except msgspec.DecodeError:
        # Proxies and load balancers answer in HTML or plain text.
        text = " ".join(body[:300].decode("utf-8", "replace").split())
        status = Status(message=text or "the answer has no text")
    details_seconds = status.details.retry_after_seconds if status.details else None
    seconds = parse_retry_after(retry_after)
    return ApiError(
        status.code or code,
        status.reason or "",
        status.message or "the API server gave no message",
        details_seconds if seconds is None else seconds,
    )


def parse_retry_after(text: str | None) -> float | None:
    """Return the seconds a ``Retry-After`` header asks for, given as a number or as a date; None if it asks nothing."""
    if not text:
        return None
    if text.strip().isdecimal():
        return float(text)
    try:
        moment = parsedate_to_datetime(text)
    except ValueError:
        return None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return max(0.0, (moment - datetime.now(UTC)).total_seconds())
