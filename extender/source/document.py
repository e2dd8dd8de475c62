"""A file of kube-scheduler: read as kube-scheduler reads it, and told apart by kind and version."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from extender.errors import ConfigurationError
from extender.registration.decoding import decode
from extender.registration.dialect import CONFIGURATION, DIALECTS, POLICY, Dialect, of
from extender.registration.finding import Severity
from extender.registration.source import read_source

_NOTHING_SAID = {"apiVersion": "v1", "kind": POLICY}
"""What kube-scheduler takes an empty object for, where it expects a Policy."""

_KEYS = {POLICY: "policyFile", CONFIGURATION: "schedulerConfigurationFile"}


def read_document(file: str, kind: str) -> tuple[dict[str, Any], Dialect]:
    """Return what ``file`` holds, without what is null at its top, and its version.

    Raises:
        ConfigurationError: it cannot be read, is of another kind, or has keys and values that kube-scheduler refuses.
    """
    try:
        source = read_source(Path(file))
    except ConfigurationError as error:
        raise ConfigurationError(f"algorithmSource.{_KEYS[kind]}: {error}") from error
    tree = source.tree
    if not isinstance(tree, dict):
        raise ConfigurationError(f"{file}: must hold one {kind} object")
    if not tree and kind == POLICY:
        tree = _NOTHING_SAID
    dialect = of(tree.get("apiVersion"), tree.get("kind"))
    if dialect is None or dialect.kind != kind:
        raise ConfigurationError(f"{file}: {_strangeness(tree, kind)}")
    _, findings = decode(tree)
    problems = [f"{file}: {finding}" for finding in (*source.findings, *findings) if finding.severity is Severity.ERROR]
    if problems:
        raise ConfigurationError(problems)
    return {key: value for key, value in tree.items() if value is not None}, dialect


def _strangeness(tree: dict[str, Any], kind: str) -> str:
    found = tree.get("kind")
    if found in _KEYS and found != kind:
        return f"kind: is a {found}; name the file as algorithmSource.{_KEYS[found]}"
    if found == "ConfigMap":
        return "kind: is a ConfigMap; save the text below its data in a file of its own and name that file"
    if found != kind:
        return f"kind: must be {kind}, got {found!r}"
    versions = ", ".join(dialect.api_version for dialect in DIALECTS if dialect.kind == kind)
    return f"apiVersion: must be one of {versions}, got {tree.get('apiVersion')!r}"
