"""A cache from outside that raises: requests, readiness and metrics tell, others are right, all is well again."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, ClassVar

import httpx
import pytest

from extender import reload
from extender.framework import Cache, NodeInfo, NodePredicate, PendingPod, uses
from extender.framework.resource import RequestedResources
from extender.testing import make_node, make_pod
from extender.testing.cluster import RunningService, running_service

PATH = f"{__name__}:Wary"


class Marked(Cache):
    """Cannot stand pods that are called so while it is ``touchy``."""

    touchy: ClassVar[bool] = True

    def add_pod(self, row: int, pod: Any) -> None:
        if self.touchy and pod.name == "boom":
            raise LookupError("no such pod")

    def dump(self) -> Any:
        return None


class Wary(NodePredicate):
    """Reads it, and refuses everything."""

    marked = uses(Marked)

    def fits(self, pod: PendingPod, node: NodeInfo) -> str | None:
        return "wary"


@pytest.fixture(params=[{}, {"mode": "shadow"}, {"onError": "ignore"}], ids=["in force", "in shadow", "ignored"])
def entry(request: pytest.FixtureRequest) -> dict[str, str]:
    found: dict[str, str] = request.param
    return found


@pytest.fixture
def service(monkeypatch: pytest.MonkeyPatch, entry: dict[str, str]) -> Iterator[RunningService]:
    monkeypatch.setattr(Marked, "touchy", True)
    monkeypatch.setattr(reload, "MEND_SECONDS", 0.1)
    monkeypatch.setattr(reload, "_LOOK_SECONDS", 0.02)
    predicates = {"enabled": [{"name": PATH, **entry}, {"name": "*"}]}
    configuration = {"profiles": [{"predicates": predicates}], "log": {"level": "error"}}
    with running_service(nodes=[make_node("n0")], configuration=configuration) as running:
        yield running


def answer(service: RunningService) -> tuple[str, dict[str, str]]:
    pod = make_pod("asked", requests={"cpu": "1"})
    body = json.dumps({"Pod": pod, "NodeNames": ["n0"]})
    reply = httpx.post(f"{service.url}/filter", content=body, timeout=10).json()
    return reply["Error"], reply["FailedNodes"]


def value(service: RunningService, name: str, **labels: str) -> float:
    return service.runtime.metrics.registry.get_sample_value(f"scheduler_extender_{name}", labels) or 0.0


def caches_line(service: RunningService) -> str:
    found = httpx.get(f"{service.management_url}/readyz?verbose")
    assert found.status_code == 200
    (line,) = (line for line in found.text.splitlines() if line.startswith("[+]caches"))
    return line


def requested(service: RunningService) -> Any:
    def look() -> Any:
        mirror = service.runtime.mirror
        fresh = RequestedResources(mirror.table)
        mirror.fill(fresh)
        assert mirror.cache(RequestedResources).dump() == fresh.dump()
        return fresh.dump()

    return service.call(look)


def test_a_cache_that_raises_hurts_only_who_reads_it_until_it_is_built_anew(
    service: RunningService, entry: dict[str, str]
) -> None:
    before = answer(service)
    assert before == ("", {} if entry.get("mode") else {"n0": "wary"})
    without = requested(service)

    service.create_pod(make_pod("boom", node="n0", requests={"cpu": "3500m"}))
    problem = "cache Marked: add_pod of pod default/boom raised LookupError: no such pod"
    assert problem in caches_line(service)
    assert "read by Wary" in caches_line(service)
    assert value(service, "broken_caches") == 1
    assert value(service, "cache_failures_total", cache="Marked") >= 1
    error, failed = answer(service)
    if entry:
        assert (error, failed) == ("", {"n0": "Insufficient cpu"})  # the pod that it could not stand is counted
        assert value(service, "ignored_failures_total", algorithm="Wary", point="filter") >= 1
    else:
        assert error == f"Wary: {problem}"
    assert value(service, "algorithm_failures_total", algorithm="Wary", point="filter") >= 1

    later = service.create_pod(make_pod("later", node="n0", requests={"cpu": "500m"}))
    requested(service)
    service.delete_pod(later)
    Marked.touchy = False
    service.until(lambda: not service.runtime.mirror.upkeep.broken, "the cache is built anew")
    service.until(lambda: caches_line_of(service) == "", "it is told")
    service.delete_pod(make_pod("boom"))
    assert requested(service) == without
    assert answer(service) == before
    assert value(service, "broken_caches") == 0


def caches_line_of(service: RunningService) -> str:
    return service.runtime.reloader.check_caches().note
