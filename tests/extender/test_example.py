"""The examples hold: the cluster could exist, the requests match it, and the replies are those of the README."""

from __future__ import annotations

import asyncio
import json
import re
import shlex
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import httpx
import pytest
import typer
import yaml

from extender import wire
from extender.__main__ import app
from extender.app import VERBS
from extender.cluster.apiserver import ApiServer, Catalogue, Fault, LoggedRequest, ServerOptions, load_objects
from extender.cluster.apiserver.call import Call, parse_target
from extender.cluster.connection import from_url
from extender.config import ExtenderConfiguration, load_configuration
from extender.framework.loader import default_set
from extender.framework.mirror import Mirror
from extender.framework.profile import ProfileBinder
from extender.framework.registry import Registry
from extender.framework.resource import RequestedResources
from extender.runtime import Runtime
from extender.section import PriorityEntry
from extender.server import Serving, serving
from extender.testing.lab import Lab

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"
OBJECTS = load_objects(EXAMPLES / "cluster.yaml")
NODES = {item["metadata"]["name"]: item for item in OBJECTS if item["kind"] == "Node"}
PODS = {item["metadata"]["uid"]: item for item in OBJECTS if item["kind"] == "Pod"}
PENDING = {item["metadata"]["name"]: item for item in PODS.values() if "nodeName" not in item["spec"]}


def content(name: str) -> bytes:
    return (EXAMPLES / "requests" / f"{name}.json").read_bytes()


def bare(item: dict[str, Any]) -> dict[str, Any]:
    """Return an object as it stands inside a request or a list."""
    return {key: value for key, value in item.items() if key not in ("apiVersion", "kind")}


# --- the cluster and the requests ------------------------------------------------------------------------------------


def test_the_cluster_has_twelve_nodes_in_three_zones_and_two_pending_pods() -> None:
    zones = [node["metadata"]["labels"]["topology.kubernetes.io/zone"] for node in NODES.values()]
    assert list(NODES) == [f"node-{i}" for i in range(12)]
    assert {zone: zones.count(zone) for zone in zones} == {"zone-a": 4, "zone-b": 4, "zone-c": 4}
    assert all(node["metadata"]["labels"]["kubernetes.io/hostname"] == name for name, node in NODES.items())
    assert list(PENDING) == ["web-1", "urgent"]


def test_the_cluster_could_exist() -> None:
    placed = [pod for pod in PODS.values() if "nodeName" in pod["spec"]]
    assert {pod["spec"]["nodeName"] for pod in placed} <= set(NODES)
    resources = Lab(OBJECTS).mirror.cache(RequestedResources)
    assert (resources.requested <= resources.allocatable).all()
    assert (resources.pods <= resources.allowed_pods).all()
    assert resources.pods.sum() == len(placed)


def test_the_uid_of_a_running_pod_tells_its_node() -> None:
    for uid, pod in PODS.items():
        if "nodeName" in pod["spec"]:
            assert f"node-{int(uid[-12:]) // 100}" == pod["spec"]["nodeName"]


@pytest.mark.parametrize("name", ["filter", "prioritize"])
def test_requests_in_names_mode_name_nodes_and_bring_the_pending_pod(name: str) -> None:
    request = wire.decode_filter(content(name))
    assert request.names is not None
    assert set(wire.decode_names(request.names)) <= set(NODES)
    assert json.loads(bytes(request.pod)) == bare(PENDING["web-1"])


def test_the_request_in_nodes_mode_brings_the_nodes_of_the_cluster() -> None:
    request = wire.decode_filter(content("filter-nodes"))
    assert request.nodes
    for raw in request.nodes:
        node = json.loads(bytes(raw))
        assert node == bare(NODES[node["metadata"]["name"]])
    assert json.loads(bytes(request.pod)) == bare(PENDING["web-1"])


def test_the_bind_request_is_for_the_pending_pod() -> None:
    request = wire.decode_bind(content("bind"))
    assert PODS[request.uid] is PENDING["web-1"]
    assert (request.namespace, request.name) == ("default", "web-1")
    assert request.node in NODES


def test_the_preempt_request_proposes_less_important_pods_of_each_node() -> None:
    request = wire.decode_preempt(content("preempt"))
    assert json.loads(bytes(request.pod)) == bare(PENDING["urgent"])
    assert all(victims.uids for victims in request.victims.values())
    for node, victims in request.victims.items():
        for uid in victims.uids:
            assert PODS[uid]["spec"]["nodeName"] == node
            assert PODS[uid]["spec"].get("priority", 0) < PENDING["urgent"]["spec"]["priority"]


# --- the service on the cluster --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Setting:
    """The service on an embedded cluster of the example's objects."""

    server: ApiServer
    ports: Serving
    client: httpx.AsyncClient

    async def post(self, path: str, body: bytes) -> bytes:
        answer = await self.client.post(f"{self.ports.url}{path}", content=body)
        assert answer.status_code == 200, answer.text
        return answer.content


@asynccontextmanager
async def example_served(options: ServerOptions | None = None, *settings: str) -> AsyncIterator[Setting]:
    loopback = ("server.host=127.0.0.1", "server.port=0", "management.host=127.0.0.1", "management.port=0")
    configuration = load_configuration(environment={}, settings=(*loopback, *settings))
    server = ApiServer(OBJECTS, options)
    await server.start()
    try:
        runtime = Runtime(configuration, from_url(server.url))
        async with serving(runtime) as ports, httpx.AsyncClient() as client:
            async with asyncio.timeout(10):
                while runtime.missing():  # noqa: ASYNC110 - the informers tell nobody
                    await asyncio.sleep(0.005)
            yield Setting(server, ports, client)
    finally:
        await server.stop()


def shown() -> Iterator[tuple[str, Path, Any]]:
    """Yield each call of the README: the path asked, the request's file, and the reply that is shown."""
    text = (EXAMPLES / "README.md").read_text()
    for command, reply in re.findall(r"```sh\n(curl [^\n]*)\n```\n```json\n(.*?)```", text, flags=re.DOTALL):
        curl, silent, url, data, file = shlex.split(command)
        assert (curl, silent, data, file[0]) == ("curl", "-s", "-d", "@")
        assert urlsplit(url).port == ExtenderConfiguration().server.port
        yield urlsplit(url).path, ROOT / file[1:], json.loads(reply)


def test_the_readme_starts_the_service_on_the_cluster() -> None:
    commands = re.findall(r"^scheduler-extender serve (.*)$", (EXAMPLES / "README.md").read_text(), flags=re.MULTILINE)
    (given,) = (options(shlex.split(command)) for command in commands)
    assert ROOT / given["cluster"] == EXAMPLES / "cluster.yaml"
    assert (
        f"kubectl --server http://127.0.0.1:{given['cluster_port']} get pod web-1"
        in (EXAMPLES / "README.md").read_text()
    )


def options(arguments: list[str]) -> dict[str, Any]:
    """Return what ``serve`` makes of its command line."""
    serve = typer.main.get_group(app).commands["serve"]
    return dict(serve.make_context("serve", arguments).params)


async def test_the_readme_shows_a_call_of_each_verb_and_its_true_reply() -> None:
    calls = list(shown())
    assert {path for path, _, _ in calls} == {f"/scheduler/{verb}" for verb in VERBS}
    async with example_served() as setting:
        for path, file, reply in calls:
            assert json.loads(await setting.post(path, file.read_bytes())) == reply
        bound = await setting.client.get(f"{setting.server.url}/api/v1/namespaces/default/pods/web-1")
        assert bound.json()["spec"]["nodeName"] == json.loads(content("bind"))["Node"]
        again = await setting.post("/scheduler/bind", content("bind"))
        assert json.loads(again) == {"Error": ""}
        elsewhere = await setting.post("/scheduler/bind", content("bind").replace(b"node-0", b"node-1"))
        assert "already bound to node 'node-0'" in json.loads(elsewhere)["Error"]


async def test_in_nodes_mode_nodes_come_back_byte_for_byte() -> None:
    nodes = wire.decode_filter(content("filter-nodes")).nodes or []
    sent = {json.loads(bytes(raw))["metadata"]["name"]: bytes(raw) for raw in nodes}
    async with example_served() as setting:
        reply = await setting.post("/scheduler/filter", content("filter-nodes"))
    result = json.loads(reply)
    kept = [node["metadata"]["name"] for node in result["Nodes"]["items"]]
    refused = {**result["FailedNodes"], **result["FailedAndUnresolvableNodes"]}
    assert kept == ["node-0"]
    assert {*kept, *refused} == set(sent)
    assert all(sent[name] in reply for name in kept)


async def test_urgent_fits_nowhere_as_long_as_nobody_is_evicted() -> None:
    body = json.dumps({"Pod": bare(PENDING["urgent"]), "NodeNames": list(NODES)}).encode()
    async with example_served() as setting:
        result = json.loads(await setting.post("/filter", body))
    assert result["Error"] == ""
    assert result["NodeNames"] == []


_RULE = ("apiGroups", "resources", "verbs")


async def test_the_service_asks_the_api_server_for_all_it_has_rights_to_and_no_more() -> None:
    files = ("base/rbac.yaml", "overlays/ha/lease.yaml")
    documents = [item for file in files for item in yaml.safe_load_all((ROOT / "manifests" / file).read_text())]
    rules = [rule for item in documents for rule in item.get("rules", ())]
    granted = {right for rule in rules for right in product(*(rule[key] for key in _RULE))}
    brisk = ("leaderElection.enabled=true", "leaderElection.retryPeriodSeconds=0.1")
    async with example_served(ServerOptions(streaming_lists=False), *brisk) as setting, asyncio.timeout(20):
        setting.server.faults.add(Fault(method="POST", path="/binding$", cut="after"))
        while json.loads(await setting.post("/bind", content("bind"))) != {"Error": ""}:  # noqa: ASYNC110 - no lease yet
            await asyncio.sleep(0.005)
        nowhere = json.dumps({"Pod": bare(PENDING["urgent"]), "NodeNames": ["node-0"]}).encode()
        while {asked_for(request) for request in setting.server.requests} != granted:
            await setting.post("/filter", nowhere)  # again, for an event with a count
            await asyncio.sleep(0.02)


def asked_for(request: LoggedRequest) -> tuple[str, str, str]:
    parts = urlsplit(request.target)
    target = parse_target(Catalogue(), parts.path)
    verb = Call(request.method, target, dict(parse_qsl(parts.query)), "", b"").verb
    resource = target.resource.plural + (f"/{target.subresource}" if target.subresource else "")
    return target.resource.group, resource, verb


# --- the configuration -----------------------------------------------------------------------------------------------


def test_the_example_configuration_has_every_key_with_its_default() -> None:
    written = yaml.safe_load((EXAMPLES / "extender-configuration.yaml").read_text())
    default, expected = default_set(), ExtenderConfiguration().model_dump(by_alias=True)
    # Lists that are left out stand for these.
    expected["profiles"][0]["predicates"]["enabled"] = [{"name": name} for name in default.predicates]
    expected["profiles"][0]["priorities"]["enabled"] = [
        {"name": name, "weight": weight} for name, weight in default.priorities.items()
    ]
    (profile,) = written["profiles"]
    entries = profile["predicates"]["enabled"] + profile["priorities"]["enabled"]
    plain = PriorityEntry(name="any", args={}).model_dump(by_alias=True)
    assert {key for entry in entries for key in entry} == set(plain)
    for key in plain.keys() - {"name", "weight"}:
        assert all(entry.pop(key, plain[key]) == plain[key] for entry in entries)
    assert written == expected


def test_the_example_configuration_gives_the_profile_of_none() -> None:
    def bound(configuration: ExtenderConfiguration) -> tuple[list[object], list[object]]:
        profile = ProfileBinder(Registry(), Mirror(), "profiles[0]").bind(configuration.profiles[0])
        return (
            [(type(predicate), predicate.args) for predicate in profile.predicates],
            [(type(rated.priority), rated.priority.args, rated.weight) for rated in profile.priorities],
        )

    file = EXAMPLES / "extender-configuration.yaml"
    assert bound(load_configuration(file, environment={})) == bound(ExtenderConfiguration())
