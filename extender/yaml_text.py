"""YAML, and with it JSON: the first document of a text, and the keys that stand in it twice.

Readers of YAML pass a repeated key over in silence and go by the last one.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import yaml

_TAB: Final = repr("\t")


@dataclass(frozen=True)
class Repetition:
    """A key that stands in its mapping before: its path, and the lines of both, from 1."""

    path: str
    first_line: int
    line: int

    def __str__(self) -> str:
        """Return what is wrong on one line."""
        return f"{self.path}: stands in line {self.first_line} and again in line {self.line}"


@dataclass(frozen=True)
class YamlText:
    """What a text holds, None for nothing; ``has_more`` says that other documents follow."""

    tree: Any
    repetitions: tuple[Repetition, ...] = ()
    has_more: bool = False


def read_yaml(text: str) -> YamlText:
    """Return what ``text`` holds. Raises ValueError, which says in one line where it is no YAML, and why."""
    try:
        loader = yaml.SafeLoader(text)
        node = loader.get_node() if loader.check_node() else None
        if node is None:
            return YamlText(None)
        repetitions = tuple(_repetitions(node, "", set()))
        return YamlText(loader.construct_document(node), repetitions, loader.check_node())
    except yaml.MarkedYAMLError as error:
        raise ValueError(_marked(error)) from error
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise ValueError(" ".join(str(error).split())) from error


def _repetitions(node: yaml.Node, path: str, seen: set[int]) -> Iterator[Repetition]:
    """Yield what stands twice in ``node`` and below; what is named by an alias is looked at once."""
    if id(node) in seen:
        return
    seen.add(id(node))
    if isinstance(node, yaml.SequenceNode):
        for number, item in enumerate(node.value):
            yield from _repetitions(item, f"{path}[{number}]", seen)
    elif isinstance(node, yaml.MappingNode):
        lines: dict[str, int] = {}
        for key, value in node.value:
            place = f"{path}.{key.value}" if path else str(key.value)
            line = key.start_mark.line + 1
            if isinstance(key, yaml.ScalarNode):
                if key.value in lines:
                    yield Repetition(place, lines[key.value], line)
                lines.setdefault(key.value, line)
            yield from _repetitions(value, place, seen)


def _marked(error: yaml.MarkedYAMLError) -> str:
    mark = error.problem_mark or error.context_mark
    where = f"line {mark.line + 1}, column {mark.column + 1}: " if mark else ""
    problem = error.problem or error.context or "cannot be understood"
    return f"{where}{problem}{'; indent by spaces, not by tabs' if _TAB in problem else ''}"
