"""What a reflector says of itself: how old its news is, since when it fails and why, and how late objects come."""

from __future__ import annotations

import asyncio
import json
import time
from datetime import UTC, datetime

from aiohttp import web

from extender.cluster.apiserver import ApiServer, ServerOptions
from extender.cluster.client import Client
from extender.cluster.connection import from_url
from extender.cluster.reflector import Reflector
from extender.model.kind import NODES
from tests.extender.scripted import (
    OPEN,
    Clock,
    RecordingStore,
    bookmark,
    event,
    eventually,
    failure,
    follow,
    pod,
    reply,
    running,
    stream,
)

FIRST = stream(event("ADDED", pod("a", "1")), bookmark("5", ends_list=True), then="silence")


async def test_a_watch_that_is_opened_after_a_silent_one_proves_nothing_until_it_speaks() -> None:
    spoke = asyncio.Event()

    async def late(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        await spoke.wait()
        await response.write(json.dumps(bookmark("9")).encode() + b"\n")
        await asyncio.Event().wait()
        return response

    async with follow(FIRST, late, silence_seconds=0.5) as setting:
        await eventually(lambda: setting.reflector.watches == 3)
        assert setting.reflector.failing is None
        assert setting.reflector.silent_seconds() >= 1.0
        spoke.set()
        await eventually(lambda: setting.reflector.silent_seconds() < 0.5)


async def test_a_watch_is_asked_to_end_before_its_silence_would_be_taken_for_death() -> None:
    async with follow(FIRST, silence_seconds=20) as setting:
        await eventually(lambda: setting.server.requests)
        assert 10 <= int(setting.server.requests[0].query["timeoutSeconds"]) <= 15


async def test_of_what_does_not_change_the_end_of_each_watch_is_news_enough() -> None:
    """As from an API server that sends no bookmarks, which is how one behaves whose etcd reports no progress."""
    async with ApiServer([], ServerOptions(progress=False)) as api:
        client = Client(from_url(api.url))
        reflector = Reflector(NODES, client, RecordingStore(), silence_seconds=2.5)
        async with running(reflector):
            await eventually(lambda: reflector.watches == 3)
            assert reflector.silent_seconds() < 2.5
            assert not reflector.failures
            assert reflector.events["BOOKMARK"] == 1  # that of the list
        await client.close()


async def test_a_watch_that_is_opened_after_a_lost_one_counts_as_news() -> None:
    clock = Clock()

    async def much_later(request: web.Request) -> web.StreamResponse:
        clock.now += 500
        return await OPEN(request)

    first = stream(bookmark("5", ends_list=True), then="cut")
    async with follow(first, much_later, clock=clock) as setting:
        await eventually(lambda: setting.reflector.watches == 2)
        assert clock.now == 500
        assert setting.reflector.age_seconds() == 0


async def test_a_failure_tells_its_kind_and_since_when() -> None:
    clock = Clock()
    broken = stream(b"{\n")
    refused = reply(failure(403, "Forbidden", "no"), 403)
    script = (stream(bookmark("5", ends_list=True)), broken, refused)
    async with follow(*script, clock=clock) as setting:
        await eventually(lambda: setting.reflector.failures["403"])
        assert setting.reflector.failures["garbled"] == 1
        clock.now += 40
        assert setting.reflector.failing_seconds() == 40
        await eventually(lambda: setting.reflector.failures["403"] > 1)
        assert setting.reflector.failing_seconds() == 40


async def test_the_lag_of_new_objects_is_told_but_not_that_of_listed_ones() -> None:
    lags: list[tuple[str, float]] = []
    minute_ago = datetime.fromtimestamp(time.time() - 60, UTC).isoformat()
    items = [pod(name, version, creationTimestamp=minute_ago) for name, version in (("old", "1"), ("new", "6"))]
    script = stream(
        event("ADDED", items[0]),
        bookmark("5", ends_list=True),
        event("ADDED", items[1]),
        event("MODIFIED", items[1]),
        then="silence",
    )
    async with follow(script, observe_lag=lambda *lag: lags.append(lag)) as setting:
        await eventually(lambda: setting.reflector.events["MODIFIED"])
        ((resource, seconds),) = lags
        assert resource == "pods"
        assert 60 <= seconds < 90
