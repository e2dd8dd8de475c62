"""The runner of conformance cases tells apart what agrees and what does not, and says where."""

import copy
import gzip
import json

import pytest
import typer
from typer.testing import CliRunner

from algorithms.node_resources_fit import NodeResourcesFit
from algorithms.node_unschedulable import NodeUnschedulable
from extender.__main__ import main
from extender.cli.conformance import conformance
from extender.errors import ConfigurationError
from extender.framework import SKIP, Predicate, Priority
from extender.framework.preemption import NO_VICTIMS
from extender.testing.conformance import EVERY_NODE, compare
from extender.testing.maker import make_node, make_pod
from extender.testing.placement import compare_default_profile

FIT = NodeResourcesFit.name
CASE = {
    "name": "example-0001",
    "objects": [
        make_node("large", cpu=8, memory="8Gi"),
        make_node("roomy", cpu=8, memory="8Gi"),
        make_node("small", cpu=2, memory="1Gi"),
        make_node("spare", cpu=8, memory="8Gi", unschedulable=True),
    ],
    "pod": make_pod("p", requests={"cpu": 4, "memory": "2Gi"}),
    "expect": {
        "plugins": {
            FIT: {
                "preFilter": {"code": "Success"},
                "filter": {
                    "small": {
                        "code": "UnschedulableAndUnresolvable",
                        "reasons": ["Insufficient cpu", "Insufficient memory"],
                    }
                },
                "preScore": {"code": "Success"},
                "score": {"large": 62, "roomy": 62},
            },
            "NodeUnschedulable": {
                "filter": {"spare": {"code": "UnschedulableAndUnresolvable", "reasons": ["node(s) were unschedulable"]}}
            },
        },
        "feasible": ["large", "roomy"],
        "scoredOver": "feasible",
        "total": {"large": 430, "roomy": 430},
        "preemption": {
            name: {"code": "UnschedulableAndUnresolvable", "reasons": [NO_VICTIMS]} for name in ("small", "spare")
        },
    },
}


def altered(*path, value):
    """The case with something else in the entry of NodeResourcesFit."""
    case = copy.deepcopy(CASE)
    target = case["expect"]["plugins"][FIT]
    for key in path[:-1]:
        target = target[key]
    target[path[-1]] = value
    return case


def test_a_case_that_is_decided_alike_agrees_in_every_aspect():
    fit, unschedulable = compare([CASE, CASE], [NodeResourcesFit, NodeUnschedulable])
    assert (fit.cases, fit.agreeing) == (2, {"filter": 2, "score": 2, "normalized": 2})
    assert (unschedulable.cases, unschedulable.agreeing) == (2, {"filter": 2})
    assert not fit.disagreements + unschedulable.disagreements


@pytest.mark.parametrize(
    ("case", "aspects", "nodes"),
    [
        pytest.param(
            altered("filter", "small", "reasons", value=["Insufficient cpu"]),
            {"filter"},
            {"small"},
            id="a reason is missing in what was expected",
        ),
        pytest.param(
            altered("filter", "small", "code", value="Unschedulable"),
            {"filter"},
            {"small"},
            id="eviction was expected to help",
        ),
        pytest.param(altered("filter", value={}), {"filter"}, {"small"}, id="no node was expected to be refused"),
        pytest.param(
            altered("filter", "large", value={"code": "Unschedulable", "reasons": ["Too many pods"]}),
            {"filter"},
            {"large"},
            id="another node was expected to be refused",
        ),
        pytest.param(
            altered("preFilter", "code", value="Skip"),
            {"filter"},
            {EVERY_NODE, "small"},
            id="the filter was expected to skip",
        ),
        pytest.param(
            altered("preFilter", value={"code": "Unschedulable", "reasons": ["no"]}),
            {"filter"},
            {"large", "roomy", "small", "spare"},
            id="the pod was expected to be refused everywhere",
        ),
        pytest.param(
            altered("score", "large", value=63),
            {"score", "normalized"},
            {"large"},
            id="another score was expected of a plug-in that does not normalise",
        ),
        pytest.param(
            altered("normalized", value={"large": 62, "roomy": 100}),
            {"normalized"},
            {"roomy"},
            id="another normalised score was expected",
        ),
        pytest.param(
            altered("score", value={"large": 62}),
            {"score", "normalized"},
            {"roomy"},
            id="a node was expected to have no score",
        ),
    ],
)
def test_an_altered_expectation_is_reported(case, aspects, nodes):
    (tally,) = compare([CASE, case], [NodeResourcesFit])
    assert {found.aspect for found in tally.disagreements} == aspects
    assert {found.node for found in tally.disagreements} == nodes
    assert {found.case for found in tally.disagreements} == {"example-0001"}
    assert tally.agreeing == {aspect: 2 - (aspect in aspects) for aspect in ("filter", "score", "normalized")}


def test_reasons_are_compared_as_sets():
    case = altered(
        "filter", "small", "reasons", value=["Insufficient memory", "Insufficient cpu", "Insufficient memory"]
    )
    (tally,) = compare([case], [NodeResourcesFit])
    assert not tally.disagreements


def test_the_first_profile_gives_arguments_without_their_version_and_kind():
    case = copy.deepcopy(CASE)
    strategy = {"type": "MostAllocated", "resources": [{"name": "cpu", "weight": 1}]}
    args = {"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "NodeResourcesFitArgs", "scoringStrategy": strategy}
    case["config"] = {"profiles": [{"pluginConfig": [{"name": FIT, "args": args}]}]}
    case["expect"]["plugins"][FIT]["score"] = {"large": 50, "roomy": 50}
    (tally,) = compare([case], [NodeResourcesFit])
    assert not tally.disagreements


class Failing(Predicate, Priority):
    """Raises."""

    def filter(self, pod, nodes):
        raise KeyError("gone")

    def prioritize(self, pod, nodes):
        raise KeyError("gone")


class Indifferent(Predicate, Priority):
    """Has no opinion."""

    def filter(self, pod, nodes):
        return SKIP

    def prioritize(self, pod, nodes):
        return SKIP


def test_an_algorithm_that_raises_counts_as_an_error_of_every_node():
    (tally,) = compare([CASE], [Failing])
    assert {(found.aspect, found.node) for found in tally.disagreements} >= {
        *(("filter", node) for node in ("large", "roomy", "small", "spare")),
        *(("score", node) for node in ("large", "roomy")),
    }
    assert {str(found.got) for found in tally.disagreements if found.node != EVERY_NODE} == {
        "Error (Failing: KeyError: 'gone')"
    }


def test_an_expected_error_agrees_whatever_its_text_is():
    case = copy.deepcopy(CASE)
    error = {"code": "Error", "reasons": ["something broke"]}
    case["expect"]["plugins"]["Failing"] = {"preFilter": error, "preScore": error}
    (tally,) = compare([case], [Failing])
    assert not tally.disagreements


def test_nothing_is_expected_of_an_algorithm_that_the_case_does_not_name():
    (tally,) = compare([CASE], [Indifferent])
    assert not tally.named
    assert tally.agreeing == {"filter": 1, "score": 1, "normalized": 1}


@pytest.fixture
def invoke(tmp_path):
    """Run the command on cases that are written to a file first."""
    app = typer.Typer()
    app.command()(conformance)

    def run(*options, cases, name="cases.jsonl"):
        path = tmp_path / name
        text = "".join(f"{json.dumps(case)}\n" for case in cases).encode()
        path.write_bytes(gzip.compress(text) if path.suffix == ".gz" else text)
        return CliRunner().invoke(app, [str(path), *options])

    return run


LINE = f"{json.dumps(CASE)}\n".encode()


def without(key):
    return json.dumps({name: value for name, value in CASE.items() if name != key}).encode()


@pytest.mark.parametrize(
    ("name", "content", "problem"),
    [
        pytest.param("c.jsonl", b"", "has no cases; give a file with one JSON object a line", id="an empty file"),
        pytest.param("c.jsonl", b"\n\n", "has no cases; give a file with one JSON object a line", id="empty lines"),
        pytest.param("c.jsonl.gz", gzip.compress(b""), "has no cases", id="nothing, compressed"),
        pytest.param("c.jsonl", LINE + b"{\n", "line 2: is not a case in JSON: Input data was truncated", id="no JSON"),
        pytest.param("c.jsonl", b'{"a": "\xff"}', "line 1: is not a case in JSON: Invalid UTF-8", id="no UTF-8"),
        pytest.param("c.jsonl", b"[]", "line 1: is not a case in JSON: Expected `object`, got `array`", id="a list"),
        pytest.param("c.jsonl", LINE + without("name"), "line 2: is not a case in JSON: Object missing", id="no name"),
        pytest.param("c.jsonl", without("expect"), "line 1: is not a case in JSON: Object missing", id="no decision"),
        pytest.param(
            "c.jsonl",
            json.dumps(altered("filter", "small", value={"reasons": []})).encode(),
            "line 1: is not a case in JSON: Object missing required field `code`",
            id="no code",
        ),
        pytest.param(
            "c.jsonl",
            json.dumps({**CASE, "objects": [{"kind": "Node"}]}).encode(),
            "case example-0001: its objects cannot be used: ",
            id="an object without a name",
        ),
        pytest.param("c.jsonl.gz", LINE, "line 1: cannot be read: Not a gzipped file", id="not compressed"),
        pytest.param(
            "c.jsonl.gz", gzip.compress(LINE)[:-200], "line 1: cannot be read: Compressed file ended", id="cut off"
        ),
    ],
)
def test_a_file_that_tells_nothing_or_is_no_file_of_cases_is_refused(
    tmp_path, name, content, problem, capsys, monkeypatch
):
    path = tmp_path / name
    path.write_bytes(content)
    monkeypatch.setattr("sys.argv", ["scheduler-extender", "conformance", str(path)])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    told = capsys.readouterr()
    assert told.err.startswith(f"error: {path}: {problem}")
    assert len(told.err.splitlines()) == 1
    assert not told.out


def test_an_algorithm_that_the_file_never_decides_on_is_refused(invoke):
    result = invoke("--algorithm", FIT, "--algorithm", "LocalReplicas", cases=[CASE])
    assert isinstance(result.exception, ConfigurationError)
    assert str(result.exception).endswith(
        ": has no decision of LocalReplicas; leave it out of --algorithm, or give a file that has"
    )


@pytest.mark.parametrize("name", [pytest.param("c.jsonl", id="plain"), pytest.param("c.jsonl.gz", id="compressed")])
def test_command_compares_every_algorithm_the_file_names(invoke, name):
    result = invoke(cases=[CASE], name=name)
    assert result.exit_code == 0, result.output
    assert [line.split() for line in result.output.splitlines()] == [
        ["filter", "score", "normalized", "feasible", "total", "preemption"],
        [FIT, "1/1", "1/1", "1/1", "-", "-", "-"],
        ["NodeUnschedulable", "1/1", "-", "-", "-", "-", "-"],
        ["default", "profile", "-", "-", "-", "1/1", "1/1", "1/1"],
    ]


def test_command_shows_the_difference_and_exits_with_1(invoke):
    result = invoke("--algorithm", FIT, cases=[CASE, altered("filter", value={})])
    assert result.exit_code == 1
    assert [line.split() for line in result.output.splitlines()] == [
        ["filter", "score", "normalized"],
        [FIT, "1/2", "2/2", "2/2"],
        [],
        [f"{FIT}:", "1", "disagreements"],
        ["example-0001", "filter", "small"],
        ["-", "expected", "passes"],
        ["+", "got", "UnschedulableAndUnresolvable:", "Insufficient", "cpu,", "Insufficient", "memory"],
    ]


def test_command_refuses_an_algorithm_that_does_not_exist(invoke):
    result = invoke("--algorithm", "NodeResourcesFix", cases=[CASE])
    assert result.exit_code == 2


@pytest.mark.parametrize(
    ("change", "aspect", "node"),
    [
        pytest.param(
            {"feasible": ["large"], "scoredOver": "all"}, "feasible", "roomy", id="a node was expected not to fit"
        ),
        pytest.param({"total": {"large": 431, "roomy": 430}}, "total", "large", id="another total was expected"),
        pytest.param({"preemption": {}}, "preemption", "small", id="no preemption was expected"),
    ],
)
def test_an_altered_expectation_of_the_whole_profile_is_reported(change, aspect, node):
    case = {**CASE, "expect": {**CASE["expect"], **change}}
    assert not compare_default_profile([CASE]).disagreements
    found = compare_default_profile([case]).disagreements
    assert (aspect, node) in {(each.aspect, each.node) for each in found}
