"""YAML with comments: a tree, and what to say of its places."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping
from typing import Any

import yaml

_WIDTH = 112


def render(tree: Mapping[str, Any], comments: Mapping[str, str]) -> str:
    """Return ``tree`` as YAML in its own order.

    ``comments`` has texts by path, such as ``extenders[0].weight``; they go before the place, those of ``""`` on top.
    Lines of a text that begin with a space, as code does, are left as they are.
    """
    lines = [*_comment(comments, "", 0), *_mapping(tree, comments, "", 0)]
    return "\n".join(lines) + "\n"


def _mapping(tree: Mapping[str, Any], comments: Mapping[str, str], path: str, indent: int) -> Iterator[str]:
    margin = " " * indent
    for key, value in tree.items():
        place = f"{path}.{key}" if path else key
        yield from _comment(comments, place, indent)
        if isinstance(value, Mapping) and value:
            yield f"{margin}{_scalar(key)}:"
            yield from _mapping(value, comments, place, indent + 2)
        elif isinstance(value, list) and value:
            yield f"{margin}{_scalar(key)}:"
            yield from _list(value, comments, place, indent + 2)
        else:
            yield f"{margin}{_scalar(key)}: {_scalar(value)}"


def _list(items: list[Any], comments: Mapping[str, str], path: str, indent: int) -> Iterator[str]:
    margin = " " * indent
    for number, item in enumerate(items):
        place = f"{path}[{number}]"
        yield from _comment(comments, place, indent)
        if not isinstance(item, Mapping) or not item:
            yield f"{margin}- {_scalar(item)}"
            continue
        # A comment of the first key would stand between the dash and the key: it goes before the dash.
        first = f"{place}.{next(iter(item))}"
        yield from _comment(comments, first, indent)
        rest = {key: text for key, text in comments.items() if key != first}
        lines = list(_mapping(item, rest, place, indent + 2))
        yield f"{margin}- {lines[0][indent + 2 :]}"
        yield from lines[1:]


def _comment(comments: Mapping[str, str], path: str, indent: int) -> Iterator[str]:
    margin = " " * indent
    for line in comments.get(path, "").splitlines():
        wrapped = [line] if line.startswith(" ") else textwrap.wrap(line, _WIDTH - indent, break_on_hyphens=False)
        yield from (f"{margin}# {part}" for part in wrapped or [""])


def _scalar(value: Any) -> str:
    """Return a value on one line, as flow where it is a list or a mapping."""
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{_quoted(key)}: {_quoted(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list):
        return f"[{', '.join(map(_quoted, value))}]"
    style = '"' if isinstance(value, str) and not value.isprintable() else None
    return _dump(value, style)


def _quoted(value: Any) -> str:
    """Return a value as it may stand inside a flow, where commas and brackets have a meaning."""
    return _dump(value, '"') if isinstance(value, str) else _scalar(value)


def _dump(value: Any, style: str | None) -> str:
    text = yaml.safe_dump(value, default_style=style, width=10**9, allow_unicode=True)
    return text.removesuffix("\n").removesuffix("\n...")
