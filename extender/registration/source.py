"""A scheduler's configuration in a file: its first document, and the keys that kube-scheduler refuses to see twice."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from extender.errors import ConfigurationError
from extender.registration.finding import Finding, error, note
from extender.yaml_text import read_yaml


@dataclass(frozen=True)
class Source:
    """What a file holds, and what is wrong with it as YAML."""

    tree: Any
    findings: tuple[Finding, ...] = ()


def read_source(path: Path) -> Source:
    """Return what the file holds. Raises ConfigurationError when it cannot be read, or is neither YAML nor JSON."""
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as problem:
        raise ConfigurationError(f"{path}: cannot be read: {problem.strerror}") from problem
    except UnicodeDecodeError as problem:
        raise ConfigurationError(f"{path}: is no text: {problem}") from problem
    try:
        content = read_yaml(text)
    except ValueError as problem:
        raise ConfigurationError(f"{path}: is neither YAML nor JSON: {problem}") from problem
    if content.tree is None:
        raise ConfigurationError(f"{path}: is empty; print a configuration by scheduler-extender register")
    findings = [
        error(
            repeated.path,
            f"stands in line {repeated.first_line} and again in line {repeated.line}: kube-scheduler does not start",
            "keep one of them",
        )
        for repeated in content.repetitions
    ]
    if content.has_more:
        findings.append(note("", "kube-scheduler reads the first document only; what follows --- does not count"))
    return Source(content.tree, tuple(findings))
