"""Events that the verbs cause: which, with what text, and that none of them disturbs a verb."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from extender.cluster.apiserver import Fault, ServerOptions
from extender.model.pod import PROBE_UID
from extender.testing import make_node, make_pod
from extender.testing.cluster import RunningService, running_service
from tests.integration.bound import bind

NODES = [make_node("n1", cpu="4"), make_node("n2", cpu="4"), make_node("n3", cpu="4", unschedulable=True)]


@pytest.fixture
def service() -> Iterator[RunningService]:
    with running_service(nodes=NODES) as running:
        yield running


def events(service: RunningService) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = service.call(service.api.storage.list, "events.events.k8s.io")
    return found


def one_event(service: RunningService, reason: str) -> dict[str, Any]:
    """Wait for an event of ``reason``, which must be the only event, and return it."""
    service.until(lambda: bool(service.api.storage.list("events.events.k8s.io")), f"an event {reason}")
    (event,) = events(service)
    assert event["reason"] == reason
    return event


def test_a_bound_pod_has_one_event_however_often_it_is_bound(service: RunningService) -> None:
    pod = service.create_pod(make_pod("web"))
    assert bind(service, pod, "n1") == ""
    assert bind(service, pod, "n1") == ""
    event = one_event(service, "Bound")
    assert event["note"] == "Bound default/web to n1"
    meta = pod["metadata"]
    assert event["regarding"] == {
        "apiVersion": "v1",
        "kind": "Pod",
        "namespace": "default",
        "name": "web",
        "uid": meta["uid"],
    }
    assert event["metadata"]["namespace"] == "default"
    assert event["reportingInstance"] == service.runtime.identity
    assert "series" not in event


def test_a_pod_that_fits_nowhere_has_an_event_with_the_reasons(service: RunningService) -> None:
    pod = service.create_pod(make_pod("big", requests={"cpu": "5"}))
    with service.scheduler() as scheduler:
        assert scheduler.filter(pod, [*service.nodes(), make_node("gone")]).names == []
    note = "0/4 nodes fit: 2 Insufficient cpu, 1 node(s) not known to the extender, 1 node(s) were unschedulable"
    assert one_event(service, "FailedFilter")["note"] == note


def test_a_pod_that_fits_somewhere_has_none(service: RunningService) -> None:
    pod = service.create_pod(make_pod("small"))
    with service.scheduler() as scheduler:
        assert scheduler.filter(pod, service.nodes()).names == ["n1", "n2"]
    assert bind(service, pod, "n1") == ""  # what was noted before would come before
    one_event(service, "Bound")


def test_the_pod_that_the_doctor_asks_about_has_none(service: RunningService) -> None:
    probe, pod = make_pod("probe", uid=PROBE_UID, requests={"cpu": "5"}), service.create_pod(make_pod("small"))
    with service.scheduler() as scheduler:
        assert scheduler.filter(probe, service.nodes()).names == []
    assert bind(service, pod, "n1") == ""
    one_event(service, "Bound")


def test_a_bind_that_fails_has_an_event_that_says_why(service: RunningService) -> None:
    pod = service.create_pod(make_pod("web"))
    service.call(lambda: service.api.faults.add(Fault(method="POST", path="/binding$", status=422)))
    error = bind(service, pod, "n1")
    event = one_event(service, "FailedBinding")
    assert event["type"] == "Warning"
    assert "is not bound: the request was refused on demand" in event["note"]
    assert event["note"] in error


def test_verbs_do_not_mind_events_that_are_forbidden_or_hang() -> None:
    options = ServerOptions(forbidden={("create", "events.events.k8s.io")})
    with running_service(nodes=NODES, options=options) as service:
        assert bind(service, service.create_pod(make_pod("one")), "n1") == ""
        broadcaster = service.runtime.broadcaster
        assert broadcaster is not None
        service.until(lambda: broadcaster.dropped["refused"] == 1, "the refusal of an event")
        options.forbidden.clear()
        hang = service.call(lambda: service.api.faults.add(Fault(path="/events$", count=None, delay_before=60)))
        assert bind(service, service.create_pod(make_pod("two")), "n1") == ""
        service.until(lambda: hang.hits > 0)
        assert bind(service, service.create_pod(make_pod("three")), "n1") == ""
        exposition = httpx.get(f"{service.management_url}/metrics").text
        assert 'scheduler_extender_events_dropped_total{reason="refused"} 1.0' in exposition
        assert 'scheduler_extender_events_written_total{operation="created"} 0.0' in exposition


def test_events_are_not_written_where_they_are_switched_off() -> None:
    with running_service(nodes=NODES, configuration={"events": {"enabled": False}}) as service:
        assert bind(service, service.create_pod(make_pod("one")), "n1") == ""
        assert service.runtime.broadcaster is None
        assert not [request for request in list(service.api.requests) if "/events" in request.target]


def test_events_that_wait_are_written_when_the_service_ends() -> None:
    slow = {"events": {"perSecond": 0.001, "burst": 1}}
    with running_service(nodes=NODES, configuration=slow) as service:
        pods = [service.create_pod(make_pod(f"web-{number}")) for number in range(5)]
        assert [bind(service, pod, "n1") for pod in pods] == [""] * 5
        storage = service.api.storage
        assert len(events(service)) <= 1
    assert len(storage.list("events.events.k8s.io")) == 5
