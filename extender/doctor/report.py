"""The findings of one run, worst first, for people and for programs."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field

from extender.registration.finding import Finding, Severity

_ORDER = list(Severity)


@dataclass(frozen=True)
class Report:
    """What was looked at, in words, and what was found."""

    file: str
    looked_at: list[str] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)

    @property
    def is_healthy(self) -> bool:
        """Whether there is nothing but notes."""
        return all(finding.severity is Severity.NOTE for finding in self.findings)

    def ordered(self) -> list[Finding]:
        """Return the findings, each once, worst first and otherwise in the order they were made."""
        return sorted(dict.fromkeys(self.findings), key=lambda finding: _ORDER.index(finding.severity))

    def counts(self) -> dict[str, int]:
        """Return how many findings there are of each severity."""
        found = [finding.severity for finding in self.ordered()]
        return {f"{severity}s": found.count(severity) for severity in Severity}

    def as_text(self) -> str:
        """Return a paragraph a finding, and a summary."""
        lines = []
        for finding in self.ordered():
            place = f"{finding.path}: " if finding.path else ""
            lines.append(f"{finding.severity:8} {place}{finding.problem}")
            if finding.remedy:
                lines.append(f"{'':8} -> {finding.remedy}")
        lines += [f"looked at {item}" for item in self.looked_at]
        counted = ", ".join(f"{number} {name[:-1] if number == 1 else name}" for name, number in self.counts().items())
        return "\n".join([*lines, f"{self.file}: {counted}"])

    def as_json(self) -> str:
        """Return the same as one JSON object."""
        findings = [asdict(finding) for finding in self.ordered()]
        document = {"file": self.file, **self.counts(), "lookedAt": self.looked_at, "findings": findings}
        return json.dumps(document, indent=2, ensure_ascii=False)
