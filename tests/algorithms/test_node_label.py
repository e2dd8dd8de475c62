"""NodeLabel, by tables of cases: what it refuses, what it scores, and which arguments it refuses."""

import pytest
from pydantic import ValidationError

from algorithms.node_label import REASON, NodeLabel
from extender.framework import SKIP
from extender.framework.runner import Outcome
from extender.testing.lab import Lab
from extender.testing.maker import make_node, make_pod

NODES = [
    make_node("a", labels={"zone": "z1", "retiring": "2026-12-01"}),
    make_node("b", labels={"zone": "z2", "rack": ""}),
    make_node("c"),
]
POD = make_pod("p", labels={"zone": "z9"})


@pytest.mark.parametrize(
    ("args", "refused"),
    [
        pytest.param({}, SKIP, id="without labels it has no opinion"),
        pytest.param({"presentLabelsPreference": ["zone"]}, SKIP, id="preferences refuse nothing"),
        pytest.param({"presentLabels": ["zone"]}, "c", id="a label must be there whatever its value"),
        pytest.param({"presentLabels": ["rack"]}, "ac", id="an empty value is a value"),
        pytest.param({"presentLabels": ["zone", "rack"]}, "ac", id="all labels must be there"),
        pytest.param({"absentLabels": ["retiring"]}, "a", id="a label must not be there"),
        pytest.param({"absentLabels": ["retiring", "rack"]}, "ab", id="none of the labels must be there"),
        pytest.param({"presentLabels": ["zone"], "absentLabels": ["retiring"]}, "ac", id="both rules hold"),
        pytest.param({"presentLabels": ["nowhere"]}, "abc", id="a label that no node has"),
        pytest.param({"absentLabels": ["nowhere"]}, "", id="a label that no node has is absent everywhere"),
    ],
)
def test_filter(args, refused):
    if refused is not SKIP:
        refused = dict.fromkeys(refused, Outcome((REASON,), resolvable=False, algorithm="NodeLabel"))
    assert Lab(NODES).filter(NodeLabel, POD, args) == refused


@pytest.mark.parametrize(
    ("args", "scores"),
    [
        pytest.param({"presentLabelsPreference": ["zone"]}, [100, 100, 0], id="a label that had better be there"),
        pytest.param({"absentLabelsPreference": ["retiring"]}, [0, 100, 100], id="one that had better not"),
        pytest.param({"presentLabelsPreference": ["zone", "rack"]}, [50, 100, 0], id="labels count alike"),
        pytest.param(
            {"presentLabelsPreference": ["zone", "rack"], "absentLabelsPreference": ["retiring"]},
            [33, 100, 33],
            id="the mean is truncated",
        ),
        pytest.param(
            {"presentLabelsPreference": ["zone", "zone", "rack"]}, [66, 100, 0], id="named twice counts twice"
        ),
        pytest.param(
            {"presentLabels": ["zone"], "absentLabelsPreference": ["zone"]},
            [0, 0, 100],
            id="what must be may be disliked",
        ),
    ],
)
def test_score(args, scores):
    found = Lab(NODES).score(NodeLabel, POD, args)
    assert list(found.raw.values()) == scores
    assert found.normalized == found.raw


@pytest.mark.parametrize(
    "args",
    [
        pytest.param({}, id="no labels are no opinion"),
        pytest.param({"presentLabels": ["zone"]}, id="nor are labels that must be there"),
    ],
)
def test_score_is_skipped(args):
    assert Lab(NODES).score(NodeLabel, POD, args) is SKIP


def test_it_follows_the_labels_of_nodes():
    lab = Lab(NODES)
    args = {"presentLabels": ["zone"], "presentLabelsPreference": ["zone"]}
    assert lab.filter(NodeLabel, POD, args).keys() == {"c"}
    lab.apply(make_node("c", labels={"zone": "z3"}), make_node("a"))
    lab.delete(NODES[1])
    assert lab.filter(NodeLabel, POD, args).keys() == {"a"}
    assert lab.score(NodeLabel, POD, args).raw == {"a": 0, "c": 100}


@pytest.mark.parametrize(
    ("args", "message"),
    [
        pytest.param({"presentLabels": ["x", "y"], "absentLabels": ["y"]}, "y is asked to be both", id="of rules"),
        pytest.param(
            {"presentLabelsPreference": ["x"], "absentLabelsPreference": ["x"]}, "x is asked to be both", id="of wishes"
        ),
        pytest.param({"presentLabels": ["bad key!"]}, "must be a label key, got 'bad key!'", id="present: no label"),
        pytest.param({"absentLabels": [""]}, "must be a label key, got ''", id="absent: no label"),
        pytest.param({"presentLabelsPreference": ["a/b/c"]}, "must be a label key", id="present and wished: no label"),
        pytest.param({"absentLabelsPreference": ["-"]}, "must be a label key", id="absent and wished: no label"),
    ],
)
def test_contradictions_and_what_is_no_label_are_refused(args, message):
    with pytest.raises(ValidationError, match=message):
        NodeLabel.Arguments.model_validate(args)
