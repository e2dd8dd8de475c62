"""Lists of the embedded API server: selectors, pages and versions."""

import aiohttp
import pytest

from extender.cluster.apiserver import ApiServer, ServerOptions

POD_FACTS = {
    "a/one": ("n-1", "Running", {"app": "web", "tier": "1"}),
    "a/two": ("", "Pending", {"app": "db"}),
    "b/one": ("n-2", "Running", {"app": "web"}),
    "b/three": ("n-1", "Succeeded", {"tier": "3"}),
}


def make_pod(key):
    namespace, name = key.split("/")
    node, phase, labels = POD_FACTS.get(key, ("", "Pending", {}))
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"namespace": namespace, "name": name, "labels": labels},
        "spec": {"containers": [{"name": "c"}], "nodeName": node},
        "status": {"phase": phase},
    }


@pytest.fixture
async def server():
    async with ApiServer(map(make_pod, POD_FACTS)) as server:
        yield server


@pytest.fixture
async def get(server):
    async with aiohttp.ClientSession(server.url) as client:

        async def get(path, **query):
            async with client.get(path, params=query) as response:
                return response.status, await response.json()

        yield get


def keys_of(answer):
    status, body = answer
    assert (status, body["kind"]) == (200, "PodList")
    return [f"{item['metadata']['namespace']}/{item['metadata']['name']}" for item in body["items"]]


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ({}, ["a/one", "a/two", "b/one", "b/three"]),
        ({"fieldSelector": "metadata.name=one"}, ["a/one", "b/one"]),
        ({"fieldSelector": "metadata.namespace==b"}, ["b/one", "b/three"]),
        ({"fieldSelector": "spec.nodeName="}, ["a/two"]),
        ({"fieldSelector": "spec.nodeName!="}, ["a/one", "b/one", "b/three"]),
        ({"fieldSelector": "status.phase!=Succeeded,status.phase!=Failed,spec.nodeName=n-1"}, ["a/one"]),
        ({"fieldSelector": "spec.schedulerName=default-scheduler,metadata.name=two"}, ["a/two"]),
        ({"labelSelector": "app=web"}, ["a/one", "b/one"]),
        ({"labelSelector": "app==web,tier"}, ["a/one"]),
        ({"labelSelector": "app!=web"}, ["a/two", "b/three"]),
        ({"labelSelector": "app in (db, x),app notin (y)"}, ["a/two"]),
        ({"labelSelector": "app notin (web,db)"}, ["b/three"]),
        ({"labelSelector": "!app"}, ["b/three"]),
        ({"labelSelector": "tier>1"}, ["b/three"]),
        ({"labelSelector": "tier<2"}, ["a/one"]),
    ],
    ids=str,
)
async def test_selectors(get, query, expected):
    assert keys_of(await get("/api/v1/pods", **query)) == expected


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ({"fieldSelector": "spec.foo=x"}, "field label not supported: spec.foo"),
        ({"fieldSelector": "spec.nodeName"}, "invalid selector: 'spec.nodeName'; can't understand 'spec.nodeName'"),
        ({"labelSelector": "a in b"}, "unable to parse requirement: 'a in b'"),
        ({"limit": "many"}, 'limit: Invalid value: "many": strconv.ParseUint: parsing "many": invalid syntax'),
    ],
    ids=str,
)
async def test_queries_that_cannot_be_understood(get, query, message):
    status, body = await get("/api/v1/pods", **query)
    assert (status, body["reason"], body["message"]) == (400, "BadRequest", message)


async def test_list_of_one_namespace(get):
    answer = await get("/api/v1/namespaces/a/pods")
    assert keys_of(answer) == ["a/one", "a/two"]
    assert all("kind" not in item and "apiVersion" not in item for item in answer[1]["items"])


async def test_pages_show_one_state_whatever_happens_meanwhile(server, get):
    first = await get("/api/v1/pods", limit="2")
    assert keys_of(first) == ["a/one", "a/two"]
    assert first[1]["metadata"]["remainingItemCount"] == 2
    server.storage.delete("pods", "three", "b")
    server.storage.create("pods", make_pod("b/two"))
    second = await get("/api/v1/pods", limit="2", **{"continue": first[1]["metadata"]["continue"]})
    assert keys_of(second) == ["b/one", "b/three"]
    assert second[1]["metadata"] == {"resourceVersion": first[1]["metadata"]["resourceVersion"]}


async def test_pages_of_a_namespace_and_a_selection(get):
    query = {"limit": "1", "labelSelector": "app"}
    first = await get("/api/v1/namespaces/a/pods", **query)
    assert "remainingItemCount" not in first[1]["metadata"]
    second = await get("/api/v1/namespaces/a/pods", **query, **{"continue": first[1]["metadata"]["continue"]})
    assert keys_of(first) + keys_of(second) == ["a/one", "a/two"]
    assert "continue" not in second[1]["metadata"]


async def test_page_of_a_forgotten_state_offers_to_go_on_without_it(server, get):
    _, first = await get("/api/v1/pods", limit="3")
    server.storage.create("pods", make_pod("c/four"))
    server.storage.compact()
    status, body = await get("/api/v1/pods", limit="3", **{"continue": first["metadata"]["continue"]})
    assert (status, body["reason"]) == (410, "Expired")
    rest = await get("/api/v1/pods", **{"continue": body["metadata"]["continue"]})
    assert keys_of(rest) == ["b/three", "c/four"]
    assert rest[1]["metadata"]["resourceVersion"] == str(server.storage.resource_version)


async def test_versions_of_lists(server, get):
    before = str(server.storage.resource_version)
    server.storage.create("pods", make_pod("c/four"))
    now = str(server.storage.resource_version)
    old, new = sorted(POD_FACTS), [*sorted(POD_FACTS), "c/four"]
    for query, version, expected in (
        ({}, now, new),
        ({"resourceVersion": "0"}, now, new),
        ({"resourceVersion": before}, now, new),
        ({"resourceVersion": before, "resourceVersionMatch": "NotOlderThan"}, now, new),
        ({"resourceVersion": before, "resourceVersionMatch": "Exact"}, before, old),
        ({"resourceVersion": before, "limit": "9"}, before, old),
        ({"resourceVersion": "0", "limit": "9"}, now, new),
    ):
        answer = await get("/api/v1/pods", **query)
        assert (answer[1]["metadata"]["resourceVersion"], keys_of(answer)) == (version, expected), query


async def test_version_of_the_future(server, get):
    status, body = await get("/api/v1/pods", resourceVersion="900")
    assert (status, body["reason"]) == (504, "Timeout")
    assert body["message"] == f"Timeout: Too large resource version: 900, current: {server.storage.resource_version}"
    assert body["details"]["causes"][0]["reason"] == "ResourceVersionTooLarge"


async def test_match_without_a_version_is_invalid(get):
    status, body = await get("/api/v1/pods", resourceVersionMatch="Exact")
    assert (status, body["reason"], body["details"]["kind"]) == (422, "Invalid", "ListOptions")
    assert body["details"]["causes"][0]["field"] == "resourceVersionMatch"


async def test_long_list_arrives_whole():
    nodes = ({"apiVersion": "v1", "kind": "Node", "metadata": {"name": f"n-{number:04}"}} for number in range(2400))
    async with (
        ApiServer(nodes) as server,
        aiohttp.ClientSession(server.url) as client,
        client.get("/api/v1/nodes") as response,
    ):
        body = await response.json()
        assert response.content_length is not None
    assert [item["metadata"]["name"] for item in body["items"]] == [f"n-{number:04}" for number in range(2400)]


async def test_history_is_bounded():
    server = ApiServer(map(make_pod, POD_FACTS), ServerOptions(history_events=3))
    table = server.storage.table(server.storage.catalogue.named("pods"))
    before = server.storage.resource_version
    for number in range(4):
        server.storage.create("pods", make_pod(f"c/{number}"))
    assert table.compacted == before + 1
    assert len(table.at(before + 1)) == len(POD_FACTS) + 1
