"""The client: requests, failures and streams."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Any

import pytest
from aiohttp import web

from extender.cluster.client import Client
from extender.cluster.connection import Connection, from_url
from extender.cluster.credential import FixedHeader
from extender.cluster.status import parse_retry_after
from extender.errors import ApiError, ApiUnreachable, ConfigurationError
from tests.extender.scripted import (
    Answer,
    ScriptedServer,
    cut,
    failure,
    pod,
    recorded,
    reply,
    silence,
    stream,
)


class Rotating:
    """A credential that has a new value whenever it is asked to renew."""

    is_renewable = True

    def __init__(self) -> None:
        self.renewals = 0

    async def header(self) -> str | None:
        return f"Bearer t{self.renewals}"

    async def renew(self, rejected: str | None) -> None:
        assert rejected == f"Bearer t{self.renewals}"
        self.renewals += 1


class Broken:
    """A credential that cannot be had."""

    is_renewable = True

    async def header(self) -> str | None:
        raise ConfigurationError("kubeconfig: exec plug-in aws: exit code 1: not logged in")

    async def renew(self, rejected: str | None) -> None:
        raise AssertionError


@asynccontextmanager
async def asking(*script: Answer, path: str = "", **connection: Any) -> AsyncIterator[tuple[Client, ScriptedServer]]:
    async with ScriptedServer(*script) as server:
        connection = {"url": server.url + path, "origin": "a test", "credential": FixedHeader()} | connection
        client = Client(Connection(**connection))
        try:
            yield client, server
        finally:
            await client.close()


async def test_a_request_says_who_asks_and_what_it_accepts() -> None:
    async with asking(reply(b'{"a":1}')) as (client, server):
        assert (
            await client.request("GET", "/api/v1/pods", params={"fieldSelector": "status.phase!=Failed"}) == b'{"a":1}'
        )
        request = server.requests[0]
        assert (request.method, request.path) == ("GET", "/api/v1/pods")
        assert request.query == {"fieldSelector": "status.phase!=Failed"}
        assert request.headers["User-Agent"].startswith("scheduler-extender/0.")
        assert request.headers["Accept"] == "application/json"
        assert "Authorization" not in request.headers
        assert "Content-Type" not in request.headers


async def test_a_body_is_sent_with_its_type() -> None:
    async with asking(reply()) as (client, server):
        await client.request("PATCH", "/x", body=b"{}", content_type="application/merge-patch+json")
        assert server.requests[0].headers["Content-Type"] == "application/merge-patch+json"
        assert server.requests[0].body == b"{}"


async def test_the_path_of_the_servers_address_is_kept() -> None:
    async with asking(reply(), path="/k8s/clusters/c-1") as (client, server):
        await client.request("GET", "/api/v1/nodes")
        assert server.requests[0].path == "/k8s/clusters/c-1/api/v1/nodes"


async def test_a_proxy_is_used() -> None:
    async with ScriptedServer(reply()) as proxy, asking(url="http://api.invalid", proxy=proxy.url) as (client, _):
        await client.request("GET", "/version")
        assert proxy.requests[0].headers["Host"] == "api.invalid"


@pytest.mark.parametrize(
    ("answer", "code", "reason", "text"),
    [
        pytest.param(recorded("list-forbidden.json", 403), 403, "Forbidden", "cannot list resource", id="forbidden"),
        pytest.param(recorded("unauthorized.json", 401), 401, "Unauthorized", "credentials of a test", id="no entry"),
        pytest.param(recorded("bind-pod-not-found.json", 404), 404, "NotFound", '"nope" not found', id="no pod"),
        pytest.param(recorded("bind-uid-mismatch.json", 409), 409, "Conflict", "UID in precondition", id="another pod"),
        pytest.param(recorded("bind-already-assigned.json", 409), 409, "Conflict", 'to node "node-1"', id="bound"),
        pytest.param(recorded("list-exact-expired.json", 410), 410, "Expired", "too old", id="expired"),
        pytest.param(reply("<h1>Bad\n Gateway</h1>", 502), 502, "", "<h1>Bad Gateway</h1> (502)", id="a proxy's page"),
        pytest.param(reply(b"", 503), 503, "", "the answer has no text", id="an empty body"),
        pytest.param(reply(b"{}", 500), 500, "", "gave no message", id="an empty object"),
        pytest.param(reply(b"moved", 301, Location="/elsewhere"), 301, "", "moved", id="a redirect"),
    ],
)
async def test_a_refusal_is_told_in_the_servers_words(answer: Answer, code: int, reason: str, text: str) -> None:
    async with asking(answer) as (client, server):
        with pytest.raises(ApiError) as caught:
            await client.request("GET", "/x")
        assert (caught.value.code, caught.value.reason) == (code, reason)
        assert text in str(caught.value)
        assert len(server.requests) == 1


@pytest.mark.parametrize(
    ("answer", "seconds"),
    [
        pytest.param(reply(failure(429, "TooManyRequests", "x"), 429, Retry_After="7"), 7, id="in the header"),
        pytest.param(
            reply(failure(504, "Timeout", "x") | {"details": {"retryAfterSeconds": 3}}, 504), 3, id="in the status"
        ),
        pytest.param(reply(failure(503, "ServiceUnavailable", "x"), 503), None, id="nowhere"),
    ],
)
async def test_when_to_try_again_is_told(answer: Answer, seconds: float | None) -> None:
    async with asking(answer) as (client, _):
        with pytest.raises(ApiError) as caught:
            await client.request("GET", "/x")
        assert caught.value.retry_after_seconds == seconds


def test_a_date_to_try_again_is_turned_into_seconds() -> None:
    soon = parse_retry_after(format_datetime(datetime.now(UTC) + timedelta(seconds=60), usegmt=True))
    assert soon is not None
    assert 50 < soon <= 60
    assert parse_retry_after("Tue, 01 Jan 2019 00:00:00 GMT") == 0
    assert parse_retry_after("soon") is None


async def test_a_closed_port_is_unreachable_and_nothing_was_done() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{unused.getsockname()[1]}"
        client = Client(from_url(url))
        with pytest.raises(ApiUnreachable, match=f"POST {url}/x: no connection: .*check the address") as caught:
            await client.request("POST", "/x", body=b"{}")
        assert not caught.value.maybe_done
        await client.close()


@pytest.mark.parametrize("answer", [cut, silence], ids=["connection cut", "no answer in time"])
async def test_a_write_without_an_answer_may_have_been_carried_out(answer: Answer) -> None:
    async with asking(answer) as (client, server):
        with pytest.raises(ApiUnreachable, match="no answer") as caught:
            await client.bind("default", "web-1", "uid-1", "node-1", timeout_seconds=0.2)
        assert caught.value.maybe_done
        assert len(server.requests) == 1


async def test_without_credentials_nothing_is_sent() -> None:
    async with asking(reply(), credential=Broken()) as (client, server):
        with pytest.raises(ApiUnreachable, match="aws: exit code 1: not logged in") as caught:
            await client.request("POST", "/x")
        assert not caught.value.maybe_done
        assert server.requests == []


async def test_a_401_is_answered_with_a_fresh_credential_once() -> None:
    async with asking(recorded("unauthorized.json", 401), reply(b"[]"), credential=Rotating()) as (client, server):
        assert await client.request("POST", "/x", body=b"{}") == b"[]"
        assert [request.headers["Authorization"] for request in server.requests] == ["Bearer t0", "Bearer t1"]
        assert [request.body for request in server.requests] == [b"{}", b"{}"]


async def test_a_second_401_is_reported() -> None:
    async with asking(recorded("unauthorized.json", 401), credential=Rotating()) as (client, server):
        with pytest.raises(ApiError, match="Unauthorized"):
            await client.request("GET", "/x")
        assert len(server.requests) == 2


async def test_a_stream_is_opened_with_a_fresh_credential_too() -> None:
    script = [recorded("unauthorized.json", 401), stream(b"a\n")]
    async with asking(*script, credential=Rotating()) as (client, server):
        assert await lines_of(client) == [b"a"]
        assert server.requests[1].headers["Authorization"] == "Bearer t1"


async def test_binding_names_pod_uid_and_node_and_carries_annotations() -> None:
    async with asking(reply(b"{}", 201)) as (client, server):
        await client.bind("default", "web-1", "uid-1", "node-1", {"example.com/device": "3"})
        request = server.requests[0]
        assert (request.method, request.path) == ("POST", "/api/v1/namespaces/default/pods/web-1/binding")
        assert json.loads(request.body) == {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {
                "namespace": "default",
                "name": "web-1",
                "uid": "uid-1",
                "annotations": {"example.com/device": "3"},
            },
            "target": {"apiVersion": "v1", "kind": "Node", "name": "node-1"},
        }


async def test_binding_without_annotations_sends_none() -> None:
    async with asking(reply(b"{}", 201)) as (client, server):
        await client.bind("default", "web-1", "uid-1", "node-1")
        assert "annotations" not in json.loads(server.requests[0].body)["metadata"]


async def test_names_cannot_lead_to_another_path() -> None:
    raw_paths: list[str] = []

    async def answer(request: web.Request) -> web.StreamResponse:
        raw_paths.append(request.raw_path)
        return web.json_response({})

    async with asking(answer) as (client, _):
        await client.get_pod("default", "a/../../secrets?x#y")
        assert raw_paths == ["/api/v1/namespaces/default/pods/a%2F..%2F..%2Fsecrets%3Fx%23y"]


async def test_binds_are_not_held_back() -> None:
    together = asyncio.Barrier(150)

    async def answer(_: web.Request) -> web.StreamResponse:
        await together.wait()
        return web.json_response({}, status=201)

    async with asking(answer) as (client, server):
        await asyncio.gather(*(client.bind("default", f"p{i}", f"u{i}", "n1") for i in range(150)))
        assert len(server.requests) == 150


async def test_a_pod_is_read() -> None:
    async with asking(reply(pod("web-1", "7"))) as (client, server):
        found = await client.get_pod("default", "web-1")
        assert found.spec is not None
        assert found.spec.node_name == "n1"
        assert server.requests[0].path == "/api/v1/namespaces/default/pods/web-1"


async def test_an_answer_that_is_no_pod_is_an_error_of_the_server() -> None:
    async with asking(reply("<html>")) as (client, _):
        with pytest.raises(ApiUnreachable, match="the answer is no pod"):
            await client.get_pod("default", "web-1")


async def lines_of(client: Client, silence_seconds: float = 5) -> list[bytes]:
    async with client.stream("/x", params={"watch": "true"}, silence_seconds=silence_seconds) as batches:
        return [line async for lines in batches for line in lines]


async def test_a_stream_is_cut_into_lines_wherever_its_pieces_end() -> None:
    large = b"x" * 5_000_000
    async with asking(stream(b"one\ntw", b"o\n", large, b"\nlast")) as (client, _):
        assert await lines_of(client) == [b"one", b"two", large, b"last"]


async def test_a_refused_stream_is_told_in_the_servers_words() -> None:
    async with asking(recorded("list-forbidden.json", 403)) as (client, _):
        with pytest.raises(ApiError, match="cannot list resource"):
            await lines_of(client)


async def test_a_silent_stream_is_given_up() -> None:
    async with asking(stream(b"one\n", then="silence")) as (client, server):
        with pytest.raises(ApiUnreachable, match="no answer"):
            await lines_of(client, silence_seconds=0.1)
        await asyncio.wait_for(server.hung_up.wait(), 10)


async def test_a_failure_of_the_reader_passes_through_a_stream_unchanged() -> None:
    async with asking(stream(b"one\n", then="silence")) as (client, server):

        async def fail_at_the_first_line() -> None:
            async with client.stream("/x", params={}, silence_seconds=5) as batches:
                async for _ in batches:
                    raise ConnectionError("of the reader")

        with pytest.raises(ConnectionError, match="of the reader"):
            await fail_at_the_first_line()
        await asyncio.wait_for(server.hung_up.wait(), 10)
