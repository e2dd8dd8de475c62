"""Rows of figures, as JSON for programs and as a table for people."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import TextIO

import msgspec

from benchmarks.stopwatch import Sample


class Row(msgspec.Struct, frozen=True):
    """What was measured of one case of a workload.

    Times are of one ``unit``. ``ratio`` compares with ``baseline``, measured in the same run: the processor time of the
    two unless ``baseline`` says otherwise. ``met`` says whether ``target`` is, and is None where there is none.
    """

    workload: str
    case: str
    unit: str
    wall_seconds: float
    cpu_seconds: float
    baseline: str = ""
    ratio: float | None = None
    figures: dict[str, float] = {}
    target: str = ""
    met: bool | None = None


def row(
    workload: str,
    case: str,
    unit: str,
    sample: Sample,
    *,
    baseline: str = "",
    ratio: float | None = None,
    target: str = "",
    **figures: float,
) -> Row:
    """Return a row, its ``target`` judged: on any of ``figures``, ``ratio``, ``milliseconds`` and ``cpu_seconds``."""
    rounded = {name: _round(value) for name, value in figures.items()}
    known = rounded | {"milliseconds": sample.wall_seconds * 1e3, "cpu_seconds": sample.cpu_seconds}
    known |= {"ratio": ratio} if ratio is not None else {}
    return Row(
        workload=workload,
        case=case,
        unit=unit,
        wall_seconds=_round(sample.wall_seconds),
        cpu_seconds=_round(sample.cpu_seconds),
        baseline=baseline,
        ratio=None if ratio is None else _round(ratio),
        figures=rounded,
        target=target,
        met=_judge(target, known),
    )


def _judge(target: str, figures: dict[str, float]) -> bool | None:
    if not target:
        return None
    for clause in target.split(", "):
        figure, sign, bound = clause.split()
        value = figures[figure]
        if not (value <= float(bound) if sign == "<=" else value >= float(bound)):
            return False
    return True


def _round(value: float) -> float:
    """Return four digits of a figure; the others are noise."""
    return float(f"{value:.4g}")


def print_row(found: Row) -> None:
    """Write a row to stdout as one line of JSON."""
    sys.stdout.buffer.write(msgspec.json.encode(found) + b"\n")
    sys.stdout.flush()


def print_table(rows: Iterable[Row], out: TextIO = sys.stderr) -> None:
    """Write rows as a table."""
    lines: list[tuple[str, ...]] = [("workload", "case", "wall", "cpu", "ratio", "to", "figures", "target", "")]
    lines += [_cells(each) for each in rows]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    for line in lines:
        print("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip(), file=out)


def _cells(found: Row) -> tuple[str, ...]:
    figures = ", ".join(f"{name} {value:,.6g}" for name, value in found.figures.items())
    ratio = "" if found.ratio is None else f"{found.ratio:.2f}"
    verdict = {True: "met", False: "missed", None: ""}[found.met]
    wall, cpu = _time(found.wall_seconds), _time(found.cpu_seconds)
    return found.workload, found.case, wall, cpu, ratio, found.baseline, figures, found.target, verdict


def _time(seconds: float) -> str:
    for size, unit in ((1.0, "s"), (1e-3, "ms")):
        if seconds >= size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds * 1e6:.3g} us"
