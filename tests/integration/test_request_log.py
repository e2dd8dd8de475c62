"""What the log says of requests: which one, about which pod, how long it took, and what took the time."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from extender import journal
from extender.cluster.apiserver import Fault
from extender.testing import make_node, make_pod
from extender.testing.cluster import RunningService, running_service
from tests.extender.specimen import profile

SPECIMENS = profile(["Broken", "Sleepy", "Labelled"], ["SleepyPriority", "Graded"])
SLOW = make_pod("slow", annotations={"seconds": "0.3"})


@pytest.fixture(scope="module")
def service() -> Iterator[RunningService]:
    nodes = [make_node("n1"), make_node("n2", labels={"refuse": "no"})]
    configuration = {**SPECIMENS, "log": {"slowRequestSeconds": 0.25}}
    with running_service(nodes=nodes, configuration=configuration) as running:
        yield running


@pytest.fixture(autouse=True)
def attentive(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "extender")


def post(service: RunningService, verb: str, body: Any, **headers: str) -> httpx.Response:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    content = body if isinstance(body, bytes) else json.dumps(body)
    return httpx.post(f"{service.url}/{verb}", content=content, headers=named, timeout=10)


def asked(pod: dict[str, Any]) -> dict[str, Any]:
    return {"Pod": pod, "NodeNames": ["n1", "n2"], "NodeNameToMetaVictims": {"n1": {"Pods": [{"UID": "v"}]}}}


def logged(caplog: pytest.LogCaptureFixture, message: str) -> list[dict[str, Any]]:
    return [vars(record) for record in caplog.records if record.getMessage() == message]


# --- ids -------------------------------------------------------------------------------------------------------------


def test_every_request_has_an_id_of_its_own(service: RunningService) -> None:
    found = [post(service, "filter", asked(make_pod("p"))).headers["X-Request-Id"] for _ in range(3)]
    assert len(set(found)) == 3
    assert all(re.fullmatch(r"[0-9a-f]{6}-\d+", identity) for identity in found)


def test_the_id_of_the_caller_is_kept(service: RunningService) -> None:
    assert post(service, "filter", asked(make_pod("p")), X_Request_Id="abc/1").headers["X-Request-Id"] == "abc/1"
    assert post(service, "filter", b"{", X_Request_Id="abc/2").headers["X-Request-Id"] == "abc/2"


@pytest.mark.parametrize("given", ["", "a b", "x" * 129, 'a"\tb'], ids=["none", "blank", "too long", "odd"])
def test_an_id_that_would_spoil_the_log_is_replaced(service: RunningService, given: str) -> None:
    answer = post(service, "filter", asked(make_pod("p")), X_Request_Id=given)
    assert re.fullmatch(r"[0-9a-f]{6}-\d+", answer.headers["X-Request-Id"])


# --- failures --------------------------------------------------------------------------------------------------------


def test_a_failure_is_logged_with_the_pod_and_the_time(
    service: RunningService, caplog: pytest.LogCaptureFixture
) -> None:
    post(service, "filter", asked(make_pod("broken", annotations={"break": "yes"})))
    (line,) = logged(caplog, "request failed")
    assert line["levelname"] == "WARNING"
    assert (line["verb"], line["pod"], line["uid"]) == ("filter", "default/broken", "uid-broken")
    assert line["result"] == "AlgorithmError"
    assert line["error"] == "Broken: ZeroDivisionError: division by zero nodes"
    assert 0 < line["seconds"] < 10


def test_an_algorithm_that_raises_is_logged_with_its_traceback(
    service: RunningService, caplog: pytest.LogCaptureFixture
) -> None:
    post(service, "filter", asked(make_pod("broken", annotations={"break": "yes"})))
    assert 'raise ZeroDivisionError("division by zero nodes")' in caplog.text


def test_a_request_that_is_not_understood_is_logged_without_a_pod(
    service: RunningService, caplog: pytest.LogCaptureFixture
) -> None:
    post(service, "prioritize", b"{")
    (line,) = logged(caplog, "request failed")
    assert (line["verb"], line["result"]) == ("prioritize", "RequestError")
    assert "pod" not in line
    assert line["exc_info"] is None


def test_a_bind_that_fails_is_logged_with_the_pod_the_node_and_the_time(
    service: RunningService, caplog: pytest.LogCaptureFixture
) -> None:
    request = {"PodName": "gone", "PodNamespace": "default", "PodUID": "u", "Node": "n1"}
    post(service, "bind", request)
    (line,) = logged(caplog, "bind failed")
    assert (line["pod"], line["uid"], line["node"]) == ("default/gone", "u", "n1")
    assert line["seconds"] > 0
    (line,) = logged(caplog, "request failed")
    assert (line["pod"], line["uid"]) == ("default/gone", "u")


# --- slow requests ---------------------------------------------------------------------------------------------------


def test_a_slow_request_is_logged_with_what_took_the_time(
    service: RunningService, caplog: pytest.LogCaptureFixture
) -> None:
    post(service, "filter", asked(SLOW))
    (line,) = logged(caplog, "slow request")
    assert (line["verb"], line["pod"], line["uid"], line["result"]) == ("filter", "default/slow", "uid-slow", "ok")
    assert (line["nodes"], line["fitting"]) == (2, 1)
    assert line["body_bytes"] > 100
    assert list(line["phases"]) == ["read", "decode", "evaluate", "encode"]
    assert line["phases"]["evaluate"] >= 0.3 <= line["seconds"]
    assert next(iter(line["algorithms"])) == "Sleepy"
    assert line["algorithms"]["Sleepy"] >= 0.3
    assert sum(line["phases"].values()) == pytest.approx(line["seconds"], abs=0.001)
    assert set(line["algorithms"]) >= {"Broken", "Labelled"}


@pytest.mark.parametrize("verb", ["prioritize", "preempt"])
def test_every_verb_tells_what_took_the_time(
    service: RunningService, caplog: pytest.LogCaptureFixture, verb: str
) -> None:
    victim = service.create_pod(make_pod("victim", uid="v", node="n1"))
    body = {**asked(SLOW), "NodeNameToMetaVictims": {"n1": {"Pods": [{"UID": victim["metadata"]["uid"]}]}}}
    post(service, verb, body)
    service.delete_pod(victim)
    (line,) = logged(caplog, "slow request")
    assert line["verb"] == verb
    assert line["phases"]["evaluate"] >= 0.3


def test_a_slow_bind_tells_so(service: RunningService, caplog: pytest.LogCaptureFixture) -> None:
    created = service.create_pod(make_pod("late"))
    service.call(service.api.faults.add, Fault(path="/binding$", delay_before=0.3))
    request = {"PodName": "late", "PodNamespace": "default", "PodUID": created["metadata"]["uid"], "Node": "n1"}
    assert post(service, "bind", request).json() == {"Error": ""}
    (line,) = logged(caplog, "slow request")
    assert list(line["phases"]) == ["read", "decode", "bind"]
    assert line["phases"]["bind"] >= 0.3
    (line,) = logged(caplog, "bound")
    assert (line["levelname"], line["node"]) == ("DEBUG", "n1")


def test_a_request_that_is_not_slow_is_not_logged(service: RunningService, caplog: pytest.LogCaptureFixture) -> None:
    post(service, "filter", asked(make_pod("quick")))
    assert not logged(caplog, "slow request")
    assert not logged(caplog, "request failed")


def test_no_request_is_slow_where_none_is_to_be_logged(caplog: pytest.LogCaptureFixture) -> None:
    configuration = {**SPECIMENS, "log": {"slowRequestSeconds": 0}}
    with running_service(nodes=[make_node("n1")], configuration=configuration) as silent:
        post(silent, "filter", asked(SLOW))
        assert not logged(caplog, "slow request")


def test_only_the_slowest_algorithms_are_named() -> None:
    entry = journal.Entry("preempt", "1")
    entry.runs = [(f"A{number}", "filter", 0.0, number / 1000) for number in range(30)] * 2
    entry.close()
    told = entry.breakdown()
    assert next(iter(told["algorithms"].items())) == ("A29", 0.058)
    assert (len(told["algorithms"]), told["runs"]) == (10, 60)
