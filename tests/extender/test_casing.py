"""Keys in another casing: what they say counts at every level, as in Go, and texts are never touched."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw

from algorithms.node_affinity import NodeAffinity
from algorithms.node_unschedulable import NodeUnschedulable
from extender.errors import RequestError
from extender.framework.profile import bind
from extender.framework.runner import NoRecorder, Profile, Runner
from extender.model.casing import Casing
from extender.model.document import ObjectReader
from extender.model.object import Node, Pod, PodSpec, Toleration
from extender.testing import make_node, make_pod
from extender.testing.lab import Lab
from extender.verbs import filter as filter_verb
from extender.verbs.service import Service

RECORDED = sorted((Path(__file__).parents[1] / "data" / "wire").glob("*/filter-*-?.json"))
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"

POD: Any = make_pod(
    "p",
    labels={"NAME": "Spec", "app": "nodeSelector"},
    annotations={"kept": json.dumps({"NodeName": "x", "spec": {"nodeselector": {}}})},
    requests={"cpu": "1", "example.com/Name": "2"},
)
POD["spec"] |= {
    "nodeSelector": {"Zone": "a", "zone": "b", "KIND": "c"},
    "tolerations": [{"key": "Key", "operator": "Exists"}],
    "affinity": {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": [{"matchFields": [{"key": "metadata.name"}]}]}}},
    "topologySpreadConstraints": [{"maxSkew": 1, "labelSelector": {"matchLabels": {"App": "x"}}}],
    "volumes": [{"name": "v", "iscsi": {"targetPortal": "t", "lun": 3}, "futureSource": {"Items": [1.5, None]}}],
}
NODE: Any = make_node("n1", labels={"Spec": "a"}, images={"Image": 5}, taints=[{"key": "Key", "effect": "NoSchedule"}])
READERS: dict[Any, ObjectReader[Any]] = {kind: ObjectReader(kind) for kind in (Pod, Node)}
MAPS = {"labels", "annotations", "matchLabels", "nodeSelector", "requests", "limits", "allocatable", "capacity"}


def respell(value: Any, spell: Callable[[str], str]) -> Any:
    """Spell all keys otherwise but those of maps and of what is not decoded."""
    if isinstance(value, list):
        return [respell(item, spell) for item in value]
    if not isinstance(value, dict):
        return value
    kept = MAPS | {"futureSource"}
    return {spell(key): item if key in kept else respell(item, spell) for key, item in value.items()}


def at_random(random: Any) -> Callable[[str], str]:
    return lambda key: "".join(random.choice((letter.lower(), letter.upper())) for letter in key)


def encoded(value: Any, **form: Any) -> Raw:
    return Raw(json.dumps(value, **form).encode())


@pytest.mark.parametrize(("kind", "item"), [(Pod, POD), (Node, NODE)], ids=["a pod", "a node"])
@given(st.randoms(use_true_random=False), st.sampled_from([None, (",", ":"), (" , ", " : ")]))
def test_an_object_means_the_same_whatever_the_casing_of_its_keys(
    kind: type[msgspec.Struct], item: Any, random: Any, separators: Any
) -> None:
    reader = READERS[kind]
    usual = reader.read(encoded(item, separators=separators), "it")
    assert usual == msgspec.convert(item, kind)
    for spell in (str.lower, str.upper, str.title, at_random(random)):
        assert reader.read(encoded(respell(item, spell), separators=separators), "it") == usual


@given(st.sampled_from([(Pod, POD), (Node, NODE)]), st.randoms(use_true_random=False))
def test_one_key_in_another_casing_is_seen_wherever_it_stands(chosen: tuple[Any, Any], random: Any) -> None:
    kind, item = chosen
    keys: list[str] = []
    respell(item, lambda key: keys.append(key) or key)  # type: ignore[func-returns-value]  # notes and keeps
    odd, spell = (
        random.choice([key for key in keys if key not in ("apiVersion", "kind", "futureSource")]),
        at_random(random),
    )
    text = encoded(respell(item, lambda key: spell(key) if key == odd else key))
    assert READERS[kind].read(text, "it") == msgspec.convert(item, kind)


@pytest.mark.parametrize("path", RECORDED, ids=lambda path: f"{path.parent.name} {path.stem}")
def test_what_kube_scheduler_sends_is_in_the_usual_casing(path: Path) -> None:
    asked = json.loads(path.read_bytes())
    assert Casing(Pod).is_usual(encoded(asked["Pod"], separators=(",", ":")))
    for node in (asked["Nodes"] or {}).get("items", []):
        assert Casing(Node).is_usual(encoded(node, separators=(",", ":")))


def test_keys_that_are_not_decoded_are_got_to_know_but_no_more_than_some() -> None:
    casing = Casing(Pod)
    known, odd = {"spec": {"x0": 1}}, {"spec": {"x0": 1, "NodeName": "n"}}
    for first, usual in ((0, True), (512, True), (1024, False), (1536, False), (0, True)):
        future = {f"x{number}": {"NodeName": 1} for number in range(first, first + 512)}
        assert casing.is_usual(encoded({"spec": future, "metadata": None})) == usual
    assert casing.is_usual(encoded(known))
    assert not casing.is_usual(encoded(odd))
    assert casing.restore(odd) == {"spec": {"x0": 1, "nodeName": "n"}}


@pytest.mark.parametrize("key", ["", "\x00", 'a"b', "ñ", "\\", "a b", "class", "__class__", "field_0"])
def test_keys_that_no_api_has_change_nothing(key: str) -> None:
    item = {"spec": {key: {"NodeName": 1}, "priority": 3, "Tolerations": [{"Key": "a"}]}, key: None}
    for _ in range(2):
        read = ObjectReader(Pod).read(encoded(item), "Pod")
        assert read == Pod(spec=PodSpec(priority=3, tolerations=[Toleration(key="a")]))
        assert READERS[Pod].read(encoded({key: 1, **POD}), "Pod") == msgspec.convert(POD, Pod)


def test_keys_within_texts_are_not_keys() -> None:
    assert Casing(Pod).is_usual(encoded({"metadata": {"annotations": {"x": '{"NodeName":1,"spec":{"Volumes":[]}}'}}}))


def test_of_two_casings_of_a_key_the_last_one_counts() -> None:
    read = ObjectReader(Pod).read(Raw(b'{"spec":{"priority":1,"PRIORITY":2,"Priority":3},"metadata":null}'), "Pod")
    assert read.spec is not None
    assert read.spec.priority == 3


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (b'{"SPEC":{"tolerations":5}}', r"got `int` - at `Pod\.spec\.tolerations`; send Pod"),
        (b'{"SPEC":5}', r"got `int` - at `Pod\.spec`; send Pod"),
        (b'{"SPEC":{}, "x":"\xff"}', "Pod is not JSON: "),
        (b'{"SPEC":' + b"[" * 100_000 + b"]" * 100_000 + b"}", "Pod is not JSON: "),
    ],
    ids=["a wrong type", "a wrong type in place of an object", "bytes that are not UTF-8", "nesting without end"],
)
def test_faults_beside_another_casing_are_named_all_the_same(text: bytes, problem: str) -> None:
    with pytest.raises(RequestError, match=problem):
        ObjectReader(Pod).read(Raw(text), "Pod")


# --- at the verbs ----------------------------------------------------------------------------------------------------


def serving(lab: Lab) -> Service:
    predicates = [bind(each, each.Arguments(), lab.mirror) for each in (NodeUnschedulable, NodeAffinity)]
    return Service(lab.mirror, Runner(Profile(predicates, []), NoRecorder()))


def test_a_selector_in_lower_case_is_held_to() -> None:
    lab = Lab([make_node("in", labels={"zone": "a"}), make_node("out")])
    service = serving(lab)
    pod = make_pod("p")
    pod["spec"]["nodeselector"] = {"zone": "a"}
    reply = json.loads(filter_verb.answer(service, json.dumps({"Pod": pod, "NodeNames": ["in", "out"]}).encode()))
    assert reply["NodeNames"] == ["in"]


@pytest.mark.parametrize("spell", [str.lower, str.upper, str.title], ids=["lower", "upper", "title"])
def test_a_node_in_any_casing_is_judged_by_what_it_says_and_echoed_as_it_came(spell: Callable[[str], str]) -> None:
    lab = Lab([make_node("n1")])
    service = serving(lab)
    nodes = [respell(make_node(f"n{n}", unschedulable=n == 2), spell) for n in (1, 2, 3)]
    body = json.dumps({"Pod": make_pod("p"), "Nodes": {"ITEMS": nodes}}).encode()
    reply = json.loads(filter_verb.answer(service, body))
    assert reply["Nodes"]["items"] == [nodes[0], nodes[2]]
    assert list(reply["FailedAndUnresolvableNodes"]) == ["n2"]
