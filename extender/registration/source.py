"""A scheduler's configuration in a file: its first document, and what YAML readers pass over in silence."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from extender.errors import ConfigurationError
from extender.registration.finding import Finding, error, note


@dataclass(frozen=True)
class Source:
    """What a file holds, and what is wrong with it as YAML."""

    tree: Any
    findings: tuple[Finding, ...] = ()


class _Loader(yaml.SafeLoader):
    """Remembers keys that stand twice in one mapping; kube-scheduler refuses them."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.repeated: list[str] = []

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        """Return the mapping, and note the keys that it has more than once."""
        seen: set[str] = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode) and key.value in seen:
                self.repeated.append(f"{key.value} in line {key.start_mark.line + 1}")
            seen.add(str(key.value))
        return super().construct_mapping(node, deep)


def read_source(path: Path) -> Source:
    """Return what the file holds. Raises ConfigurationError when it cannot be read, or is neither YAML nor JSON."""
    try:
        text = path.read_text()
    except OSError as problem:
        raise ConfigurationError(f"{path}: cannot be read: {problem.strerror}") from problem
    except UnicodeDecodeError as problem:
        raise ConfigurationError(f"{path}: is no text: {problem}") from problem
    try:
        loader = _Loader(text)
        tree = loader.get_data() if loader.check_data() else None  # type: ignore[no-untyped-call]  # stubs lack it
        has_more = loader.check_data()  # type: ignore[no-untyped-call]
    except (yaml.YAMLError, ValueError, RecursionError) as problem:
        detail = " ".join(str(problem).split())
        raise ConfigurationError(f"{path}: is neither YAML nor JSON: {detail}") from problem
    if tree is None:
        raise ConfigurationError(f"{path}: is empty; print a configuration by scheduler-extender register")
    findings = [
        error("", f"the key {key} stands there already, and kube-scheduler does not start", "keep one of them")
        for key in loader.repeated
    ]
    if has_more:
        findings.append(note("", "kube-scheduler reads the first document only; what follows --- does not count"))
    return Source(tree, tuple(findings))
