"""Go writes null for whatever is nil: every field of a pod or a node may be null, in requests and from the watch."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from extender.errors import ExtenderError
from extender.framework.algorithm import Algorithm
from extender.framework.loader import load_all
from extender.framework.profile import ProfileBinder
from extender.framework.registry import Registry
from extender.framework.runner import NoRecorder, Runner
from extender.section import ProfileSection
from extender.testing.lab import Lab
from extender.verbs import filter as filter_verb
from extender.verbs import preempt as preempt_verb
from extender.verbs import prioritize as prioritize_verb
from extender.verbs.service import Service

RECORDED = Path(__file__).parents[1] / "data" / "wire" / "nodes-mode"


def recorded(name: str) -> Any:
    return json.loads((RECORDED / f"{name}.json").read_bytes())


FILTER = recorded("filter-db-1")
LABELLED = {"labelSelector": {"matchLabels": {"app": "db"}, "matchExpressions": [{"key": "a", "operator": "Exists"}]}}
IN_ZONE = {"matchExpressions": [{"key": "zone", "operator": "NotIn", "values": ["z"]}], "matchFields": []}
POD = FILTER["Pod"] | {
    "spec": FILTER["Pod"]["spec"]
    | {
        "nodeSelector": {"kubernetes.io/hostname": "node-1"},
        "overhead": {"cpu": "1m"},
        "volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}, {"name": "e", "emptyDir": {}}],
        "affinity": {
            "nodeAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [IN_ZONE]},
                "preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 3, "preference": IN_ZONE}],
            },
            "podAffinity": {
                "preferredDuringSchedulingIgnoredDuringExecution": [
                    {"weight": 5, "podAffinityTerm": {**LABELLED, "topologyKey": "zone", "namespaceSelector": {}}}
                ],
            },
            "podAntiAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": [
                    {**LABELLED, "topologyKey": "zone", "namespaces": ["default"]}
                ],
            },
        },
    }
}
NODE = FILTER["Nodes"]["items"][0] | {
    "spec": {"taints": [{"key": "k", "value": "v", "effect": "PreferNoSchedule"}], "unschedulable": False}
}
NODES = [NODE, *FILTER["Nodes"]["items"][1:]]
PLACED = POD | {
    "metadata": POD["metadata"] | {"name": "db-0", "uid": "u-db-0", "deletionTimestamp": "2030-01-01T00:00:00Z"},
    "spec": POD["spec"] | {"nodeName": "node-0"},
    "status": {
        "phase": "Running",
        "startTime": "2030-01-01T00:00:00Z",
        "conditions": [{"type": "PodResizePending", "reason": "Infeasible"}],
        "containerStatuses": [{"name": "c", "allocatedResources": {"cpu": "1"}, "resources": {"requests": {}}}],
    },
}


MAPS = {"labels", "matchLabels", "annotations", "nodeSelector"}
"""Maps from text to text: what is in them is never nil, and neither is what is in a list."""


def fields(item: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The paths of all fields inside a value."""
    if isinstance(item, list):
        for place, child in enumerate(item):
            yield from fields(child, (*path, place))
    elif isinstance(item, dict) and not (path and path[-1] in MAPS):
        for key, child in item.items():
            yield (*path, key)
            yield from fields(child, (*path, key))


def with_nulls(value: Any) -> dict[str, Any]:
    """The value once for each field in it, with null there."""
    found = {}
    for place in fields(value):
        changed = parent = copy.deepcopy(value)
        for key in place[:-1]:
            parent = parent[key]
        parent[place[-1]] = None
        found[".".join(map(str, place))] = changed
    return found


def each_with_null(value: Any, but: tuple[str, ...] = ()) -> pytest.MarkDecorator:
    found = {place: changed for place, changed in with_nulls(value).items() if place not in but}
    return pytest.mark.parametrize("item", found.values(), ids=[f"{place} is null" for place in found])


IDENTITY = ("metadata", "metadata.name", "metadata.uid")
"""What the API server gives every object that it holds."""


@pytest.fixture(scope="module")
def lab() -> Lab:
    return Lab([*({"kind": "Node", **node} for node in NODES), {"kind": "Pod", **PLACED}])


@pytest.fixture(scope="module")
def service(lab: Lab) -> Service:
    """A service that runs every algorithm that needs no arguments."""
    registry = Registry()
    assert load_all(registry) == {}
    points = {"predicates": registry.predicates, "priorities": registry.priorities}
    section = {
        point: {"enabled": [{"name": name} for name, cls in algorithms.items() if takes_no_arguments(cls)]}
        for point, algorithms in points.items()
    }
    profile = ProfileBinder(registry, lab.mirror, "profiles[0]").bind(ProfileSection.model_validate(section))
    return Service(lab.mirror, Runner(profile, NoRecorder()))


def takes_no_arguments(algorithm: type[Algorithm]) -> bool:
    return not any(field.is_required() for field in algorithm.Arguments.model_fields.values())


def ask(service: Service, answer: Any, **body: Any) -> Any:
    """The reply, or None where the request is refused; nothing but a refusal in words is let through."""
    try:
        return json.loads(answer(service, json.dumps(body).encode()))
    except ExtenderError as error:
        assert isinstance(error.__cause__, ExtenderError | None), repr(error.__cause__)  # noqa: PT017
        return None


@each_with_null(POD)
def test_a_pod_to_be_placed(service: Service, item: Any) -> None:
    names = [node["metadata"]["name"] for node in NODES]
    victims = {"node-0": {"Pods": [{"UID": "u-db-0"}]}}
    for answer in (filter_verb.answer, prioritize_verb.answer, preempt_verb.answer):
        ask(service, answer, Pod=item, NodeNames=names, NodeNameToMetaVictims=victims)


@each_with_null(NODE)
def test_a_node_of_a_request(service: Service, item: Any) -> None:
    for answer in (filter_verb.answer, prioritize_verb.answer):
        ask(service, answer, Pod=POD, Nodes={"items": [item, NODES[1]]})


@each_with_null(NODE, but=IDENTITY)
def test_a_node_of_the_cluster(service: Service, lab: Lab, item: Any) -> None:
    lab.apply({"kind": "Node", **item})
    assert ask(service, filter_verb.answer, Pod=POD, NodeNames=["node-0", "node-1"])
    lab.apply({"kind": "Node", **NODE})


@each_with_null(PLACED, but=IDENTITY)
def test_a_pod_of_the_cluster(service: Service, lab: Lab, item: Any) -> None:
    lab.apply({"kind": "Pod", **item})
    assert ask(service, filter_verb.answer, Pod=POD, NodeNames=["node-0", "node-1"])
    lab.apply({"kind": "Pod", **PLACED})
