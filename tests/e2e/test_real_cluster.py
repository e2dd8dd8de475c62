"""The service beside a real kube-scheduler and a real API server: what is promised, also when programs die.

Needs a folder with etcd, kube-apiserver and kube-scheduler: ``KUBE_ASSETS=FOLDER make e2e``. The tests share one
cluster and build on one another no further than that; names of pods are never used twice.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from extender.framework.loader import default_set
from extender.testing import make_node, make_pod
from tests.e2e.control_plane import ControlPlane, control_plane
from tests.e2e.peer import KubeScheduler, Service, delivered
from tests.e2e.process import eventually
from tests.e2e.workload import (
    create_pod,
    delete_pod,
    expect_bound,
    expect_bound_once_and_by_the_service,
    expect_equal_caches,
    expect_room,
    messages,
    node_of,
    pods_of,
    successes,
)

pytestmark = pytest.mark.e2e

REASON = "no-luck"
CONFIGURATION = {
    "profiles": [
        {
            "predicates": {
                "enabled": [{"name": name} for name in (*default_set().predicates, "tests.extender.specimen:Labelled")]
            }
        }
    ]
}
"""The default algorithms, and one that refuses nodes by their label ``refuse``."""

GENERAL, SMALL, GUARDED, REFUSED = "general", "small", "guarded", "refused"
NODES = [
    *(make_node(f"general-{number}", cpu=64, labels={"use": GENERAL}) for number in range(4)),
    make_node("small-0", cpu=1, labels={"use": SMALL}),
    make_node("guarded-0", cpu=1, labels={"use": GUARDED, "refuse": REASON}),
    make_node("refused-0", cpu=4, labels={"use": REFUSED, "refuse": REASON}),
]


@pytest.fixture(scope="module")
def plane(request: pytest.FixtureRequest) -> Iterator[ControlPlane]:
    """A cluster with nodes of several uses."""
    with control_plane(request) as plane:
        for node in NODES:
            plane.create("/api/v1/nodes", node | {"metadata": node["metadata"] | {"uid": ""}})
        urgent = {
            "apiVersion": "scheduling.k8s.io/v1",
            "kind": "PriorityClass",
            "metadata": {"name": "urgent"},
            "value": 1000,
        }
        plane.create("/apis/scheduling.k8s.io/v1/priorityclasses", urgent)
        yield plane


@pytest.fixture(scope="module")
def service(plane: ControlPlane) -> Service:
    service = Service(plane)
    service.start(CONFIGURATION)
    return service


@pytest.fixture(scope="module")
def scheduler(plane: ControlPlane) -> KubeScheduler:
    return KubeScheduler(plane)


@pytest.fixture
def mode(service: Service, scheduler: KubeScheduler, request: pytest.FixtureRequest) -> str:
    """What kube-scheduler sends, names of nodes or whole nodes; it is started anew for it."""
    mode: str = getattr(request, "param", "names")
    scheduler.program.kill()
    scheduler.start(delivered(service.verbs_url, mode=mode))
    return mode


names_mode = pytest.mark.usefixtures("mode")
both_modes = pytest.mark.parametrize("mode", ["names", "nodes"], indirect=True)


def create(plane: ControlPlane, name: str, *, use: str = GENERAL, **facts: Any) -> None:
    """Create a pod for the nodes of one use."""
    create_pod(plane, name, node_selector={"use": use}, **facts)


def names(plane: ControlPlane) -> set[str]:
    return {pod["metadata"]["name"] for pod in pods_of(plane)}


# --- placing ---------------------------------------------------------------------------------------------------------


@both_modes
def test_pods_are_placed_and_bound_by_the_service(plane: ControlPlane, service: Service, mode: str) -> None:
    before = {
        verb: service.metric("requests_total", verb=verb, result="ok") for verb in ("filter", "prioritize", "bind")
    }
    pods = [f"{mode}-{number}" for number in range(8)]
    for name in pods:
        create(plane, name)
    expect_bound(plane, *pods)
    for verb, count in before.items():
        assert service.metric("requests_total", verb=verb, result="ok") >= count + len(pods), verb
    assert {name: count for name, count in successes(plane).items() if name in pods} == dict.fromkeys(pods, 1)
    eventually(lambda: messages(plane, pods[0], "Bound"), "the event of the service")


@names_mode
def test_the_reason_of_the_service_reaches_the_events_of_the_pod(plane: ControlPlane) -> None:
    create(plane, "unlucky", use=REFUSED)
    eventually(lambda: messages(plane, "unlucky", "FailedScheduling"), "the event")
    told = messages(plane, "unlucky", "FailedScheduling")[0]
    assert re.match(rf"0/{len(NODES)} nodes are available: .*\b1 {REASON}\b", told), told
    assert not node_of(plane, "unlucky")
    delete_pod(plane, "unlucky")


# --- preemption ------------------------------------------------------------------------------------------------------


@both_modes
def test_preemption_asks_the_service_and_makes_room(plane: ControlPlane, service: Service, mode: str) -> None:
    before = service.metric("requests_total", verb="preempt", result="ok")
    victims, urgent = [f"{mode}-victim-{number}" for number in range(2)], f"{mode}-urgent"
    for name in victims:
        create(plane, name, use=SMALL, cpu="500m")
    expect_bound(plane, *victims)
    create(plane, urgent, use=SMALL, cpu="1", priorityClassName="urgent")
    expect_bound(plane, urgent)
    assert node_of(plane, urgent) == "small-0"
    assert not names(plane) & set(victims)
    assert service.metric("requests_total", verb="preempt", result="ok") > before
    delete_pod(plane, urgent)


@both_modes
def test_no_pod_is_evicted_where_the_service_refuses_all_the_same(
    plane: ControlPlane, service: Service, mode: str
) -> None:
    before = service.metric("requests_total", verb="preempt", result="ok")
    resident, barred = f"{mode}-resident", f"{mode}-barred"
    create(plane, resident, use=GUARDED, cpu="1", nodeName="guarded-0")
    create(plane, barred, use=GUARDED, cpu="1", priorityClassName="urgent")
    eventually(
        lambda: service.metric("requests_total", verb="preempt", result="ok") > before, "a question about preemption"
    )
    eventually(lambda: messages(plane, barred, "FailedScheduling"), "the event")
    assert resident in names(plane)
    assert not node_of(plane, barred)
    for name in (resident, barred):
        delete_pod(plane, name)


# --- rights ----------------------------------------------------------------------------------------------------------


def refusals(service: Service) -> float:
    """How often the API server has refused the service something."""
    return service.metric("api_requests_total", code="403") + service.metric("api_requests_total", code="401")


def place_and_tell(plane: ControlPlane, name: str) -> None:
    """Have a pod bound, and see the event of it."""
    create(plane, name)
    expect_bound(plane, name)
    eventually(lambda: messages(plane, name, "Bound"), "the event of the service")


@names_mode
def test_the_rights_of_the_manifests_suffice(plane: ControlPlane, service: Service) -> None:
    place_and_tell(plane, "rightful")
    assert service.metric("api_requests_total") > 0
    assert refusals(service) == 0
    assert "forbidden" not in service.program.log.read_text().lower()


# --- failures --------------------------------------------------------------------------------------------------------


@names_mode
def test_while_the_api_server_is_away_the_service_answers_and_afterwards_binds(
    plane: ControlPlane, service: Service
) -> None:
    process = service.program.pid
    plane.apiserver.kill()
    assert service.management("livez").text == "ok"
    assert service.management("readyz").text == "ok"
    body = json.dumps({"Pod": make_pod("asked", requests={"cpu": "1"}), "NodeNames": ["general-0", "refused-0"]})
    reply = httpx.post(f"{service.verbs_url}/filter", content=body, timeout=10, trust_env=False).json()
    assert (reply["NodeNames"], reply["FailedNodes"]) == (["general-0"], {"refused-0": REASON})
    eventually(lambda: "no connection" in service.management("readyz?verbose").text, "the reason")
    plane.start_apiserver()
    pods = [f"after-apiserver-{number}" for number in range(4)]
    for name in pods:
        create(plane, name)
    expect_bound(plane, *pods)
    assert not service.program.has_ended()
    assert service.program.pid == process


@names_mode
def test_after_a_crash_of_the_api_server_pods_are_bound(plane: ControlPlane) -> None:
    pods = [f"around-crash-{number}" for number in range(10)]
    for name in pods:
        create(plane, name)
    plane.apiserver.kill()
    plane.start_apiserver()
    expect_bound(plane, *pods)


@names_mode
def test_after_a_restart_of_etcd_pods_are_bound(plane: ControlPlane) -> None:
    plane.etcd.stop()
    plane.start_etcd()
    eventually(plane.is_well, "readiness of the API server")
    pods = [f"after-etcd-{number}" for number in range(4)]
    for name in pods:
        eventually(lambda name=name: create(plane, name) or True, f"the pod {name}")  # type: ignore[misc]
    expect_bound(plane, *pods)


@names_mode
def test_a_service_that_is_killed_while_it_binds_goes_on_where_it_was(plane: ControlPlane, service: Service) -> None:
    pods = [f"around-kill-{number}" for number in range(30)]
    for name in pods:
        create(plane, name)
    eventually(lambda: successes(plane).keys() & set(pods), "the first binding")
    service.program.kill()
    service.restart()
    expect_bound(plane, *pods)


@names_mode
def test_a_service_that_is_told_to_stop_ends_well(plane: ControlPlane, service: Service) -> None:
    assert service.program.stop() == 0
    service.restart()
    create(plane, "after-stop")
    expect_bound(plane, "after-stop")


@names_mode
def test_after_all_failures_the_rights_suffice_again(plane: ControlPlane, service: Service) -> None:
    """An API server that has just started knows no roles yet, and refuses for a moment what it allows afterwards."""
    plane.apiserver.kill()
    since = time.monotonic()
    plane.start_apiserver()
    service.expect_fresh(since)
    before = refusals(service)
    place_and_tell(plane, "rightful-again")
    assert refusals(service) == before


# --- what holds at the end -------------------------------------------------------------------------------------------


def test_no_pod_was_bound_twice_and_none_by_another(plane: ControlPlane) -> None:
    expect_bound_once_and_by_the_service(plane)


def test_no_node_has_more_than_it_can_hold(plane: ControlPlane) -> None:
    expect_room(plane)


def test_the_caches_agree_with_the_api_server(service: Service) -> None:
    expect_equal_caches(service)
