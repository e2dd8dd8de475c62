"""Watches of the embedded API server."""

import asyncio
import json

import aiohttp
import pytest

from extender.cluster.apiserver import ApiServer, ServerOptions

PODS = "/api/v1/pods"


def make_pod(name, *, phase="Pending", labels=None, **metadata):
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": labels or {}, **metadata},
        "spec": {"containers": [{"name": "c"}]},
        "status": {"phase": phase},
    }


@pytest.fixture
async def server():
    async with ApiServer([make_pod("old")]) as server:
        yield server


@pytest.fixture
async def watch(server):
    async with aiohttp.ClientSession(server.url) as client:

        async def watch(path=PODS, **query):
            response = await client.get(path, params={"watch": "true", **query})
            assert response.status == 200
            return response

        yield watch


@pytest.fixture
async def refused(server):
    async with aiohttp.ClientSession(server.url) as client:

        async def refused(**query):
            async with client.get(PODS, params={"watch": "true", **query}) as response:
                return response.status, await response.json()

        yield refused


async def next_event(response):
    async with asyncio.timeout(5):
        line = await response.content.readline()
    return json.loads(line) if line else None


async def next_change(response):
    event = await next_event(response)
    return event["type"], event["object"]["metadata"]["name"], event["object"]["status"]["phase"]


async def test_changes_arrive_in_order_from_a_version_on(server, watch):
    stream = await watch(resourceVersion=str(server.storage.resource_version))
    server.storage.create("pods", make_pod("new"))
    server.storage.update("pods", make_pod("new", phase="Running"))
    server.storage.delete("pods", "new")
    assert [await next_change(stream) for _ in range(3)] == [
        ("ADDED", "new", "Pending"),
        ("MODIFIED", "new", "Running"),
        ("DELETED", "new", "Running"),
    ]


async def test_missed_changes_are_replayed(server, watch):
    version = server.storage.resource_version
    server.storage.update("pods", make_pod("old", phase="Running"))
    server.storage.delete("pods", "old")
    stream = await watch(resourceVersion=str(version))
    events = [await next_event(stream) for _ in range(2)]
    assert [event["type"] for event in events] == ["MODIFIED", "DELETED"]
    assert [int(event["object"]["metadata"]["resourceVersion"]) for event in events] == [version + 1, version + 2]
    # The deletion has a version of its own, so that a client can go on after it.
    assert events[1]["object"]["kind"] == "Pod"


async def test_only_the_namespace_asked_for_is_watched(server, watch):
    stream = await watch("/api/v1/namespaces/a/pods", resourceVersion=str(server.storage.resource_version))
    server.storage.create("pods", make_pod("elsewhere", namespace="b"))
    server.storage.create("pods", make_pod("here", namespace="a"))
    assert await next_change(stream) == ("ADDED", "here", "Pending")


async def test_leaving_a_selection_looks_like_deletion_and_entering_like_creation(server, watch):
    stream = await watch(fieldSelector="status.phase!=Succeeded", resourceVersion=str(server.storage.resource_version))
    server.storage.update("pods", make_pod("old", phase="Running"))
    left = server.storage.update("pods", make_pod("old", phase="Succeeded"))
    server.storage.update("pods", make_pod("old", phase="Succeeded", labels={"still": "out"}))
    server.storage.update("pods", make_pod("old", phase="Pending"))
    assert await next_change(stream) == ("MODIFIED", "old", "Running")
    event = await next_event(stream)
    assert (event["type"], event["object"]["status"]["phase"]) == ("DELETED", "Running")
    assert event["object"]["metadata"]["resourceVersion"] == left["metadata"]["resourceVersion"]
    assert await next_change(stream) == ("ADDED", "old", "Pending")


async def test_label_selection(server, watch):
    stream = await watch(labelSelector="app=web", resourceVersion=str(server.storage.resource_version))
    server.storage.create("pods", make_pod("db", labels={"app": "db"}))
    server.storage.create("pods", make_pod("web", labels={"app": "web"}))
    server.storage.delete("pods", "db")
    server.storage.delete("pods", "web")
    assert [await next_change(stream) for _ in range(2)] == [("ADDED", "web", "Pending"), ("DELETED", "web", "Pending")]


async def test_watch_from_nowhere_starts_with_what_is_there(server, watch):
    stream = await watch()
    assert await next_change(stream) == ("ADDED", "old", "Pending")
    server.storage.create("pods", make_pod("new"))
    assert await next_change(stream) == ("ADDED", "new", "Pending")


async def test_watch_ends_in_time_with_a_bookmark(server, watch):
    version = str(server.storage.resource_version)
    stream = await watch(resourceVersion=version, allowWatchBookmarks="true", timeoutSeconds="1")
    event = await next_event(stream)
    assert event == {
        "type": "BOOKMARK",
        "object": {
            "kind": "Pod",
            "apiVersion": "v1",
            "metadata": {"resourceVersion": version},
            "spec": {"containers": None},
            "status": {},
        },
    }
    assert await next_event(stream) is None


async def test_bookmarks_come_while_other_resources_change(server, watch):
    server.options.bookmark_interval_seconds = 0.01
    stream = await watch(resourceVersion=str(server.storage.resource_version), allowWatchBookmarks="true")
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}}
    wanted = server.storage.create("nodes", node)["metadata"]["resourceVersion"]
    while (event := await next_event(stream))["object"]["metadata"]["resourceVersion"] != wanted:
        assert event["type"] == "BOOKMARK"
    assert event["type"] == "BOOKMARK"


async def test_a_server_without_progress_marks_nothing_but_what_has_changed_since_the_watch_began(server, watch):
    server.options.progress = False
    version = server.storage.resource_version
    quiet = {"allowWatchBookmarks": "true", "timeoutSeconds": "1"}
    server.storage.create("nodes", {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}})
    assert await next_event(await watch(resourceVersion=str(version), **quiet)) is None
    changed = await watch(resourceVersion=str(version), **quiet)
    created = server.storage.create("pods", make_pod("new"))["metadata"]["resourceVersion"]
    events = [await next_event(changed) for _ in range(3)]
    assert [event and event["type"] for event in events] == ["ADDED", "BOOKMARK", None]
    assert events[1]["object"]["metadata"]["resourceVersion"] == created


async def test_forgotten_version_expires_in_the_stream(server, watch):
    version = server.storage.resource_version
    server.storage.create("pods", make_pod("new"))
    server.storage.compact()
    stream = await watch(resourceVersion=str(version))
    event = await next_event(stream)
    assert (event["type"], event["object"]["code"], event["object"]["reason"]) == ("ERROR", 410, "Expired")
    assert event["object"]["message"] == f"too old resource version: {version} ({version + 1})"
    assert await next_event(stream) is None


async def test_watcher_slower_than_the_history_is_cut_off(watch, server):
    small = ApiServer(options=ServerOptions(history_events=10))
    async with small, aiohttp.ClientSession(small.url) as client:
        version = str(small.storage.resource_version)
        stream = await client.get(PODS, params={"watch": "true", "resourceVersion": version})
        for number in range(11):
            small.storage.create("pods", make_pod(f"p-{number}"))
        assert await next_event(stream) is None


async def test_version_of_the_future_is_refused(server, refused):
    status, body = await refused(resourceVersion="900")
    assert (status, body["reason"], body["details"]["causes"][0]["reason"]) == (
        504,
        "Timeout",
        "ResourceVersionTooLarge",
    )


async def test_server_without_streaming_lists_refuses_them(server, refused, watch):
    server.options.streaming_lists = False
    status, body = await refused(sendInitialEvents="true", resourceVersionMatch="NotOlderThan")
    assert (status, body["reason"]) == (422, "Invalid")
    assert body["message"] == (
        'ListOptions.meta.k8s.io "" is invalid: sendInitialEvents: Forbidden: sendInitialEvents is forbidden for watch '
        "unless the WatchList feature gate is enabled"
    )
    stream = await watch(allowWatchBookmarks="true")
    assert await next_change(stream) == ("ADDED", "old", "Pending")
    server.storage.delete("pods", "old")
    assert await next_change(stream) == ("DELETED", "old", "Pending")


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ({"sendInitialEvents": "true"}, "resourceVersionMatch"),
        ({"resourceVersionMatch": "NotOlderThan"}, "resourceVersionMatch"),
        ({"sendInitialEvents": "true", "resourceVersionMatch": "Exact"}, "resourceVersionMatch"),
    ],
    ids=str,
)
async def test_options_that_do_not_go_together(refused, query, field):
    status, body = await refused(**query)
    assert (status, body["details"]["causes"][0]["field"]) == (422, field)


async def test_streaming_list_without_initial_events_starts_now(server, watch):
    stream = await watch(sendInitialEvents="false", resourceVersionMatch="NotOlderThan")
    server.storage.create("pods", make_pod("new"))
    assert await next_change(stream) == ("ADDED", "new", "Pending")


async def test_watch_is_forgotten_when_its_client_leaves(server, watch):
    stream = await watch()
    assert server.open_watches == 1
    stream.close()
    async with asyncio.timeout(5):
        while server.open_watches:  # noqa: ASYNC110  # there is no event for it
            await asyncio.sleep(0.01)


async def test_busy_watchers_all_see_everything(server, watch):
    version = str(server.storage.resource_version)
    streams = [await watch(resourceVersion=version) for _ in range(3)]
    for number in range(1000):
        server.storage.update("pods", make_pod("old", labels={"n": str(number)}))
    for stream in streams:
        seen = [(await next_event(stream))["object"]["metadata"]["labels"]["n"] for _ in range(1000)]
        assert seen == [str(number) for number in range(1000)]
