"""Kubernetes objects inside the arguments of algorithms."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import msgspec
from pydantic import GetPydanticSchema
from pydantic_core import core_schema


def _schema(source: Any, _handler: Any) -> core_schema.CoreSchema:
    return core_schema.no_info_plain_validator_function(lambda value: _read(value, source))


API_OBJECT: Final = GetPydanticSchema(_schema)
"""Marks a field that is written as it stands in the Kubernetes API: ``Annotated[NodeAffinity, API_OBJECT]``."""


def _read(value: Any, api_type: Any) -> Any:
    """Decode ``value`` as the API server would, unknown keys refused.

    Raises:
        ValueError: the shape is wrong, or a key is not known; the message has the place.
    """
    try:
        decoded = msgspec.convert(value, api_type)
    except msgspec.ValidationError as error:
        raise ValueError(str(error)) from None
    unknown = next(_lost(value, msgspec.to_builtins(decoded), ""), None)
    if unknown is not None:
        raise ValueError(f"{unknown}: unknown key; remove it or correct its spelling")
    return decoded


def _lost(given: Any, kept: Any, path: str) -> Iterator[str]:
    """Return the places in ``given`` that decoding did not keep."""
    if isinstance(given, dict):
        for key, value in given.items():
            place = f"{path}.{key}" if path else str(key)
            if key in kept:
                yield from _lost(value, kept[key], place)
            elif value is not None:
                yield place
    elif isinstance(given, list):
        for position, (value, other) in enumerate(zip(given, kept, strict=True)):
            yield from _lost(value, other, f"{path}[{position}]")
