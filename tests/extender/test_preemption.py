"""Which pods have to go: picked from nothing, added to what was given, and pods for which room is kept."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from algorithms.node_resources_fit import NodeResourcesFit
from extender.framework.cache import Cache
from extender.framework.eviction import DisruptionBudgets, EvictedPods, PlacedPods
from extender.framework.nomination import filter_with_nominated
from extender.framework.preemption import NO_VICTIMS, Eviction, Preemption
from extender.framework.profile import bind
from extender.framework.runner import NoRecorder, Outcome, Profile, Runner
from extender.testing import make_node, make_pod
from extender.testing.lab import Lab, pending
from extender.testing.law import check_fold_equals_rebuild, check_inverse_leaves_no_trace

Json = dict[str, Any]


def budget(name: str, allowed: int, *, app: str | None = "web", disrupted: Iterable[str] = ()) -> Json:
    selector = None if app is None else {"matchLabels": {"app": app}} if app else {}
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"selector": selector},
        "status": {"disruptionsAllowed": allowed, "disruptedPods": dict.fromkeys(disrupted, "2026-01-01T00:00:00Z")},
    }


def placed(name: str, cpu: int | str, priority: int = 0, *, app: str = "", started: str = "") -> Json:
    pod = make_pod(name, node="n", requests={"cpu": cpu}, priority=priority, labels={"app": app} if app else {})
    pod["status"] |= {"startTime": started} if started else {}
    return pod


class Bench:
    """A cluster with nothing but resources to mind."""

    def __init__(self, *objects: Json) -> None:
        self.lab = Lab(objects)
        fit = bind(NodeResourcesFit, NodeResourcesFit.Arguments(), self.lab.mirror)
        self.runner = Runner(Profile([fit], []), NoRecorder())
        self.preemption = Preemption(self.lab.mirror, self.runner)

    def row(self) -> int:
        return self.lab.mirror.table.index["n"]

    def pick(self, pod: Json) -> tuple[list[str], int] | str:
        return self._told(self.preemption.pick(pending(pod), self.row()))

    def complete(self, pod: Json, victims: Iterable[str], violations: int = 0) -> tuple[list[str], int] | str:
        named = [info for uid in victims if (info := self.lab.mirror.placed(f"uid-{uid}")) is not None]
        found = self.preemption.complete(pending(pod), self.row(), Eviction(named, violations))
        return "left out" if found is None else self._told(found)

    @staticmethod
    def _told(found: Eviction | Outcome) -> tuple[list[str], int] | str:
        if isinstance(found, Outcome):
            return found.text
        return [info.name for info in found.victims], found.violations


NODE = make_node("n", cpu=4)
VIP = make_pod("vip", requests={"cpu": 2}, priority=100)

PICKS = {
    "nobody is less important": ([placed("a", 4, 100)], NO_VICTIMS),
    "the least important one that is enough goes": ([placed("low", 2, 1), placed("high", 2, 2)], (["low"], 0)),
    "of equals the one that started last goes": (
        [placed("old", 2, started="2026-01-01T00:00:00Z"), placed("new", 2, started="2026-01-02T00:00:00Z")],
        (["new"], 0),
    ),
    "a pod that has not started counts as the last": (
        [placed("old", 2, started="2026-01-01T00:00:00Z"), placed("none", 2)],
        (["none"], 0),
    ),
    "two small ones go where one large must stay": (
        [placed("s1", 1, 1), placed("s2", 1, 1), placed("big", 2, 50)],
        (["s1", "s2"], 0),
    ),
    "even all of them are not enough": ([placed("low", 1, 1), placed("equal", 3, 100)], "Insufficient cpu"),
    "a protected one stays where another can go": (
        [placed("web", 2, 1, app="web"), placed("other", 2, 2), budget("b", 0)],
        (["other"], 0),
    ),
    "protected ones go where nothing else helps, and are counted": (
        [placed("w1", 2, 1, app="web"), placed("w2", 2, 1, app="web"), budget("b", 0), placed("rest", "1m", 100)],
        (["w1", "w2"], 2),
    ),
    "a budget lets as many go as it allows": (
        [placed("w1", 2, 2, app="web"), placed("w2", 2, 1, app="web"), budget("b", 1), placed("rest", "1m", 100)],
        (["w1", "w2"], 1),
    ),
    "a pod that is being evicted already is not counted again": (
        [placed("web", 4, 1, app="web"), budget("b", 0, disrupted=["web"])],
        (["web"], 0),
    ),
    "a budget that selects everything protects nothing": (
        [placed("web", 4, 1, app="web"), budget("b", 0, app="")],
        (["web"], 0),
    ),
    "a budget without a selector protects nothing": (
        [placed("web", 4, 1, app="web"), budget("b", 0, app=None)],
        (["web"], 0),
    ),
    "a budget of other labels protects nothing": (
        [placed("web", 4, 1, app="web"), budget("b", 0, app="db")],
        (["web"], 0),
    ),
}


@pytest.mark.parametrize(("objects", "expected"), PICKS.values(), ids=PICKS)
def test_pick(objects: list[Json], expected: object) -> None:
    bench = Bench(NODE, *objects)
    before = [cache.dump() for cache in bench.lab.mirror.caches]
    assert bench.pick(VIP) == expected
    assert [cache.dump() for cache in bench.lab.mirror.caches] == before


COMPLETIONS = {
    "victims that are enough are kept as they came": (
        [placed("low", 2, 1), placed("high", 2, 2)],
        ["high"],
        7,
        (["high"], 7),
    ),
    "the least important further one is added": (
        [placed("given", 1, 5), placed("low", 1, 1), placed("high", 2, 9)],
        ["given"],
        0,
        (["given", "low"], 0),
    ),
    "violations are counted again when one is added": (
        [placed("given", 1, 5, app="web"), placed("low", 3, 1, app="web"), budget("b", 1)],
        ["given"],
        0,
        (["given", "low"], 1),
    ),
    "a protected one is added last": (
        [
            placed("given", 1, 5),
            placed("web", 1, 1, app="web"),
            placed("other", 1, 9),
            placed("rest", 1, 100),
            budget("b", 0),
        ],
        ["given"],
        0,
        (["other", "given"], 0),
    ),
    "nothing that may be evicted helps": ([placed("given", 1, 5), placed("equal", 3, 100)], ["given"], 0, "left out"),
    "not even all the others help": (
        [placed("given", 1, 5), placed("low", "500m", 1), placed("equal", "2500m", 100)],
        ["given"],
        0,
        "left out",
    ),
}


@pytest.mark.parametrize(("objects", "victims", "violations", "expected"), COMPLETIONS.values(), ids=COMPLETIONS)
def test_complete(objects: list[Json], victims: list[str], violations: int, expected: object) -> None:
    bench = Bench(NODE, *objects)
    before = [cache.dump() for cache in bench.lab.mirror.caches]
    assert bench.complete(VIP, victims, violations) == expected
    assert [cache.dump() for cache in bench.lab.mirror.caches] == before


def nominated(name: str, priority: int, node: str = "n", cpu: int = 3) -> Json:
    pod = make_pod(name, requests={"cpu": cpu}, priority=priority)
    pod["status"]["nominatedNodeName"] = node
    return pod


NOMINATIONS = {
    "room is kept from a pod of lower priority": (nominated("kept", 200), True),
    "room is kept from a pod of equal priority": (nominated("kept", 100), True),
    "room is not kept from a pod of higher priority": (nominated("kept", 99), False),
    "room that is kept on another node does not matter": (nominated("kept", 200, node="elsewhere"), False),
    "room that still leaves enough does not matter": (nominated("kept", 200, cpu=2), False),
    "room is not kept from the pod itself": (nominated("vip", 100), False),
}


@pytest.mark.parametrize(("kept", "refused"), NOMINATIONS.values(), ids=NOMINATIONS)
def test_nominated_pods_count(kept: Json, refused: bool) -> None:
    bench = Bench(NODE, make_node("other"), kept)
    mirror = bench.lab.mirror
    filtered = filter_with_nominated(mirror, bench.runner, pending(VIP), bench.lab.nodes(["other", "n"]))
    outcome = filtered.of(1)
    assert (outcome.text if outcome else None) == ("Insufficient cpu" if refused else None)
    assert filtered.of(0) is None


def test_a_nominated_pod_that_is_assumed_counts_once() -> None:
    bench = Bench(NODE, nominated("kept", 200, cpu=2))
    mirror = bench.lab.mirror
    mirror.assume(mirror.reader.placed_on(mirror.by_uid["uid-kept"], "n"))
    assert filter_with_nominated(mirror, bench.runner, pending(VIP), bench.lab.nodes()).of(0) is None


def test_a_nomination_that_is_withdrawn_counts_no_more() -> None:
    bench = Bench(NODE, nominated("kept", 200))
    withdrawn = make_pod("kept", requests={"cpu": 3}, priority=200)
    bench.lab.apply(withdrawn)
    assert not bench.lab.mirror.nominated


NAMES = st.sampled_from(["a", "b", "c"])
PODS = st.builds(lambda name, node: make_pod(name, node=node), NAMES, st.sampled_from(["n", "m", None]))
BUDGETS = st.builds(
    lambda name, allowed, app: budget(name, allowed, app=app),
    NAMES,
    st.integers(0, 2),
    st.sampled_from(["web", "", None]),
)
EVENTS = st.lists(st.tuples(st.sampled_from(["apply", "delete"]), st.one_of(PODS, BUDGETS, st.just(NODE))))


@given(events=EVENTS)
@pytest.mark.parametrize("cache", [PlacedPods, EvictedPods, DisruptionBudgets])
def test_caches_keep_the_laws(cache: type[Cache], events: list[tuple[str, Json]]) -> None:
    lab = Lab()
    check_fold_equals_rebuild(cache, events, lab)
    check_inverse_leaves_no_trace(cache, lab)


def test_what_is_evicted_and_not_brought_back_is_gone() -> None:
    lab = Lab([NODE, placed("a", 1), placed("b", 1)])
    mirror, evicted = lab.mirror, lab.mirror.cache(EvictedPods)
    info = mirror.by_uid["uid-a"]
    with mirror.what_if(without=mirror.by_uid.values()):
        assert [pod.name for _, pod in evicted.gone()] == ["a", "b"]
        with mirror.what_if(plus=[info]):
            assert [pod.name for _, pod in evicted.gone()] == ["b"]
        assert evicted.dump() == ["default/a", "default/b"]
    assert evicted.gone() == []


def test_a_budget_that_cannot_be_read_protects_nothing() -> None:
    broken = budget("b", 0)
    broken["spec"]["selector"] = {"matchExpressions": [{"key": "app", "operator": "Near", "values": ["web"]}]}
    assert Bench(NODE, placed("web", 4, 1, app="web"), broken).pick(VIP) == (["web"], 0)


def test_a_pod_that_evicts_nobody_is_read_as_such() -> None:
    assert pending(make_pod("p", preemptionPolicy="Never")).spec.preemption_policy == "Never"
    assert msgspec.structs.asdict(pending(VIP).spec)["preemption_policy"] is None
