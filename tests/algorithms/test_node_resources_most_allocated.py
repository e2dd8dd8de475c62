"""NodeResourcesMostAllocated, by a table of cases, and as the scoring strategy of NodeResourcesFit."""

import pytest
from pydantic import ValidationError

from algorithms.node_resources_fit import NodeResourcesFit
from algorithms.node_resources_most_allocated import NodeResourcesMostAllocated
from extender.config import explain
from extender.testing.lab import Lab
from extender.testing.maker import make_node, make_pod

GPU = "example.com/gpu"


def resources(**weights):
    return {"resources": [{"name": name.replace("gpu", GPU), "weight": weight} for name, weight in weights.items()]}


CASES = [
    # The node has 4 cpu, 8Gi and 2 gpus; 1 cpu, 1Gi and 1 gpu are in use.
    pytest.param({"cpu": "1", "memory": "1Gi"}, resources(cpu=1), 50, id="only named resources count"),
    pytest.param({"cpu": "1", "memory": "1Gi"}, {}, 37, id="cpu and memory count alike, and it is truncated"),
    pytest.param({"cpu": "1", "memory": "1Gi"}, resources(cpu=1, memory=3), 31, id="resources count by weight"),
    pytest.param({"cpu": "1", "memory": "1Gi"}, resources(cpu=0, memory=1), 37, id="a weight of 0 stands for 1"),
    pytest.param({}, {}, 20, id="a pod that asks for nothing counts with 100 millicores and 200 MiB"),
    pytest.param({"cpu": "9", "memory": "1Gi"}, {}, 62, id="more than there is counts as all of it"),
    pytest.param({"cpu": "1"}, resources(cpu=1, absent=9), 50, id="what the node lacks is left out"),
    pytest.param({"cpu": "1", GPU: 1}, resources(cpu=1, gpu=1), 75, id="an extended resource that is asked for counts"),
    pytest.param({"cpu": "1"}, resources(cpu=1, gpu=9), 50, id="one that is not asked for is left out"),
    pytest.param({"cpu": "1"}, {"resources": None}, None, id="no resources are cpu and memory"),
]


def lab():
    load = make_pod("load", node="n", requests={"cpu": "1", "memory": "1Gi", GPU: 1})
    return Lab([make_node("n", allocatable={GPU: 2}), load])


@pytest.mark.parametrize(("requests", "args", "score"), CASES)
def test_score(requests, args, score):
    found = lab().score(NodeResourcesMostAllocated, make_pod("p", requests=requests), args)
    assert found.raw == found.normalized
    if score is None:
        score = lab().score(NodeResourcesMostAllocated, make_pod("p", requests=requests)).raw["n"]
    assert found.raw == {"n": score}


@pytest.mark.parametrize(("requests", "args", "score"), CASES)
def test_the_strategy_of_that_name_scores_the_same(requests, args, score):
    strategy = {"scoringStrategy": {"type": "MostAllocated", **args}}
    pod = make_pod("p", requests=requests)
    assert lab().score(NodeResourcesMostAllocated, pod, args) == lab().score(NodeResourcesFit, pod, strategy)


@pytest.mark.parametrize(
    ("args", "finding"),
    [
        (resources(cpu=101), "resources[0].weight: must be <= 100, got 101"),
        ({"shape": []}, "shape: unknown key; remove it or correct its spelling"),
    ],
    ids=["a weight that is too large", "an unknown key"],
)
def test_wrong_arguments_are_refused(args, finding):
    with pytest.raises(ValidationError) as refusal:
        NodeResourcesMostAllocated.Arguments.model_validate(args)
    assert explain(refusal.value) == [finding]
