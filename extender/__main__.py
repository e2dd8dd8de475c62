"""The console script ``scheduler-extender``."""

from __future__ import annotations

import sys
from importlib.metadata import version
from typing import Annotated

import typer

from extender.cli.algorithms import algorithms
from extender.cli.conformance import conformance
from extender.cli.doctor import doctor
from extender.cli.new_algorithm import new_algorithm
from extender.cli.register import register
from extender.cli.serve import serve
from extender.errors import ExtenderError

app = typer.Typer(no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False)
app.command()(serve)
app.command()(conformance)
app.command()(register)
app.command()(doctor)
app.command()(algorithms)
app.command()(new_algorithm)


def _tell_version(asked: bool) -> None:
    if asked:
        typer.echo(f"scheduler-extender {version('kube-scheduler-extender')}")
        raise typer.Exit


@app.callback()
def _about(
    _: Annotated[
        bool, typer.Option("--version", callback=_tell_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Serve placement rules in Python to kube-scheduler, and try them without a cluster."""


def main() -> None:
    """Run a command; errors that are the operator's to mend are printed without a traceback."""
    try:
        app()
    except ExtenderError as error:
        for line in str(error).splitlines():
            print(f"error: {line}", file=sys.stderr)
        sys.exit(2)


if __name__ == "__main__":
    main()
