"""Pods that are exempt pass through every verb, whatever the algorithms would say of them; over HTTP."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from extender.cluster.apiserver import Fault
from extender.testing import make_node, make_pod
from extender.testing.cluster import RunningService, running_service
from tests.extender.specimen import PATH

SYSTEM = {"namespaces": ["own", "kube-system"], "priorityClassNames": ["system-node-critical"]}
PICKY = {
    "predicates": {"enabled": [{"name": f"{PATH}:Picky", "args": {"names": ["a", "b"]}}]},
    "priorities": {"enabled": [{"name": f"{PATH}:Graded"}]},
}
CONFIGURATION = {"profiles": [PICKY], "exempt": SYSTEM}
EXEMPT = {
    "by its namespace": ("namespace", make_pod("p", namespace="own")),
    "by its priority class": ("priorityClassName", make_pod("p", priorityClassName="system-node-critical")),
}
OTHERS = {
    "another namespace": make_pod("p", namespace="owner"),
    "another class": make_pod("p", priorityClassName="system-cluster-critical"),
    "no class": make_pod("p"),
}
exempt = pytest.mark.parametrize(("by", "pod"), EXEMPT.values(), ids=EXEMPT)


@pytest.fixture(scope="module")
def service() -> Iterator[RunningService]:
    nodes = [make_node("a", labels={"score": "100"}), make_node("b")]
    with running_service(nodes=nodes, configuration=CONFIGURATION) as running:
        yield running


def post(service: RunningService, verb: str, body: Any) -> Any:
    return httpx.post(f"{service.url}/{verb}", content=json.dumps(body), timeout=10).json()


def asked(pod: Any, *names: str) -> dict[str, Any]:
    return {"Pod": pod, "NodeNames": list(names)}


def passed(service: RunningService, verb: str, by: str) -> float:
    read = service.runtime.metrics.registry.get_sample_value
    return read("scheduler_extender_passed_through_requests_total", {"verb": verb, "reason": by}) or 0.0


@exempt
def test_filter_keeps_all_nodes_asked_about_those_that_are_not_known_too(
    service: RunningService, by: str, pod: Any
) -> None:
    before = passed(service, "filter", by)
    reply = post(service, "filter", asked(pod, "a", "new", "b"))
    assert (reply["NodeNames"], reply["FailedNodes"], reply["Error"]) == (["a", "new", "b"], {}, "")
    assert passed(service, "filter", by) == before + 1


@exempt
def test_filter_keeps_whole_nodes(service: RunningService, by: str, pod: Any) -> None:
    items = [{"metadata": {"name": name}} for name in ("a", "new")]
    reply = post(service, "filter", {"Pod": pod, "Nodes": {"items": items}})
    assert [node["metadata"]["name"] for node in reply["Nodes"]["items"]] == ["a", "new"]


@exempt
def test_prioritize_likes_all_nodes_the_same(service: RunningService, by: str, pod: Any) -> None:
    before = passed(service, "prioritize", by)
    assert post(service, "prioritize", asked(pod, "a", "new")) == [
        {"Host": "a", "Score": 0},
        {"Host": "new", "Score": 0},
    ]
    assert passed(service, "prioritize", by) == before + 1


@exempt
def test_preempt_keeps_the_proposal(service: RunningService, by: str, pod: Any) -> None:
    before = passed(service, "preempt", by)
    proposal = {"a": {"Pods": [{"UID": "u"}], "NumPDBViolations": 1}, "new": {"Pods": [{"UID": "v"}]}}
    reply = post(service, "preempt", {"Pod": pod, "NodeNameToMetaVictims": proposal})
    assert reply["NodeNameToMetaVictims"] == {
        "a": {"Pods": [{"UID": "u"}], "NumPDBViolations": 1},
        "new": {"Pods": [{"UID": "v"}], "NumPDBViolations": 0},
    }
    assert passed(service, "preempt", by) == before + 1


@pytest.mark.parametrize("pod", OTHERS.values(), ids=OTHERS)
def test_all_others_are_judged(service: RunningService, pod: Any) -> None:
    reply = post(service, "filter", asked(pod, "a", "b"))
    assert (reply["NodeNames"], set(reply["FailedNodes"])) == ([], {"a", "b"})
    assert post(service, "prioritize", asked(pod, "a"))[0]["Score"] == 10


@exempt
def test_bind_binds_and_counts_the_pod_on_its_node(service: RunningService, by: str, pod: Any) -> None:
    created = service.create_pod(pod)
    meta = created["metadata"]
    before = passed(service, "bind", by)
    post(service, "filter", asked(created, "a"))
    binding = {"PodNamespace": meta["namespace"], "PodName": "p", "PodUID": meta["uid"], "Node": "a"}
    assert post(service, "bind", binding) == {"Error": ""}
    stored = service.call(service.api.storage.get, "pods", "p", meta["namespace"])
    assert stored["spec"]["nodeName"] == "a"
    assert service.call(lambda: service.runtime.mirror.placed(meta["uid"])) is not None
    assert passed(service, "bind", by) == before + 1


def test_they_are_placed_and_bound_even_while_caches_are_incomplete() -> None:
    fault = Fault(path="/poddisruptionbudgets$", status=403, count=None)
    with running_service(
        nodes=[make_node("a")], configuration=CONFIGURATION, faults=[fault], synced=False
    ) as incomplete:
        pod = incomplete.create_pod(make_pod("p", namespace="own"))
        other = incomplete.create_pod(make_pod("other"))
        assert "not ready" in post(incomplete, "filter", asked(other, "a"))["Error"]
        assert post(incomplete, "filter", asked(pod, "a"))["NodeNames"] == ["a"]
        replies = {}
        for each in (pod, other):
            meta = each["metadata"]
            names = {"PodNamespace": meta["namespace"], "PodName": meta["name"], "PodUID": meta["uid"]}
            replies[meta["name"]] = post(incomplete, "bind", {**names, "Node": "a"})["Error"]
        assert replies["p"] == ""
        assert "not ready" in replies["other"]


def test_who_is_exempt_can_be_changed_while_the_service_runs(service: RunningService) -> None:
    pod = EXEMPT["by its namespace"][1]
    try:
        service.reconfigure({"profiles": [PICKY]})
        assert post(service, "filter", asked(pod, "a"))["NodeNames"] == []
    finally:
        service.reconfigure(CONFIGURATION)
    assert post(service, "filter", asked(pod, "a"))["NodeNames"] == ["a"]
