"""RequestedToCapacityRatio, by tables of cases, and as the scoring strategy of that name."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from algorithms.node_resources_fit import NodeResourcesFit
from algorithms.requested_to_capacity_ratio import RequestedToCapacityRatio
from extender.config import explain
from extender.testing.lab import Lab
from extender.testing.maker import make_node, make_pod

GPU = "example.com/gpu"
SPREAD, PACK = [(0, 10), (100, 0)], [(0, 0), (100, 10)]


def args(*points, **weights):
    resources = [{"name": name.replace("gpu", GPU), "weight": weight} for name, weight in weights.items()]
    return {"shape": [{"utilization": percent, "score": score} for percent, score in points], "resources": resources}


def placed(name, node="n", **requests):
    return make_pod(name, node=node, requests=requests)


@pytest.mark.parametrize(
    ("requests", "args", "score"),
    [
        # The node has 4 cpu, 8Gi and 2 gpus; 1 cpu, 1Gi and 1 gpu are in use.
        pytest.param({"cpu": "1", "memory": "1Gi"}, args(*PACK, cpu=1), 50, id="a rising shape packs"),
        pytest.param({"cpu": "2", "memory": "1Gi"}, args(*SPREAD, cpu=1), 25, id="a falling shape spreads"),
        pytest.param(
            {"cpu": "1", "memory": "1Gi"}, args(*PACK), 38, id="cpu and memory count alike, and it is rounded"
        ),
        pytest.param({"cpu": "1", "memory": "1Gi"}, args(*PACK, cpu=1, memory=3), 31, id="resources count by weight"),
        pytest.param({"cpu": "1", "memory": "1Gi"}, args(*PACK, cpu=0, memory=1), 38, id="a weight of 0 stands for 1"),
        pytest.param({"cpu": "1", "memory": "1Gi"}, args(*PACK, cpu=9, memory=101), 27, id="a weight may be over 100"),
        pytest.param({}, args(*PACK), 21, id="a pod that asks for nothing counts with 100 millicores and 200 MiB"),
        pytest.param({"cpu": "9"}, args((0, 0), (50, 7), cpu=1), 70, id="level after the last point, and past all"),
        pytest.param({"cpu": "100m"}, args((60, 2), (70, 9), cpu=1), 20, id="level before the first"),
        pytest.param({"cpu": "280m"}, args((0, 10), (40, 3), (100, 0), cpu=1), 44, id="a falling line is truncated"),
        pytest.param({"cpu": "9", "memory": "1Gi"}, args(*SPREAD, cpu=3, memory=1), 75, id="what scores 0 is left out"),
        pytest.param({"cpu": "1"}, args(*PACK, cpu=1, gpu=9), 50, id="an extended resource not asked for is left out"),
        pytest.param({"cpu": "1", GPU: 1}, args(*PACK, cpu=1, gpu=1), 75, id="one asked for counts"),
        pytest.param({"cpu": "1"}, args(*PACK, cpu=1, absent=9), 50, id="what no node has is left out"),
        pytest.param(
            {"cpu": "1"}, args((0, 5), (100, 5), **{"ephemeral-storage": 1}), 0, id="and so is what the node lacks"
        ),
    ],
)
def test_score(requests, args, score):
    lab = Lab([make_node("n", allocatable={GPU: 2}), placed("load", cpu="1", memory="1Gi", **{GPU: 1})])
    found = lab.score(RequestedToCapacityRatio, make_pod("p", requests=requests), args)
    assert found.raw == found.normalized == {"n": score}


def test_the_last_weight_counts_of_a_resource_named_twice():
    twice = args(*PACK, cpu=7, memory=1)
    twice["resources"].append({"name": "cpu", "weight": 3})
    lab = Lab([make_node("n"), placed("load", cpu="1")])
    incoming = make_pod("p", requests={"cpu": "1", "memory": "2Gi"})
    assert lab.score(RequestedToCapacityRatio, incoming, twice).raw == {"n": 44}
    assert lab.score(RequestedToCapacityRatio, incoming, args(*PACK, cpu=3, memory=1)).raw == {"n": 44}


POINTS = st.lists(
    st.tuples(st.integers(0, 100), st.integers(0, 10)), min_size=1, max_size=4, unique_by=lambda point: point[0]
).map(sorted)
AMOUNTS = st.tuples(st.integers(0, 40), st.integers(0, 40), st.integers(0, 3))


@given(
    points=POINTS,
    weights=st.tuples(*[st.integers(1, 100)] * 3),
    nodes=st.lists(st.tuples(AMOUNTS, AMOUNTS), min_size=1, max_size=4),
    asked=AMOUNTS,
)
def test_it_scores_as_the_strategy_of_its_name(points, weights, nodes, asked):
    def requests(amounts):
        return {"cpu": f"{amounts[0]}m", "memory": amounts[1], GPU: amounts[2]}

    lab = Lab()
    for place, (capacity, load) in enumerate(nodes):
        cpu, memory, gpu = capacity
        lab.apply(make_node(f"n{place}", cpu=f"{cpu}m", memory=memory, allocatable={GPU: gpu}))
        lab.apply(make_pod(f"p{place}", node=f"n{place}", requests=requests(load)))
    own = args(*points, cpu=weights[0], memory=weights[1], gpu=weights[2])
    ratio = {"type": "RequestedToCapacityRatio", "requestedToCapacityRatio": {"shape": own["shape"]}}
    incoming = make_pod("p", requests=requests(asked))
    assert lab.score(RequestedToCapacityRatio, incoming, own) == lab.score(
        NodeResourcesFit, incoming, {"scoringStrategy": {**ratio, "resources": own["resources"]}}
    )


@pytest.mark.parametrize(
    ("args", "path"),
    [
        pytest.param({}, "shape", id="a shape must be given"),
        pytest.param({"shape": []}, "shape", id="a shape has a point"),
        pytest.param(args((0, 1), (50, 2), (50, 3)), "shape", id="utilization increases strictly"),
        pytest.param(args((0, 11)), "shape[0].score", id="a score is 10 at most"),
        pytest.param(args((0, 1), (101, 2)), "shape[1].utilization", id="utilization is 100 at most"),
        pytest.param(args(*PACK, cpu=-1), "resources[0].weight", id="a weight is not negative"),
        pytest.param({**args(*PACK), "resource": []}, "resource", id="unknown keys are refused"),
    ],
)
def test_arguments_that_are_refused(args, path):
    with pytest.raises(ValidationError) as caught:
        RequestedToCapacityRatio.Arguments.model_validate(args)
    assert [text.partition(": ")[0] for text in explain(caught.value)] == [path]


@pytest.mark.parametrize("resources", [pytest.param(None, id="null"), pytest.param([], id="an empty list")])
def test_cpu_and_memory_are_the_default(resources):
    given_args = RequestedToCapacityRatio.Arguments.model_validate({**args(*PACK), "resources": resources})
    assert given_args.weights == {"cpu": 1, "memory": 1}
