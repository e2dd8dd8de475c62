"""Whether the probes tell what is wrong, and nothing else: stalled watches, lost API servers, a loop that is stuck."""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from extender import health
from extender.cluster.apiserver import Fault, Interruption, ServerOptions
from extender.testing import make_node, make_pod
from extender.testing.cluster import RunningService, running_service

QUICK = {"clientConnection": {"silenceSeconds": 1}, "cache": {"staleSeconds": 2.5}}


@pytest.fixture
def noticed_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Failures are told without the usual delay."""
    monkeypatch.setattr(health, "FAILING_SECONDS", 0.1)


@pytest.fixture
def service(noticed_at_once: None) -> Iterator[RunningService]:
    options = ServerOptions(bookmark_interval_seconds=0.2)
    with running_service(nodes=[make_node("n1")], configuration=QUICK, options=options) as running:
        yield running


def probe(service: RunningService, name: str = "readyz") -> httpx.Response:
    return httpx.get(f"{service.management_url}/{name}?verbose", timeout=10)


def line(service: RunningService, check: str) -> str:
    found: list[str] = [line for line in probe(service).text.splitlines() if line[3:].split()[0] == check]
    return found[0]


def filtered(service: RunningService) -> dict[str, Any]:
    body = json.dumps({"Pod": make_pod("p"), "NodeNames": ["n1"]})
    reply: dict[str, Any] = httpx.post(f"{service.url}/filter", content=body, timeout=10).json()
    return reply


def checks(service: RunningService) -> dict[str, health.Check]:
    return {check.name: check for check in service.runtime.readiness()}


def test_a_watch_that_is_open_but_silent_makes_the_service_unready(service: RunningService) -> None:
    assert line(service, "informer-pods") == "[+]informer-pods ok"
    service.call(service.api.faults.add, Fault(watch=True, path="/pods$", count=None, interruption=Interruption.HANG))
    assert service.call(service.api.interrupt_watches, Interruption.HANG, "/pods$") == 1
    service.until(lambda: bool(checks(service)["informer-pods"].note), "the note")
    service.until(lambda: bool(checks(service)["informer-pods"].problem), "the stall")
    answer = probe(service)
    assert answer.status_code == 503
    stalled = r"\[-\]informer-pods failed: the watch is open but silent for \d+ s, over cache.staleSeconds\n"
    assert re.search(stalled, answer.text)
    assert "[+]informer-nodes ok\n" in answer.text
    assert filtered(service)["NodeNames"] == ["n1"]
    assert probe(service, "livez").status_code == 200

    service.call(service.api.faults.clear)
    service.until(lambda: not checks(service)["informer-pods"].problem, "the next watch")
    assert probe(service).status_code == 200


def test_an_api_server_that_is_away_is_told_but_the_service_stays_ready(service: RunningService) -> None:
    service.call(service.api.stop)
    service.until(lambda: "no connection" in checks(service)["informer-nodes"].note, "the note")
    told = r"\[\+\]informer-nodes ok: \d+ s old \(nodes: GET http://127.0.0.1:\d+/api/v1/nodes: no connection: .*"
    assert re.fullmatch(told, line(service, "informer-nodes"))
    assert httpx.get(f"{service.management_url}/readyz").text == "ok"
    assert probe(service, "livez").status_code == 200
    assert filtered(service)["NodeNames"] == ["n1"]
    gauge = service.runtime.metrics.registry.get_sample_value
    age = gauge("scheduler_extender_cache_age_seconds", {"resource": "nodes"})
    assert age is not None
    service.until(
        lambda: (gauge("scheduler_extender_cache_age_seconds", {"resource": "nodes"}) or 0) > age, "a greater age"
    )
    assert gauge("scheduler_extender_informer_failures_total", {"resource": "nodes", "reason": "unreachable"})


def test_caches_that_are_too_old_are_not_answered_from_where_a_limit_is_set(noticed_at_once: None) -> None:
    limited = {"cache": {"errorAfterSeconds": 2.0}}
    options = ServerOptions(bookmark_interval_seconds=0.2)
    with running_service(nodes=[make_node("n1")], configuration=limited, options=options) as service:
        assert filtered(service)["Error"] == ""
        service.call(service.api.stop)
        service.until(lambda: bool(service.runtime.missing()), "the limit")
        error = filtered(service)["Error"]
        assert error.startswith("not ready: ")
        assert re.search(r"nodes are \d+ s old, over cache.errorAfterSeconds \(nodes: GET ", error)
        assert probe(service).status_code == 503
        assert " s old, over cache.errorAfterSeconds" in line(service, "informer-nodes")
        assert probe(service, "livez").status_code == 200


def test_an_event_loop_that_is_stuck_makes_the_service_unalive() -> None:
    with running_service(configuration={"management": {"stuckSeconds": 0.6}}) as service:
        assert probe(service, "livez").text == "[+]event-loop ok\nlivez check passed\n"
        released = threading.Event()
        stuck = threading.Thread(target=service.call, args=(released.wait, 20))
        stuck.start()
        until = time.monotonic() + 10
        while (answer := probe(service, "livez")).status_code == 200:
            assert time.monotonic() < until
        released.set()
        stuck.join()
        assert answer.status_code == 503
        assert answer.text.startswith("[-]event-loop failed: stuck for ")
        service.until(lambda: not [check for check in service.runtime.liveness() if check.problem], "the next turn")
        assert probe(service, "livez").status_code == 200
