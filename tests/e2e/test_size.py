"""A cluster of some size beside a real kube-scheduler; what is measured is printed, and judged by nobody."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator

import httpx
import pytest

from extender.testing import make_pod
from tests.e2e.control_plane import ControlPlane, control_plane
from tests.e2e.peer import KubeScheduler, Service, delivered
from tests.e2e.process import eventually
from tests.e2e.workload import PODS, create_all, create_node, create_pod, expect_bound, expect_equal_caches

pytestmark = pytest.mark.e2e

NODES, RESIDENTS, ARRIVALS = 1000, 5000, 500
CONFIGURATION = {"log": {"format": "text", "level": "warning"}, "events": {"perSecond": 1000}}

Tell = Callable[[str], None]


@pytest.fixture(scope="module")
def plane(request: pytest.FixtureRequest) -> Iterator[ControlPlane]:
    with control_plane(request) as plane:
        create_all(plane, create_node, [f"n{number}" for number in range(NODES)], cpu=16)
        create_all(plane, resident, [f"resident-{number}" for number in range(RESIDENTS)])
        yield plane


def resident(plane: ControlPlane, name: str) -> None:
    create_pod(plane, name, nodeName=f"n{int(name.rpartition('-')[2]) % NODES}")


@pytest.fixture(scope="module")
def service(plane: ControlPlane) -> Service:
    return Service(plane)


def test_it_starts_and_knows_everything(plane: ControlPlane, service: Service, tell: Tell) -> None:
    begun = time.monotonic()
    service.start(CONFIGURATION)
    tell(f"ready after {time.monotonic() - begun:.1f} s with {NODES} nodes and {RESIDENTS} pods")
    assert service.metric("cache_objects", resource="nodes") == NODES
    assert service.metric("cache_objects", resource="pods") == RESIDENTS
    expect_equal_caches(service)


def test_it_answers_about_all_nodes(service: Service, tell: Tell) -> None:
    names = [f"n{number}" for number in range(NODES)]
    taken = []
    with httpx.Client(base_url=service.verbs_url, timeout=10, trust_env=False) as caller:
        for number in range(50):
            body = json.dumps({"Pod": make_pod(f"asked-{number}", requests={"cpu": "1"}), "NodeNames": names})
            begun = time.perf_counter()
            reply = caller.post("/filter", content=body).json()
            taken.append(time.perf_counter() - begun)
            assert len(reply["NodeNames"]) == NODES
    tell(f"filter of {NODES} names: {1000 * sorted(taken)[len(taken) // 2]:.1f} ms in the middle")


def test_it_keeps_up_with_kube_scheduler(plane: ControlPlane, service: Service, tell: Tell) -> None:
    pods = [f"arrival-{number}" for number in range(ARRIVALS)]
    create_all(plane, create_pod, pods)
    begun = time.monotonic()
    KubeScheduler(plane).start(delivered(service.verbs_url))
    eventually(lambda: service.metric("bind_duration_seconds_count", result="bound") >= ARRIVALS, "all binds", 120)
    tell(f"{ARRIVALS / (time.monotonic() - begun):.0f} pods a second, with the start of kube-scheduler")
    expect_bound(plane, *pods)
    expect_equal_caches(service)
    failed = service.metric("requests_total") - service.metric("requests_total", result="ok")
    assert failed == 0
    assert plane.get(f"{PODS}?limit=1")["metadata"]["remainingItemCount"] == RESIDENTS + ARRIVALS - 1
