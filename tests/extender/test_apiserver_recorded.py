"""The embedded API server answers as a real one was recorded to."""

import json
from pathlib import Path

import aiohttp
import pytest

from extender.cluster.apiserver import ApiServer, ServerOptions

DATA = Path(__file__).parent.parent / "data" / "apiserver"


def recorded(name):
    return json.loads((DATA / name).read_text())


def recorded_lines(name):
    return [json.loads(line) for line in (DATA / name).read_text().splitlines() if line]


def make_pod(name, **fields):
    metadata = {"name": name, "namespace": "default", **fields.pop("metadata", {})}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"containers": [{"name": "c"}]}, **fields}


async def ask(server, method, path, **arguments):
    async with (
        aiohttp.ClientSession(server.url) as client,
        client.request(method, path, **arguments) as response,
    ):
        return response.status, response.headers, await response.text()


async def answer_to(server, method, path, **arguments):
    status, _, text = await ask(server, method, path, **arguments)
    return status, json.loads(text)


async def lines_of(server, path):
    status, headers, text = await ask(server, "GET", path)
    assert status == 200
    return headers, [json.loads(line) for line in text.splitlines()]


def binding(name, uid=None, node="node-2"):
    metadata = {"name": name} | ({"uid": uid} if uid else {})
    return {"metadata": metadata, "target": {"kind": "Node", "name": node}}


@pytest.mark.parametrize(
    ("recording", "name", "uid"),
    [
        pytest.param("bind-already-assigned.json", "web-1", None, id="the pod has a node already"),
        pytest.param("bind-pod-not-found.json", "nope", None, id="there is no such pod"),
        pytest.param("bind-uid-mismatch.json", "fill-11", "wrong-uid", id="the pod was replaced by another"),
    ],
)
async def test_refused_bindings(recording, name, uid):
    bound = make_pod("web-1")
    bound["spec"]["nodeName"] = "node-1"
    free = make_pod("fill-11", metadata={"uid": "f97d012c-74e0-4f32-a7d2-56fa7d9610ff"})
    async with ApiServer([bound, free]) as server:
        path = f"/api/v1/namespaces/default/pods/{name}/binding"
        status, answer = await answer_to(server, "POST", path, json=binding(name, uid))
    expected = recorded(recording)
    assert (status, answer) == (expected["code"], expected)


@pytest.mark.parametrize(
    ("recording", "query"),
    [
        pytest.param("continue-invalid.json", "?continue=bogus", id="a continue token of nobody"),
        pytest.param(
            "list-exact-expired.json", "?resourceVersion=1&resourceVersionMatch=Exact", id="a version that is forgotten"
        ),
    ],
)
async def test_refused_lists(recording, query):
    async with ApiServer([make_pod("p")]) as server:
        status, answer = await answer_to(server, "GET", f"/api/v1/pods{query}")
    expected = recorded(recording)
    assert (status, answer) == (expected["code"], expected)


async def test_forbidden_list():
    async with ApiServer(options=ServerOptions(forbidden={("list", "pods")})) as server:
        status, answer = await answer_to(server, "GET", "/api/v1/pods")
    assert (status, answer) == (403, recorded("list-forbidden.json"))


@pytest.mark.parametrize("headers", [{}, {"Authorization": "Bearer old"}], ids=["no token", "a wrong token"])
async def test_unauthorized_list(headers):
    async with ApiServer(options=ServerOptions(token="new")) as server:
        status, answer = await answer_to(server, "GET", "/api/v1/pods", headers=headers)
    assert (status, answer) == (401, recorded("unauthorized.json"))


async def test_first_page_of_a_list():
    expected = recorded("list-page1.json")
    pods = [{"apiVersion": "v1", "kind": "Pod", **item} for item in expected["items"]]
    others = [make_pod(f"fill-{n}", metadata={"resourceVersion": str(371 + n)}) for n in range(2, 14)]
    others.append(make_pod("web-1", metadata={"resourceVersion": "384"}))
    async with ApiServer(pods + others) as server:
        status, answer = await answer_to(server, "GET", "/api/v1/pods?limit=2")
    for item in answer["items"]:
        # Filled in here by what the recorded server had switched off, the Priority admission plug-in.
        assert item["spec"].pop("priority") == 0
        assert item["spec"].pop("preemptionPolicy") == "PreemptLowerPriority"
    assert (status, answer) == (200, expected)


async def test_watch_from_a_version_that_is_forgotten():
    async with ApiServer([make_pod("p", metadata={"resourceVersion": "231"})]) as server:
        headers, lines = await lines_of(server, "/api/v1/pods?watch=1&resourceVersion=1")
    assert lines == recorded_lines("watch-expired.jsonl")
    expected = dict(
        line.split(": ", 1) for line in (DATA / "watch-expired.headers").read_text().splitlines()[1:] if line
    )
    assert headers["Content-Type"] == expected["content-type"]
    assert headers["Cache-Control"] == expected["cache-control"]


@pytest.mark.parametrize(
    ("recording", "query"),
    [
        pytest.param("watch-synthetic-added.jsonl", "", id="a watch from nowhere"),
        pytest.param(
            "watch-initial-events.jsonl",
            "&sendInitialEvents=true&resourceVersionMatch=NotOlderThan",
            id="a streaming list",
        ),
    ],
)
async def test_initial_events_and_the_bookmark_that_ends_them(recording, query):
    expected = recorded_lines(recording)
    nodes = [line["object"] for line in expected if line["type"] == "ADDED"]
    version = expected[-1]["object"]["metadata"]["resourceVersion"]
    later = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "later", "resourceVersion": version}}
    path = f"/api/v1/nodes?watch=1&allowWatchBookmarks=true&timeoutSeconds=1{query}"
    async with ApiServer([*nodes, later]) as server:
        _, lines = await lines_of(server, path)
    assert lines[: len(expected)] == expected


async def test_watch_from_an_earlier_version():
    expected = recorded_lines("watch-old-rv.jsonl")
    before = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "n", "resourceVersion": "223"}}
    async with ApiServer([before]) as server:
        for line in expected:
            server.storage.create("nodes", line["object"])
        _, lines = await lines_of(server, "/api/v1/nodes?watch=1&resourceVersion=223&timeoutSeconds=1")
    assert lines == expected
