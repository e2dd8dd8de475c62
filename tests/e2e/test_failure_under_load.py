"""Programs that die, hang and come back while pods arrive: each pod is bound once, and no device is given twice.

Every pod needs a part of a device, which the service alone gives out; what is given stands on the pods, written by the
bindings. The tests share one cluster, which has little more room than all their pods need.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import httpx
import pytest

from tests.e2e.control_plane import ControlPlane, control_plane
from tests.e2e.peer import KubeScheduler, Service, delivered
from tests.e2e.process import eventually
from tests.e2e.workload import (
    PODS,
    create_all,
    expect_bound,
    expect_bound_once_and_by_the_service,
    expect_equal_caches,
    expect_no_device_twice,
    expect_room,
    gpu_node,
    gpu_pod,
    pods_of,
    unbound,
)

pytestmark = pytest.mark.e2e

SILENCE_SECONDS = 8
ENABLED = [{"name": "ComputeResource"}]
CONFIGURATION = {
    "clientConnection": {"silenceSeconds": SILENCE_SECONDS},
    "server": {"drainSeconds": 0},
    "profiles": [{"predicates": {"enabled": ENABLED}, "priorities": {"enabled": ENABLED}}],
}
NODES, PODS_A_FAILURE, FAILURES = 11, 56, 7
DEVICES_A_NODE = 4


@pytest.fixture(scope="module")
def plane(request: pytest.FixtureRequest) -> Iterator[ControlPlane]:
    with control_plane(request) as plane:
        create_all(plane, gpu_node, [f"n{number}" for number in range(NODES)], cpu=4)
        yield plane


@pytest.fixture(scope="module")
def service(plane: ControlPlane) -> Service:
    service = Service(plane)
    service.start(CONFIGURATION)
    return service


@pytest.fixture(scope="module", autouse=True)
def scheduler(plane: ControlPlane, service: Service) -> KubeScheduler:
    scheduler = KubeScheduler(plane)
    scheduler.start(delivered(service.verbs_url))
    return scheduler


@contextmanager
def arriving(plane: ControlPlane, name: str, *, seconds: float = 4.0) -> Iterator[None]:
    """Create pods one after the other, and leave once some are bound; at the end, wait until all of them are."""
    pods = [f"{name}-{number}" for number in range(PODS_A_FAILURE)]

    def create() -> None:
        for pod in pods:
            eventually(lambda pod=pod: gpu_pod(plane, pod) or True, f"the pod {pod}")  # type: ignore[misc]
            time.sleep(seconds / len(pods))  # a rate, not a wait

    thread = threading.Thread(target=create)
    thread.start()
    try:
        eventually(lambda: 0 < len(unbound(plane, pods)) <= 0.8 * len(pods), "the first bindings")
        yield
    finally:
        thread.join()
    expect_bound(plane, *pods)


def test_the_api_server_is_killed(plane: ControlPlane) -> None:
    with arriving(plane, "apiserver-killed"):
        plane.apiserver.kill()
        plane.start_apiserver()


def test_the_api_server_hangs_which_is_noticed_and_leaves_the_service_alive(
    plane: ControlPlane, service: Service, tell: Callable[[str], None]
) -> None:
    with arriving(plane, "apiserver-hung"):
        before = service.metric("informer_failures_total", reason="unreachable")
        with plane.apiserver.paused():
            begun = time.monotonic()
            eventually(
                lambda: service.metric("informer_failures_total", reason="unreachable") > before,
                "that the silence is noticed",
                2 * SILENCE_SECONDS,
            )
            tell(f"silence noticed after {time.monotonic() - begun:.1f} s, of {SILENCE_SECONDS} s allowed")
            while time.monotonic() < begun + 20:
                assert service.management("livez").text == "ok"
                time.sleep(0.5)  # how often it is looked at
    service.expect_fresh(time.monotonic())


def test_etcd_is_killed(plane: ControlPlane) -> None:
    with arriving(plane, "etcd-killed"):
        plane.etcd.kill()
        plane.start_etcd()


def test_etcd_hangs(plane: ControlPlane, service: Service) -> None:
    with arriving(plane, "etcd-hung"), plane.etcd.paused():
        begun = time.monotonic()
        while time.monotonic() < begun + 8:
            assert service.management("livez").text == "ok"
            time.sleep(0.5)  # how often it is looked at


def test_the_service_is_killed_again_and_again(plane: ControlPlane, service: Service) -> None:
    with arriving(plane, "service-killed", seconds=8):
        for _ in range(3):
            before = sum(bool(pod["spec"].get("nodeName")) for pod in pods_of(plane))
            service.program.kill()
            service.restart()
            eventually(
                lambda before=before: (  # type: ignore[misc]
                    sum(bool(pod["spec"].get("nodeName")) for pod in pods_of(plane)) > before
                ),
                "another binding",
            )


def test_kube_scheduler_is_killed(plane: ControlPlane, scheduler: KubeScheduler) -> None:
    with arriving(plane, "scheduler-killed"):
        scheduler.program.kill()
        scheduler.restart()


def test_the_configuration_is_loaded_anew_again_and_again(plane: ControlPlane, service: Service) -> None:
    """Nothing fails meanwhile, and the last configuration counts."""
    before = service.metric("requests_total", result="ok"), service.metric("requests_total")
    with arriving(plane, "reloaded"):
        for number in range(10):
            policy = "spread" if number % 2 else "binpack"
            entry = {"name": "ComputeResource", "args": {"policy": policy}}
            service.configure(
                CONFIGURATION | {"profiles": [{"predicates": {"enabled": [entry]}, "priorities": {"enabled": [entry]}}]}
            )
            service.program.hang_up()
            eventually(lambda policy=policy: policy in service.management("debug/config").text, "the configuration")  # type: ignore[misc]
    after = service.metric("requests_total", result="ok"), service.metric("requests_total")
    assert after[0] - before[0] == after[1] - before[1]


def test_what_is_carried_out_after_everybody_has_given_up_leaves_no_device_to_two(
    plane: ControlPlane, service: Service
) -> None:
    """Requests that wait in an etcd that hangs are carried out once it goes on, whoever still waits for them."""
    gpu_node(plane, "lone", cpu=4, taints=["kept=free:NoSchedule"])
    pods = [f"lone-{number}" for number in range(12)]
    create_all(plane, gpu_pod, pods, memory=10_000, schedulerName="nobody")
    objects = {name: plane.get(f"{PODS}/{name}") for name in pods}
    for pod in objects.values():
        call(service, "filter", {"Pod": pod, "NodeNames": ["lone"]})

    def bind(name: str) -> str:
        uid = objects[name]["metadata"]["uid"]
        request = {"PodName": name, "PodNamespace": "default", "PodUID": uid, "Node": "lone"}
        return str(call(service, "bind", request)["Error"])

    with ThreadPoolExecutor(len(pods)) as pool:
        with plane.etcd.paused():
            assert all(pool.map(bind, pods))
        eventually(lambda: list(pool.map(bind, pods)).count("") == DEVICES_A_NODE, "the binding of as many as fit")
    assert len(unbound(plane, pods)) == len(pods) - DEVICES_A_NODE
    expect_no_device_twice(plane)


def call(service: Service, verb: str, body: dict[str, Any]) -> dict[str, Any]:
    """Call a verb as kube-scheduler does."""
    answer = httpx.post(f"{service.verbs_url}/{verb}", json=body, timeout=10, trust_env=False)
    found: dict[str, Any] = answer.json()
    return found


def test_every_pod_was_bound_once_with_a_device_of_its_own_and_all_agree(plane: ControlPlane, service: Service) -> None:
    expect_bound_once_and_by_the_service(plane)
    expect_room(plane)
    assert expect_no_device_twice(plane) == PODS_A_FAILURE * FAILURES + DEVICES_A_NODE
    expect_equal_caches(service)
    assert service.metric("expired_assumed_pods_total") == 0
