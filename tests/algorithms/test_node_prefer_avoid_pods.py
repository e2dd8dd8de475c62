"""NodePreferAvoidPods, by tables of cases, and the laws of its cache."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from algorithms.node_prefer_avoid_pods import ANNOTATION, AvoidedControllers, NodePreferAvoidPods, read_controllers
from extender.testing.lab import Lab
from extender.testing.law import check_fold_equals_rebuild, check_inverse_leaves_no_trace
from extender.testing.maker import make_node, make_pod

RC, RS = "ReplicationController", "ReplicaSet"


def annotation(*controllers):
    entries = [
        {
            "podSignature": {"podController": {"apiVersion": "v1", "kind": kind, "name": "x", "uid": uid}},
            "evictionTime": "2026-01-01T00:00:00Z",
            "reason": "some reason",
        }
        for kind, uid in controllers
    ]
    return json.dumps({"preferAvoidPods": entries})


def node(name, *controllers):
    return make_node(name, annotations={ANNOTATION: annotation(*controllers)} if controllers else {})


def pod(*owners):
    """Return a pod with owners of (kind, uid, whether it is the controller)."""
    made = make_pod("p")
    made["metadata"]["ownerReferences"] = [
        {"kind": kind, "uid": uid, "name": "x", "controller": controller} for kind, uid, controller in owners
    ]
    return made


NODES = [node("a", (RC, "1")), node("b", (RS, "2"), (RC, "3")), node("c")]


@pytest.mark.parametrize(
    ("pod", "scores"),
    [
        pytest.param(pod((RC, "1", True)), [0, 100, 100], id="a replication controller that a node avoids"),
        pytest.param(pod((RS, "2", True)), [100, 0, 100], id="a replica set"),
        pytest.param(pod((RC, "3", True)), [100, 0, 100], id="the second that a node avoids"),
        pytest.param(pod((RC, "2", True)), [100, 100, 100], id="of the same uid and another kind"),
        pytest.param(pod((RS, "9", True)), [100, 100, 100], id="one that none avoids"),
        pytest.param(pod((RC, "1", False)), [100, 100, 100], id="an owner that is not the controller"),
        pytest.param(pod((RC, "1", False), (RS, "2", True)), [100, 0, 100], id="the owner that is counts"),
        pytest.param(pod((RC, "1", True), (RS, "2", True)), [0, 100, 100], id="the first of two controllers counts"),
        pytest.param(pod(), [100, 100, 100], id="a pod without a controller"),
    ],
)
def test_score(pod, scores):
    found = Lab(NODES).score(NodePreferAvoidPods, pod)
    assert list(found.raw.values()) == scores
    assert found.normalized == found.raw


def test_a_controller_of_another_kind_avoids_nothing():
    lab = Lab([node("a", ("StatefulSet", "1"))])
    assert lab.score(NodePreferAvoidPods, pod(("StatefulSet", "1", True))).raw == {"a": 100}


def test_scores_are_those_of_the_candidates_in_their_order():
    assert Lab(NODES).score(NodePreferAvoidPods, pod((RC, "3", True)), nodes=["c", "b"]).raw == {"c": 100, "b": 0}


@pytest.mark.parametrize(
    ("text", "controllers"),
    [
        pytest.param("", set(), id="an empty annotation"),
        pytest.param(annotation((RC, "1"), (RS, "2")), {(RC, "1"), (RS, "2")}, id="two controllers"),
        pytest.param(annotation((RC, "1"), (RC, "1")), {(RC, "1")}, id="one controller twice"),
        pytest.param("{}", set(), id="no list"),
        pytest.param("null", set(), id="null"),
        pytest.param('{"preferAvoidPods": null}', set(), id="null in place of the list"),
        pytest.param(
            '{"PREFERavoidPods": [{"podsignature": {"PodController": {"Kind": "ReplicaSet", "UID": "2"}}}]}',
            {(RS, "2")},
            id="keys in another case",
        ),
        pytest.param('{"preferAvoidPods": [null]}', {("", "")}, id="an entry that says nothing"),
        pytest.param('{"preferAvoidPods": [{"podSignature": {}}]}', {("", "")}, id="a signature that says nothing"),
        pytest.param('{"preferAvoidPods": {}}', set(), id="an object in place of the list"),
        pytest.param(annotation((RC, "1"), (RC, 2)), set(), id="one bad entry makes all unreadable"),
        pytest.param('{"preferAvoidPods": [[]]}', set(), id="a list in place of an entry"),
        pytest.param('{"preferAvoidPods": [{"podSignature": "x"}]}', set(), id="a text in place of an object"),
        pytest.param("[]", set(), id="a list in place of the whole"),
        pytest.param("{'preferAvoidPods': []}", set(), id="no JSON"),
        pytest.param(annotation((RC, "1")) + "x", set(), id="more than JSON"),
        pytest.param("[" * 100_000, set(), id="more levels than can be read"),
    ],
)
def test_read_controllers(text, controllers):
    assert read_controllers(text) == controllers


# --- the cache under random events -----------------------------------------------------------------------------------

NAMES = st.sampled_from(["a", "b", "c"])
CONTROLLERS = st.lists(st.tuples(st.sampled_from([RC, RS]), st.sampled_from("123")), max_size=3)
NODE_EVENT = st.tuples(
    st.sampled_from(["apply", "apply", "delete"]),
    st.builds(lambda name, controllers: node(name, *controllers), NAMES, CONTROLLERS),
)
PLACED = st.builds(lambda name, on: make_pod(name, node=on), st.sampled_from(["p", "q"]), NAMES)
POD_EVENT = st.tuples(st.sampled_from(["apply", "delete"]), PLACED)
CROWD = st.sampled_from([[], [("apply", node(f"n{place}", (RC, "1"))) for place in range(70)]])
STREAM = st.lists(NODE_EVENT | POD_EVENT)
EVENTS = st.tuples(STREAM, CROWD, STREAM).map(lambda parts: [*parts[0], *parts[1], *parts[2]])


@given(EVENTS)
def test_the_cache_obeys_both_laws(events):
    lab = Lab()
    check_fold_equals_rebuild(AvoidedControllers, events, lab)
    check_inverse_leaves_no_trace(AvoidedControllers, lab)


@given(EVENTS, st.sampled_from([RC, RS]), st.sampled_from("123"))
def test_columns_agree_with_the_annotation_node_by_node(events, kind, uid):
    lab = Lab()
    lab.mirror.cache(AvoidedControllers)
    for verb, item in events:
        getattr(lab, verb)(item)
    expected = {
        info.name: 0 if (kind, uid) in read_controllers(info.annotations.get(ANNOTATION, "")) else 100
        for info in lab.nodes().infos()
    }
    assert lab.score(NodePreferAvoidPods, pod((kind, uid, True))).raw == expected


def test_nothing_is_kept_of_nodes_that_are_gone():
    lab = Lab()
    cache = lab.mirror.cache(AvoidedControllers)
    lab.apply(*NODES)
    assert cache.dump()["controllers"] == {"a": [(RC, "1")], "b": [(RS, "2"), (RC, "3")]}
    lab.delete(*NODES)
    assert cache.dump() == {"nodes": {}, "controllers": {}}
