"""The author API as text: frozen in ``tests/data/author-api.txt``, and told in the reference of the author's guide.

``make freeze-api`` runs this file and writes both. Signatures come from ``inspect``; constants, attributes and what is
said of them come from the source, where they stand.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass, is_dataclass
from functools import cache, cached_property
from pathlib import Path
from textwrap import dedent
from types import ModuleType
from typing import Any

from msgspec import Struct

ROOT = Path(__file__).parent.parent
PACKAGES = ("extender.framework", "extender.testing")
FROZEN = ROOT / "tests" / "data" / "author-api.txt"
GUIDE = ROOT / "docs" / "author-guide.md"
BEGIN, END = "<!-- reference: begin; written by `make freeze-api` -->", "<!-- reference: end -->"
LONGEST_VALUE = 80


@dataclass(frozen=True)
class Entry:
    """One name: how it is used, what is said of it, and for a class what is in it."""

    name: str
    usage: str
    text: str
    members: tuple[Entry, ...] = ()


def frozen() -> str:
    """Return every name with its signature, one a line, members below their class."""
    lines = []
    for package in PACKAGES:
        lines.append(f"# {package}")
        for entry in sorted((entry for _, entries in groups(package) for entry in entries), key=lambda each: each.name):
            lines.append(entry.usage)
            lines += [f"    {member.usage}" for member in entry.members]
    return "\n".join(lines) + "\n"


def reference() -> str:
    """Return the same as Markdown with what is said of each, by the modules that names come from."""
    lines = []
    for package in PACKAGES:
        lines += ["", f"### `{package}`"]
        for title, entries in groups(package):
            lines += ["", f"#### {title}", ""]
            for entry in entries:
                lines += [f"- **`{entry.usage}`**{_inline(entry.text)}"]
                lines += [f"  - `{member.usage}`{_inline(member.text)}" for member in entry.members]
    return "\n".join(lines).strip() + "\n"


def guide(text: str) -> str:
    """Return the guide with its reference brought up to date."""
    head, _, rest = text.partition(BEGIN)
    return f"{head}{BEGIN}\n\n{reference()}\n{END}{rest.partition(END)[2]}"


def groups(package: str) -> Iterator[tuple[str, list[Entry]]]:
    """Yield the names that a package exports, by the module they come from, with the first sentence of that."""
    module = importlib.import_module(package)
    sources = {
        alias.name: node.module or ""
        for node in _tree(module).body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
        if alias.name in module.__all__
    }
    exported = {value for name in sources if inspect.isclass(value := getattr(module, name))}
    for source in dict.fromkeys(sources.values()):
        names = [name for name, found in sources.items() if found == source]
        if not source.startswith("extender."):
            yield f"From {source}, as it is there.", [Entry(name, f"{name} (of {source})", "") for name in names]
            continue
        origin = importlib.import_module(source)
        title = _text((origin.__doc__ or "").partition("\n")[0])
        yield title, [_entry(name, getattr(module, name), origin, exported) for name in names]


def _entry(name: str, value: Any, origin: ModuleType, exported: set[type]) -> Entry:
    if inspect.isclass(value):
        bases = ", ".join(base.__name__ for base in value.__bases__ if base is not object)
        usage = f"class {name}" + (f"({bases})" if bases else "")
        return Entry(name, usage, _text(value.__doc__), tuple(_members(value, exported)))
    if inspect.isroutine(value):
        return Entry(name, f"{name}{_signature(value)}", _text(value.__doc__))
    return _constant(name, origin)


def _constant(name: str, module: ModuleType) -> Entry:
    """Return a constant or alias, followed to the module that assigns it."""
    for entry in _assigned(_tree(module).body, name):
        return entry
    for node in _tree(module).body:
        if isinstance(node, ast.ImportFrom) and node.module and any(alias.name == name for alias in node.names):
            return _constant(name, importlib.import_module(node.module))
    raise LookupError(f"{name} is not assigned in {module.__name__}")


def _members(cls: type, exported: set[type]) -> Iterator[Entry]:
    """Yield what is in a class and in its bases, but for what an exported base has."""
    told = {owner for base in exported.difference([cls]) if issubclass(cls, base) for owner in base.__mro__}
    if _has_constructor(cls):
        yield Entry("__init__", f"__init__{_signature(cls)}", "")
    seen: set[str] = set()
    for owner in cls.__mro__:
        if owner.__module__.startswith("extender.") and owner not in told:
            for entry in _own_members(owner):
                if entry.name not in seen:
                    seen.add(entry.name)
                    yield entry


def _has_constructor(cls: type) -> bool:
    """Say whether a class says itself what it is made with; of others, the fields do, or the framework makes them."""
    made = is_dataclass(cls) or issubclass(cls, Exception | Struct | tuple) or hasattr(cls, "declared_caches")
    return not made and any(
        "__init__" in vars(owner) for owner in cls.__mro__ if owner.__module__.startswith("extender.")
    )


def _own_members(cls: type) -> Iterator[Entry]:
    body = _class(cls).body
    for node in body:
        if isinstance(node, ast.AnnAssign | ast.Assign):
            for name, _ in _pairs(node):
                yield from _assigned([node, *body[body.index(node) + 1 :][:1]], name)
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name == "__init__":
            yield from _set_on_self(node)
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and not node.name.startswith("_"):
            yield _method(node.name, inspect.getattr_static(cls, node.name))


def _method(name: str, value: Any) -> Entry:
    if isinstance(value, property | cached_property):
        function = value.fget if isinstance(value, property) else value.func
        returned = inspect.signature(function).return_annotation if function else ""
        return Entry(name, f"{name}: {returned}", _text(value.__doc__))
    function = getattr(value, "__func__", value)
    return Entry(name, f"{name}{_signature(function)}", _text(function.__doc__))


def _set_on_self(init: ast.FunctionDef | ast.AsyncFunctionDef) -> Iterator[Entry]:
    """Yield the public attributes that a constructor sets."""
    for node in init.body:
        if not isinstance(node, ast.Assign | ast.AnnAssign):
            continue
        for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
            if isinstance(target, ast.Attribute) and not target.attr.startswith("_"):
                kind = f": {ast.unparse(node.annotation)}" if isinstance(node, ast.AnnAssign) else ""
                yield Entry(target.attr, f"self.{target.attr}{kind}", _after(init.body, node))


def _assigned(body: list[ast.stmt], name: str) -> Iterator[Entry]:
    """Yield the constant, field or alias ``name`` of a module or class, unless it is private."""
    for node in body:
        if isinstance(node, ast.AnnAssign | ast.Assign) and not name.startswith(("_", "model_config")):
            for target, value in _pairs(node):
                if target == name:
                    kind = f": {ast.unparse(node.annotation)}" if isinstance(node, ast.AnnAssign) else ""
                    given = f" = {_value(value)}" if value else ""
                    yield Entry(name, f"{name}{kind}{given}", _after(body, node))


def _pairs(node: ast.AnnAssign | ast.Assign) -> Iterator[tuple[str, ast.expr | None]]:
    """Yield the names that are assigned to, each with its value."""
    target = node.target if isinstance(node, ast.AnnAssign) else node.targets[0]
    if isinstance(target, ast.Name):
        yield target.id, node.value
    elif isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple):
        for each, value in zip(target.elts, node.value.elts, strict=True):
            yield ast.unparse(each), value


def _value(value: ast.expr) -> str:
    text = ast.unparse(value)
    return text if len(text) <= LONGEST_VALUE else "..."


def _after(body: list[ast.stmt], node: ast.stmt) -> str:
    """Return the text that stands below an assignment."""
    place = body.index(node) + 1
    following = body[place] if place < len(body) else None
    if isinstance(following, ast.Expr) and isinstance(following.value, ast.Constant):
        return _text(str(following.value.value))
    return ""


def _signature(value: Any) -> str:
    """Return the signature without quotes around annotations, long defaults left out."""
    text = re.sub(r"""(: |-> )(['"])(.*?)\2(?=[,)]| =|$)""", r"\1\3", str(inspect.signature(value)))
    return re.sub(r" = \(?(?:<|Kind\().*\)(?=\))", " = ...", text)


def _text(docstring: str | None) -> str:
    return re.sub(r"\s+", " ", (docstring or "").replace("``", "`")).strip()


def _inline(text: str) -> str:
    return f" — {text}" if text else ""


@cache
def _tree(module: ModuleType) -> ast.Module:
    return ast.parse(inspect.getsource(module))


def _class(cls: type) -> ast.ClassDef:
    (found,) = ast.parse(dedent(inspect.getsource(cls))).body
    assert isinstance(found, ast.ClassDef)
    return found


def main() -> None:
    """Write the frozen text and the reference anew."""
    FROZEN.write_text(frozen())
    GUIDE.write_text(guide(GUIDE.read_text()))
    print(f"wrote {FROZEN.relative_to(ROOT)} and the reference of {GUIDE.relative_to(ROOT)}", file=sys.stderr)


if __name__ == "__main__":
    main()
