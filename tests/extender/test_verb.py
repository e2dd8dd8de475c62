"""What holds of every answer of /filter and /prioritize, whatever the cluster and the request."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from algorithms.node_name import NodeName
from extender.errors import ExtenderError, NotReadyError, RequestError
from extender.framework.runner import NoRecorder, Profile, Runner, Weighted
from extender.model.node import read_node
from extender.model.object import Node
from extender.testing.lab import Lab
from extender.verbs import filter as filter_verb
from extender.verbs import preempt as preempt_verb
from extender.verbs import prioritize as prioritize_verb
from extender.verbs.filter import UNKNOWN_NODE
from extender.verbs.service import Service
from tests.extender.specimen import Graded, Labelled

POD = {"metadata": {"name": "p", "namespace": "default", "uid": "u"}, "spec": {"containers": []}}
NAMES = [f"n{number}" for number in range(6)]


@st.composite
def node_objects(draw: st.DrawFn) -> dict[str, Any]:
    labels = draw(
        st.fixed_dictionaries(
            {"score": st.integers(0, 100).map(str)},
            optional={"refuse": st.sampled_from(["full", "wrong zone"]), "hopeless": st.just("yes")},
        )
    )
    version = draw(st.sampled_from(["1", "2"]))
    return {"metadata": {"name": draw(st.sampled_from(NAMES)), "resourceVersion": version, "labels": labels}}


clusters = st.lists(node_objects(), unique_by=lambda node: node["metadata"]["name"])


def make_service(nodes: list[dict[str, Any]]) -> Service:
    lab = Lab({"kind": "Node", **node} for node in nodes)
    profile = Profile([Labelled({}, {})], [Weighted(Graded({}, {}), 3)])
    return Service(lab.mirror, Runner(profile, NoRecorder()))


def body(**fields: Any) -> bytes:
    return json.dumps({"Pod": POD, **fields}).encode()


def once(names: list[str]) -> list[str]:
    return list(dict.fromkeys(names))


def verdicts(nodes: list[dict[str, Any]], names: list[str]) -> tuple[list[str], dict[str, str], dict[str, str]]:
    """What a filter reply should hold of ``names`` where only ``nodes`` are known."""
    kept: list[str] = []
    failed: dict[str, str] = {}
    unresolvable: dict[str, str] = {}
    labels = {node["metadata"]["name"]: node["metadata"]["labels"] for node in nodes}
    for name in once(names):
        if name not in labels:
            unresolvable[name] = UNKNOWN_NODE
        elif "refuse" not in labels[name]:
            kept.append(name)
        else:
            (unresolvable if "hopeless" in labels[name] else failed)[name] = labels[name]["refuse"]
    return kept, failed, unresolvable


@given(clusters, st.lists(st.sampled_from([*NAMES, "ghost", "N0"])))
def test_every_name_asked_about_is_kept_in_order_or_refused_once(nodes: list[Any], names: list[str]) -> None:
    reply = json.loads(filter_verb.answer(make_service(nodes), body(NodeNames=names)))
    kept, failed, unresolvable = verdicts(nodes, names)
    assert reply == {
        "Nodes": None,
        "NodeNames": kept,
        "FailedNodes": failed,
        "FailedAndUnresolvableNodes": unresolvable,
        "Error": "",
    }


@given(clusters, st.lists(node_objects()))
def test_nodes_sent_whole_are_judged_as_sent_and_echoed(held: list[Any], sent: list[Any]) -> None:
    service = make_service(held)
    before = [service.mirror.table.infos[row] for row in service.mirror.table.rows()]
    reply = json.loads(filter_verb.answer(service, body(Nodes={"items": sent})))
    first = {node["metadata"]["name"]: node for node in reversed(sent)}
    known = {(node["metadata"]["name"], node["metadata"]["resourceVersion"]): node for node in held}
    # A version that the informer has is judged by what the informer has.
    judged = [known.get((name, node["metadata"]["resourceVersion"]), node) for name, node in first.items()]
    kept, failed, unresolvable = verdicts(judged, [node["metadata"]["name"] for node in sent])
    assert reply["Nodes"]["items"] == [first[name] for name in kept]
    assert (reply["NodeNames"], reply["FailedNodes"], reply["FailedAndUnresolvableNodes"]) == (
        None,
        failed,
        unresolvable,
    )
    assert [service.mirror.table.infos[row] for row in service.mirror.table.rows()] == before


@given(clusters, st.lists(st.sampled_from([*NAMES, "ghost"])))
def test_every_name_asked_about_is_scored_once_from_0_to_10(nodes: list[Any], names: list[str]) -> None:
    reply = json.loads(prioritize_verb.answer(make_service(nodes), body(NodeNames=names)), parse_float=pytest.fail)
    raw = {node["metadata"]["name"]: int(node["metadata"]["labels"]["score"]) for node in nodes}
    assert reply == [{"Host": name, "Score": (raw.get(name, 0) + 5) // 10} for name in once(names)]


@given(st.lists(clusters, min_size=2, max_size=4))
def test_names_asked_about_again_are_judged_by_the_cluster_as_it_is_then(states: list[list[Any]]) -> None:
    service = make_service([])
    for nodes in states:
        for row in service.mirror.table.rows().tolist():
            service.mirror.delete_node(service.mirror.table.name(row))
        for node in nodes:
            service.mirror.upsert_node(read_node(msgspec.convert(node, Node)))
        for _ in range(2):
            reply = json.loads(filter_verb.answer(service, body(NodeNames=NAMES)))
            assert reply["NodeNames"] == verdicts(nodes, NAMES)[0]


ODD_NODES: dict[str, tuple[bytes, str]] = {
    "no name": (b'{"spec":{}}', "Nodes.items[0].metadata.name: is missing; send whole Node objects"),
    "null": (b"null", "Nodes.items[0]: Expected `object`, got `null`"),
    "a name that is no text": (b'{"metadata":{"name":5}}', "Nodes.items[0]: Expected `str | null`, got `int`"),
    "a name that is not UTF-8": (
        b'{"metadata":{"name":"\xff","resourceVersion":"1"}}',
        "Nodes.items[0]: Invalid UTF-8 encoded string",
    ),
    "a quantity of no meaning": (
        b'{"metadata":{"name":"n"},"status":{"allocatable":{"cpu":"lots"}}}',
        "node n: status.allocatable: ",
    ),
    "taints that are no list": (b'{"metadata":{"name":"n"},"spec":{"taints":1}}', "`Nodes.items[].spec.taints`"),
}


@pytest.mark.parametrize(("node", "text"), ODD_NODES.values(), ids=[f"a node with {what}" for what in ODD_NODES])
def test_a_node_that_cannot_be_read_is_an_error_that_names_it(node: bytes, text: str) -> None:
    request = b'{"Pod":{"spec":{}},"Nodes":{"items":[%b]}}' % node
    with pytest.raises(ExtenderError) as refusal:
        filter_verb.answer(make_service([]), request)
    assert text in str(refusal.value)


def test_a_node_with_a_name_in_other_letters_goes_the_long_way() -> None:
    node = {"metadata": {"name": 'knöten "1"', "resourceVersion": "7"}}
    reply = json.loads(filter_verb.answer(make_service([]), body(Nodes={"items": [node]})))
    assert reply["Nodes"]["items"] == [node]


def test_a_pod_without_a_spec_is_refused() -> None:
    with pytest.raises(RequestError, match=r"Pod\.spec: is missing; send the whole Pod object"):
        filter_verb.answer(make_service([]), b'{"Pod":{"metadata":{"name":"p"}},"NodeNames":[]}')


@pytest.mark.parametrize("verb", [filter_verb, prioritize_verb, preempt_verb])
def test_nothing_is_answered_before_the_caches_are_complete(verb: Any) -> None:
    service = make_service([])
    waiting = Service(service.mirror, service.runner, lambda: "pods are not synced")
    with pytest.raises(NotReadyError, match="not ready: pods are not synced"):
        verb.answer(waiting, body(NodeNames=["n1"], NodeNameToMetaVictims={}))


def test_long_pods_are_remembered_as_long_as_they_are_short_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("extender.verbs.service._REMEMBERED_BYTES", 10_000)
    service = make_service([])

    def read(number: int, length: int) -> None:
        meta = {"uid": f"u{number}", "annotations": {"filler": "x" * length}}
        service.read_pod(msgspec.Raw(json.dumps({"metadata": meta, "spec": {}}).encode()))

    for number in range(20):
        read(number, 2_000)
    assert [number for number in range(20) if service.seen_pod(f"u{number}")] == [16, 17, 18, 19]
    read(20, 6_000)
    assert [number for number in range(21) if service.seen_pod(f"u{number}")] == [19, 20]
    read(21, 20_000)  # nothing else would have room, and neither has it
    assert not [number for number in range(22) if service.seen_pod(f"u{number}")]
    read(22, 0)
    assert service.seen_pod("u22") is not None


def test_only_the_last_thousand_pods_are_remembered() -> None:
    service = make_service([])
    for number in range(1100):
        service.read_pod(msgspec.Raw(json.dumps({"metadata": {"uid": f"u{number}"}, "spec": {}}).encode()))
    assert service.seen_pod("u0") is None
    assert service.seen_pod("u1099") is not None
    seen = service.seen_pod("u500")
    changed = service.read_pod(msgspec.Raw(b'{"metadata":{"uid":"u500","name":"again"},"spec":{}}'))
    assert service.seen_pod("u500") is changed is not seen


@given(clusters, st.randoms(use_true_random=False))
def test_the_order_of_names_changes_nothing_but_the_order_of_the_reply(nodes: list[Any], random: Any) -> None:
    service, names = make_service(nodes), [node["metadata"]["name"] for node in nodes]
    scores = {node["metadata"]["name"]: (int(node["metadata"]["labels"]["score"]) + 5) // 10 for node in nodes}
    random.shuffle(names)
    for _ in range(2):  # the second time the names are known
        kept = json.loads(filter_verb.answer(service, body(NodeNames=names)))["NodeNames"]
        assert kept == verdicts(nodes, names)[0]
        for asked in (names, kept):
            replied = json.loads(prioritize_verb.answer(service, body(NodeNames=asked)))
            assert replied == [{"Host": name, "Score": scores[name]} for name in asked]


@given(st.lists(st.sampled_from(["n0", "n1", "n2", ""])))
def test_what_one_pod_was_told_is_not_told_another(wanted: list[str]) -> None:
    lab = Lab({"kind": "Node", "metadata": {"name": name}} for name in NAMES[:3])
    service = Service(lab.mirror, Runner(Profile([NodeName({}, {})], []), NoRecorder()))
    for node in wanted:
        pod = {"metadata": {"name": "p"}, "spec": {"nodeName": node}}
        request = json.dumps({"Pod": pod, "NodeNames": NAMES[:3]}).encode()
        reply = json.loads(filter_verb.answer(service, request))
        assert reply["NodeNames"] == [name for name in NAMES[:3] if node in ("", name)]
        assert list(reply["FailedAndUnresolvableNodes"]) == [name for name in NAMES[:3] if node not in ("", name)]
