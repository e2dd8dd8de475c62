"""/preempt: the nodes where evicting what kube-scheduler proposes makes room, and nothing else changed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from extender.errors import AlgorithmError, DeadlineExceeded
from extender.framework.profile import ProfileBinder
from extender.framework.registry import Registry
from extender.framework.resource import RequestedResources
from extender.framework.runner import NoRecorder, Runner
from extender.section import ProfileSection
from extender.testing import make_node, make_pod
from extender.testing.lab import Lab
from extender.testing.reply import Json, Victims, read_preempt
from extender.verbs import preempt
from extender.verbs.service import Service
from tests.extender.specimen import PATH, profile

CASES = Path(__file__).parents[1] / "data" / "cases"

in_both_encodings = pytest.mark.parametrize("whole", [False, True], ids=["victims by identity", "victims as pods"])


class Bench:
    """A service over a cluster in memory."""

    def __init__(
        self,
        nodes: list[Json],
        pods: list[Json],
        section: dict[str, Any] | None = None,
        others: list[Json] | None = None,
    ) -> None:
        self.pods = {node["metadata"]["name"]: [pod for pod in pods if on(pod, node)] for node in nodes}
        lab = Lab([*nodes, *pods, *(others or ())])
        bound = ProfileBinder(Registry(), lab.mirror, "profiles[0]").bind(ProfileSection.model_validate(section or {}))
        self.mirror = lab.mirror
        self.service = Service(lab.mirror, Runner(bound, NoRecorder()))

    def preempt(
        self,
        pod: Json,
        proposed: dict[str, tuple[list[Json], int]],
        *,
        whole: bool = False,
        deadline: float | None = None,
    ) -> dict[str, Victims]:
        """Ask as kube-scheduler does and return what it makes of the reply; no cache may have changed."""
        before = self.dump()
        body = preempt.answer(self.service, encode(pod, proposed, whole=whole), deadline)
        assert self.dump() == before
        return read_preempt(body, self.pods, url_prefix="http://extender")

    def dump(self) -> dict[str, Any]:
        """Everything that an answer depends on."""
        return {
            "nodes": {info.name: info for info in self.mirror.table.infos if info is not None},
            "rows": dict(self.mirror.table.index),
            **{type(cache).__name__: cache.dump() for cache in self.mirror.caches},
        }


def on(pod: Json, node: Json) -> bool:
    return bool(pod["spec"].get("nodeName") == node["metadata"]["name"])


def encode(pod: Json, proposed: dict[str, tuple[list[Json], int]], *, whole: bool) -> bytes:
    victims = {
        node: {
            "Pods": pods if whole else [{"UID": victim["metadata"]["uid"]} for victim in pods],
            "NumPDBViolations": violations,
        }
        for node, (pods, violations) in proposed.items()
    }
    fields = ("NodeNameToVictims", "NodeNameToMetaVictims")
    return json.dumps({"Pod": pod, fields[whole]: None, fields[not whole]: victims}).encode()


def running(name: str, node: str, cpu: str, **fields: Any) -> Json:
    return make_pod(name, node=node, requests={"cpu": cpu}, **fields)


VIP = make_pod("vip", requests={"cpu": "2"}, priority=1000)


@in_both_encodings
def test_a_node_stays_where_the_pod_fits_once_its_victims_are_gone(whole: bool) -> None:
    enough, too_few = running("enough", "a", "2"), running("too-few", "b", "1")
    bench = Bench(
        [make_node("a", cpu="4"), make_node("b", cpu="4")],
        [enough, running("rest-a", "a", "2"), too_few, running("rest-b", "b", "3", priority=1000)],
    )
    found = bench.preempt(VIP, {"a": ([enough], 1), "b": ([too_few], 0)}, whole=whole)
    assert found == {"a": Victims([enough], 1)}


@in_both_encodings
def test_victims_that_are_too_few_are_joined_by_the_least_important_that_help(whole: bool) -> None:
    first, low, high = (
        running("first", "a", "1", priority=5),
        running("low", "a", "1"),
        running("high", "a", "1", priority=9),
    )
    equal = running("equal", "a", "1", priority=1000)
    bench = Bench([make_node("a", cpu="4")], [first, high, low, equal])
    assert bench.preempt(VIP, {"a": ([first], 0)}, whole=whole) == {"a": Victims([first, low], 0)}
    assert bench.preempt(VIP, {"a": ([equal], 0)}, whole=whole) == {"a": Victims([equal, low], 0)}


def test_violations_are_counted_again_where_victims_are_added() -> None:
    first, guarded = running("first", "a", "1"), running("guarded", "a", "3", labels={"app": "db"})
    budget = {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": "db", "namespace": "default"},
        "spec": {"selector": {"matchLabels": {"app": "db"}}},
        "status": {"disruptionsAllowed": 0},
    }
    bench = Bench([make_node("a", cpu="4")], [first, guarded], others=[budget])
    assert bench.preempt(VIP, {"a": ([first], 0)}) == {"a": Victims([first, guarded], 1)}
    assert bench.preempt(VIP, {"a": ([guarded], 0)}) == {"a": Victims([guarded], 0)}


def test_a_pod_that_must_not_evict_gets_no_node() -> None:
    victim = running("low", "a", "4")
    bench = Bench([make_node("a", cpu="4")], [victim])
    assert bench.preempt({**VIP, "spec": {**VIP["spec"], "preemptionPolicy": "Never"}}, {"a": ([victim], 0)}) == {}


EVICTED = {"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler"}


def going(pod: Json, **condition: str) -> Json:
    """A pod that is being deleted, and what a condition of its says of the reason."""
    meta = {**pod["metadata"], "deletionTimestamp": "2026-01-01T00:00:00Z"}
    return {**pod, "metadata": meta, "status": {**pod["status"], "conditions": [EVICTED | condition]}}


@pytest.mark.parametrize(
    ("going_pod", "waits"),
    [
        pytest.param(going(running("going", "b", "2")), True, id="a victim of kube-scheduler is going"),
        pytest.param(going(running("going", "b", "2", priority=1000)), False, id="a pod that is as important is going"),
        pytest.param(going(running("going", "b", "2"), reason="EvictionByEvictionAPI"), False, id="somebody drains"),
        pytest.param(going(running("going", "b", "2"), status="False"), False, id="the condition does not hold"),
        pytest.param(going(running("going", "c", "2")), False, id="a pod of another node is going"),
        pytest.param(running("going", "b", "2"), False, id="nothing is going"),
    ],
)
def test_a_pod_for_which_room_is_being_made_evicts_no_others(going_pod: Json, waits: bool) -> None:
    victim = running("low", "a", "4")
    nodes = [make_node("a", cpu="4"), make_node("b", cpu="4"), make_node("c", cpu="4"), make_node("lost", cpu="1")]
    bench = Bench(nodes, [victim, going_pod])
    found = {"a": Victims([victim], 0)}
    for nominated, expected in (("b", {} if waits else found), ("a", found), ("gone", found), ("", found)):
        pod = {**VIP, "status": {"nominatedNodeName": nominated}}
        assert bench.preempt(pod, {"a": ([victim], 0)}) == expected, nominated


def test_room_that_a_pod_could_not_use_is_not_waited_for() -> None:
    victim, evicted = running("low", "a", "4"), going(running("going", "b", "2"))
    bench = Bench([make_node("a", cpu="4"), make_node("b", cpu="4", unschedulable=True)], [victim, evicted])
    pod = {**VIP, "status": {"nominatedNodeName": "b"}}
    assert bench.preempt(pod, {"a": ([victim], 0)}) == {"a": Victims([victim], 0)}


@in_both_encodings
def test_victims_and_counts_come_back_as_they_were_proposed(whole: bool) -> None:
    pods = [running(f"low-{number}", "a", "1") for number in range(4)]
    bench = Bench([make_node("a", cpu="4")], pods)
    order = [pods[2], pods[0], pods[3]]
    assert bench.preempt(VIP, {"a": (order, 3)}, whole=whole) == {"a": Victims(order, 3)}


def test_a_node_refused_for_what_no_eviction_mends_is_left_out() -> None:
    victim = running("low", "a", "4")
    bench = Bench([make_node("a", cpu="4", taints=["dedicated=gpu:NoSchedule"])], [victim])
    assert bench.preempt(VIP, {"a": ([victim], 0)}) == {}


def test_host_ports_of_victims_become_free() -> None:
    victim = running("low", "a", "1", ports=[8080])
    bench = Bench([make_node("a")], [victim])
    pod = make_pod("vip", ports=[8080])
    assert bench.preempt(pod, {"a": ([victim], 0)}) == {"a": Victims([victim], 0)}
    other = running("other", "a", "1", ports=[9090])  # as important as the pod itself
    pod = make_pod("vip", ports=[8080, 9090])
    assert Bench([make_node("a")], [victim, other]).preempt(pod, {"a": ([victim], 0)}) == {}


def test_a_proposal_that_is_ahead_of_the_watch_is_kept() -> None:
    known, unknown = running("known", "a", "1"), running("unknown", "a", "3")
    bench = Bench([make_node("a", cpu="4")], [known])
    bench.pods["a"].append(unknown)
    assert bench.preempt(VIP, {"a": ([known, unknown], 1)}) == {"a": Victims([known, unknown], 1)}


def test_a_victim_that_is_known_on_another_node_is_kept_as_well() -> None:
    moved = running("moved", "b", "1")
    bench = Bench([make_node("a", cpu="1"), make_node("b")], [moved])
    bench.pods["a"].append(moved)
    assert bench.preempt(VIP, {"a": ([moved], 0)}) == {"a": Victims([moved], 0)}


def test_an_assumed_pod_can_be_a_victim() -> None:
    bench = Bench([make_node("a", cpu="4")], [])
    pending = make_pod("pending", requests={"cpu": "4"})
    lab = Lab([pending])
    record = lab.mirror.by_uid[pending["metadata"]["uid"]]
    bench.mirror.assume(bench.mirror.reader.placed_on(record, "a"))
    bench.pods["a"] = [pending]
    assert bench.preempt(VIP, {"a": ([pending], 0)}) == {"a": Victims([pending], 0)}


def test_nodes_that_are_unknown_or_have_no_victims_are_left_out() -> None:
    bench = Bench([make_node("a", cpu="4")], [running("low", "b", "1")])
    assert bench.preempt(VIP, {"a": ([], 0), "ghost": ([running("x", "ghost", "1")], 0)}) == {}
    assert bench.preempt(VIP, {"b": ([running("low", "b", "1")], 0)}) == {}


@pytest.mark.parametrize("victims", [None, {"Pods": None}, {"Pods": [None]}, {}], ids=str)
def test_nulls_in_a_request_never_come_back(victims: Any) -> None:
    bench = Bench([make_node("a")], [])
    body = json.dumps({"Pod": VIP, "NodeNameToMetaVictims": {"a": victims}}).encode()
    assert json.loads(preempt.answer(bench.service, body)) == {"NodeNameToMetaVictims": {}}


def test_b21_a_predicate_of_ones_own_has_its_say() -> None:
    case = json.loads((CASES / "B21-preempt-simulation.json").read_text())["body"]
    zone = {"extender.example/zone": "a"}
    nodes = [make_node(name, cpu="2", labels=zone) for name in ("n1", "n2", "n3")]
    pods = [running("low1", "n1", "2", uid="u-low1"), running("low2", "n2", "2", uid="u-low2")]
    picky = {"name": f"{PATH}:Picky", "args": {"names": ["n2"]}}
    bench = Bench(nodes, pods, {"predicates": {"enabled": [{"name": "NodeResourcesFit"}, picky]}})
    reply = json.loads(preempt.answer(bench.service, json.dumps(case).encode()))
    proposed = case["NodeNameToMetaVictims"]
    assert reply == {"NodeNameToMetaVictims": {node: proposed[node] for node in ("n1", "n3")}}


@pytest.mark.parametrize(
    ("predicate", "annotation", "failure"),
    [("Broken", {"break": "yes"}, AlgorithmError), ("Sleepy", {"seconds": "0.01"}, DeadlineExceeded)],
    ids=["an algorithm that raises", "a deadline that passes"],
)
def test_a_failure_leaves_no_trace(predicate: str, annotation: dict[str, str], failure: type[Exception]) -> None:
    section = profile([predicate, "Labelled"])["profiles"][0]
    victims = [running("low", "a", "4")]
    bench = Bench([make_node("a", cpu="4")], victims, section)
    bench.mirror.cache(RequestedResources)
    before = bench.dump()
    deadline = bench.service.runner._now_seconds() if failure is DeadlineExceeded else None
    with pytest.raises(failure):
        bench.preempt(make_pod("vip", annotations=annotation), {"a": (victims, 0)}, deadline=deadline)
    assert bench.dump() == before


@st.composite
def clusters(draw: st.DrawFn) -> tuple[list[Json], list[Json], dict[str, tuple[list[Json], int]]]:
    nodes = [make_node(f"n{number}", cpu=str(draw(st.integers(1, 6)))) for number in range(draw(st.integers(1, 4)))]
    names = st.sampled_from([node["metadata"]["name"] for node in nodes])
    pods = [
        running(f"p{number}", draw(names), str(draw(st.integers(0, 3))), priority=draw(st.sampled_from([0, 500, 1000])))
        for number in range(draw(st.integers(0, 8)))
    ]
    proposed = {}
    for node in nodes:
        victims = [pod for pod in pods if on(pod, node) and draw(st.booleans())]
        proposed[node["metadata"]["name"]] = (victims, draw(st.integers(0, 2)))
    return nodes, pods, proposed


@given(clusters(), st.booleans())
@settings(max_examples=50)
def test_every_node_that_can_be_cleared_stays_with_the_victims_it_takes(
    cluster: tuple[list[Json], list[Json], dict[str, tuple[list[Json], int]]], whole: bool
) -> None:
    nodes, pods, proposed = cluster
    found = Bench(nodes, pods).preempt(VIP, proposed, whole=whole)
    for node in nodes:
        name = node["metadata"]["name"]
        given_victims, violations = proposed[name]
        room = int(node["status"]["allocatable"]["cpu"]) - cpu_of(VIP)
        staying = [pod for pod in pods if on(pod, node) and pod not in given_victims]
        immovable = [pod for pod in staying if pod["spec"].get("priority", 0) >= 1000]
        if not given_victims or sum(map(cpu_of, immovable)) > room:
            assert name not in found
        elif sum(map(cpu_of, staying)) <= room:
            assert found[name] == Victims(given_victims, violations)
        else:
            victims = found[name].pods
            assert all(pod in victims for pod in given_victims)
            assert sum(cpu_of(pod) for pod in staying if pod not in victims) <= room


def cpu_of(pod: Json) -> int:
    return int(pod["spec"]["containers"][0]["resources"].get("requests", {}).get("cpu", 0))
