"""Reported faults of the wire, sent to the service as requests or held against its replies."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from extender.testing import ExtenderCallError, SchedulerClient, Victims, make_node, make_pod
from extender.testing.cluster import RunningService, running_service
from extender.testing.reply import read_filter, read_preempt
from extender.verbs.filter import UNKNOWN_NODE
from tests.extender.specimen import PATH, profile

CASES = Path(__file__).parents[1] / "data" / "cases"


def case(number: str) -> Any:
    return json.loads(next(CASES.glob(f"{number}-*.json")).read_text())


def expected(number: str) -> str:
    return next(CASES.glob(f"{number}-*.expected.txt")).read_text()


def by_id(cases: list[dict[str, Any]]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("asked", cases, ids=[asked["id"].replace("-", " ") for asked in cases])


NODES = [make_node(name, cpu="4", labels={"zone": "z1"}) for name in ("n1", "n2")]
PODS = {
    name: make_pod(f"p-{name}", uid=f"uid-victim-{name}", node=name, requests={"cpu": "3"}) for name in ("n1", "n2")
}
BUSY = make_pod("in", requests={"cpu": "2"}, priority=10)
SMALL = make_pod("in", requests={"cpu": "1"})


@pytest.fixture(scope="module")
def service() -> Iterator[RunningService]:
    with running_service(nodes=NODES, pods=PODS.values()) as running:
        yield running


@pytest.fixture(scope="module")
def idle() -> Iterator[RunningService]:
    with running_service(nodes=NODES) as running:
        yield running


def post(service: RunningService, path: str, body: Any, **headers: str) -> httpx.Response:
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    return httpx.post(f"{service.url}{path}", content=content, headers=headers, timeout=10)


# --- requests --------------------------------------------------------------------------------------------------------


@by_id(case("B01")["requests"])
def test_b01_nodes_or_names_in_any_casing(idle: RunningService, asked: dict[str, Any]) -> None:
    response = post(idle, asked["path"], asked["body"])
    assert response.status_code == 200
    reply, body = response.json(), asked["body"]
    nodes, names = body.get("Nodes") or body.get("nodes"), body.get("NodeNames")
    if asked["path"] == "/prioritize":
        assert [entry["Host"] for entry in reply] == names
    elif nodes is not None:
        assert (reply["Nodes"]["items"], reply["NodeNames"], reply["Error"]) == (nodes["items"], None, "")
    elif names is not None:
        assert (reply["Nodes"], reply["NodeNames"], reply["Error"]) == (None, names, "")
    else:
        assert reply["Error"] == (
            "Nodes, NodeNames: both are missing; send one (NodeNames with nodeCacheCapable: true)"
        )


def test_b07_every_refused_node_is_in_one_map_by_what_eviction_can_do() -> None:
    asked = case("B07")
    with running_service(nodes=[make_node("busy")], pods=[_with_image(pod) for pod in asked["cachedPods"]]) as service:
        reply = post(service, asked["request"]["path"], asked["request"]["body"]).json()
    assert [node["metadata"]["name"] for node in reply["Nodes"]["items"]] == ["fits"]
    assert list(reply["FailedNodes"]) == ["busy"]
    assert sorted(reply["FailedAndUnresolvableNodes"]) == ["tainted", "too-small"]


@by_id(case("B08")["requests"])
def test_b08_nulls_numbers_and_unknown_fields_as_go_writes_them(idle: RunningService, asked: dict[str, Any]) -> None:
    body = asked["rawBody"].encode() if "rawBody" in asked else asked["body"]
    response = post(idle, asked["path"], body, **asked.get("headers", {}))
    assert response.status_code == 200
    reply = response.json()
    if asked["id"] in ("pod-null", "not-json"):
        assert reply["Error"]
        return
    assert (reply["Error"], reply["FailedNodes"], reply["FailedAndUnresolvableNodes"]) == ("", {}, {})
    if asked["body"]["Nodes"] is None:
        assert reply["NodeNames"] == asked["body"]["NodeNames"]
    else:
        assert reply["Nodes"]["items"] == (asked["body"]["Nodes"]["items"] or [])


def test_b16_nodes_that_only_the_request_knows() -> None:
    asked = case("B16")
    with running_service(nodes=[make_node(name) for name in asked["cachedNodes"]]) as service:
        by_name = post(service, asked["path"], asked["body"])
        assert by_name.status_code == 200
        assert by_name.json()["NodeNames"] == asked["cachedNodes"]
        stranger = asked["body"]["NodeNames"][1]
        assert by_name.json()["FailedAndUnresolvableNodes"] == {stranger: UNKNOWN_NODE}
        whole = asked["fullModeBody"]
        assert post(service, asked["path"], whole).json()["Nodes"]["items"] == whole["Nodes"]["items"]
        assert service.call(lambda: stranger in service.runtime.mirror.table.index) is False


def test_b21_preemption_by_a_rule_of_ones_own() -> None:
    asked = case("B21")
    zone = {"extender.example/zone": "a"}
    nodes = [make_node(name, cpu="2", labels=zone) for name in ("n1", "n2", "n3")]
    pods = [make_pod(f"low{n}", uid=f"u-low{n}", node=f"n{n}", requests={"cpu": "2"}) for n in (1, 2)]
    rule = {"name": f"{PATH}:Picky", "args": {"names": ["n2"]}}
    enabled = [{"name": "NodeAffinity"}, {"name": "NodeResourcesFit"}, rule]
    with running_service(
        nodes=nodes, pods=pods, configuration={"profiles": [{"predicates": {"enabled": enabled}}]}
    ) as service:
        reply = post(service, asked["path"], asked["body"]).json()
    proposed = asked["body"]["NodeNameToMetaVictims"]
    assert reply == {"NodeNameToMetaVictims": {"n1": proposed["n1"], "n3": proposed["n3"]}}


# --- replies ---------------------------------------------------------------------------------------------------------


def shape(value: Any) -> Any:
    """The keys and types of a reply, with the names of nodes left out."""
    if isinstance(value, dict):
        return {key: shape(item) for key, item in value.items()}
    if isinstance(value, list):
        return [shape(item) for item in value[:1]]
    return type(value).__name__


def canned(number: str, name: str) -> Any:
    return next(entry["reply"] for entry in case(number)["replies"] if entry["id"] == name)


def test_b02_replies_have_the_keys_and_types_of_the_good_ones(service: RunningService) -> None:
    names = ["n1", "n2"]
    kept = post(service, "/filter", {"Pod": SMALL, "NodeNames": names}).json()
    assert shape(kept) == {**shape(canned("B02", "filter-good")), "FailedNodes": {}, "Nodes": "NoneType"}
    refused = post(service, "/filter", {"Pod": BUSY, "NodeNames": names}).json()
    assert refused["NodeNames"] == []  # not null
    assert shape(refused["FailedNodes"]) == {"n1": "str", "n2": "str"}
    scores = post(service, "/prioritize", {"Pod": SMALL, "NodeNames": names}).json()
    assert shape(scores) == shape(canned("B02", "prioritize-good"))
    assert post(service, "/prioritize", {"Pod": SMALL, "NodeNames": []}).text == "[]"
    missing = {"PodName": "gone", "PodNamespace": "default", "PodUID": "u", "Node": "n1"}
    assert shape(post(service, "/bind", missing).json()) == shape(canned("B02", "bind-error"))


@pytest.mark.parametrize("names", [["n2", "n1", "N1", "ghost"], ["ghost"], ["n1", "n1"], ["n1 ", "n1"]], ids=str)
def test_b03_names_come_back_as_they_were_sent_or_not_at_all(service: RunningService, names: list[str]) -> None:
    response = post(service, "/filter", {"Pod": SMALL, "NodeNames": names})
    offered = [{"metadata": {"name": name}} for name in names]
    outcome = read_filter(response.content, offered, by_name=True, url_prefix=service.url)
    assert outcome.names == [name for name in dict.fromkeys(names) if name in ("n1", "n2")]
    assert outcome.unresolvable == {name: UNKNOWN_NODE for name in names if name not in ("n1", "n2")}


def test_b04_whole_nodes_come_back_whole_and_names_as_names(service: RunningService) -> None:
    with service.scheduler(node_cache_capable=False) as scheduler:
        outcome = scheduler.filter(SMALL, service.nodes())
        assert (outcome.nodes, outcome.usage_lost) == (service.nodes(), True)
    with service.scheduler() as scheduler:
        outcome = scheduler.filter(SMALL, service.nodes())
        assert (outcome.nodes, outcome.usage_lost) == (service.nodes(), False)


@pytest.mark.parametrize("verb", ["filter", "bind"])
@pytest.mark.parametrize("body", [b"", b"null", b"{}", b'{"Pod":', b"\xff\xfe"], ids=repr)
def test_b05_a_failure_of_filter_and_bind_is_told_with_status_200(
    service: RunningService, verb: str, body: bytes
) -> None:
    response = post(service, f"/{verb}", body)
    assert response.status_code == 200
    assert "send " in response.json()["Error"]


@pytest.mark.parametrize("verb", ["prioritize", "preempt"])
@pytest.mark.parametrize("body", [b"", b"null", b"{}", b'{"Pod":', b"\xff\xfe"], ids=repr)
def test_b05_a_failure_of_prioritize_and_preempt_is_told_by_the_status(
    service: RunningService, verb: str, body: bytes
) -> None:
    response = post(service, f"/{verb}", body)
    assert response.status_code == 400
    assert "send " in response.json()["Error"]


def test_b05_that_no_node_fits_is_no_failure(service: RunningService) -> None:
    with service.scheduler() as scheduler:
        outcome = scheduler.filter(BUSY, service.nodes())
    assert (outcome.names, outcome.failed) == ([], {"n1": "Insufficient cpu", "n2": "Insufficient cpu"})


def test_b06_scores_are_scaled_to_ten_and_rounded_half_up() -> None:
    raw = case("B06")["scaling"][0]["raw"]
    scaled = {
        name: int(score) for name, score in re.findall(r"(n\d) (\d+)[,( ]", expected("B06").partition("half up:")[2])
    }
    nodes = [make_node(name, labels={"score": str(score)}) for name, score in raw.items()]
    with (
        running_service(nodes=nodes, configuration=profile(priorities=["Graded"])) as service,
        service.scheduler(weight=5) as scheduler,
    ):
        outcome = scheduler.prioritize(SMALL, nodes)
    assert dict(outcome.scores) == scaled
    assert outcome.points == {name: score * 5 * 10 for name, score in scaled.items()}


B12 = dict(re.findall(r"^(\S+): called=(\w+)$", expected("B12"), re.MULTILINE))


@by_id(case("B12")["managed"])
def test_b12_only_pods_that_name_a_managed_resource_arrive(service: RunningService, asked: dict[str, Any]) -> None:
    count = {"verb": "filter", "result": "ok"}
    metric = "scheduler_extender_requests_total"
    before = service.runtime.metrics.registry.get_sample_value(metric, count) or 0
    with service.scheduler(managed_resources=["example.com/gpu"]) as scheduler:
        scheduler.filter(asked["pod"], NODES)
    arrived = (service.runtime.metrics.registry.get_sample_value(metric, count) or 0) - before
    assert bool(arrived) == (B12[asked["id"]] == "true")


@pytest.mark.parametrize(
    ("suffix", "verb"),
    [
        *((entry["urlSuffix"], "filter") for entry in case("B13")["replies"] if "?" not in entry["urlSuffix"]),
        *(("", "/filter"), ("/scheduler", "/filter"), ("", "filter/"), ("//scheduler", "//filter//")),
    ],
    ids=lambda part: part or "nothing",
)
def test_b13_every_way_of_joining_prefix_and_verb_is_served(service: RunningService, suffix: str, verb: str) -> None:
    with SchedulerClient(f"{service.url}{suffix}", filter_verb=verb) as scheduler:
        assert scheduler.filter(SMALL, NODES).names == ["n1", "n2"]


def test_b13_a_prefix_with_a_query_leads_nowhere(service: RunningService) -> None:
    asked = next(entry for entry in case("B13")["replies"] if "?" in entry["urlSuffix"])
    with (
        SchedulerClient(f"{service.url}{asked['urlSuffix']}") as scheduler,
        pytest.raises(ExtenderCallError, match="code 404"),
    ):
        scheduler.filter(SMALL, NODES)


@pytest.mark.parametrize("by_name", [True, False], ids=["names mode", "nodes mode"])
def test_b20_a_preempt_reply_is_one_of_the_good_ones(service: RunningService, by_name: bool) -> None:
    proposed = {name: Victims([pod], num_pdb_violations=1) for name, pod in PODS.items()}
    pods_by_node = {name: [pod] for name, pod in PODS.items()}
    with service.scheduler(node_cache_capable=by_name) as scheduler:
        assert scheduler.preempt(BUSY, proposed, pods_by_node) == proposed
        huge = make_pod("huge", requests={"cpu": "64"}, priority=10)
        assert scheduler.preempt(huge, proposed, pods_by_node) == {}
    meta = {name: {"Pods": [{"UID": f"uid-victim-{name}"}], "NumPDBViolations": 1} for name in ("n1", "n2")}
    body = post(service, "/preempt", {"Pod": BUSY, "NodeNameToMetaVictims": meta})
    assert body.json() == canned("B20", "good-both")
    odd = {"n1": {"Pods": None}, "n2": None, "ghost": meta["n1"]}
    empty = post(service, "/preempt", {"Pod": BUSY, "NodeNameToMetaVictims": odd})
    assert read_preempt(empty.content, pods_by_node, url_prefix=service.url) == {}


def _with_image(pod: dict[str, Any]) -> dict[str, Any]:
    containers = [{"image": "busybox", **container} for container in pod["spec"]["containers"]]
    return {**pod, "spec": {**pod["spec"], "containers": containers}}
