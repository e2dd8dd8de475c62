"""``scheduler-extender new-algorithm``: begin a package with an algorithm of one's own."""

from __future__ import annotations

import re
import sys
from importlib import resources
from importlib.util import find_spec
from keyword import iskeyword
from pathlib import Path
from typing import Annotated, Final

import typer

from extender import framework, testing
from extender.errors import ConfigurationError
from extender.framework.loader import IN_TREE_PACKAGE, in_tree_modules, module_name
from extender.framework.plugin import installed_plugins

LONGEST_NAME: Final = 40
"""So that lines of the skeleton stay within their length."""

_CLASS_NAME: Final = re.compile(r"[A-Z][A-Za-z0-9]*")
_NEXT_STEPS: Final = """
Next, in {directory}:

  pip install --editable '.[dev]'
  pytest && mypy . && ruff check .
  scheduler-extender algorithms {name}

Then name it in a profile, after those that run anyway:

  profiles:
    - {kind}: {{enabled: [{{name: "*"}}, {{name: {name}}}]}}
"""


def new_algorithm(
    name: Annotated[str, typer.Argument(help="What it is to be called: a class name such as MyRule.")],
    directory: Annotated[
        Path | None, typer.Option(help="Where to write, made if need be; ./my-rule for MyRule if not given.")
    ] = None,
    columns: Annotated[
        bool, typer.Option("--columns/--per-node", help="Answer for all nodes at once, or node by node.")
    ] = False,
    priority: Annotated[bool, typer.Option("--priority", help="Score nodes instead of refusing them.")] = False,
) -> None:
    """Write a package with one algorithm and its test, ready to be installed; nothing is overwritten."""
    problem = _fault(name)
    if problem:
        raise ConfigurationError(f"NAME: {name!r} {problem}")
    directory = directory or Path(_project(name))
    _write({directory / file: text for file, text in skeleton(name, columns=columns, priority=priority).items()})
    kind = "priorities" if priority else "predicates"
    typer.echo(_NEXT_STEPS.format(directory=directory, name=name, kind=kind), nl=False)


def skeleton(name: str, *, columns: bool, priority: bool) -> dict[str, str]:
    """Return the files of a package with an algorithm called ``name``, by their names."""
    kind, module = "priority" if priority else "predicate", module_name(name)
    sources = {
        "pyproject.toml": "pyproject.toml",
        f"{module}.py": f"{'' if columns else 'node_'}{kind}.py",
        f"test_{module}.py": f"test_{kind}.py",
    }
    folder = resources.files("extender.cli") / "skeleton"
    texts = {file: (folder / f"{source}.txt").read_text() for file, source in sources.items()}
    names = {"MyRule": name, "my_rule": module, "my-rule": _project(name)}
    return {file: re.sub("|".join(names), lambda found: names[found[0]], text) for file, text in texts.items()}


def _project(name: str) -> str:
    return module_name(name).replace("_", "-")


def _fault(name: str) -> str:
    """Return what is wrong with a name, or nothing."""
    module = module_name(name)
    if not _CLASS_NAME.fullmatch(name) or iskeyword(name) or len(name) > LONGEST_NAME:
        return f"must be a class name such as MyRule: letters and digits, a capital first, {LONGEST_NAME} at most"
    if name in (*framework.__all__, *testing.__all__, "Annotated", "Any"):
        return "is a name of the author API; take another"
    if module in in_tree_modules():
        return f"is taken by {IN_TREE_PACKAGE}/{module}.py; take another"
    if found := installed_plugins().get(name):
        return f"is taken by {found[0].origin}; take another"
    if module in sys.stdlib_module_names or find_spec(module):
        return f"would be module {module!r}, of which there is one already; take another"
    return ""


def _write(files: dict[Path, str]) -> None:
    """Write files that are not there yet, or none at all."""
    try:
        if taken := [str(path) for path in files if path.exists() or path.is_symlink()]:
            raise ConfigurationError(f"--directory: {', '.join(taken)}: is there already; remove it or name another")
        for path, text in files.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("x") as file:
                file.write(text)
            typer.echo(f"wrote {path}")
    except OSError as error:
        raise ConfigurationError(f"--directory: {error.filename}: cannot be written: {error.strerror}") from error
