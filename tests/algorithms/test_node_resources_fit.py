"""NodeResourcesFit, by tables of cases, and its scores against the formulas node by node."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from algorithms.node_resources_fit import TOO_MANY_PODS, NodeResourcesFit, NodeResourcesFitArgs
from extender.config import explain
from extender.testing.casefile import read_cases
from extender.testing.lab import Lab
from extender.testing.maker import make_node, make_pod

GPU = "example.com/gpu"
CASES = read_cases(Path(__file__).parents[1] / "data/cases/B33-pod-requests.yaml")


def node(name="n", **resources):
    return make_node(name, **resources)


def placed(name, **requests):
    return make_pod(name, node="n", requests=requests)


@pytest.mark.parametrize("case", [pytest.param(case, id=case.id.replace("-", " ")) for case in CASES])
def test_counts_what_a_pod_asks_for_as_kube_scheduler_does(case):
    refused = Lab(case.objects).filter(NodeResourcesFit, case.incoming, case.args)
    for name, answer in case.answers.items():
        assert (name not in refused) == answer.fits
        if not answer.fits:
            assert refused[name].resolvable == answer.resolvable
            assert refused[name].text == answer.text


def test_case_file_asks_about_this_algorithm_and_has_both_answers():
    assert {case.plugin for case in CASES} == {NodeResourcesFit.name}
    assert {answer.fits for case in CASES for answer in case.answers.values()} == {True, False}


ALLOCATABLE = {"ephemeral-storage": "10Gi", "hugepages-2Mi": "4Mi", GPU: 2, "vendor.io/fpga": 1}
LOAD = {"cpu": "3", "memory": "6Gi", "ephemeral-storage": "6Gi", GPU: 1}


@pytest.mark.parametrize(
    ("requests", "args", "reasons", "resolvable"),
    [
        pytest.param({}, {}, [], True, id="a pod that asks for nothing needs only a pod slot"),
        pytest.param({"cpu": "1", "memory": "2Gi"}, {}, [], True, id="what is exactly left fits"),
        pytest.param(
            {"cpu": "1001m"}, {}, ["Insufficient cpu"], True, id="eviction helps when the node is large enough"
        ),
        pytest.param(
            {"cpu": "4"}, {}, ["Insufficient cpu"], True, id="eviction helps when the node is just large enough"
        ),
        pytest.param({"cpu": "4001m"}, {}, ["Insufficient cpu"], False, id="no eviction makes a small node larger"),
        pytest.param(
            {"cpu": "2", "memory": "3Gi", "ephemeral-storage": "5Gi", GPU: 2},
            {},
            ["Insufficient cpu", "Insufficient memory", "Insufficient ephemeral-storage", f"Insufficient {GPU}"],
            True,
            id="every resource that is short is a reason",
        ),
        pytest.param(
            {"cpu": "2", GPU: 3},
            {},
            ["Insufficient cpu", f"Insufficient {GPU}"],
            False,
            id="one resource that eviction cannot free is enough",
        ),
        pytest.param({"cpu": "0", "example.com/absent": 0}, {}, [], True, id="a request for zero is none"),
        pytest.param(
            {"example.com/absent": 1},
            {},
            ["Insufficient example.com/absent"],
            False,
            id="no eviction makes a resource that no node has",
        ),
        pytest.param(
            {"hugepages-2Mi": "6Mi"}, {}, ["Insufficient hugepages-2Mi"], False, id="huge pages are checked like others"
        ),
        pytest.param({GPU: 9}, {"ignoredResources": [GPU]}, [], True, id="an ignored resource is not checked"),
        pytest.param(
            {"vendor.io/fpga": 9, GPU: 2},
            {"ignoredResourceGroups": ["vendor.io"]},
            [f"Insufficient {GPU}"],
            True,
            id="an ignored group leaves other groups checked",
        ),
        pytest.param(
            {"cpu": "9", "hugepages-2Mi": "6Mi"},
            {"ignoredResources": ["cpu", "hugepages-2Mi"], "ignoredResourceGroups": ["cpu"]},
            ["Insufficient cpu", "Insufficient hugepages-2Mi"],
            False,
            id="only extended resources can be ignored",
        ),
    ],
)
def test_filter(requests, args, reasons, resolvable):
    lab = Lab([node(allocatable=ALLOCATABLE), placed("load", **LOAD)])
    refused = lab.filter(NodeResourcesFit, make_pod("p", requests=requests), args)
    if not reasons:
        assert refused == {}
    else:
        assert sorted(refused["n"].reasons) == sorted(reasons)
        assert refused["n"].resolvable == resolvable


def test_a_full_node_is_refused_along_with_what_is_short():
    lab = Lab([node(pods=1), placed("load", cpu="3"), node("empty")])
    refused = lab.filter(NodeResourcesFit, make_pod("p", requests={"cpu": "2"}))
    assert {name: outcome.reasons for name, outcome in refused.items()} == {"n": (TOO_MANY_PODS, "Insufficient cpu")}


def test_pods_count_only_where_they_are_placed_and_have_not_ended():
    lab = Lab([node(pods=1), make_pod("waiting"), make_pod("lost", node="gone")])
    assert lab.filter(NodeResourcesFit, make_pod("p")) == {}
    load = placed("load")
    lab.apply(load)
    assert lab.filter(NodeResourcesFit, make_pod("p")).keys() == {"n"}
    lab.delete(load)
    assert lab.filter(NodeResourcesFit, make_pod("p")) == {}


def strategy(name="LeastAllocated", shape=None, **weights):
    resources = [{"name": resource.replace("gpu", GPU), "weight": weight} for resource, weight in weights.items()]
    ratio = {"requestedToCapacityRatio": {"shape": [{"utilization": u, "score": s} for u, s in shape]}} if shape else {}
    return {"scoringStrategy": {"type": name, "resources": resources} | ratio}


RISING = [(0, 0), (100, 10)]


@pytest.mark.parametrize(
    ("requests", "args", "score"),
    [
        # The node has 4 cpu, 8Gi and 2 gpus; 1 cpu, 1Gi and 1 gpu are in use.
        pytest.param(
            {"cpu": "1", "memory": "1Gi"}, {}, 62, id="the least allocated node is best unless told otherwise"
        ),
        pytest.param({"cpu": "1", "memory": "1Gi"}, strategy(cpu=1), 50, id="only named resources count"),
        pytest.param({"cpu": "1", "memory": "1Gi"}, strategy(cpu=1, memory=4), 70, id="resources count by weight"),
        pytest.param({}, {}, 78, id="a pod that asks for nothing counts with 100 millicores and 200 MiB"),
        pytest.param({"cpu": "9", "memory": "1Gi"}, {}, 37, id="more than the node has scores nothing"),
        pytest.param({"cpu": "1"}, strategy(cpu=1, gpu=9), 50, id="an extended resource not asked for does not count"),
        pytest.param({"cpu": "1", GPU: 1}, strategy(cpu=1, gpu=1), 25, id="an extended resource asked for counts"),
        pytest.param(
            {"cpu": "1"}, strategy(**{"ephemeral-storage": 1}, cpu=1), 50, id="what the node lacks does not count"
        ),
        pytest.param({"cpu": "1"}, strategy(absent=1), 0, id="no resource that counts is a score of 0"),
        pytest.param(
            {"cpu": "1", "memory": "1Gi"}, strategy("MostAllocated", cpu=1, memory=1), 37, id="most allocated"
        ),
        pytest.param({"cpu": "9"}, strategy("MostAllocated", cpu=1), 100, id="most allocated is at most all"),
        pytest.param(
            {"cpu": "1", "memory": "1Gi"},
            strategy("RequestedToCapacityRatio", RISING, cpu=1, memory=1),
            38,
            id="the mean is rounded where a shape says the score",
        ),
        pytest.param(
            {"cpu": "280m"},
            strategy("RequestedToCapacityRatio", [(0, 10), (40, 3), (100, 0)], cpu=1),
            44,
            id="a falling line is truncated towards where it comes from",
        ),
        pytest.param(
            {"cpu": "9", "memory": "1Gi"},
            strategy("RequestedToCapacityRatio", [(0, 10), (100, 0)], cpu=3, memory=1),
            75,
            id="a resource with a score of 0 does not count in the mean of a shape",
        ),
        pytest.param(
            {"cpu": "1"},
            strategy("RequestedToCapacityRatio", [(60, 2), (70, 9)], cpu=1),
            20,
            id="level before the shape",
        ),
        pytest.param(
            {"cpu": "9"}, strategy("RequestedToCapacityRatio", [(0, 2), (50, 7)], cpu=1), 70, id="level after the shape"
        ),
    ],
)
def test_score(requests, args, score):
    lab = Lab([node(allocatable={GPU: 2}), placed("load", cpu="1", memory="1Gi", **{GPU: 1})])
    found = lab.score(NodeResourcesFit, make_pod("p", requests=requests), args)
    assert found.raw == found.normalized == {"n": score}


@pytest.mark.parametrize(
    ("requests", "whole", "score"),
    [
        pytest.param({}, {"hugepages-2Mi": "4Mi"}, 50, id="huge pages asked for the pod as a whole do not count"),
        pytest.param({"hugepages-2Mi": "2Mi"}, {"hugepages-2Mi": "4Mi"}, 50, id="those that containers ask for do"),
        pytest.param({"hugepages-2Mi": "1Mi"}, {}, 62, id="as ever"),
    ],
)
def test_scores_leave_out_what_is_asked_for_the_pod_as_a_whole(requests, whole, score):
    lab = Lab([node(allocatable={"hugepages-2Mi": "4Mi"})])
    pod = make_pod("p", requests={"cpu": "2", **requests}, resources={"requests": {"cpu": "2", **whole}})
    assert lab.score(NodeResourcesFit, pod, strategy(cpu=1, **{"hugepages-2Mi": 1})).raw == {"n": score}


def line(shape, percent):
    """The broken line of a shape as kube-scheduler evaluates it."""
    for place, (utilization, score) in enumerate(shape):
        if percent <= utilization:
            if not place:
                return score * 10
            before, start = shape[place - 1]
            return start * 10 + int((score - start) * 10 * (percent - before) / (utilization - before))
    return shape[-1][1] * 10


def expected_score(kind, shape, resources):
    """The score of one node from (weight, used, capacity) of each resource that counts."""
    total = weights = 0
    for weight, used, capacity in resources:
        if capacity:
            kept = min(used, capacity)
            percent = kept * 100 // capacity
            score = {"LeastAllocated": (capacity - kept) * 100 // capacity, "MostAllocated": percent}.get(kind)
            if shape:
                score = line(shape, percent)
            if score or not shape:
                total, weights = total + score * weight, weights + weight
    if not weights:
        return 0
    return int(total / weights + 0.5) if shape else total // weights


shapes = st.lists(
    st.tuples(st.integers(0, 100), st.integers(0, 10)), min_size=1, max_size=5, unique_by=lambda point: point[0]
).map(sorted)
amounts = st.integers(0, 40)


@settings(deadline=None)
@given(
    kind=st.sampled_from(["LeastAllocated", "MostAllocated", "RequestedToCapacityRatio"]),
    shape=shapes,
    weights=st.lists(st.integers(1, 100), min_size=3, max_size=3),
    capacities=st.lists(st.tuples(amounts, amounts, st.integers(0, 4)), min_size=1, max_size=5),
    loads=st.lists(st.tuples(amounts, amounts, st.integers(0, 2)), min_size=5, max_size=5),
    asked=st.tuples(amounts, amounts, st.integers(0, 2)),
)
def test_scores_are_those_of_the_formula(kind, shape, weights, capacities, loads, asked):
    shape = shape if kind == "RequestedToCapacityRatio" else None
    names = ("cpu", "memory", GPU)
    objects = []
    for place, (capacity, load) in enumerate(zip(capacities, loads, strict=False)):
        cpu, memory, gpu = capacity
        objects.append(node(f"n{place}", cpu=f"{cpu}m", memory=memory, allocatable={GPU: gpu}))
        requests = {"cpu": f"{load[0]}m", "memory": load[1], GPU: load[2]}
        objects.append(make_pod(f"p{place}", node=f"n{place}", requests=requests))
    args = strategy(kind, shape, cpu=weights[0], memory=weights[1], gpu=weights[2])
    incoming = make_pod("p", requests={"cpu": f"{asked[0]}m", "memory": asked[1], GPU: asked[2]})
    counted = [place for place, name in enumerate(names) if name != GPU or asked[place]]
    assert Lab(objects).score(NodeResourcesFit, incoming, args).raw == {
        f"n{node}": expected_score(kind, shape, [(weights[i], loads[node][i] + asked[i], capacity[i]) for i in counted])
        for node, capacity in enumerate(capacities)
    }


def test_what_a_point_of_a_shape_leaves_out_is_0():
    shape = {"requestedToCapacityRatio": {"shape": [{"score": 8}, {"utilization": 100}]}}
    given = strategy("RequestedToCapacityRatio", cpu=1)
    given["scoringStrategy"] |= shape
    expected = strategy("RequestedToCapacityRatio", [(0, 8), (100, 0)], cpu=1)
    assert NodeResourcesFit.Arguments.model_validate(given) == NodeResourcesFit.Arguments.model_validate(expected)


def shaped(*points):
    return strategy("RequestedToCapacityRatio", points, cpu=1)


@pytest.mark.parametrize(
    ("args", "path"),
    [
        pytest.param(strategy(cpu=101), "scoringStrategy.resources[0].weight", id="a weight is 100 at most"),
        pytest.param(strategy(cpu=-1), "scoringStrategy.resources[0].weight", id="a weight is not negative"),
        pytest.param(strategy("Fastest", cpu=1), "scoringStrategy.type", id="there are three strategies"),
        pytest.param({"scoringStrategy": {}}, "scoringStrategy.type", id="a strategy has a type"),
        pytest.param(strategy("RequestedToCapacityRatio", cpu=1), "scoringStrategy", id="a ratio needs a shape"),
        pytest.param(strategy("MostAllocated", RISING, cpu=1), "scoringStrategy", id="no other strategy has a shape"),
        pytest.param(
            {"scoringStrategy": {"type": "RequestedToCapacityRatio", "requestedToCapacityRatio": {"shape": []}}},
            "scoringStrategy.requestedToCapacityRatio.shape",
            id="a shape has a point",
        ),
        pytest.param(
            shaped((0, 1), (50, 2), (50, 3)),
            "scoringStrategy.requestedToCapacityRatio.shape",
            id="utilization increases strictly",
        ),
        pytest.param(
            shaped((0, 11)), "scoringStrategy.requestedToCapacityRatio.shape[0].score", id="a score is 10 at most"
        ),
        pytest.param(
            shaped((0, 1), (101, 2)),
            "scoringStrategy.requestedToCapacityRatio.shape[1].utilization",
            id="utilization is 100 at most",
        ),
        pytest.param({"ignoredResources": ["a b"]}, "ignoredResources", id="an ignored resource has a resource's name"),
        pytest.param({"ignoredResourceGroups": ["a.io/b"]}, "ignoredResourceGroups", id="a group has no slash"),
        pytest.param({"scoringStrategies": {}}, "scoringStrategies", id="unknown keys are refused"),
    ],
)
def test_arguments_that_are_refused(args, path):
    with pytest.raises(ValidationError) as caught:
        NodeResourcesFitArgs.model_validate(args)
    assert [text.partition(": ")[0] for text in explain(caught.value)] == [path]


@pytest.mark.parametrize(
    "args",
    [
        pytest.param({}, id="nothing"),
        pytest.param({"scoringStrategy": None}, id="no strategy"),
        pytest.param({"scoringStrategy": {"type": "LeastAllocated"}}, id="no resources"),
        pytest.param({"scoringStrategy": {"type": "LeastAllocated", "resources": []}}, id="an empty list of resources"),
        pytest.param(strategy(cpu=0, memory=0), id="weights of zero"),
    ],
)
def test_cpu_and_memory_count_alike_by_default_where_the_arguments_say(args):
    assert NodeResourcesFitArgs.model_validate(args) == NodeResourcesFitArgs.model_validate(strategy(cpu=1, memory=1))
