"""Binds of which nobody hears in time whether they were carried out: their room stays taken until somebody tells."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from algorithms.compute_resource import NO_FREE_DEVICE
from extender.cluster.apiserver import Fault, Interruption
from extender.testing import make_node, make_pod
from extender.testing.cluster import RunningService, running_service
from extender.verbs import doubt
from tests.integration.bound import bind

DEVICES, REQUEST, ALLOCATED = (
    f"scheduler-extender/{name}" for name in ("devices", "device-request", "devices-allocated")
)
SLOW = 60.0
ENABLED = [{"name": "ComputeResource"}]
CONFIGURATION = {
    "clientConnection": {"silenceSeconds": 600},
    "cache": {"staleSeconds": 1200},
    "server": {"deadlineSeconds": 1.0, "bodyTimeoutSeconds": 1.0},
    "profiles": [{"predicates": {"enabled": ENABLED}, "priorities": {"enabled": ENABLED}}],
}
DONE, NOT_DONE = {"delay_after": SLOW}, {"delay_before": SLOW}
"""What becomes of a binding of which nothing is heard."""


@pytest.fixture
def service(monkeypatch: pytest.MonkeyPatch) -> Iterator[RunningService]:
    """A service of two nodes with one device each, which hears no more of pods from its watch."""
    monkeypatch.setattr(doubt, "_PAUSE_SECONDS", 0.05)
    nodes = [make_node(name, annotations={DEVICES: '[{"id": "gpu-0", "memoryMiB": 1}]'}) for name in ("n1", "n2")]
    with running_service(nodes=nodes, configuration=CONFIGURATION) as service:
        service.call(service.api.interrupt_watches, Interruption.HANG, "/pods")
        yield service


def create(service: RunningService, name: str) -> dict[str, Any]:
    """Create a pod that needs a whole device, and have it filtered, so that the service need not read it to bind it."""
    pod = make_pod(name, annotations={REQUEST: json.dumps({})})
    created: dict[str, Any] = service.call(service.api.storage.create, "pods", pod)
    with service.scheduler() as scheduler:
        scheduler.filter(created, service.nodes())
    return created


def silence(service: RunningService, **outcome: Any) -> None:
    """Have the API server carry out bindings or not, and answer nothing about pods."""
    for fault in (
        Fault(method="POST", path="/binding$", count=None, **outcome),
        Fault(method="GET", path="/pods/", count=None, status=403),
    ):
        service.call(service.api.faults.add, fault)


def bind_in_doubt(service: RunningService, pod: dict[str, Any], **outcome: Any) -> None:
    silence(service, **outcome)
    assert "cannot be read" in bind(service, pod)
    assert is_assumed(service, pod)


def is_assumed(service: RunningService, pod: dict[str, Any]) -> bool:
    return pod["metadata"]["uid"] in service.runtime.mirror.assumed


def devices(service: RunningService) -> dict[str, str]:
    """Node by pod of all pods that are written to have a device."""
    pods = service.call(service.api.storage.list, "pods")
    return {
        pod["metadata"]["name"]: pod["spec"]["nodeName"]
        for pod in pods
        if ALLOCATED in pod["metadata"].get("annotations", {})
    }


def test_a_device_that_may_have_been_given_is_given_to_nobody_else(service: RunningService) -> None:
    first, second = create(service, "first"), create(service, "second")
    bind_in_doubt(service, first, **DONE)
    assert NO_FREE_DEVICE in bind(service, second)
    service.call(service.api.faults.clear)
    assert bind(service, first) == ""
    assert NO_FREE_DEVICE in bind(service, second)
    assert devices(service) == {"first": "n1"}


def test_a_binding_that_was_carried_out_is_found_without_being_asked_for_again(
    service: RunningService, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    pod = create(service, "first")
    bind_in_doubt(service, pod, **DONE)
    service.call(service.api.faults.clear)
    service.until(lambda: "bind settled" in caplog.messages, "the end of the doubt")
    assert is_assumed(service, pod)
    assert NO_FREE_DEVICE in bind(service, create(service, "second"))


def test_a_binding_that_was_not_carried_out_gives_its_device_back(service: RunningService) -> None:
    first, second = create(service, "first"), create(service, "second")
    bind_in_doubt(service, first, **NOT_DONE)
    assert NO_FREE_DEVICE in bind(service, second)
    service.call(service.api.faults.clear)
    service.until(lambda: not is_assumed(service, first), "the end of the doubt")
    assert bind(service, second) == ""
    assert devices(service) == {"second": "n1"}


def test_a_doubt_that_nobody_can_settle_ends_like_an_assumption_that_is_never_confirmed(
    service: RunningService,
) -> None:
    pod = create(service, "first")
    bind_in_doubt(service, pod, **NOT_DONE)
    (info,) = service.call(service.runtime.mirror.expire, float("inf"))
    assert info.uid == pod["metadata"]["uid"]
    assert NO_FREE_DEVICE not in bind(service, create(service, "second"))


def test_a_pod_in_doubt_that_is_gone_gives_its_device_back(service: RunningService) -> None:
    pod = create(service, "first")
    bind_in_doubt(service, pod, **NOT_DONE)
    service.call(service.api.storage.delete, "pods", "first", "default")
    service.call(service.api.faults.clear)
    service.until(lambda: not is_assumed(service, pod), "the end of the doubt")
    assert bind(service, create(service, "second")) == ""


def test_a_pod_in_doubt_may_go_to_its_node_or_to_another(service: RunningService) -> None:
    pod = create(service, "first")
    with service.scheduler() as scheduler:
        bind_in_doubt(service, pod, **NOT_DONE)
        assert scheduler.filter(pod, service.nodes()).names == ["n1", "n2"]
        assert scheduler.filter(create(service, "second"), service.nodes()).failed == {"n1": NO_FREE_DEVICE}
    assert "cannot be read" in bind(service, pod, "n2")
    service.call(service.api.faults.clear)
    assert bind(service, pod, "n2") == ""
    assert devices(service) == {"first": "n2"}
    assert bind(service, create(service, "third"), "n1") == ""


def test_a_pod_in_doubt_that_is_bound_already_does_not_go_to_another_node(service: RunningService) -> None:
    pod = create(service, "first")
    bind_in_doubt(service, pod, **DONE)
    service.call(service.api.faults.clear)
    assert "is already bound to node 'n1', not to 'n2'" in bind(service, pod, "n2")
    assert devices(service) == {"first": "n1"}
