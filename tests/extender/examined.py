"""Examinations of scheduler configurations, for tests."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import yaml

from extender.doctor.examination import Examination
from extender.doctor.report import Report
from extender.registration.finding import Finding, Severity

GOOD = {
    "filterVerb": "filter",
    "prioritizeVerb": "prioritize",
    "preemptVerb": "preempt",
    "weight": 1,
    "nodeCacheCapable": True,
    "httpTimeout": "2s",
}
"""An extender that nothing is wrong with, but for its missing URL."""

KEPT = b'{"NodeNames":["scheduler-extender-doctor-1","scheduler-extender-doctor-2"]}'
"""A filter reply that keeps the nodes that are made up when there is no API server."""
SCORED = b'[{"Host":"scheduler-extender-doctor-1","Score":3},{"Host":"scheduler-extender-doctor-2","Score":7}]'


def configuration(*entries: dict[str, Any], **keys: Any) -> dict[str, Any]:
    return {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "clientConnection": {"kubeconfig": "/etc/kubernetes/scheduler.conf"},
        "extenders": list(entries),
        **keys,
    }


def examination(directory: Path, tree: Any, **options: Any) -> Examination:
    file = directory / "scheduler.yaml"
    file.write_text(tree if isinstance(tree, str) else yaml.safe_dump(tree))
    return Examination(file, **{"idle_seconds": 0.0, "environment": {}, **options})


def examine(directory: Path, tree: Any, **options: Any) -> Report:
    return asyncio.run(examination(directory, tree, **options).run())


def wrong(report: Report) -> list[Finding]:
    """Return what is more than a note."""
    return [finding for finding in report.ordered() if finding.severity is not Severity.NOTE]


def found(report: Report, path: str, text: str) -> Finding:
    """Return the only finding at ``path`` whose line has ``text``."""
    matching = [item for item in report.ordered() if item.path == path and text in str(item)]
    assert len(matching) == 1, report.as_text()
    return matching[0]
