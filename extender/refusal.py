"""Why a value was refused, in the words of whoever wrote it: lists and mappings, texts and numbers, and the remedy."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from typing import Any, Final, get_args

from pydantic import AfterValidator, BaseModel

_COMPARISONS: Final = {
    "greater_than": ("gt", ">"),
    "greater_than_equal": ("ge", ">="),
    "less_than": ("lt", "<"),
    "less_than_equal": ("le", "<="),
}
_NUMBER: Final = re.compile(r"[-+]?[0-9.]+")
_MOST_PLACES: Final = 3
_LONGEST_SHOWN: Final = 80


def reason(finding: Mapping[str, Any], model: type[BaseModel] | None = None) -> str:
    """Return what is wrong, and what to do, of a finding of pydantic's.

    With the ``model`` that was validated, keys that are meant by unknown ones are named.
    """
    kind, given, context = finding["type"], finding["input"], finding.get("ctx", {})
    if kind in _COMPARISONS:
        key, sign = _COMPARISONS[kind]
        return f"must be {sign} {_number(context[key])}, got {shown(given)}"
    if kind == "extra_forbidden":
        return f"unknown key; {_remedy(finding['loc'], model)}"
    if kind == "missing":
        return "is missing"
    if kind == "value_error":
        return str(context["error"])
    if kind == "literal_error":
        return f"must be {context['expected']}, got {shown(given)}"
    if kind in _WORDS:
        words = _WORDS[kind]
    elif kind in ("string_too_short", "too_short"):
        least = context["min_length"]
        words = "must not be empty" if least == 1 else f"must have {least} entries at least"
    else:
        words = f"{finding['msg'][:1].lower()}{finding['msg'][1:]}"
    return f"{words}, got {shown(given)}{_cure(kind, given)}"


def matching(pattern: str, rule: str) -> AfterValidator:
    """Return a check that a text matches ``pattern``, which answers with ``rule`` where it does not."""
    compiled = re.compile(pattern)

    def check(value: str) -> str:
        if not compiled.fullmatch(value):
            raise ValueError(f"{rule}, got {shown(value)}")
        return value

    return AfterValidator(check)


_MAPPING: Final = "must be a mapping of keys to values"
_LIST: Final = "must be a list"
_WORDS: Final = {
    **dict.fromkeys(("model_type", "model_attributes_type", "dict_type", "dataclass_type"), _MAPPING),
    **dict.fromkeys(("list_type", "tuple_type", "set_type"), _LIST),
    **dict.fromkeys(("int_type", "int_parsing", "int_from_float"), "must be a whole number"),
    **dict.fromkeys(("float_type", "float_parsing"), "must be a number"),
    **dict.fromkeys(("bool_type", "bool_parsing"), "must be true or false"),
    "string_type": "must be a text",
    "invalid_key": "must be a text",
    "finite_number": "must be a finite number",
}


def shown(value: object) -> str:
    """Return a value as it stands in YAML, or what it is where it is large."""
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, Mapping):
        return "a mapping" if value else "{}"
    if isinstance(value, list | tuple):
        return "a list" if value else "[]"
    text = repr(value) if isinstance(value, str) else str(value)
    return text if len(text) <= _LONGEST_SHOWN else f"{text[:_LONGEST_SHOWN]}..."


def _number(value: Any) -> str:
    return str(int(value)) if value == int(value) else str(value)


def _cure(kind: str, given: object) -> str:
    words = _WORDS.get(kind)
    if kind in ("string_type", "invalid_key"):
        is_plain = isinstance(given, bool | int | float) or not isinstance(given, Mapping | list | None)
        return "; put it in quotes" if is_plain else ""
    if words == _LIST and isinstance(given, str) and given:
        return f"; write [{given}]"
    if words is not None and words not in (_LIST, _MAPPING) and isinstance(given, str):
        is_meant = _NUMBER.fullmatch(given) or given in ("true", "false")
        return "; write it without quotes" if is_meant else ""
    return ""


# --- unknown keys ----------------------------------------------------------------------------------------------------


def _remedy(location: tuple[int | str, ...], model: type[BaseModel] | None) -> str:
    given, section = str(location[-1]), _section_at(model, location[:-1]) if model else None
    if model is None or section is None:
        return "remove it or correct its spelling"
    known = {_folded(alias): alias for alias in _aliases(section)}
    if _folded(given) in known:
        return f"write {known[_folded(given)]}"
    places = [path for path in _paths(model) if given == path.rpartition(".")[2] or _folded(given) == _folded(path)]
    if 0 < len(places) <= _MOST_PLACES:
        return f"did you mean {' or '.join(places)}?"
    close = get_close_matches(_folded(given), known, n=1)
    return f"did you mean {known[close[0]]}?" if close else "remove it or correct its spelling"


def _folded(key: str) -> str:
    return re.sub(r"[-_. ]", "", key).casefold()


def _aliases(model: type[BaseModel]) -> dict[str, Any]:
    """Return what the fields are annotated with, by the keys they have in a file."""
    return {field.alias or name: field.annotation for name, field in model.model_fields.items()}


def _section_at(model: type[BaseModel], location: tuple[int | str, ...]) -> type[BaseModel] | None:
    found: type[BaseModel] | None = model
    for part in location:
        if isinstance(part, str):
            found = _model_in(_aliases(found).get(part)) if found else None
    return found


def _model_in(annotation: Any) -> type[BaseModel] | None:
    """Return the model that a field is, or that the items of its list are."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return next((model for part in get_args(annotation) if (model := _model_in(part))), None)


def _paths(model: type[BaseModel], root: str = "") -> Iterator[str]:
    """Yield the paths of all keys that stand in no list."""
    for alias, annotation in _aliases(model).items():
        yield f"{root}{alias}"
        if isinstance(annotation, type) and issubclass(annotation, BaseModel):
            yield from _paths(annotation, f"{root}{alias}.")
