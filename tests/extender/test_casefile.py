"""Case files: what is read from them, what is wrong with others, and that a wrong answer is noticed."""

import pytest

from algorithms.node_name import NodeName
from algorithms.taint_toleration import TaintToleration
from extender.testing.casefile import INCOMING_UID, Answer, check_case, read_cases

CASES = """
defaults:
  plugin: NodeName
  nodes: [{metadata: {name: a}}, {metadata: {name: b}}]
cases:
- id: named
  incoming: {metadata: {name: in}, spec: {nodeName: a}}
- id: free
  incoming: {metadata: {name: in}, spec: {}}
  pods: [{metadata: {name: p}, spec: {nodeName: a}}]
- id: gone
  incoming: {metadata: {name: in}, spec: {nodeName: c}}
- id: scored
  plugin: TaintToleration
  ask: score
  args: {}
  incoming: {metadata: {name: in}, spec: {}}
"""
EXPECTED = """A sentence: with a colon.

Per case (U = Unschedulable, UU = UnschedulableAndUnresolvable):
named: a=pass; b=FAIL UU (node(s) the requested name)
free: a=pass; b=pass
gone: PREFILTER UU: node name
scored: a=100; b=100   raw [{a 0} {b 0}]
"""


def read(directory, cases=CASES, expected=EXPECTED):
    (directory / "some.yaml").write_text(cases)
    (directory / "some.expected.txt").write_text(expected)
    return read_cases(directory / "some.yaml")


def test_cases_are_read_with_their_answers(tmp_path):
    named, free, gone, scored = read(tmp_path)
    refused = Answer(fits=False, resolvable=False, text="node(s) the requested name")
    assert (named.id, named.plugin, named.ask) == ("named", "NodeName", "filter")
    assert named.answers == {"a": Answer(fits=True), "b": refused}
    assert [(item["kind"], item["metadata"]["uid"]) for item in free.objects] == [
        ("Node", "uid-a"),
        ("Node", "uid-b"),
        ("Pod", "uid-p"),
    ]
    assert free.incoming["metadata"]["uid"] == INCOMING_UID
    assert set(gone.answers.values()) == {Answer(fits=False, resolvable=False, text="node name")}
    assert (scored.scores, scored.raw) == ({"a": 100, "b": 100}, {"a": 0, "b": 0})


def test_right_answers_pass(tmp_path):
    named, free, _, scored = read(tmp_path)
    check_case(named, NodeName)
    check_case(free, NodeName)
    check_case(scored, TaintToleration)


@pytest.mark.parametrize(
    ("place", "right", "wrong", "algorithm"),
    [
        pytest.param(0, "a=pass", "a=FAIL U", NodeName, id="a node that should be refused"),
        pytest.param(1, "free: a=pass; b=pass", "free: a=pass; b=FAIL U (x)", NodeName, id="an algorithm that skips"),
        pytest.param(
            0, "FAIL UU (node(s) the requested name)", "pass", NodeName, id="a node that should not be refused"
        ),
        pytest.param(0, "FAIL UU", "FAIL U", NodeName, id="whether evicting helps"),
        pytest.param(0, "requested", "Requested", NodeName, id="a reason with other words"),
        pytest.param(3, "a=100", "a=99", TaintToleration, id="another score"),
        pytest.param(3, "{a 0}", "{a 1}", TaintToleration, id="another raw score"),
        pytest.param(3, "", "", NodeName, id="an algorithm that does not score"),
    ],
)
def test_wrong_answers_are_noticed(tmp_path, place, right, wrong, algorithm):
    case = read(tmp_path, expected=EXPECTED.replace(right, wrong) if right else EXPECTED)[place]
    with pytest.raises(AssertionError):
        check_case(case, algorithm)


@pytest.mark.parametrize(
    ("right", "wrong", "message"),
    [
        pytest.param("free: a=pass; b=pass\n", "", "only one of case and answer exists for .'free'.", id="no answer"),
        pytest.param("free: a=pass; b=pass", "free: a=pass", "case free: 'a=pass' does not tell", id="a node left out"),
        pytest.param("a=pass", "a=perhaps", "case named: 'a=perhaps' is neither", id="an unknown answer"),
        pytest.param("a=100", "a=all", "case scored: .* is not a list of node=score", id="a score that is no number"),
    ],
)
def test_answers_that_make_no_sense_are_refused(tmp_path, right, wrong, message):
    with pytest.raises(ValueError, match=message):
        read(tmp_path, expected=EXPECTED.replace(right, wrong, 1))


def test_an_unknown_list_of_objects_is_refused(tmp_path):
    with pytest.raises(ValueError, match=r"case free: \['pod'\] are not among"):
        read(tmp_path, cases=CASES.replace("  pods:", "  pod:"))
