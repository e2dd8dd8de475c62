"""Kubernetes objects inside the arguments of algorithms."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Annotated, Any, Final, TypeAlias

import msgspec
from pydantic import GetCoreSchemaHandler, ValidationError, WithJsonSchema
from pydantic_core import InitErrorDetails, core_schema

Place: TypeAlias = tuple[int | str, ...]
"""The keys and positions that lead to a value."""

_UNKNOWN: Final = "unknown key; remove it or correct its spelling"
_STEP: Final = re.compile(r"\[(\d+)\]|\.(\w+)")


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
        ValidationError: the shape is wrong, or keys are not known; each finding has its place.
    """
    try:
        decoded = msgspec.convert(value, api_type)
    except msgspec.ValidationError as error:
        text, _, path = str(error).partition(" - at `$")
        raise _findings({_place(path): f"{text[:1].lower()}{text[1:]}"}, value) from None
    unknown = dict.fromkeys(_lost(value, msgspec.to_builtins(decoded)), _UNKNOWN)
    if unknown:
        raise _findings(unknown, value)
    return decoded


def _place(path: str) -> Place:
    """Return where ``[0].labelSelector.matchLabels`` leads."""
    return tuple(int(number) if number else name for number, name in _STEP.findall(path))


def _findings(texts: Mapping[Place, str], value: Any) -> ValidationError:
    faults = [
        InitErrorDetails(type="value_error", loc=place, input=value, ctx={"error": ValueError(text)})
        for place, text in texts.items()
    ]
    return ValidationError.from_exception_data("argument", faults)


def _lost(given: Any, kept: Any, place: Place = ()) -> Iterator[Place]:
    """Return the places in ``given`` that decoding did not keep."""
    if isinstance(given, dict):
        for key, value in given.items():
            if key in kept:
                yield from _lost(value, kept[key], (*place, key))
            elif value is not None:
                yield (*place, str(key))
    elif isinstance(given, list):
        for position, (value, other) in enumerate(zip(given, kept, strict=True)):
            yield from _lost(value, other, (*place, position))
