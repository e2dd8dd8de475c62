"""Requests that are meant for something else, or end before their answer: told what is wrong, and no harm done."""

from __future__ import annotations

import json
import ssl
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from extender.testing import make_node, make_pod
from extender.testing.cluster import RunningService, running_service
from tests.extender.specimen import profile
from tests.integration.spoken import connect, is_closed, read_answer

NODES = [make_node("n1"), make_node("n2")]
SLOW = make_pod("slow", annotations={"seconds": "0.2"})
CAP_BYTES = 65_536
CONFIGURATION: dict[str, Any] = {
    "server": {"maxBodyBytes": CAP_BYTES, "bodyTimeoutSeconds": 0.3, "pathPrefixes": ["/scheduler"]},
    **profile(["Sleepy", "Labelled"], ["SleepyPriority", "Graded"]),
}
BODY = json.dumps({"Pod": make_pod("p"), "NodeNames": ["n1", "n2"]}).encode()
KEPT = {"Nodes": None, "NodeNames": ["n1", "n2"], "FailedNodes": {}, "FailedAndUnresolvableNodes": {}, "Error": ""}
OFFER = b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQCAAAAAAIAAAAA\r\n"


@pytest.fixture(scope="module")
def service() -> Iterator[RunningService]:
    with running_service(nodes=NODES, configuration=CONFIGURATION) as running:
        yield running


def request(body: bytes = BODY, *, path: str = "/filter", headers: bytes = b"") -> bytes:
    head = b"POST %b HTTP/1.1\r\nHost: x\r\n%bContent-Length: %d\r\n\r\n" % (path.encode(), headers, len(body))
    return head + body


def sample(service: RunningService, name: str, **labels: str) -> float:
    return service.runtime.metrics.registry.get_sample_value(f"scheduler_extender_{name}", labels) or 0.0


# --- other protocols -------------------------------------------------------------------------------------------------

CHUNKS = b"Transfer-Encoding: chunked\r\n\r\n%x\r\n%b\r\n0\r\n\r\n" % (len(BODY), BODY)


@pytest.mark.parametrize("size", [1, 7, 10_000], ids=["byte by byte", "in small pieces", "at once"])
@pytest.mark.parametrize(
    "text",
    [request(headers=OFFER), b"POST /filter HTTP/1.1\r\nHost: x\r\n" + OFFER + CHUNKS],
    ids=["with its length", "in chunks"],
)
def test_an_offer_of_another_protocol_is_ignored_and_the_request_served(
    service: RunningService, text: bytes, size: int, caplog: pytest.LogCaptureFixture
) -> None:
    with connect(service.url) as opened:
        for place in range(0, len(text), size):
            opened.sendall(text[place : place + size])
        assert read_answer(opened) == (200, KEPT)
        opened.sendall(request() + text + request())
        assert [read_answer(opened) for _ in range(3)] == [(200, KEPT)] * 3
    assert not caplog.records


def test_an_offer_without_a_body_is_answered_like_any_other_request(service: RunningService) -> None:
    with connect(service.management_url) as opened:
        opened.sendall(b"GET /livez HTTP/1.1\r\nHost: x\r\n" + OFFER + b"\r\n")
        assert read_answer(opened) == (200, "ok")


FOREIGN = {
    "TLS": (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", "TLS was sent to a port without it: call it by http://"),
    "the first byte of TLS": (b"\x16", "TLS was sent to a port without it: call it by http://"),
    "HTTP/2": (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "HTTP/2 was sent, which is not served: use HTTP/1.1"),
    "a request to a proxy": (b"CONNECT x:80 HTTP/1.1\r\nHost: x\r\n\r\n", "CONNECT was sent, but this is no proxy"),
    "a header without a colon": (b"GET / HTTP/1.1\r\nHost\r\n\r\n", "no request of HTTP/1.1: Invalid header token"),
    "two lengths": (
        b"POST /filter HTTP/1.1\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n",
        "no request of HTTP/1.1: Transfer-Encoding can't be present with Content-Length",
    ),
    "a path that is none": (b"GET http://[ HTTP/1.1\r\nHost: x\r\n\r\n", "no request of HTTP/1.1: invalid url"),
}


@pytest.mark.parametrize(("sent", "text"), FOREIGN.values(), ids=FOREIGN)
@pytest.mark.parametrize("port", ["url", "management_url"])
def test_what_is_no_request_is_told_what_it_is(service: RunningService, port: str, sent: bytes, text: str) -> None:
    with connect(getattr(service, port)) as opened:
        opened.sendall(sent)
        status, answer = read_answer(opened)
        assert is_closed(opened)
    assert status == 400
    assert text in answer["Error"]


def test_a_caller_that_begins_with_a_handshake_fails_at_once(service: RunningService) -> None:
    with connect(service.url) as opened, pytest.raises(ssl.SSLError):
        ssl.create_default_context().wrap_socket(opened, server_hostname="x")


# --- bodies over the cap ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("verb", "status"), [("filter", 200), ("prioritize", 413)])
def test_a_body_that_is_said_to_be_too_long_is_refused_before_it_comes(
    service: RunningService, verb: str, status: int
) -> None:
    before = sample(service, "requests_total", verb=verb, result="BodyTooLarge")
    measured = sample(service, "request_duration_seconds_count", verb=verb)
    with connect(service.url) as opened:
        opened.sendall(b"POST /%b HTTP/1.1\r\nHost: x\r\nContent-Length: 999999999999\r\n\r\n" % verb.encode())
        told, answer = read_answer(opened)
        assert is_closed(opened)  # the rest does not come in time
    assert told == status
    assert answer["Error"].startswith(f"the body has 999999999999 bytes, over the cap of {CAP_BYTES}; ")
    assert sample(service, "requests_total", verb=verb, result="BodyTooLarge") == before + 1
    assert sample(service, "request_duration_seconds_count", verb=verb) == measured


def test_a_sender_that_does_not_wait_gets_to_see_why_and_may_go_on(service: RunningService) -> None:
    with connect(service.url) as opened:
        opened.sendall(request(b" " * 2 * CAP_BYTES, path="/prioritize"))
        assert read_answer(opened)[0] == 413
        opened.sendall(request())
        assert read_answer(opened) == (200, KEPT)


def test_a_sender_that_asks_first_is_told_and_its_connection_closed(service: RunningService) -> None:
    head = b"POST /filter HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: %d\r\n\r\n"
    with connect(service.url) as opened:
        opened.sendall(head % (CAP_BYTES + 1))
        status, answer = read_answer(opened)
        assert is_closed(opened)
    assert (status, answer["NodeNames"]) == (200, None)


def test_time_that_a_body_did_not_come_in_is_not_time_of_an_answer(service: RunningService) -> None:
    before = sample(service, "request_duration_seconds_count", verb="filter")
    late = sample(service, "requests_total", verb="filter", result="BodyTimeout")
    with connect(service.url) as opened:
        opened.sendall(request()[:-1])
        assert "did not arrive within 0.3 s" in read_answer(opened)[1]["Error"]
    assert sample(service, "requests_total", verb="filter", result="BodyTimeout") == late + 1
    assert sample(service, "request_duration_seconds_count", verb="filter") == before


# --- paths -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["/scheduler/scheduler/filter", "//filters/", "/%2e%2e/filter", "/scheduler"])
def test_a_path_that_is_not_served_is_named_as_it_was_asked_for(service: RunningService, path: str) -> None:
    with connect(service.url) as opened:
        opened.sendall(request(path=path))
        status, answer = read_answer(opened)
    assert status == 404
    assert answer["Error"].startswith(f"nothing is served at {path}; the verbs are /filter, ")


def test_a_method_that_is_not_served_is_told_with_the_path_that_was_asked_for(service: RunningService) -> None:
    answer = httpx.get(f"{service.url}/scheduler//filter/")
    assert (answer.status_code, answer.json()["Error"]) == (405, "/scheduler//filter/ takes POST, got GET")


# --- callers that hang up --------------------------------------------------------------------------------------------


def whole(names: list[str]) -> list[dict[str, Any]]:
    """Nodes in a version that the service does not hold, so that they are put into its caches for the request."""
    return [{**make_node(name), "metadata": {**make_node(name)["metadata"], "resourceVersion": "0"}} for name in names]


@pytest.mark.parametrize("verb", ["filter", "prioritize"])
@pytest.mark.parametrize("by_name", [True, False], ids=["names", "nodes"])
def test_b51_a_caller_that_hangs_up_before_its_answer_leaves_nothing_behind(
    service: RunningService, verb: str, by_name: bool
) -> None:
    runtime = service.runtime
    asked = {"Pod": SLOW, "NodeNames": ["n1"]} if by_name else {"Pod": SLOW, "Nodes": {"items": whole(["n1", "new"])}}
    text = request(json.dumps(asked).encode(), path=f"/{verb}")

    def state() -> Any:
        names = [runtime.mirror.table.name(row) for row in runtime.mirror.table.rows().tolist()]
        return sorted(names), {type(cache).__qualname__: cache.dump() for cache in runtime.mirror.caches}

    service.until(lambda: sample(service, "open_connections", port="server") == 0, "a quiet port")
    before, done = service.call(state), sample(service, "requests_total", verb=verb, result="ok")
    for _ in range(4):
        with connect(service.url) as opened:
            opened.sendall(text)
    service.until(lambda: sample(service, "requests_total", verb=verb, result="ok") == done + 4, "the work")
    service.until(lambda: sample(service, "open_connections", port="server") == 0, "the end of the connections")
    assert sample(service, "requests_in_flight", verb=verb) == 0
    assert service.call(state) == before
    with connect(service.url) as opened:
        opened.sendall(request())
        assert read_answer(opened) == (200, KEPT)
