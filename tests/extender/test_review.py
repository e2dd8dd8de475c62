"""Reviews as the client asks for them, and as the embedded API server answers them."""

from __future__ import annotations

import json
from typing import Any

import aiohttp
import pytest

from extender.cluster.apiserver import ApiServer, ServerOptions
from extender.cluster.client import Client
from extender.cluster.connection import from_url
from extender.cluster.review import AUTHENTICATION_PATH, AUTHORIZATION_PATH, User, authenticate, authorize
from extender.errors import ApiError, ApiUnreachable
from tests.extender.scripted import ScriptedServer, reply

OWNER = {"username": "u", "uid": "1", "groups": ["g"], "extra": {"scopes": ["a", "b"]}}


async def test_the_owner_of_a_token_is_passed_on_whole() -> None:
    answers = (
        reply({"status": {"authenticated": True, "user": OWNER, "audiences": ["api"]}}, 201),
        reply({"status": {"allowed": True, "reason": "RBAC"}}, 201),
    )
    async with ScriptedServer(*answers) as server:
        client = Client(from_url(server.url))
        user = await authenticate(client, "t")
        assert user == User(**OWNER)
        assert await authorize(client, user, "get", "/metrics")
        await client.close()
    assert [(request.method, request.path) for request in server.requests] == [
        ("POST", AUTHENTICATION_PATH),
        ("POST", AUTHORIZATION_PATH),
    ]
    assert [json.loads(request.body) for request in server.requests] == [
        {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": {"token": "t"}},
        {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SubjectAccessReview",
            "spec": {
                "user": "u",
                "nonResourceAttributes": {"path": "/metrics", "verb": "get"},
                "uid": "1",
                "groups": ["g"],
                "extra": {"scopes": ["a", "b"]},
            },
        },
    ]


NO: dict[str, dict[str, Any]] = {
    "the token is not accepted": {"status": {"authenticated": False, "error": "expired"}},
    "nothing is said of it": {"status": {}},
    "there is no status": {},
    "access is denied": {"status": {"allowed": False, "denied": True}},
}


@pytest.mark.parametrize("name", NO)
async def test_what_is_not_said_clearly_is_a_no(name: str) -> None:
    async with ScriptedServer(reply(NO[name], 201)) as server:
        client = Client(from_url(server.url))
        assert await authenticate(client, "t") is None
        assert not await authorize(client, User("u"), "get", "/metrics")
        await client.close()


@pytest.mark.parametrize(
    ("body", "status", "error"),
    [(b"<html>", 201, ApiUnreachable), (b'{"status":{"authenticated":"yes","allowed":"yes"}}', 201, ApiUnreachable)]
    + [(b"{}", status, ApiError) for status in (401, 403, 429, 500)],
)
async def test_what_is_no_answer_is_an_error(body: bytes, status: int, error: type[Exception]) -> None:
    async with ScriptedServer(reply(body, status)) as server:
        client = Client(from_url(server.url))
        with pytest.raises(error):
            await authenticate(client, "t")
        with pytest.raises(error):
            await authorize(client, User("u"), "get", "/metrics")
        await client.close()


# --- the embedded API server -----------------------------------------------------------------------------------------

OPTIONS: dict[str, Any] = {"users": {"t": "prometheus"}, "readers": {("prometheus", "/metrics")}}
PROMETHEUS = {"authenticated": True, "user": {"username": "prometheus", "groups": ["system:authenticated"]}}


def path_of(user: str, path: str, verb: str = "get") -> dict[str, Any]:
    return {"user": user, "nonResourceAttributes": {"path": path, "verb": verb}}


@pytest.mark.parametrize(
    ("path", "spec", "status"),
    [
        (AUTHENTICATION_PATH, {"token": "t"}, PROMETHEUS),
        (AUTHENTICATION_PATH, {"token": "x"}, {"user": {}, "error": "[invalid bearer token]"}),
        (AUTHENTICATION_PATH, {}, {"user": {}, "error": "[invalid bearer token]"}),
        (AUTHORIZATION_PATH, path_of("prometheus", "/metrics"), {"allowed": True}),
        (AUTHORIZATION_PATH, path_of("prometheus", "/metrics", "post"), {"allowed": False}),
        (AUTHORIZATION_PATH, path_of("prometheus", "/debug"), {"allowed": False}),
        (AUTHORIZATION_PATH, path_of("somebody", "/metrics"), {"allowed": False}),
    ],
)
async def test_the_embedded_server_judges_by_its_tables(
    path: str, spec: dict[str, Any], status: dict[str, Any]
) -> None:
    async with ApiServer(options=ServerOptions(**OPTIONS)) as server, aiohttp.ClientSession(server.url) as client:
        async with client.post(path, json={"spec": spec}) as response:
            reviewed = await response.json()
        assert response.status == 201
        assert (reviewed["spec"], reviewed["status"]) == (spec, status)
        assert server.storage.resource_version == 1


@pytest.mark.parametrize("path", [AUTHENTICATION_PATH, AUTHORIZATION_PATH])
async def test_the_embedded_server_refuses_what_is_no_review(path: str) -> None:
    async with ApiServer() as server, aiohttp.ClientSession(server.url) as client:
        async with client.get(path) as response:
            assert response.status == 404
        for body in ("{", "[]", "{}", '{"spec":[]}'):
            async with client.post(path, data=body, headers={"Content-Type": "application/json"}) as response:
                assert response.status == 400
