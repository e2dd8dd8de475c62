"""A finding: one thing that is wrong with a scheduler's configuration, or worth knowing of it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Severity(StrEnum):
    """How bad a finding is; only notes leave the exit code 0."""

    ERROR = "error"
    """kube-scheduler does not start, or calls fail."""
    WARNING = "warning"
    """It works, but not as whoever wrote the file will have meant, or not for long."""
    NOTE = "note"
    """A consequence to know of, or a check that could not be made."""


@dataclass(frozen=True)
class Finding:
    """``path`` is the place in the file, empty for what has none; ``remedy`` is what to do, empty for nothing."""

    severity: Severity
    path: str
    problem: str
    remedy: str = ""

    def __str__(self) -> str:
        """Return the finding on one line, without its severity."""
        text = f"{self.path}: {self.problem}" if self.path else self.problem
        return f"{text}; {self.remedy}" if self.remedy else text


def error(path: str, problem: str, remedy: str = "") -> Finding:
    """Return a finding that keeps kube-scheduler or its calls from working."""
    return Finding(Severity.ERROR, path, problem, remedy)


def warning(path: str, problem: str, remedy: str = "") -> Finding:
    """Return a finding that spoils what kube-scheduler does."""
    return Finding(Severity.WARNING, path, problem, remedy)


def note(path: str, problem: str, remedy: str = "") -> Finding:
    """Return something to know."""
    return Finding(Severity.NOTE, path, problem, remedy)
