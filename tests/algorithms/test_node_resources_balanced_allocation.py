"""NodeResourcesBalancedAllocation, by a table of cases, and against its formula node by node."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from algorithms.node_resources_balanced_allocation import (
    NodeResourcesBalancedAllocation,
    NodeResourcesBalancedAllocationArgs,
)
from extender.config import explain
from extender.framework import SKIP
from extender.testing.lab import Lab
from extender.testing.maker import make_node, make_pod

GPU = "example.com/gpu"
WITH_GPU = {"resources": [{"name": "cpu"}, {"name": "memory"}, {"name": GPU, "weight": 1}]}


def node(name="n", **resources):
    return make_node(name, **resources)


def placed(name, where="n", **requests):
    return make_pod(name, node=where, requests=requests)


@pytest.mark.parametrize(
    ("load", "requests", "args", "score"),
    [
        # The node has 4 cpu, 8Gi and 2 gpus.
        pytest.param({}, {"cpu": "1", "memory": "2Gi"}, {}, 75, id="a pod that changes nothing scores 75"),
        pytest.param({}, {"cpu": "4"}, {}, 50, id="a pod that uses one resource up and no other scores 50"),
        pytest.param({"cpu": "4"}, {"memory": "8Gi"}, {}, 100, id="a pod that evens everything out scores 100"),
        pytest.param({"cpu": "1"}, {"memory": "1Gi"}, {}, 78, id="a pod that evens out a little scores a little more"),
        pytest.param({}, {"cpu": "1"}, {}, 68, id="half of what is lost is truncated downwards"),
        pytest.param({"cpu": "6"}, {"cpu": "1", "memory": "8Gi"}, {}, 100, id="more than all counts as all"),
        pytest.param({}, {"cpu": "1"}, WITH_GPU, 68, id="an extended resource not asked for does not count"),
        pytest.param(
            {"cpu": "1", "memory": "2Gi"},
            {GPU: 2},
            WITH_GPU,
            63,
            id="three resources count by their standard deviation",
        ),
        pytest.param({}, {"cpu": "4"}, {"resources": [{"name": "cpu"}]}, 75, id="one resource is always in balance"),
        pytest.param(
            {},
            {"cpu": "4"},
            {"resources": [{"name": "cpu"}, {"name": "ephemeral-storage"}]},
            75,
            id="what the node lacks does not count",
        ),
    ],
)
def test_score(load, requests, args, score):
    lab = Lab([node(allocatable={GPU: 2}), placed("load", **load)])
    found = lab.score(NodeResourcesBalancedAllocation, make_pod("p", requests=requests), args)
    assert found.raw == found.normalized == {"n": score}


@pytest.mark.parametrize(
    ("requests", "args"),
    [
        pytest.param({}, {}, id="a pod that asks for nothing"),
        pytest.param({"cpu": "0", GPU: 1}, {}, id="a pod that asks for nothing that is named"),
    ],
)
def test_has_no_opinion_on(requests, args):
    assert Lab([node()]).score(NodeResourcesBalancedAllocation, make_pod("p", requests=requests), args) is SKIP


def test_containers_that_ask_for_nothing_count_as_nothing():
    lab = Lab([node(), *(placed(f"p{place}") for place in range(40))])
    assert lab.score(NodeResourcesBalancedAllocation, make_pod("p", requests={"cpu": "4"})).raw == {"n": 50}


def expected_evenness(fractions):
    """100 less the standard deviation in percent, as kube-scheduler calculates it."""
    deviation = 0.0
    if len(fractions) == 2:
        deviation = abs((fractions[0] - fractions[1]) / 2)
    elif len(fractions) > 2:
        mean = total(fractions) / len(fractions)
        deviation = math.sqrt(total([(fraction - mean) * (fraction - mean) for fraction in fractions]) / len(fractions))
    return int((1 - deviation) * 100)


def total(numbers):
    """The sum in order, without the compensation that later versions of ``sum`` have."""
    result = 0.0
    for number in numbers:
        result += number
    return result


def expected_score(resources):
    """The score of one node from (asked, used, capacity) of each resource that counts."""
    owned = [each for each in resources if each[2]]
    within = expected_evenness([min((asked + used) / capacity, 1.0) for asked, used, capacity in owned])
    without = expected_evenness([min(used / capacity, 1.0) for _, used, capacity in owned])
    return 50 + int((50 + within - without) / 2)


NAMES = ("cpu", "memory", "ephemeral-storage", GPU, "example.com/fpga")
amounts = st.lists(st.integers(0, 12), min_size=len(NAMES), max_size=len(NAMES))


def quantities(values):
    return {name: f"{value}m" if name == "cpu" else value for name, value in zip(NAMES, values, strict=True)}


@given(clusters=st.lists(st.tuples(amounts, amounts), min_size=1, max_size=6), asked=amounts, count=st.integers(1, 5))
def test_scores_are_those_of_the_formula(clusters, asked, count):
    objects = []
    for place, (capacity, load) in enumerate(clusters):
        objects.append(node(f"n{place}", allocatable=quantities(capacity)))
        objects.append(placed(f"p{place}", f"n{place}", **quantities(load)))
    incoming = make_pod("p", requests=quantities(asked))
    found = Lab(objects).score(
        NodeResourcesBalancedAllocation, incoming, {"resources": [{"name": name} for name in NAMES[:count]]}
    )
    if not any(asked[:count]):
        assert found is SKIP
        return
    counted = [place for place in range(count) if place < 3 or asked[place]]
    assert found.raw == {
        f"n{place}": expected_score([(asked[i], load[i], capacity[i]) for i in counted])
        for place, (capacity, load) in enumerate(clusters)
    }


@pytest.mark.parametrize(
    ("args", "path"),
    [
        pytest.param({"resources": [{"name": "cpu", "weight": 2}]}, "resources[0].weight", id="a weight other than 1"),
        pytest.param({"resources": [{"name": "cpu"}, {"name": "cpu"}]}, "resources", id="a resource named twice"),
        pytest.param({"resources": [{"weight": 1}]}, "resources[0].name", id="a resource without a name"),
        pytest.param({"scoringStrategy": {}}, "scoringStrategy", id="an unknown key"),
    ],
)
def test_arguments_that_are_refused(args, path):
    with pytest.raises(ValidationError) as caught:
        NodeResourcesBalancedAllocationArgs.model_validate(args)
    assert [text.partition(": ")[0] for text in explain(caught.value)] == [path]


@pytest.mark.parametrize(
    "args",
    [
        pytest.param({"resources": None}, id="null"),
        pytest.param({"resources": []}, id="an empty list"),
        pytest.param({"resources": [{"name": "cpu"}, {"name": "memory"}]}, id="both without weights"),
    ],
)
def test_cpu_and_memory_are_balanced_by_default_where_resources_are(args):
    assert NodeResourcesBalancedAllocationArgs.model_validate(args) == NodeResourcesBalancedAllocationArgs()
