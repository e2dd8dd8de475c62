"""What can be set of an algorithm, one line a field, told by the JSON schema of its arguments."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from extender.framework.algorithm import Args

_BOUNDS: Final = {
    "minimum": ">= {}",
    "exclusiveMinimum": "> {}",
    "maximum": "<= {}",
    "exclusiveMaximum": "< {}",
    "multipleOf": "a multiple of {}",
    "minLength": "length >= {}",
    "maxLength": "length <= {}",
    "minItems": "items >= {}",
    "maxItems": "items <= {}",
    "pattern": "like {}",
}
"""What JSON schema calls the bounds of a value, and how they read."""


class Parameter(NamedTuple):
    """One field as it stands in the configuration: ``scoringStrategy.resources[].weight``; ``*`` is any key of a map.

    ``bounds`` are conditions such as ``>= 1``; ``default`` means nothing where the field is ``required``. ``unset`` is
    what holds where it is null: the field says so as ``json_schema_extra={"unset": "no limit"}``.
    """

    path: str
    type: str
    bounds: tuple[str, ...]
    required: bool
    default: Any
    unset: str = ""


def parameters(arguments: type[Args]) -> list[Parameter]:
    """Return the fields of ``arguments``, each before those that are inside it."""
    schema = arguments.model_json_schema()
    return list(_fields(schema, schema.get("$defs", {}), "", frozenset()))


def _fields(model: Any, types: Any, prefix: str, seen: frozenset[str]) -> Iterator[Parameter]:
    """Yield the fields of a model; ``seen`` are the types around it, which are not told again inside themselves."""
    required = model.get("required", ())
    for name, field in model.get("properties", {}).items():
        path, known = f"{prefix}{name}", _without_null(field)
        told = name in required, field.get("default"), field.get("unset", "")
        yield Parameter(path, _type(known, types), tuple(_bounds(known)), *told)
        for step, inner in _inner(known):
            reference = inner.get("$ref", "").rpartition("/")[2]
            if reference and reference not in seen:
                yield from _fields(types[reference], types, f"{path}{step}", seen | {reference})


def _inner(alternatives: list[Any]) -> Iterator[tuple[str, Any]]:
    """Yield what a field itself, its items or its entries may be, and what leads from its path into that."""
    for each in alternatives:
        yield ".", each
        if "items" in each:
            yield "[].", each["items"]
        if isinstance(each.get("additionalProperties"), dict):
            yield ".*.", each["additionalProperties"]


def _without_null(field: Any) -> list[Any]:
    """Return what a field may be, but for null, which stands for its absence."""
    return [each for each in field.get("anyOf", [field]) if each.get("type") != "null"]


def _type(alternatives: list[Any], types: Any) -> str:
    return " or ".join(dict.fromkeys(_name(each, types) for each in alternatives))


def _name(schema: Any, types: Any) -> str:
    if "$ref" in schema:
        return _name(types[schema["$ref"].rpartition("/")[2]] | {"title": ""}, types)
    if "enum" in schema or "const" in schema:
        return " | ".join(map(str, schema.get("enum", [schema.get("const")])))
    if schema.get("type") == "array":
        return f"list of {_type(_without_null(schema.get('items', {})), types)}"
    if schema.get("type") == "object":
        entries = schema.get("additionalProperties")
        if isinstance(entries, dict):
            return f"map of {_type(_without_null(entries), types)}"
        return "object" if "properties" in schema else str(schema.get("title") or "object")
    return str(schema.get("type", "any"))


def _bounds(alternatives: list[Any]) -> Iterator[str]:
    for each in alternatives:
        yield from (text.format(each[key]) for key, text in _BOUNDS.items() if key in each)
        yield from (f"each {bound}" for bound in _bounds([each["items"]] if "items" in each else []))
