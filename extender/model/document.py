"""JSON that a caller sends: read into types whatever the casing of its keys, with its faults in words."""

from __future__ import annotations

from typing import Generic, TypeVar

import msgspec
from msgspec import Raw

from extender.errors import RequestError
from extender.model.casing import Casing

T = TypeVar("T")
S = TypeVar("S", bound=msgspec.Struct)

_anything = msgspec.json.Decoder()
_encoder = msgspec.json.Encoder()

_NULL = b"null"


def decode(decoder: msgspec.json.Decoder[T], text: bytes | Raw, what: str, place: str = "") -> T:
    """Decode ``what`` stands at ``place``, or is the whole body.

    Raises:
        RequestError: it is not JSON, or not of the type; names the field and the remedy.
    """
    try:
        return decoder.decode(text)
    except msgspec.ValidationError as error:
        problem = str(error) if "`$" in str(error) else f"{error} - at `$`"
        problem = problem.replace("`$", f"`{place or what}", 1)
        raise RequestError(f"{problem}; send {what} as kube-scheduler encodes it") from None
    except (msgspec.DecodeError, RecursionError) as error:
        raise RequestError(f"{place or 'the body'} is not JSON: {error}; send {what} in UTF-8") from None


def folded(fields: dict[str, Raw]) -> dict[str, Raw]:
    """Return the fields of an object by key in lower case; of two the last one counts that is not null."""
    found: dict[str, Raw] = {}
    for key, value in fields.items():
        if not is_null(value) or key.casefold() not in found:
            found[key.casefold()] = value
    return found


def is_null(value: Raw) -> bool:
    """Say whether a JSON value is ``null``, without a copy of it."""
    return memoryview(value).nbytes == len(_NULL) and bytes(value) == _NULL


class ObjectReader(Generic[S]):
    """Reads Kubernetes objects of one type."""

    def __init__(self, kind: type[S]) -> None:
        self._what = kind.__name__
        self._casing = Casing(kind)
        self._decoder = msgspec.json.Decoder(kind)

    def read(self, text: Raw, place: str) -> S:
        """Decode the object that stands at ``place``.

        Raises:
            RequestError: it is not JSON, or a field that scheduling needs has the wrong type; names it.
        """
        return decode(self._decoder, self._usual(text, place), self._what, place)

    def _usual(self, text: Raw, place: str) -> bytes | Raw:
        """Return the object with its keys in the usual casing; it almost always has them."""
        if self._casing.is_usual(text):
            return text
        return _encoder.encode(self._casing.restore(decode(_anything, text, self._what, place)))
