"""Pods bound as kube-scheduler has them bound."""

from __future__ import annotations

from typing import Any

from extender.testing import ExtenderCallError
from extender.testing.cluster import RunningService


def bind(service: RunningService, pod: dict[str, Any], node: str = "n1", *, seconds: float = 10) -> str:
    """Have a pod bound to a node, and return the error, empty where it is bound."""
    meta = pod["metadata"]
    with service.scheduler(http_timeout_seconds=seconds) as scheduler:
        try:
            scheduler.bind(meta["namespace"], meta["name"], meta["uid"], node)
        except ExtenderCallError as error:
            return str(error)
    return ""
