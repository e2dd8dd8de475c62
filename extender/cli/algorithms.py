"""``scheduler-extender algorithms``: what a profile can name."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from enum import StrEnum
from typing import Annotated, Any

import msgspec
import typer

from extender.framework.catalogue import Catalogue, Entry
from extender.framework.parameter import Parameter


class Output(StrEnum):
    """How algorithms are printed."""

    TEXT = "text"
    JSON = "json"


def algorithms(
    names: Annotated[
        list[str] | None, typer.Argument(help="These alone, in full: names, or module:Class.", show_default=False)
    ] = None,
    everything: Annotated[
        bool, typer.Option("--all", help="Print what can be set of each, and what it watches.")
    ] = False,
    output: Annotated[Output, typer.Option(help="text or json; json always has everything.")] = Output.TEXT,
) -> None:
    """List the algorithms that are installed, each with where it comes from, and why those that are broken are.

    Exits with 1 if one of NAMES is not to be had.
    """
    entries = Catalogue().entries(names or ())
    if output is Output.JSON:
        typer.echo(msgspec.json.format(msgspec.json.encode([_plain(entry) for entry in entries])))
    else:
        for line in report(entries, in_full=everything or bool(names)):
            typer.echo(line)
    if names and any(entry.error for entry in entries):
        raise typer.Exit(1)


def report(entries: Sequence[Entry], *, in_full: bool) -> list[str]:
    """Return a line an algorithm, and with ``in_full`` after each what else there is to know."""
    heads: list[tuple[str, ...]] = [("NAME", "WHAT", "WEIGHT", "FROM", "" if in_full else "SUMMARY")]
    heads += [_head(entry, in_full) for entry in entries]
    widths = [max(map(len, column)) for column in zip(*heads, strict=True)]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(head, widths, strict=True)).rstrip() for head in heads]
    if not in_full:
        return lines
    blocks = zip(lines[1:], map(_details, entries), strict=True)
    return [
        lines[0],
        *(line for head, details in blocks for line in (head, *(f"  {detail}" for detail in details), "")),
    ]


def _head(entry: Entry, in_full: bool) -> tuple[str, ...]:
    what = "broken" if entry.error else ", ".join(entry.roles)
    weight = "" if entry.weight is None else str(entry.weight)
    summary = f"error: {entry.error}" if entry.error else entry.summary
    return entry.name, what, weight, entry.origin, "" if in_full else summary


def _details(entry: Entry) -> Iterator[str]:
    if entry.error:
        yield f"error: {entry.error}"
        return
    yield entry.summary
    yield f"class    {entry.path}"
    yield f"watches  {', '.join(entry.watches) or 'nothing of its own'}"
    if entry.default:
        yield "default  runs in profiles that name nothing"
    rows = [_row(parameter) for parameter in entry.parameters]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for place, row in enumerate(rows):
        cells = "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        yield f"{'' if place else 'args':9}{cells}".rstrip()


def _row(parameter: Parameter) -> tuple[str, ...]:
    default = "required" if parameter.required else f"default {msgspec.json.encode(parameter.default).decode()}"
    meaning = f": {parameter.unset}" if parameter.unset else ""
    return parameter.path, parameter.type, ", ".join(parameter.bounds), f"{default}{meaning}"


def _plain(entry: Entry) -> dict[str, Any]:
    plain = asdict(entry)
    del plain["parameters"]
    return plain | {"args": [parameter._asdict() for parameter in entry.parameters]}
