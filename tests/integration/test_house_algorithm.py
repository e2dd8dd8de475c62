"""Rules of the house over HTTP: filter, bind, and filter again while the watch has not confirmed the bind."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from algorithms.fit_ip_resource import NODE_REASONS, POOL_REASONS
from algorithms.local_replicas import REASON
from extender.cluster.apiserver import Interruption
from extender.testing import make_node, make_pod
from extender.testing.cluster import RunningService, running_service
from extender.testing.reply import Json

SUBNET = "topology.kubernetes.io/subnet"
PATIENT = {"clientConnection": {"silenceSeconds": 600}}


def profile(name: str, args: dict[str, Any]) -> dict[str, Any]:
    enabled = {"predicates": {"enabled": [{"name": name, "args": args}]}, "priorities": {"enabled": []}}
    return {**PATIENT, "profiles": [enabled]}


def replica(name: str, **fields: Any) -> Json:
    """Return a pod of one replica set."""
    pod = make_pod(name, **fields)
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "rs", "controller": True}
    pod["metadata"]["ownerReferences"] = [owner]
    return pod


def new_pod(service: RunningService, name: str, **fields: Any) -> Json:
    """Create such a pod without waiting for the watch."""
    created: Json = service.call(service.api.storage.create, "pods", replica(name, **fields))
    return created


def failed(service: RunningService, pod: Json) -> dict[str, str]:
    with service.scheduler() as scheduler:
        return scheduler.filter(pod, service.nodes()).failed


def bind(service: RunningService, pod: Json, node: str) -> None:
    meta = pod["metadata"]
    with service.scheduler(http_timeout_seconds=10) as scheduler:
        scheduler.bind(meta["namespace"], meta["name"], meta["uid"], node)
    assert service.call(lambda: meta["uid"] in service.runtime.mirror.assumed)


def deafen(service: RunningService) -> None:
    """Have the watch tell no more of pods, so that what was bound stays assumed."""
    assert service.call(service.api.interrupt_watches, Interruption.HANG, "/pods") == 1


@pytest.fixture
def replicas() -> Iterator[RunningService]:
    replica_set = {
        "apiVersion": "apps/v1",
        "kind": "ReplicaSet",
        "metadata": {"name": "web", "namespace": "default", "uid": "rs"},
        "spec": {"replicas": 4, "selector": {"matchLabels": {"app": "web"}}, "template": {}},
    }
    rules = {"rules": [{"maxReplicas": "50%"}]}
    with running_service(
        nodes=[make_node("n1"), make_node("n2")],
        objects=[replica_set],
        configuration=profile("LocalReplicas", rules),
    ) as service:
        yield service


def test_assumed_replicas_count(replicas: RunningService) -> None:
    deafen(replicas)
    for name in ("web-1", "web-2"):
        pod = new_pod(replicas, name)
        assert failed(replicas, pod) == {}
        bind(replicas, pod, "n1")
    assert failed(replicas, new_pod(replicas, "web-3")) == {"n1": REASON}
    limited = {"scheduler-extender/max-local-replicas": "1"}
    pod = new_pod(replicas, "web-4", annotations=limited)
    bind(replicas, pod, "n2")
    assert failed(replicas, new_pod(replicas, "web-5", annotations=limited)) == {"n1": REASON, "n2": REASON}


def test_a_replica_that_ends_makes_room(replicas: RunningService) -> None:
    first, _ = (replicas.create_pod(replica(name, node="n1")) for name in ("web-1", "web-2"))
    assert failed(replicas, replica("web-3")) == {"n1": REASON}
    replicas.delete_pod(first)
    assert failed(replicas, replica("web-3")) == {}


@pytest.fixture
def addresses() -> Iterator[RunningService]:
    nodes = [
        make_node("n1", annotations={"scheduler-extender/pod-ips": '{"ipv4": 3}'}, labels={SUBNET: "a"}),
        make_node("n2", annotations={"scheduler-extender/pod-ips": "9"}, labels={SUBNET: "a"}),
        make_node("n3", podCIDRs=["10.0.3.0/29"]),
    ]
    args = {"pool": {"labelKey": SUBNET, "capacity": {"a": 5}}}
    with running_service(nodes=nodes, configuration=profile("FitIPResource", args)) as service:
        yield service


def test_assumed_pods_take_addresses(addresses: RunningService) -> None:
    deafen(addresses)
    first = new_pod(addresses, "first", annotations={"scheduler-extender/ip-count": "3"})
    assert failed(addresses, first) == {}
    bind(addresses, first, "n1")
    second = new_pod(addresses, "second")
    assert failed(addresses, second) == {"n1": NODE_REASONS[1]}
    bind(addresses, second, "n2")
    bind(addresses, new_pod(addresses, "agent", hostNetwork=True), "n2")
    third = new_pod(addresses, "third")
    assert failed(addresses, third) == {"n1": NODE_REASONS[1]}
    bind(addresses, third, "n2")
    full = {"n1": f"{NODE_REASONS[1]}, {POOL_REASONS[0]}", "n2": POOL_REASONS[0]}
    assert failed(addresses, new_pod(addresses, "fourth")) == full


def test_pods_that_the_watch_tells_of_take_addresses_until_they_end(addresses: RunningService) -> None:
    counted = {"scheduler-extender/ip-count": "3"}
    pod = addresses.create_pod(make_pod("first", node="n1", annotations=counted))
    assert failed(addresses, make_pod("second")) == {"n1": NODE_REASONS[1]}
    addresses.delete_pod(pod)
    assert failed(addresses, make_pod("second")) == {}
