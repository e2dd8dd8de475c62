"""Kubernetes objects inside the arguments of algorithms."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Annotated, Any, Final

import msgspec
from pydantic import GetCoreSchemaHandler, WithJsonSchema
from pydantic_core import core_schema


class _ApiObject:
    """Has pydantic leave a field to ``_read``, and describe it by the name of its type."""

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> core_schema.CoreSchema:
        described = handler.generate_schema(Annotated[Any, WithJsonSchema(_outline(source))])
        read = partial(_read, api_type=source)
        return core_schema.no_info_plain_validator_function(read, json_schema_input_schema=described)


API_OBJECT: Final = _ApiObject()
"""Marks a field that is written as it stands in the Kubernetes API: ``Annotated[NodeAffinity, API_OBJECT]``."""


def _outline(api_type: Any) -> dict[str, Any]:
    (schema,), _ = msgspec.json.schema_components([api_type], ref_template="{name}")
    if "items" in schema:
        return {"type": "array", "items": {"type": "object", "title": schema["items"].get("$ref", "")}}
    return {"type": "object", "title": schema.get("$ref", "")}


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
