"""``scheduler-extender register``: the documents that make kube-scheduler call the service."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from extender.config import ServerSection
from extender.errors import ConfigurationError
from extender.registration.dialect import BY_NAME
from extender.registration.document import adopt, joined, registration
from extender.registration.entry import VERBS, TlsSettings
from extender.registration.finding import Severity
from extender.registration.kubeadm import PATCH_FILE, patch
from extender.registration.request import Request
from extender.registration.source import read_source


def register(
    url: Annotated[str, typer.Option(help="Where kube-scheduler reaches the service: http://HOST:8888/scheduler.")],
    kubernetes: Annotated[str, typer.Option(help="The release of kube-scheduler, such as 1.36.")] = "",
    api_version: Annotated[str, typer.Option(help=f"The version to write: {', '.join(BY_NAME)}.")] = "",
    verb: Annotated[list[str] | None, typer.Option(help=f"One of {', '.join(VERBS)}; repeatable. All if none.")] = None,
    weight: Annotated[
        int | None,
        typer.Option(help="How much scores count: up to 100 points each. 1 if not given.", show_default=False),
    ] = None,
    managed_resource: Annotated[
        list[str] | None, typer.Option(help="Call for pods that name it only: NAME or NAME=ignored; repeatable.")
    ] = None,
    ignorable: Annotated[bool, typer.Option("--ignorable", help="Place pods without the service if it fails.")] = False,
    http_timeout: Annotated[str, typer.Option(help="How long a call may take, such as 5s.")] = "5s",
    scheduler_name: Annotated[list[str] | None, typer.Option(help="The name of a profile; repeatable.")] = None,
    kubeconfig: Annotated[str, typer.Option(help="kube-scheduler's kubeconfig.")] = Request.kubeconfig,
    config_file: Annotated[str, typer.Option(help="Where kube-scheduler will find the file.")] = Request.config_file,
    ca_file: Annotated[str, typer.Option(help="The certificate authority of the service.")] = "",
    cert_file: Annotated[str, typer.Option(help="The certificate that kube-scheduler presents.")] = "",
    key_file: Annotated[str, typer.Option(help="The key of that certificate.")] = "",
    server_name: Annotated[str, typer.Option(help="The name in the service's certificate, if not the URL's.")] = "",
    insecure: Annotated[bool, typer.Option("--insecure", help="Do not verify the service's certificate.")] = False,
    kubeadm: Annotated[bool, typer.Option("--kubeadm", help=f"Also the patch {PATCH_FILE} of the static pod.")] = False,
    add_to: Annotated[
        Path | None, typer.Option(help="A configuration of kube-scheduler to add the service to.")
    ] = None,
    directory: Annotated[Path | None, typer.Option(help="Write files there instead of printing.")] = None,
) -> None:
    """Print a KubeSchedulerConfiguration, or a Policy, that registers the service; exit with 2 if it cannot be had."""
    request = Request(
        url=url,
        kubernetes=kubernetes,
        api_version=api_version,
        verbs=tuple(verb or VERBS),
        weight=weight,
        managed_resources=tuple(managed_resource or ()),
        ignorable=ignorable,
        http_timeout=http_timeout,
        scheduler_names=tuple(scheduler_name or ()),
        kubeconfig=kubeconfig,
        config_file=config_file,
        tls=TlsSettings(insecure, server_name, ca_file, cert_file, key_file),
    ).checked()
    if add_to is None:
        document = registration(request)
    else:
        existing = _read(add_to)
        request = adopt(request, existing)
        document = joined(request, existing)
    documents = {Path(config_file).name: document} | ({PATCH_FILE: patch(request)} if kubeadm else {})
    _deliver(documents, directory)
    _warn(request)


def _read(file: Path) -> Any:
    """Return a configuration of kube-scheduler, which kube-scheduler itself can read."""
    try:
        source = read_source(file)
    except ConfigurationError as error:
        raise ConfigurationError(f"--add-to: {error}") from error
    if problems := [f"--add-to: {found}" for found in source.findings if found.severity is Severity.ERROR]:
        raise ConfigurationError(problems)
    return source.tree


def _deliver(documents: dict[str, str], directory: Path | None) -> None:
    """Print documents, or write each into a file; files that hold something else are left alone."""
    if directory is None:
        typer.echo("---\n".join(documents.values()), nl=False)
        return
    paths = {directory / name: text for name, text in documents.items()}
    try:
        if taken := [str(path) for path, text in paths.items() if path.exists() and path.read_text() != text]:
            raise ConfigurationError(f"--directory: {', '.join(taken)}: is there with another content; remove it")
        directory.mkdir(parents=True, exist_ok=True)
        for path, text in paths.items():
            path.write_text(text)
            typer.echo(str(path))
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"--directory: {directory}: cannot be written: {error}") from error


def _warn(request: Request) -> None:
    deadline_seconds = ServerSection().deadline_seconds
    if request.timeout_nanoseconds <= deadline_seconds * 1e9:
        typer.echo(
            f"warning: --http-timeout: {request.http_timeout} is not above server.deadlineSeconds, which is "
            f"{deadline_seconds:g} unless set: kube-scheduler would give up first; set it and bodyTimeoutSeconds lower",
            err=True,
        )
