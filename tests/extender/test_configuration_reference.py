"""The reference of the configuration: it has every key, with its default, what is allowed, and what it means."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

from pydantic import TypeAdapter
from pydantic.fields import FieldInfo

from extender.config import ExtenderConfiguration
from extender.section import Section

REFERENCE = Path(__file__).parents[2] / "docs" / "configuration.md"
ROW = re.compile(r"^\| `([^`]+)` \| (.*?) \| (.*?) \| (.*?) \|$", re.MULTILINE)


def keys(section: type[Section], root: str = "") -> Iterator[tuple[str, str, str]]:
    """Yield path, default and what is allowed of every key, sections left out, as the reference writes them."""
    for name, field in section.model_fields.items():
        path = f"{root}{field.alias or name}"
        inner = [part for part in parts(field.annotation) if isinstance(part, type) and issubclass(part, Section)]
        if inner:
            is_list = any(getattr(part, "__origin__", None) is list for part in parts(field.annotation))
            yield from keys(inner[0], f"{path}[]." if is_list else f"{path}.")
        else:
            yield path, default(field), allowed(field)


def parts(annotation: Any) -> Iterator[Any]:
    """Yield an annotation and what it is made of."""
    yield annotation
    for part in get_args(annotation):
        yield from parts(part)


def default(field: FieldInfo) -> str:
    if field.is_required():
        return "needed"
    return f"`{json.dumps(field.get_default())}`"


def allowed(field: FieldInfo) -> str:
    """Return the values that are allowed, or the range of a number; nothing where all of a type are."""
    annotation: Any = field.annotation if not field.metadata else field.rebuild_annotation()
    schema = TypeAdapter(annotation).json_schema()
    choices = [schema, *schema.get("anyOf", ())]
    texts = [
        value
        for choice in choices
        for value in (*choice.get("enum", ()), *([choice["const"]] if "const" in choice else ()))
    ]
    if texts:
        return ", ".join(f"`{text}`" for text in texts)
    for choice in choices:
        if "maximum" in choice:
            low, top = choice.get("minimum"), f"{choice['maximum']:.0f}"
            return f"{low:g} to {top}" if low is not None else f"above {choice['exclusiveMinimum']:g}, to {top}"
    return ""


def test_the_reference_has_every_key_with_its_default_and_what_is_allowed() -> None:
    written = [(key, value, range_) for key, value, range_, _ in ROW.findall(REFERENCE.read_text())]
    assert sorted(written) == sorted(keys(ExtenderConfiguration))


def test_the_reference_says_of_every_key_what_it_means() -> None:
    assert [key for key, _, _, meaning in ROW.findall(REFERENCE.read_text()) if len(meaning) < 10] == []
