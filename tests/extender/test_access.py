"""Verdicts on who may read the management port: what is asked, how long it holds, and what is made of failures."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import httpx
import pytest
from starlette.responses import PlainTextResponse

from extender import access
from extender.access import AccessReviewer, Guard
from extender.cluster.apiserver import ApiServer, Fault, ServerOptions
from extender.cluster.client import Client
from extender.cluster.connection import from_url
from tests.extender.scripted import Clock

TOKEN_REVIEW = "/apis/authentication.k8s.io/v1/tokenreviews"
ACCESS_REVIEW = "/apis/authorization.k8s.io/v1/subjectaccessreviews"


@dataclass
class Guarded:
    """An application behind a guard, and the API server that is asked."""

    api: ApiServer
    clock: Clock
    caller: httpx.AsyncClient

    async def get(self, path: str, token: str | None = None, **headers: str) -> httpx.Response:
        sent = {"Authorization": f"Bearer {token}"} if token is not None else {}
        return await self.caller.get(path, headers={**sent, **headers})

    def asked(self) -> list[str]:
        return [request.target for request in self.api.requests]


@pytest.fixture
async def guarded() -> AsyncIterator[Guarded]:
    options = ServerOptions(users={"good": "prometheus", "other": "stranger"}, readers={("prometheus", "/metrics")})
    async with ApiServer(options=options) as api:
        client, clock = Client(from_url(api.url)), Clock()
        reviewer = AccessReviewer(client, asyncio.get_running_loop(), clock=clock)
        transport = httpx.ASGITransport(Guard(PlainTextResponse("secrets"), reviewer))
        async with httpx.AsyncClient(transport=transport, base_url="http://management") as caller:
            yield Guarded(api, clock, caller)
        await client.close()


@pytest.mark.parametrize("path", ["/livez", "/readyz", "/healthz", "/readyz?verbose"])
async def test_probes_are_open_without_asking(guarded: Guarded, path: str) -> None:
    for token in (None, "wrong"):
        assert (await guarded.get(path, token)).text == "secrets"
    assert guarded.asked() == []


async def test_one_who_has_leave_is_let_through(guarded: Guarded) -> None:
    assert (await guarded.get("/metrics", "good")).text == "secrets"
    assert guarded.asked() == [TOKEN_REVIEW, ACCESS_REVIEW]


DENIED: dict[str, tuple[dict[str, str], int, str]] = {
    "no header": ({}, 401, "a bearer token is needed"),
    "another scheme": ({"Authorization": "Basic Z29vZA=="}, 401, "a bearer token is needed"),
    "an empty token": ({"Authorization": "Bearer "}, 401, "a bearer token is needed"),
    "an unknown token": ({"Authorization": "Bearer nobody-s"}, 401, "the API server does not accept the token"),
    "a user without leave": ({"Authorization": "bearer other"}, 403, 'user "stranger" may not get path "{}": grant it'),
}


@pytest.mark.parametrize("path", ["/metrics", "/metrics/", "/debug/pods", "/livez/", "/", "/nothing"])
@pytest.mark.parametrize("name", DENIED)
async def test_everybody_else_is_kept_out_of_everything_but_probes(guarded: Guarded, name: str, path: str) -> None:
    headers, status, text = DENIED[name]
    response = await guarded.get(path, **headers)
    assert response.status_code == status
    assert response.text.startswith(text.format(path))
    assert response.headers.get("WWW-Authenticate") == ("Bearer" if status == 401 else None)


async def test_leave_to_get_one_path_is_no_leave_for_more(guarded: Guarded) -> None:
    assert (await guarded.get("/debug/pods", "good")).status_code == 403
    response = await guarded.caller.post("/metrics", headers={"Authorization": "Bearer good"})
    assert response.status_code == 403
    assert response.text.startswith('user "prometheus" may not post path "/metrics"')


@pytest.mark.parametrize(
    ("token", "status", "asked"),
    [("good", 200, [TOKEN_REVIEW, ACCESS_REVIEW]), ("unknown", 401, [TOKEN_REVIEW])],
    ids=["leave", "no leave"],
)
async def test_a_verdict_holds_for_ten_seconds(guarded: Guarded, token: str, status: int, asked: list[str]) -> None:
    for now, rounds in ((0.0, 1), (9.9, 1), (10.0, 2), (19.9, 2), (20.0, 3)):
        guarded.clock.now = now
        assert (await guarded.get("/metrics", token)).status_code == status
        assert guarded.asked() == asked * rounds


async def test_a_token_that_is_withdrawn_lets_nobody_in_once_its_verdict_has_ended(guarded: Guarded) -> None:
    assert (await guarded.get("/metrics", "good")).status_code == 200
    del guarded.api.options.users["good"]
    guarded.clock.now += 10
    assert (await guarded.get("/metrics", "good")).status_code == 401


async def test_only_so_many_verdicts_are_kept(guarded: Guarded, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(access, "_MOST_VERDICTS", 2)
    for token in ("one", "two", "three", "three", "two", "one"):
        assert (await guarded.get("/metrics", token)).status_code == 401
    assert len(guarded.asked()) == 4


UNABLE: dict[str, dict[str, Any]] = {
    "its connections break": {"cut": "before"},
    "it is overloaded": {"status": 429},
    "it fails": {"status": 500},
    "it takes too long": {"delay_before": 30.0},
    "it talks nonsense": {"status": 200, "body": b"<html>"},
}


@pytest.mark.parametrize("review", [TOKEN_REVIEW, ACCESS_REVIEW], ids=["about the token", "about the path"])
@pytest.mark.parametrize("name", UNABLE)
async def test_nobody_is_let_in_while_the_api_server_cannot_be_asked(
    guarded: Guarded, monkeypatch: pytest.MonkeyPatch, name: str, review: str
) -> None:
    monkeypatch.setattr(access, "_REVIEW_SECONDS", 0.2 if "delay_before" in UNABLE[name] else 5.0)
    assert (await guarded.get("/metrics", "good")).status_code == 200
    guarded.clock.now += 10
    fault = guarded.api.faults.add(Fault(method="POST", path=review, count=None, **UNABLE[name]))
    response = await guarded.get("/metrics", "good")
    assert response.status_code == 503
    assert response.text.startswith("the API server cannot be asked whose the token is")
    guarded.api.faults.remove(fault)
    assert (await guarded.get("/metrics", "good")).status_code == 200


@pytest.mark.parametrize(
    "resource", ["tokenreviews.authentication.k8s.io", "subjectaccessreviews.authorization.k8s.io"]
)
async def test_a_service_that_may_not_ask_is_told_what_to_grant(
    guarded: Guarded, caplog: pytest.LogCaptureFixture, resource: str
) -> None:
    guarded.api.options.forbidden.add(("create", resource))
    assert (await guarded.get("/metrics", "good")).status_code == 503
    (record,) = (record for record in caplog.records if record.message == "access not reviewed")
    assert f"{resource} is forbidden" in vars(record)["problem"]
    assert vars(record)["hint"] == "grant this service what manifests/authentication does"
