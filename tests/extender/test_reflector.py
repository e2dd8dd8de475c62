"""The reflector against an API server that behaves."""

from __future__ import annotations

import asyncio
import logging

import pytest

from extender.cluster.client import Client
from extender.cluster.connection import from_url
from extender.cluster.reflector import Reflector
from extender.model.kind import NODES, PODS, Kind
from tests.extender.scripted import (
    DATA,
    OPEN,
    REFUSED,
    Answer,
    RecordingStore,
    ScriptedServer,
    bookmark,
    case,
    error,
    event,
    eventually,
    failure,
    follow,
    listed,
    played,
    pod,
    recorded,
    reply,
    running,
    stream,
)


async def test_a_streaming_list_and_the_watch_after_it_are_one_request() -> None:
    lines = (DATA / "apiserver" / "watch-initial-events.jsonl").read_bytes().splitlines(keepends=True)
    new = lines[0].replace(b'"209"', b'"300"').replace(b'"ADDED"', b'"MODIFIED"')
    async with follow(stream(*lines, new, then="silence"), kind=NODES) as setting:
        reflector = setting.reflector
        await eventually(lambda: reflector.resource_version == "300")
        assert reflector.synced
        assert (reflector.lists, reflector.watches, reflector.failing) == (1, 1, None)
        assert set(setting.store.items) == {f"node-{i}" for i in range(6)}
        assert reflector.events == {"ADDED": 6, "BOOKMARK": 1, "MODIFIED": 1}
        assert reflector.age_seconds() < 10
        query = setting.server.requests[0].query
        assert setting.server.requests[0].path == "/api/v1/nodes"
        assert 27 <= int(query.pop("timeoutSeconds")) <= 41
        assert query == {
            "watch": "true",
            "sendInitialEvents": "true",
            "resourceVersionMatch": "NotOlderThan",
            "allowWatchBookmarks": "true",
        }


async def test_a_reflector_is_not_synced_before_the_bookmark_that_ends_the_list() -> None:
    lines = [event("ADDED", pod("a", "5")), event("ADDED", pod("b", "3")), bookmark("6")]
    async with follow(stream(*lines, then="silence")) as setting:
        await eventually(lambda: setting.reflector.events["BOOKMARK"])
        assert set(setting.store.items) == {"default/a", "default/b"}
        assert not setting.reflector.synced
        assert setting.reflector.resource_version is None


@pytest.mark.parametrize(
    "refusal",
    [
        pytest.param(stream(error(500, "InternalError", "no progress from storage")), id="an error in the stream"),
        pytest.param(REFUSED, id="status 422"),
        pytest.param(reply(failure(400, "BadRequest", "unknown parameter"), 400), id="status 400"),
        pytest.param(stream(event("ADDED", pod("ghost", "1"))), id="a stream that ends before its list"),
    ],
)
async def test_a_server_without_streaming_lists_is_listed_in_pages(refusal: Answer) -> None:
    script = [
        refusal,
        listed("10", pod("a", "1"), continue_token="t1"),
        listed("10", pod("b", "2"), continue_token="t2"),
        listed("10", pod("c", "3")),
        stream(event("DELETED", pod("b", "11")), then="silence"),
    ]
    async with follow(*script, page_size=1) as setting:
        await eventually(lambda: setting.reflector.resource_version == "11")
        assert set(setting.store.items) == {"default/a", "default/c"}
        assert setting.reflector.lists == 1
        assert setting.queries("limit", "continue", "resourceVersion")[1:] == [
            ("1", None, None),
            ("1", "t1", None),
            ("1", "t2", None),
            (None, None, "10"),
        ]
        selectors = {request.query["fieldSelector"] for request in setting.server.requests}
        assert selectors == {"status.phase!=Succeeded,status.phase!=Failed"}


async def test_a_recorded_page_of_a_list_is_read() -> None:
    script = [REFUSED, recorded("list-page1.json"), listed("384"), OPEN]
    async with follow(*script) as setting:
        await eventually(lambda: setting.reflector.synced)
        assert setting.reflector.resource_version == "384"
        assert "default/fill-0" in setting.store.items
        assert setting.server.requests[2].query["continue"].startswith("eyJ2IjoibWV0YS5rOHMuaW8vdjEi")


async def test_a_list_that_expires_between_pages_is_read_again_in_one_piece() -> None:
    script = [
        REFUSED,
        listed("10", pod("a", "1"), pod("gone", "2"), continue_token="t1"),
        recorded("list-exact-expired.json", 410),
        listed("20", pod("a", "1"), pod("b", "15")),
        OPEN,
    ]
    async with follow(*script) as setting:
        await eventually(lambda: setting.reflector.synced)
        assert set(setting.store.items) == {"default/a", "default/b"}
        assert setting.queries("limit", "continue")[1:4] == [("500", None), ("500", "t1"), (None, None)]


async def test_b23_an_expired_watch_lists_again_without_a_gap_and_never_retries_the_version() -> None:
    script, starts = played("B23-watch-410.jsonl")
    async with follow(REFUSED, *script) as setting:
        store = setting.store
        await eventually(lambda: "default/e" in store.items)
        assert store.identities() == {"a/uid-a", "c/uid-c2", "d/uid-d", "e/uid-e"}
        seen = store.changes[store.changes.index("MODIFIED a/uid-a") + 1 :]
        assert sorted(seen) == [
            "ADDED c/uid-c2",
            "ADDED d/uid-d",
            "ADDED e/uid-e",
            "DELETED b/uid-b",
            "DELETED c/uid-c",
        ]
        assert seen.index("DELETED c/uid-c") < seen.index("ADDED c/uid-c2")
        assert [version for (version,) in setting.queries("resourceVersion") if version] == starts


async def test_b24_a_bookmark_moves_the_version_to_resume_from_and_nothing_else() -> None:
    script, starts = played("B24-bookmarks.jsonl")
    async with follow(REFUSED, *script) as setting:
        await eventually(lambda: setting.reflector.resource_version == "960")
        assert setting.store.changes == ["ADDED a/uid-a"]
        assert [version for (version,) in setting.queries("resourceVersion") if version] == starts == ["200", "950"]
        assert {allow for (allow,) in setting.queries("allowWatchBookmarks")} == {"true", None}
        assert setting.reflector.synced


@pytest.mark.parametrize("kind", [NODES, PODS], ids=["nodes", "pods"])
async def test_b25_null_lists_are_read_as_empty(kind: Kind) -> None:
    items = [item for item in case("B25-null-lists.json")["objects"] if item["kind"] == kind.name]
    expired = stream(error(410, "Expired", "too old resource version"))
    nothing = reply(b'{"metadata":{"resourceVersion":"7"},"items":null}')
    async with follow(REFUSED, listed("6", *items), expired, nothing, OPEN, kind=kind) as setting:
        await eventually(lambda: setting.reflector.lists == 2)
        name = items[0]["metadata"]["name"]
        assert setting.store.changes == [f"ADDED {name}/None", f"DELETED {name}/None"]
        assert setting.reflector.events["UNREADABLE"] == 0


async def test_an_object_without_the_shape_of_its_kind_is_left_out_and_named(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.ERROR)
    bad = pod("bad", "4") | {"spec": {"priority": "high"}}
    script = [
        REFUSED,
        listed("10", pod("a", "1"), pod("b", "2"), pod("bad", "3") | {"spec": []}, pod("c", "5")),
        stream(
            event("MODIFIED", bad | {"metadata": pod("a", "11")["metadata"]}),
            event("DELETED", bad | {"metadata": pod("b", "12")["metadata"]}),
            event("ADDED", pod("d", "13")),
            then="silence",
        ),
    ]
    async with follow(*script) as setting:
        await eventually(lambda: "default/d" in setting.store.items)
        assert setting.store.identities() == {"a/uid-a", "c/uid-c", "d/uid-d"}
        assert setting.reflector.events["UNREADABLE"] == 2
        left_out = [record.__dict__["object"] for record in caplog.records]
        assert left_out == ["default/bad", "default/a", "default/b"]
        assert "spec.priority" in caplog.records[1].__dict__["problem"]


async def test_an_event_told_twice_or_from_the_past_changes_nothing() -> None:
    told = [event("ADDED", pod("a", "11")), event("DELETED", pod("a", "12"))]
    script = [REFUSED, listed("10"), stream(*told, *told, told[1], bookmark("9"), bookmark("13"), then="silence")]
    async with follow(*script) as setting:
        await eventually(lambda: setting.reflector.resource_version == "13")
        assert setting.store.changes == ["ADDED a/uid-a", "DELETED a/uid-a"]
        assert setting.reflector.events["STALE"] == 2


async def test_objects_stay_while_they_are_listed_again() -> None:
    half_way = stream(event("ADDED", pod("b", "9")), then="silence")
    first = stream(event("ADDED", pod("a", "1")), bookmark("5", ends_list=True), error(410, "Expired", "too old"))
    async with follow(first, half_way) as setting:
        await eventually(lambda: "default/b" in setting.store.items)
        assert set(setting.store.items) == {"default/a", "default/b"}
        assert setting.reflector.synced


async def test_requests_are_served_while_a_long_list_comes_in() -> None:
    turns = 0
    turns_at: list[int] = []

    async def serve() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    async with follow(REFUSED, listed("10", *(pod(f"p{i}", str(i)) for i in range(1000))), OPEN) as setting:
        upsert = setting.store.upsert
        setting.store.upsert = lambda item: (turns_at.append(turns), upsert(item))[1]  # type: ignore[method-assign]
        other = asyncio.create_task(serve())
        await eventually(lambda: setting.reflector.synced)
        other.cancel()
        assert len(turns_at) == 1000
        assert len(set(turns_at)) == 5


async def test_cancelling_closes_the_stream() -> None:
    async with ScriptedServer(stream(bookmark("1", ends_list=True), then="silence")) as server:
        client = Client(from_url(server.url))
        reflector = Reflector(PODS, client, RecordingStore())
        async with running(reflector):
            await eventually(lambda: reflector.synced)
            assert not server.hung_up.is_set()
        await asyncio.wait_for(server.hung_up.wait(), 10)
        await client.close()
