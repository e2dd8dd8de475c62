"""Two replicas of the service behind one address: whoever holds the lease binds, and nobody else, whatever happens."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Callable, Iterator
from urllib.parse import urlsplit

import pytest
import yaml

from tests.e2e.control_plane import NAME, ControlPlane, control_plane
from tests.e2e.forwarder import Forwarder
from tests.e2e.peer import KubeScheduler, Service, delivered
from tests.e2e.process import eventually
from tests.e2e.workload import (
    PODS,
    create_all,
    create_node,
    create_pod,
    expect_bound,
    expect_bound_once_and_by_the_service,
    expect_equal_caches,
    expect_room,
    node_of,
)
from tests.extender.deployed import MANIFESTS

pytestmark = pytest.mark.e2e

LEASE_SECONDS = 6
CONFIGURATION = {
    "server": {"drainSeconds": 1},
    "leaderElection": {
        "enabled": True,
        "leaseNamespace": NAME,
        "leaseDurationSeconds": LEASE_SECONDS,
        "renewDeadlineSeconds": 4,
        "retryPeriodSeconds": 1,
    },
}


@pytest.fixture(scope="module")
def plane(request: pytest.FixtureRequest) -> Iterator[ControlPlane]:
    with control_plane(request) as plane:
        create_all(plane, create_node, [f"n{number}" for number in range(4)], cpu=8)
        role, binding = yaml.safe_load_all((MANIFESTS / "overlays" / "ha" / "lease.yaml").read_text())
        rbac = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{NAME}"
        plane.create(f"{rbac}/roles", role)
        plane.create(f"{rbac}/rolebindings", binding)
        yield plane


@pytest.fixture(scope="module")
def replicas(plane: ControlPlane) -> list[Service]:
    services = [Service(plane, f"replica-{number}") for number in range(2)]
    for service in services:
        service.start(CONFIGURATION, ready=False)
    return services


@pytest.fixture(scope="module", autouse=True)
def address(plane: ControlPlane, replicas: list[Service]) -> Iterator[str]:
    """Where kube-scheduler calls whichever replica is ready."""
    with Forwarder(replicas) as forwarder:
        KubeScheduler(plane).start(delivered(forwarder.url))
        yield forwarder.url


def leader(replicas: list[Service]) -> Service:
    """Wait until one of the replicas leads, and return it."""
    eventually(lambda: [service.is_ready for service in replicas].count(True) == 1, "a leader", 30)
    return next(service for service in replicas if service.is_ready)


def other(replicas: list[Service], service: Service) -> Service:
    return next(each for each in replicas if each is not service)


def place(plane: ControlPlane, name: str) -> None:
    pods = [f"{name}-{number}" for number in range(20)]
    create_all(plane, create_pod, pods)
    expect_bound(plane, *pods)


def seconds_to_lead(service: Service, begun: float) -> float:
    """Wait until a replica leads; return the seconds since a moment."""
    eventually(lambda: service.is_ready, "the next leader", 4 * LEASE_SECONDS)
    return time.monotonic() - begun


def test_the_leader_alone_binds(plane: ControlPlane, replicas: list[Service]) -> None:
    leading = leader(replicas)
    place(plane, "led")
    assert leading.metric("requests_total", verb="bind", result="ok") >= 20
    assert other(replicas, leading).metric("requests_total", verb="bind") == 0
    holder = plane.get(f"/apis/coordination.k8s.io/v1/namespaces/{NAME}/leases/{NAME}")["spec"]["holderIdentity"]
    assert holder in leading.program.log.read_text()


def test_a_leader_that_is_told_to_stop_hands_over_at_once(
    plane: ControlPlane, replicas: list[Service], tell: Callable[[str], None]
) -> None:
    leading = leader(replicas)
    create_all(plane, create_pod, [f"stopped-{number}" for number in range(20)])
    assert leading.program.stop() == 0
    begun = time.monotonic()
    seconds = seconds_to_lead(other(replicas, leading), begun)
    tell(f"the next replica leads {seconds:.1f} s after the end of one that was told to stop")
    assert seconds < LEASE_SECONDS / 2
    expect_bound(plane, *(f"stopped-{number}" for number in range(20)))
    leading.restart(ready=False)


def test_a_leader_that_is_killed_is_followed_when_its_lease_has_run_out(
    plane: ControlPlane, replicas: list[Service], tell: Callable[[str], None]
) -> None:
    leading = leader(replicas)
    create_all(plane, create_pod, [f"killed-{number}" for number in range(20)])
    leading.program.kill()
    seconds = seconds_to_lead(other(replicas, leading), time.monotonic())
    tell(f"the next replica leads {seconds:.1f} s after one was killed, with a lease of {LEASE_SECONDS} s")
    expect_bound(plane, *(f"killed-{number}" for number in range(20)))
    leading.restart(ready=False)


def test_a_leader_that_was_frozen_for_longer_than_its_lease_binds_no_more_and_ends(
    plane: ControlPlane, replicas: list[Service]
) -> None:
    """Not even what it was sent while it was frozen."""
    leading = leader(replicas)
    create_pod(plane, "nobody-s", schedulerName="nobody")
    uid = plane.get(f"{PODS}/nobody-s")["metadata"]["uid"]
    with connection(leading) as late:
        with leading.program.paused():
            late.sendall(bind_request("nobody-s", uid))
            seconds_to_lead(other(replicas, leading), time.monotonic())
            place(plane, "thawed")
        answer = to_the_end(late)
    assert leading.program.wait(30) == 2
    assert "not leader" in answer
    assert node_of(plane, "nobody-s") == ""
    leading.restart(ready=False)


def connection(service: Service) -> socket.socket:
    """Connect to a replica, past the address."""
    target = urlsplit(service.verbs_url)
    return socket.create_connection((target.hostname, target.port), timeout=30)


def to_the_end(opened: socket.socket) -> str:
    """Return all that comes before a connection is closed, which it is when the other end ends."""
    return b"".join(iter(lambda: opened.recv(65536), b"")).decode()


def bind_request(name: str, uid: str) -> bytes:
    body = json.dumps({"PodName": name, "PodNamespace": "default", "PodUID": uid, "Node": "n0"}).encode()
    return b"POST /bind HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body)


def test_while_the_api_server_is_away_for_longer_than_the_lease_nobody_leads(
    plane: ControlPlane, replicas: list[Service]
) -> None:
    leading = leader(replicas)
    plane.apiserver.kill()
    assert leading.program.wait(30) == 2
    assert not any(service.is_ready for service in replicas)
    plane.start_apiserver()
    leading.restart(ready=False)
    leader(replicas)
    place(plane, "reunited")


def test_nothing_was_bound_twice_and_both_agree_with_the_api_server(
    plane: ControlPlane, replicas: list[Service]
) -> None:
    expect_bound_once_and_by_the_service(plane)
    expect_room(plane)
    for service in replicas:
        expect_equal_caches(service)
