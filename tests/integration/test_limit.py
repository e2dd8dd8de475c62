"""What one caller can cost the service: long heads, slow heads, unfinished bodies, many connections."""

from __future__ import annotations

import contextlib
import json
import select
import socket
from collections.abc import Iterator

import httpx
import pytest

from extender import protocol
from extender.testing import make_node, make_pod
from extender.testing.cluster import RunningService, running_service
from tests.integration.spoken import connect, is_closed

HEADER_BYTES = 2048
MOST = 8
LIMITS: dict[str, float] = {
    "maxConnections": MOST,
    "maxHeaderBytes": HEADER_BYTES,
    "headerTimeoutSeconds": 0.5,
    "bodyTimeoutSeconds": 1.0,
}
BODY = json.dumps({"Pod": make_pod("p"), "NodeNames": ["n1"]}).encode()
HEAD = b"POST /filter HTTP/1.1\r\nHost: x\r\n"
REQUEST = HEAD + b"Content-Length: %d\r\n\r\n%b" % (len(BODY), BODY)
CHUNKED = HEAD + b"Transfer-Encoding: chunked\r\n\r\n"


@pytest.fixture(scope="module")
def service() -> Iterator[RunningService]:
    with running_service(nodes=[make_node("n1")], configuration={"server": LIMITS}) as running:
        yield running


@pytest.fixture(autouse=True)
def quiet(service: RunningService) -> None:
    """Begin with no connection open."""
    service.until(lambda: not connections(service))


def sample(service: RunningService, name: str, **labels: str) -> float:
    return service.runtime.metrics.registry.get_sample_value(f"scheduler_extender_{name}", labels) or 0.0


def connections(service: RunningService) -> float:
    return sample(service, "open_connections", port="server")


def counted(service: RunningService, reason: str, port: str = "server") -> float:
    return sample(service, "closed_connections_total", port=port, reason=reason)


def answer(opened: socket.socket) -> tuple[int, str]:
    """Status and error text of the next answer."""
    stream = opened.makefile("rb")
    status, length = int(stream.readline().split()[1]), 0
    while (line := stream.readline()) != b"\r\n":
        name, _, value = line.partition(b":")
        length = int(value) if name.lower() == b"content-length" else length
    return status, json.loads(stream.read(length))["Error"]


def is_well(service: RunningService) -> bool:
    return bool(httpx.post(f"{service.url}/filter", content=BODY).json()["NodeNames"] == ["n1"])


# --- the length of the head ------------------------------------------------------------------------------------------

FILLER = b"x" * HEADER_BYTES
TOO_LONG = {
    "one header": ([HEAD + b"X: " + FILLER + b"\r\n\r\n"], ", the header x alone 2049"),
    "one header without an end": ([HEAD + b"X: " + FILLER], ""),
    "many headers": ([HEAD + b"".join(b"X-%d: 1\r\n" % n for n in range(HEADER_BYTES // 8)) + b"\r\n"], ""),
    "a path": ([b"POST /" + FILLER + b" HTTP/1.1\r\n\r\n"], ", the path alone 2049"),
    "in pieces": ([HEAD + b"X: ", FILLER[:1000], FILLER[:1000], FILLER[:1000]], ""),
    "of a second request": ([REQUEST, HEAD + b"X: " + FILLER], ""),
}
"""What is sent, and what of it is told to be too long."""


@pytest.mark.parametrize("name", TOO_LONG)
def test_a_head_that_is_too_long_is_refused(service: RunningService, name: str) -> None:
    before = counted(service, "header_too_long")
    pieces, part = TOO_LONG[name]
    with connect(service.url) as opened:
        for piece in pieces:
            with contextlib.suppress(ConnectionError):
                opened.sendall(piece)
            if piece == REQUEST:
                assert answer(opened) == (200, "")
        text = f"the head of the request is over 2048 bytes{part}: raise server.maxHeaderBytes"
        assert answer(opened) == (431, text)
        assert is_closed(opened)
    assert counted(service, "header_too_long") == before + 1
    assert is_well(service)


@pytest.mark.parametrize(
    ("begin", "piece"),
    [(b"0\r\n", b"X: " + FILLER + b"\r\n"), (b"0\r\nX: ", FILLER), (b"1;x=", FILLER)],
    ids=["trailers", "a trailer", "the extension of a chunk"],
)
def test_what_comes_after_the_head_without_being_body_ends_as_well(
    service: RunningService, begin: bytes, piece: bytes
) -> None:
    before = counted(service, "header_too_long")
    with connect(service.url) as opened:
        opened.sendall(CHUNKED + begin)
        with contextlib.suppress(ConnectionError):
            while not select.select([opened], [], [], 0.001)[0]:
                opened.sendall(piece)
        assert answer(opened)[0] == 431
    assert counted(service, "header_too_long") == before + 1


def test_a_head_of_just_that_length_is_served(service: RunningService) -> None:
    rest = HEADER_BYTES - len("/filter" + "Host" + "x" + "Content-Length" + str(len(BODY)) + "X") - 3 * 4
    for extra, status in ((0, 200), (1, 431)):
        with connect(service.url) as opened:
            opened.sendall(REQUEST.replace(b"\r\n\r\n", b"\r\nX: %b\r\n\r\n" % FILLER[: rest + extra], 1))
            assert answer(opened)[0] == status


def test_what_is_no_http_is_counted_and_logged_with_its_caller_once_a_second(
    service: RunningService, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, clock = counted(service, "malformed_request"), [1e9]
    monkeypatch.setattr(protocol, "monotonic", lambda: clock[0])
    caplog.clear()
    text, callers = "this is no request of HTTP/1.1: Invalid method encountered", []
    for passed_seconds in (0.0, 0.5, 0.5, 0.5):
        clock[0] += passed_seconds
        with connect(service.url) as opened:
            callers.append(":".join(map(str, opened.getsockname())))
            opened.sendall(b"hello\r\n\r\n")
            assert answer(opened) == (400, text)
            assert is_closed(opened)
    assert counted(service, "malformed_request") == before + 4
    told = [(each.name, vars(each).get("client"), vars(each).get("problem")) for each in caplog.records]
    assert told == [("extender.protocol", caller, text) for caller in (callers[0], callers[2])]


# --- time ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("before", [b"", REQUEST], ids=["the first request", "a later one"])
@pytest.mark.parametrize("begin", [b"P", b"\r\n", HEAD], ids=["one byte", "an empty line", "half a head"])
def test_a_head_that_does_not_arrive_is_given_up_but_idle_connections_are_not(
    service: RunningService, before: bytes, begin: bytes
) -> None:
    timeouts = counted(service, "header_timeout")
    with connect(service.url) as fresh, connect(service.url) as idle, connect(service.url) as slow:
        idle.sendall(REQUEST)
        assert answer(idle) == (200, "")
        if before:
            slow.sendall(before)
            assert answer(slow) == (200, "")
        slow.sendall(begin)
        assert is_closed(slow)
        for opened in (fresh, idle):
            opened.sendall(REQUEST)
            assert answer(opened) == (200, "")
    assert counted(service, "header_timeout") == timeouts + 1


def test_a_head_that_trickles_is_given_up_all_the_same(service: RunningService) -> None:
    sent = 0
    with connect(service.url) as opened:
        opened.settimeout(0.05)
        for byte in HEAD + b"X: " + FILLER[:1000]:
            with contextlib.suppress(TimeoutError):
                if is_closed(opened):
                    break
            with contextlib.suppress(ConnectionError):
                opened.sendall(bytes([byte]))
            sent += 1
    assert sent < 100


def test_the_rest_of_a_request_that_was_answered_early_has_to_come(service: RunningService) -> None:
    timeouts = counted(service, "body_timeout")
    begin = b"POST /nothing HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n" + FILLER[:50]
    with connect(service.url) as stays, connect(service.url) as goes:
        stays.sendall(begin)
        goes.sendall(begin)
        assert answer(stays)[0] == answer(goes)[0] == 404
        stays.sendall(FILLER[:50])
        assert is_closed(goes)
        stays.sendall(REQUEST)
        assert answer(stays) == (200, "")
    assert counted(service, "body_timeout") == timeouts + 1


def test_requests_sent_ahead_are_all_answered(service: RunningService) -> None:
    with connect(service.url) as opened:
        opened.sendall(REQUEST * 3 + HEAD)
        answers = b"".join(iter(lambda: opened.recv(65536), b""))  # up to the end, for the head of a fourth is late
    assert answers.count(b"HTTP/1.1 200 OK\r\n") == answers.count(b'"NodeNames":["n1"]') == 3


# --- the number of connections ---------------------------------------------------------------------------------------


def test_one_connection_too_many_is_told_so_and_closed(service: RunningService) -> None:
    refused = counted(service, "too_many_connections")
    with contextlib.ExitStack() as stack:
        held = [stack.enter_context(connect(service.url)) for _ in range(MOST)]
        service.until(lambda: connections(service) == len(held))
        for _ in range(3):
            with connect(service.url) as one_more:
                text = "8 connections are open, as many as server.maxConnections allows"
                assert answer(one_more) == (503, text)
                assert is_closed(one_more)
        for opened in held:
            opened.sendall(REQUEST)
            assert answer(opened) == (200, "")
        assert httpx.get(f"{service.management_url}/readyz").text == "ok"
        held[0].close()
        service.until(lambda: connections(service) < len(held))
        assert is_well(service)
    assert counted(service, "too_many_connections") == refused + 3


def test_management_has_the_same_limits(service: RunningService) -> None:
    with connect(service.management_url) as opened:
        opened.sendall(b"GET /metrics HTTP/1.1\r\nX: " + FILLER)
        assert answer(opened)[0] == 431
    with connect(service.management_url) as opened:
        opened.sendall(b"GET /metrics HTTP/1.1\r\n")
        assert is_closed(opened)
    with contextlib.ExitStack() as stack:
        held = [stack.enter_context(connect(service.management_url)) for _ in range(MOST + 1)]
        assert answer(held[-1])[0] == 503
    for reason in ("header_too_long", "header_timeout", "too_many_connections"):
        assert counted(service, reason, "management") == 1
