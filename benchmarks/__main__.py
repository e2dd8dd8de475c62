"""``python -m benchmarks [--quick] [--only NAME ...]``: rows of JSON on stdout, a table on stderr."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from typing import Any

from benchmarks import bind_rate, codec, evaluation, event, load, memory, overhead, reload, scale, start, verb
from benchmarks.report import Row, print_row, print_table
from benchmarks.workload import (
    BindRate,
    Codec,
    Evaluation,
    Event,
    Load,
    Memory,
    Overhead,
    Plan,
    Reload,
    Scale,
    Start,
    Verb,
    load_plan,
)

MEASURES: dict[type, Any] = {
    Codec: codec.measure,
    Evaluation: evaluation.measure,
    Verb: verb.measure,
    Event: event.measure,
    Memory: memory.measure,
    Start: start.measure,
    Scale: scale.measure,
    Load: load.measure,
    BindRate: bind_rate.measure,
    Overhead: overhead.measure,
    Reload: reload.measure,
}
"""How each kind of workload is measured, in the order of running."""


def main(arguments: list[str] | None = None) -> None:
    """Measure what is asked for and print it."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description="Measure the service.")
    parser.add_argument("--only", nargs="+", default=[], metavar="NAME", help="workloads of workloads.yaml to run")
    parser.add_argument("--quick", action="store_true", help="see that everything runs; the figures mean nothing")
    options = parser.parse_args(arguments)
    try:
        plan = load_plan().chosen(options.only)
    except ValueError as error:
        parser.error(str(error))
    rows = []
    for found in measure(plan.quick() if options.quick else plan):
        print_row(found)
        rows.append(found)
    print_table(rows, sys.stderr)


def measure(plan: Plan) -> Iterator[Row]:
    """Yield all rows of a plan."""
    for kind, measure_kind in MEASURES.items():
        workloads = [workload for workload in plan.workloads if isinstance(workload, kind)]
        if workloads:
            yield from measure_kind(plan, workloads)


if __name__ == "__main__":
    main()
