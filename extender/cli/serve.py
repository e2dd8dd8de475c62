"""``scheduler-extender serve``: answer kube-scheduler."""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Annotated

import typer
import uvloop

from extender.cluster.apiserver import ApiServer, load_objects
from extender.cluster.connection import Connection, connect
from extender.config import ExtenderConfiguration
from extender.errors import ConfigurationError
from extender.reload import ConfigurationSource
from extender.runtime import Runtime
from extender.server import Serving
from extender.server import serve as serve_until_stopped
from extender.telemetry import set_up_logging

_log = logging.getLogger("extender.serve")


def serve(
    config: Annotated[Path | None, typer.Option(help="An ExtenderConfiguration in YAML.")] = None,
    cluster: Annotated[
        Path | None, typer.Option(help="Objects in YAML or JSON: serve on an embedded cluster that holds them.")
    ] = None,
    cluster_port: Annotated[
        int, typer.Option(min=0, max=65535, help="The port of the embedded cluster's API; 0 takes a free one.")
    ] = 0,
    kubeconfig: Annotated[str, typer.Option(help="Reach the API server as this kubeconfig says.")] = "",
    context: Annotated[str, typer.Option(help="The context of the kubeconfig to use.")] = "",
    setting: Annotated[
        list[str] | None, typer.Option("--set", help="A setting by its path, such as server.port=9000; repeatable.")
    ] = None,
) -> None:
    """Serve /filter, /prioritize, /bind and /preempt until stopped."""
    _check(cluster, cluster_port, kubeconfig, context)
    source = ConfigurationSource(config, settings=setting or ())
    configuration = source.load()
    set_up_logging(configuration.log.level, configuration.log.format, configuration.log.levels)
    uvloop.run(_serve(configuration, source, cluster, cluster_port, kubeconfig, context))


def _check(cluster: Path | None, cluster_port: int, kubeconfig: str, context: str) -> None:
    """Refuse options that would count for nothing."""
    real = {"--kubeconfig": kubeconfig, "--context": context}
    if cluster is not None:
        problems = [
            f"{option}: does not count with --cluster; leave one of them out" for option in real if real[option]
        ]
    else:
        problems = ["--cluster-port: counts with --cluster only; leave it out"] if cluster_port else []
    if problems:
        raise ConfigurationError(problems)


async def _serve(
    configuration: ExtenderConfiguration,
    source: ConfigurationSource,
    cluster: Path | None,
    cluster_port: int,
    kubeconfig: str,
    context: str,
) -> None:
    async with _connection(configuration, cluster, cluster_port, kubeconfig, context) as connection:
        await serve_until_stopped(Runtime(configuration, connection), source, _announce)


@contextlib.asynccontextmanager
async def _connection(
    configuration: ExtenderConfiguration, cluster: Path | None, cluster_port: int, kubeconfig: str, context: str
) -> AsyncIterator[Connection]:
    section = configuration.client_connection
    if cluster is None:
        yield connect(kubeconfig=kubeconfig or section.kubeconfig or None, context=context or section.context or None)
        return
    server = ApiServer(objects=load_objects(cluster))
    try:
        await server.start(host="127.0.0.1", port=cluster_port)
    except OSError as error:
        text = f"cannot listen on 127.0.0.1: {os.strerror(error.errno or 0)}; stop what listens there, or give another"
        raise ConfigurationError(f"--cluster-port: {cluster_port}: {text}") from error
    _log.info("embedded cluster", extra={"url": server.url, "objects": str(cluster)})
    try:
        yield connect(url=server.url)
    finally:
        await server.stop()


def _announce(ports: Serving) -> None:
    _log.info("serving", extra={"verbs": ports.url, "management": ports.management_url})
