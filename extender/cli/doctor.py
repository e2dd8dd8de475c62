"""``scheduler-extender doctor``: find what is wrong between kube-scheduler and its extenders."""

from __future__ import annotations

import asyncio
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from extender.cluster.connection import Connection, connect
from extender.config import load_configuration
from extender.doctor.examination import Examination
from extender.errors import ConfigurationError


class Output(StrEnum):
    """How findings are printed."""

    TEXT = "text"
    JSON = "json"


def doctor(
    scheduler_config: Annotated[Path, typer.Option(help="kube-scheduler's configuration, or its Policy.")],
    extender_url: Annotated[
        list[str] | None,
        typer.Option(help="Call http://HOST:PORT instead of the host in urlPrefix; repeatable, in the file's order."),
    ] = None,
    kubeconfig: Annotated[str, typer.Option(help="Ask the API server as this kubeconfig says.")] = "",
    context: Annotated[str, typer.Option(help="The context of the kubeconfig to use.")] = "",
    config: Annotated[
        Path | None, typer.Option(help="The service's ExtenderConfiguration, if not the default.")
    ] = None,
    idle_seconds: Annotated[
        float,
        typer.Option(min=0, max=120, help="How long to see whether idle connections stay open; 0 for not at all."),
    ] = 6.0,
    output: Annotated[Output, typer.Option(help="text or json.")] = Output.TEXT,
) -> None:
    """Check a configuration of kube-scheduler, its extenders and the cluster; never binds, changes nothing.

    Exits with 0 if there are notes at most, with 1 for warnings and errors, with 2 if it could not look.
    """
    case = Examination(
        scheduler_config,
        _connection(kubeconfig, context),
        load_configuration(config),
        list(extender_url or ()),
        idle_seconds,
    )
    report = asyncio.run(case.run())
    typer.echo(report.as_json() if output is Output.JSON else report.as_text())
    if not report.is_healthy:
        raise typer.Exit(1)


def _connection(kubeconfig: str, context: str) -> Connection | None:
    """Return the connection asked for, or the one that is there, if any."""
    try:
        return connect(kubeconfig=kubeconfig or None, context=context or None)
    except ConfigurationError:
        if kubeconfig or context:
            raise
        return None
