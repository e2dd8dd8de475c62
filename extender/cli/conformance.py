"""``scheduler-extender conformance``: hold algorithms against what kube-scheduler decided."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated

import typer

from extender.errors import ConfigurationError
from extender.framework.algorithm import Algorithm
from extender.framework.loader import load, load_all
from extender.framework.registry import Registry
from extender.testing.conformance import ASPECTS, Disagreement, Tally, compare, read_cases
from extender.testing.placement import compare_default_profile
from extender.testing.reply import Json

SHOWN_DISAGREEMENTS = 5
"""How many of an algorithm's disagreements are printed."""


def conformance(
    file: Annotated[Path, typer.Argument(help="Cases, .jsonl or .jsonl.gz.", exists=True, dir_okay=False)],
    algorithm: Annotated[
        list[str] | None,
        typer.Option(help="An algorithm by name or module:Class; repeatable. All that the file knows if not given."),
    ] = None,
) -> None:
    """Compare algorithms with the decisions of kube-scheduler in FILE.

    Exits with 0 if they agree, with 1 if they differ or one that comes with the service is broken, with 2 if FILE
    cannot be read, has no cases, or has no decision of an algorithm that was asked for.
    """
    registry = Registry()
    failures: Mapping[str, ConfigurationError] = {}
    try:
        names = [load(reference, registry) for reference in algorithm or ()]
    except ConfigurationError as error:
        raise typer.BadParameter(str(error), param_hint="--algorithm") from None
    if not names:
        failures = load_all(registry)
    cases = list(read_cases(file))
    if problems := list(_gaps(cases, names)):
        raise ConfigurationError(f"{file}: {problem}" for problem in problems)
    try:
        tallies = [tally for tally in compare(cases, _algorithms(registry, names)) if tally.named or names]
        if not names:
            tallies.append(compare_default_profile(cases))
    except ConfigurationError as error:
        raise ConfigurationError(f"{file}: {error}") from error
    for line in report(tallies):
        typer.echo(line)
    for failure in failures.values():
        typer.echo(str(failure), err=True)
    if failures or any(tally.disagreements for tally in tallies):
        raise typer.Exit(1)


def report(tallies: Sequence[Tally]) -> list[str]:
    """Return a table with a row an algorithm, and after it the first disagreements of each."""
    width = max((len(tally.name) for tally in tallies), default=0)
    aspects = [aspect for aspect in ASPECTS if any(aspect in tally.agreeing for tally in tallies)]
    lines = ["  ".join([" " * width, *(f"{aspect:>11}" for aspect in aspects)])]
    lines += ["  ".join([f"{tally.name:{width}}", *(_cell(tally, aspect) for aspect in aspects)]) for tally in tallies]
    for tally in tallies:
        if tally.disagreements:
            lines += ["", f"{tally.name}: {len(tally.disagreements)} disagreements"]
            for found in tally.disagreements[:SHOWN_DISAGREEMENTS]:
                lines += _difference(found)
    return lines


def _gaps(cases: Sequence[Json], names: Iterable[str]) -> Iterator[str]:
    """Yield why a comparison with ``cases`` would say nothing."""
    if not cases:
        yield "has no cases; give a file with one JSON object a line"
        return
    decided = {name for case in cases for name in case["expect"]["plugins"]}
    for name in names:
        if name not in decided:
            yield f"has no decision of {name}; leave it out of --algorithm, or give a file that has"


def _algorithms(registry: Registry, names: Sequence[str]) -> list[type[Algorithm]]:
    """Return the classes registered under ``names``, or all where there are none, each once."""
    known: list[Mapping[str, type[Algorithm]]] = [registry.predicates, registry.priorities]
    chosen = names or sorted({*registry.predicates, *registry.priorities})
    return list(dict.fromkeys(kind[name] for name in chosen for kind in known if name in kind))


def _cell(tally: Tally, aspect: str) -> str:
    agreeing = f"{tally.agreeing[aspect]}/{tally.cases}" if aspect in tally.agreeing else "-"
    return f"{agreeing:>11}"


def _difference(found: Disagreement) -> list[str]:
    absent = {"filter": "passes", "feasible": "is refused", "preemption": "nothing"}.get(found.aspect, "no score")
    return [
        f"  {found.case}  {found.aspect}  {'all nodes' if found.node == '*' else found.node}",
        f"    - expected {found.expected or absent}",
        f"    + got      {found.got or absent}",
    ]
