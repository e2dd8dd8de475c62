"""Requests recorded from a real kube-scheduler, sent again over HTTP as they were, and answers judged as it does."""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import msgspec
import pytest

from extender.testing import make_pod
from extender.testing.cluster import RunningService, running_service
from extender.testing.reply import read_bind, read_filter, read_preempt, read_prioritize

WIRE = Path(__file__).parents[1] / "data" / "wire"
MODES = ("names-mode", "nodes-mode")
OLD_KEYS = frozenset(
    (
        *("Pod", "Nodes", "NodeNames", "NodeNameToVictims", "NodeNameToMetaVictims", "Pods", "UID"),
        *("NumPDBViolations", "PodName", "PodNamespace", "PodUID", "Node"),
    )
)

in_both_modes = pytest.mark.parametrize("mode", MODES)
in_both_casings = pytest.mark.parametrize("lower", [False, True], ids=["keys as recorded", "keys in lower case"])


def recorded(mode: str, name: str) -> Any:
    return json.loads((WIRE / mode / f"{name}.json").read_bytes())


def passed_through(mode: str, name: str) -> Any:
    """What an extender that refuses nothing replied; kube-scheduler accepted it."""
    return json.loads((WIRE / mode / f"{name}.passthrough-reply.json").read_bytes())


NODES = recorded("nodes-mode", "filter-db-1")["Nodes"]["items"]


def lowered(value: Any) -> Any:
    """The keys that older releases sent in lower case, in lower case, wherever they stand."""
    if isinstance(value, dict):
        return {key.lower() if key in OLD_KEYS else key: lowered(item) for key, item in value.items()}
    return [lowered(item) for item in value] if isinstance(value, list) else value


def send(service: RunningService, mode: str, name: str, *, lower: bool = False, body: bytes | None = None) -> bytes:
    """Send a recorded request, headers, path and all, and return the body of the reply, which has status 200."""
    line, *headers = (WIRE / mode / f"{name}.headers").read_text().strip().splitlines()
    method, path, _ = line.split(" ")
    content = body or (WIRE / mode / f"{name}.json").read_bytes()
    if lower:
        content = json.dumps(lowered(json.loads(content)), ensure_ascii=False).encode()
    target = urlsplit(service.url)
    connection = http.client.HTTPConnection(str(target.hostname), target.port, timeout=10)
    connection.putrequest(method, path, skip_host=True, skip_accept_encoding=True)
    for header in headers:
        key, value = header.split(": ")
        connection.putheader(key, {"Host": target.netloc, "Content-Length": str(len(content))}.get(key, value))
    connection.endheaders(content)
    response = connection.getresponse()
    reply = response.read()
    connection.close()
    assert response.status == 200, reply
    assert response.headers["Content-Length"] == str(len(reply))
    return reply


def victims_of(mode: str) -> dict[str, list[dict[str, Any]]]:
    """The pods that kube-scheduler would evict, by node, as they ran."""
    asked = recorded(mode, "preempt-urgent")
    if mode == "nodes-mode":
        return {node: found["Pods"] for node, found in asked["NodeNameToVictims"].items()}
    return {
        node: [
            make_pod(f"fill-{pod['UID'][:8]}", uid=pod["UID"], node=node, requests={"cpu": "1600m"})
            for pod in found["Pods"]
        ]
        for node, found in asked["NodeNameToMetaVictims"].items()
    }


@pytest.fixture(scope="module", params=MODES)
def idle(request: pytest.FixtureRequest) -> Iterator[tuple[str, RunningService]]:
    """The cluster as it was when web-1 and db-1 were to be placed."""
    pods = [recorded(request.param, f"filter-{name}")["Pod"] for name in ("web-1", "db-1")]
    with running_service(nodes=NODES, pods=pods) as service:
        yield request.param, service


@pytest.fixture(scope="module", params=MODES)
def full(request: pytest.FixtureRequest) -> Iterator[tuple[str, RunningService]]:
    """The cluster as it was when there was no room for urgent."""
    running = [pod for pods in victims_of(request.param).values() for pod in pods]
    with running_service(nodes=NODES, pods=running) as service:
        yield request.param, service


@in_both_casings
@pytest.mark.parametrize("pod", ["web-1", "db-1"])
def test_filter_keeps_the_nodes_that_fit_in_the_order_asked(
    idle: tuple[str, RunningService], pod: str, lower: bool
) -> None:
    mode, service = idle
    name = f"filter-{pod}"
    reply = send(service, mode, name, lower=lower)
    by_name = mode == "names-mode"
    outcome = read_filter(reply, NODES, by_name=by_name, url_prefix=service.url)
    assert (outcome.failed, outcome.unresolvable) == ({}, {})
    expected = passed_through(mode, name)
    assert outcome.names == (
        expected["NodeNames"] if by_name else [node["metadata"]["name"] for node in expected["Nodes"]["items"]]
    )


@pytest.mark.parametrize("idle", ["nodes-mode"], indirect=True)
def test_filter_echoes_whole_nodes_byte_for_byte(idle: tuple[str, RunningService]) -> None:
    mode, service = idle
    sent = (WIRE / mode / "filter-web-1.json").read_bytes()
    items = sent[sent.index(b'"items":') : sent.rindex(b"},")]
    assert items in send(service, mode, "filter-web-1")


@in_both_casings
@pytest.mark.parametrize("pod", ["web-1", "db-1"])
def test_prioritize_scores_every_node_once(idle: tuple[str, RunningService], pod: str, lower: bool) -> None:
    mode, service = idle
    name = f"prioritize-{pod}"
    outcome = read_prioritize(send(service, mode, name, lower=lower), NODES, weight=1)
    assert [score.host for score in outcome.scores] == [entry["Host"] for entry in passed_through(mode, name)]
    # Six nodes alike but for their zones are as good as each other; with room left, and not as good as could be.
    assert len(set(outcome.points.values())) == 1
    assert 0 < next(iter(outcome.points.values())) < 100


@in_both_casings
def test_preempt_keeps_every_node_where_the_victims_make_room(full: tuple[str, RunningService], lower: bool) -> None:
    mode, service = full
    reply = send(service, mode, "preempt-urgent", lower=lower)
    allowed = read_preempt(reply, victims_of(mode), url_prefix=service.url)
    assert {node: (found.pods, found.num_pdb_violations) for node, found in allowed.items()} == {
        node: (pods, 0) for node, pods in victims_of(mode).items()
    }
    assert json.loads(reply) == passed_through(mode, "preempt-urgent")


@in_both_casings
def test_filter_refuses_every_node_while_the_victims_run(full: tuple[str, RunningService], lower: bool) -> None:
    mode, service = full
    urgent = recorded(mode, "preempt-urgent")["Pod"]
    body = json.dumps({"Pod": urgent, "Nodes": None, "NodeNames": [node["metadata"]["name"] for node in NODES]})
    reply = send(service, mode, "filter-web-1", lower=lower, body=body.encode())
    outcome = read_filter(reply, NODES, by_name=True, url_prefix=service.url)
    assert outcome.names == []
    assert outcome.failed == {node["metadata"]["name"]: "Insufficient cpu" for node in NODES}


@in_both_casings
@in_both_modes
def test_bind_is_carried_out_and_counts_in_the_next_filter(mode: str, lower: bool) -> None:
    asked = recorded(mode, "filter-db-1")
    target = recorded(mode, "bind-db-1")["Node"]
    twin = {**asked, "Pod": {**asked["Pod"], "metadata": {"name": "db-2", "namespace": "team-a", "uid": "u-db-2"}}}
    with running_service(nodes=NODES, pods=[asked["Pod"]]) as service:
        read_bind(send(service, mode, "bind-db-1", lower=lower))
        bound = service.call(service.api.storage.get, "pods", "db-1", "team-a")
        assert bound["spec"]["nodeName"] == target
        reply = send(service, mode, "filter-db-1", body=msgspec.json.encode(twin))
        outcome = read_filter(reply, NODES, by_name=mode == "names-mode", url_prefix=service.url)
        assert outcome.failed == {target: "node(s) didn't have free ports for the requested pod ports"}
        assert target not in outcome.names
        assert len(outcome.names) == len(NODES) - 1
