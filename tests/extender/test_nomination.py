"""Nominated pods count as if each node were asked about with its own pods in place, in far fewer questions."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from algorithms import DEFAULT
from algorithms.fit_ip_resource import POOL_REASONS, FitIPResource
from algorithms.inter_pod_affinity import InterPodAffinity
from algorithms.local_replicas import REASON, LocalReplicas
from algorithms.node_ports import NodePorts
from algorithms.node_resources_fit import NodeResourcesFit
from algorithms.pod_topology_spread import PodTopologySpread
from algorithms.service_affinity import ServiceAffinity
from algorithms.volume_restrictions import VolumeRestrictions
from extender.framework import Nodes, PendingPod, PodClasses, PodInfo, Predicate, Refusal, uses
from extender.framework.nomination import filter_with_nominated
from extender.framework.outcome import Outcome
from extender.framework.profile import ProfileBinder, bind
from extender.framework.registry import Registry
from extender.framework.runner import NoRecorder, Profile, Runner
from extender.model.selector import LabelMatcher
from extender.section import ProfileSection
from extender.testing import make_node, make_pod
from extender.testing.lab import Lab, pending

Json = dict[str, Any]
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


class FewPods(Predicate):
    """Refuses all nodes but the first where there are many pods anywhere: it looks at other nodes, and says nothing."""

    pods = uses(PodClasses)

    def filter(self, pod: PendingPod, nodes: Nodes) -> list[Refusal]:
        """Count all pods."""
        crowded = int(self.pods.counts(self.pods.select(LabelMatcher(()))).sum()) > 3
        return [Refusal(nodes.rows != nodes.table.index.get("a"), "too many pods")] if crowded else []


def runner_of(lab: Lab, *predicates: tuple[type[Predicate], Json], check_all: bool = False) -> Runner:
    bound = [bind(cls, cls.Arguments.model_validate(args), lab.mirror) for cls, args in predicates]
    return Runner(Profile(bound, [], check_all), NoRecorder())


def nominated(name: str, node: str, priority: int = 5, **options: Any) -> Json:
    made = make_pod(name, priority=priority, **options)
    return {**made, "status": {"phase": "Pending", "nominatedNodeName": node}}


def refused(lab: Lab, runner: Runner, pod: Json) -> dict[str, Outcome | None]:
    nodes = lab.nodes()
    filtered = filter_with_nominated(lab.mirror, runner, pending(pod), nodes)
    return {name: filtered.of(place) for place, name in enumerate(nodes.names())}


def refused_one_by_one(lab: Lab, runner: Runner, pod: Json) -> dict[str, Outcome | None]:
    """Do what upstream does, node by node, with all caches."""
    mirror, subject, found = lab.mirror, pending(pod), {}
    for name in lab.nodes().names():
        counting = [
            info
            for info in mirror.nominated.get(name, {}).values()
            if info.priority >= subject.priority and info.uid != subject.uid and info.uid not in mirror.assumed
        ]
        node = Nodes(mirror.table, np.array([mirror.table.index[name]]))
        with mirror.what_if(plus=counting):
            outcome = runner.filter(subject, node).of(0)
        found[name] = outcome or runner.filter(subject, node).of(0)
    return found


# --- agreement with upstream's way -----------------------------------------------------------------------------------


def expression(key: str, operator: str, *values: str) -> Json:
    return {"key": key, "operator": operator} | ({"values": list(values)} if values else {})


NAMES = st.sampled_from(["a", "b", "c", "d"])
KEYS, VALUES = st.sampled_from(["x", "y"]), st.sampled_from(["1", "2"])
LABELS = st.dictionaries(KEYS, VALUES)
SELECTORS = st.builds(lambda labels: {"matchLabels": labels}, LABELS) | st.builds(
    lambda *found: {"matchExpressions": list(found)},
    st.builds(expression, KEYS, st.sampled_from(["In", "NotIn"]), VALUES)
    | st.builds(expression, KEYS, st.sampled_from(["Exists", "DoesNotExist"])),
)
TERMS = st.builds(
    lambda key, selector, everywhere: {
        "topologyKey": key,
        "labelSelector": selector,
        **({"namespaceSelector": {}} if everywhere else {}),
    },
    st.sampled_from(["zone", "host"]),
    SELECTORS,
    st.booleans(),
)
TERM_LISTS = st.lists(TERMS, max_size=1)
AFFINITIES = st.builds(
    lambda near, far: {
        kind: {REQUIRED: terms} for kind, terms in (("podAffinity", near), ("podAntiAffinity", far)) if terms
    },
    TERM_LISTS,
    TERM_LISTS,
)
CONSTRAINTS = st.lists(
    st.builds(
        lambda key, selector: {
            "maxSkew": 1,
            "topologyKey": key,
            "whenUnsatisfiable": "DoNotSchedule",
            "labelSelector": selector,
        },
        st.sampled_from(["zone", "host"]),
        SELECTORS,
    ),
    max_size=1,
)
SPECS = st.fixed_dictionaries(
    {
        "labels": LABELS,
        "namespace": st.sampled_from(["n", "n", "m"]),
        "requests": st.sampled_from([{}, {"cpu": "1"}, {"cpu": "3"}]),
        "priority": st.integers(0, 2),
        "affinity": AFFINITIES,
        "topologySpreadConstraints": CONSTRAINTS,
    },
    optional={"ports": st.just([80]), "volumes": st.just(["claim"])},
)
PODS = st.builds(
    lambda number, node, placed, spec: (
        make_pod(f"p{number}", node=node, **spec) if placed else nominated(f"p{number}", node, **spec)
    ),
    st.integers(0, 20),
    NAMES,
    st.booleans(),
    SPECS,
)
NODES = st.builds(
    lambda name, zone: make_node(name, cpu=4, labels={"host": name, **({"zone": zone} if zone else {})}),
    NAMES,
    st.sampled_from(["1", "2", ""]),
)
CLAIM = {
    "apiVersion": "v1",
    "kind": "PersistentVolumeClaim",
    "metadata": {"name": "claim", "namespace": "n"},
    "spec": {"accessModes": ["ReadWriteOncePod"]},
}
SERVICE = {
    "apiVersion": "v1",
    "kind": "Service",
    "metadata": {"name": "s", "namespace": "n"},
    "spec": {"selector": {"x": "1"}},
}
PROFILES: dict[str, list[tuple[type[Predicate], Json]]] = {
    "the default predicates": [],
    "some that say what they heed": [(NodePorts, {}), (VolumeRestrictions, {}), (NodeResourcesFit, {})],
    "one that looks at labels": [(ServiceAffinity, {"affinityLabels": ["zone"]}), (NodeResourcesFit, {})],
    "one that does not say it": [(PodTopologySpread, {}), (FewPods, {}), (NodeResourcesFit, {})],
}


@pytest.mark.parametrize("check_all", [False, True], ids=["the first reason", "all reasons"])
@pytest.mark.parametrize("predicates", PROFILES.values(), ids=PROFILES)
@settings(deadline=None, max_examples=60)
@given(nodes=st.lists(NODES, min_size=1), pods=st.lists(PODS), spec=SPECS)
def test_answers_are_those_of_asking_node_by_node(
    predicates: Any, check_all: bool, nodes: list[Json], pods: list[Json], spec: Json
) -> None:
    lab = Lab([*nodes, *pods, CLAIM, SERVICE])
    if predicates:
        runner = runner_of(lab, *predicates, check_all=check_all)
    else:
        section = ProfileSection.model_validate({"alwaysCheckAllPredicates": check_all, "provider": DEFAULT.name})
        runner = Runner(ProfileBinder(Registry(), lab.mirror, "").bind(section), NoRecorder())
    before = [cache.dump() for cache in lab.mirror.caches]
    subject = make_pod("subject", **spec)
    assert refused(lab, runner, subject) == refused_one_by_one(lab, runner, subject)
    assert [cache.dump() for cache in lab.mirror.caches] == before


# --- few questions ---------------------------------------------------------------------------------------------------


class Asked(NodeResourcesFit):
    """Notes about how many nodes it is asked."""

    def __init__(self, *bound: Any) -> None:
        super().__init__(*bound)
        self.sizes: list[int] = []

    def filter(self, pod: PendingPod, nodes: Nodes) -> Any:
        """Note it."""
        self.sizes.append(len(nodes))
        return super().filter(pod, nodes)


class AskedNodeByNode(Asked):
    """The same, but it does not say that it is local."""

    node_local = False

    def heeded(self, pod: PendingPod, others: Any) -> list[PodInfo]:
        """Heed one of the pods."""
        return [other for other in others if other.name == "p3"]


@pytest.mark.parametrize(("predicate", "sizes"), [(Asked, [9, 6]), (AskedNodeByNode, [9, 5, 1])])
def test_nodes_are_asked_about_together_where_that_is_right(predicate: type[Asked], sizes: list[int]) -> None:
    lab = Lab([make_node(f"n{number}") for number in range(9)])
    lab.apply(*(nominated(f"p{number}", f"n{number}") for number in range(6)))
    runner = runner_of(lab, (predicate, {}))
    if predicate is AskedNodeByNode:
        runner = runner_of(lab, (predicate, {}), (NodeResourcesFit, {}))
    refused(lab, runner, make_pod("subject"))
    (asked,) = (each for each in runner.profile.predicates if isinstance(each, Asked))
    assert asked.sizes == sizes


def test_nobody_is_asked_again_where_nominated_pods_are_not_heeded() -> None:
    lab = Lab([make_node("n0"), nominated("p", "n0")])
    runner = runner_of(lab, (NodePorts, {}), (PodTopologySpread, {}), (InterPodAffinity, {}))
    assert refused(lab, runner, make_pod("subject")) == {"n0": None}
    counting = list(lab.mirror.nominated["n0"].values())
    assert [list(each.heeded(pending(make_pod("subject")), counting)) for each in runner.profile.predicates] == [[]] * 3


# --- pods that count everywhere --------------------------------------------------------------------------------------


def in_zones(*names: str) -> list[Json]:
    return [make_node(name, labels={"zone": name[0], "pool": name[0]}) for name in names]


def owned(pod: Json) -> Json:
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "web", "controller": True}
    return {**pod, "metadata": {**pod["metadata"], "ownerReferences": [owner]}}


RULES: dict[str, tuple[type[Predicate], Json, str]] = {
    "replicas of a zone": (LocalReplicas, {"topologyKey": "zone", "rules": [{"maxReplicas": 1}]}, REASON),
    "addresses of a pool": (
        FitIPResource,
        {"pool": {"labelKey": "pool", "capacity": {"a": 1, "b": 1}}},
        POOL_REASONS[0],
    ),
}


@pytest.mark.parametrize("check_all", [False, True], ids=["the first reason", "all reasons"])
@pytest.mark.parametrize("rule", RULES.values(), ids=RULES)
def test_pods_nominated_to_another_node_of_the_domain_count(rule: tuple[Any, Json, str], check_all: bool) -> None:
    predicate, args, reason = rule
    lab = Lab([*in_zones("a1", "a2", "b1"), owned(nominated("first", "a1")), owned(nominated("less", "b1", 0))])
    runner = runner_of(lab, (NodePorts, {}), (predicate, args), check_all=check_all)
    found = refused(lab, runner, owned(make_pod("second", priority=1)))
    assert {name: outcome and outcome.text for name, outcome in found.items()} == {
        "a1": reason,
        "a2": reason,
        "b1": None,
    }


def test_what_was_refused_before_keeps_its_reason() -> None:
    lab = Lab([*in_zones("a1", "a2"), make_pod("large", node="a2", requests={"cpu": 8}), owned(nominated("p", "a1"))])
    runner = runner_of(lab, RULES["replicas of a zone"][:2], (NodeResourcesFit, {}))
    found = refused(lab, runner, owned(make_pod("second", requests={"cpu": 1})))
    assert {name: outcome and outcome.text for name, outcome in found.items()} == {
        "a1": REASON,
        "a2": "Insufficient cpu",
    }


def test_a_pod_nominated_to_a_node_that_is_gone_counts_nowhere() -> None:
    lab = Lab([*in_zones("a1"), owned(nominated("p", "a9"))])
    runner = runner_of(lab, RULES["replicas of a zone"][:2])
    assert refused(lab, runner, owned(make_pod("second"))) == {"a1": None}
