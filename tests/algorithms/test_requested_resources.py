"""The cache of requested resources obeys the laws of caches, whatever comes in whatever order."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from extender.framework import RequestedResources
from extender.testing.lab import Lab
from extender.testing.law import check_fold_equals_rebuild, check_inverse_leaves_no_trace
from extender.testing.maker import make_node, make_pod

EXTENDED = ("example.com/gpu", "example.com/fpga", "hugepages-2Mi")


def node(name, **resources):
    return make_node(name, **resources)


def pod(name, where=None, **requests):
    return make_pod(name, node=where, requests=requests)


names = st.integers(0, 4).map("n{}".format)
extended = st.dictionaries(st.sampled_from(EXTENDED), st.integers(0, 3), max_size=2)
nodes = st.builds(
    lambda name, cpu, pods, more: node(name, cpu=cpu, pods=pods, allocatable=more),
    names,
    st.integers(0, 9),
    st.integers(0, 3),
    extended,
)
pods = st.builds(
    lambda name, where, cpu, more: pod(name, where, **cpu, **more),
    st.integers(0, 6).map("p{}".format),
    st.none() | names,
    st.sampled_from([{}, {"cpu": "250m"}, {"cpu": "0", "memory": "1Gi"}]),
    extended,
)
events = st.lists(st.tuples(st.sampled_from(["apply", "apply", "delete"]), nodes | pods), max_size=40)


@given(events)
def test_folding_random_events_equals_rebuilding_and_undoing_leaves_no_trace(events):
    lab = Lab()
    check_fold_equals_rebuild(RequestedResources, events, lab)
    check_inverse_leaves_no_trace(RequestedResources, lab)


@pytest.mark.parametrize(
    "events",
    [
        pytest.param([pod("p", "n", cpu="1"), node("n")], id="a pod that comes before its node"),
        pytest.param([pod("p", "n", cpu="1", **{EXTENDED[0]: 1})], id="a pod on an unknown node"),
        pytest.param(
            [node("n", cpu=1, allocatable={EXTENDED[0]: 1}), node("n", cpu=9)], id="a node that loses a resource"
        ),
        pytest.param([pod("p", "n", cpu="1"), pod("p", "m", cpu="2"), node("m")], id="a pod that changes its node"),
        pytest.param([node("n"), pod("p", "n", **dict.fromkeys(EXTENDED, 1))], id="resources that appear with a pod"),
        pytest.param([node("n", allocatable=dict.fromkeys(EXTENDED, 1))], id="resources that appear with a node"),
        pytest.param(
            [item for i in range(200) for item in (pod(f"p{i}", f"n{i}", cpu=i), node(f"n{i}", cpu=i))],
            id="more nodes than there is room for at first",
        ),
    ],
)
def test_laws_hold_with(events):
    lab = Lab()
    check_fold_equals_rebuild(RequestedResources, [("apply", item) for item in events], lab)
    check_inverse_leaves_no_trace(RequestedResources, lab)


def test_pods_stay_counted_while_their_node_is_gone():
    lab = Lab([node("n", cpu=4, pods=7), pod("p", "n", cpu="500m", **{EXTENDED[0]: 2}), pod("q", "n")])
    cache = lab.mirror.cache(RequestedResources)
    load = {
        "requested": {"cpu": 500, EXTENDED[0]: 2},
        "nonzero": [600, 400 * 2**20],
        "pods": 2,
    }
    room = {"allocatable": {"cpu": 4000, "memory": 8 * 2**30}, "allowedPods": 7}
    assert cache.dump() == {"n": load | room}
    lab.delete(node("n"))
    assert cache.dump() == {"n": load | {"allocatable": {}, "allowedPods": 0}}
    lab.apply(node("n", cpu=4, pods=7))
    assert cache.dump() == {"n": load | room}
    lab.delete(pod("p"), pod("q"))
    assert cache.dump() == {"n": room | {"requested": {}, "nonzero": [0, 0], "pods": 0}}


def test_pods_that_are_not_placed_are_not_counted():
    lab = Lab([node("n"), pod("p", cpu="1")])
    dump = lab.mirror.cache(RequestedResources).dump()
    assert dump["n"]["requested"] == {}
    assert dump["n"]["pods"] == 0


def test_a_row_given_to_another_node_has_nothing_left_of_the_first():
    lab = Lab([node("old", allocatable={EXTENDED[0]: 1}), pod("p", "old", cpu="1")])
    cache = lab.mirror.cache(RequestedResources)
    lab.delete(pod("p"), node("old"))
    lab.apply(node("new", cpu=1, memory=2, pods=3))
    assert cache.dump() == {
        "new": {
            "allocatable": {"cpu": 1000, "memory": 2},
            "requested": {},
            "nonzero": [0, 0],
            "pods": 0,
            "allowedPods": 3,
        }
    }
