"""FitIPResource, by tables of what nodes and pools have and of what their pods take."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from algorithms.fit_ip_resource import (
    ADDRESS_COUNT,
    INSTANCE_TYPE,
    NODE_REASONS,
    POOL_REASONS,
    UNKNOWN,
    UNREADABLE,
    UNREADABLE_POD,
    FitIPResource,
)
from extender.config import explain
from extender.framework import SKIP
from extender.framework.pod_address import PodAddresses
from extender.framework.runner import Outcome
from extender.testing.lab import Lab
from extender.testing.law import check_fold_equals_rebuild, check_inverse_leaves_no_trace
from extender.testing.maker import make_node, make_pod

ANNOTATION = "scheduler-extender/pod-ips"
SUBNET = "topology.kubernetes.io/subnet"
RESOURCE = "example.com/pod-ip"


def outcome(*reasons, resolvable=True, error=False):
    return Outcome(reasons, resolvable, "FitIPResource", error)


FULL = {"n": outcome(NODE_REASONS[0])}
NO_NUMBER = {"n": outcome(UNREADABLE_POD, resolvable=False, error=True)}
TOO_SMALL = {"n": outcome(NODE_REASONS[0], resolvable=False)}


def node(name="n", ips=None, subnet=None, **fields):
    """Return a node that is annotated with its addresses, and labelled with its subnet."""
    labels = dict(fields.pop("labels", {}))
    if subnet is not None:
        labels[SUBNET] = subnet
    annotations = {} if ips is None else {ANNOTATION: ips if isinstance(ips, str) else json.dumps(ips)}
    return make_node(name, labels=labels, annotations=annotations, **fields)


def pod(name, where=None, count=None, **fields):
    return make_pod(name, node=where, annotations={} if count is None else {ADDRESS_COUNT: count}, **fields)


def pods(*where):
    return [pod(f"q{place}", name) for place, name in enumerate(where)]


def lab_of(*objects):
    """Return a cluster whose records of pods have the annotation: the cache must be there when they are read."""
    lab = Lab()
    lab.mirror.cache(PodAddresses)
    lab.apply(*objects)
    return lab


def refused(objects, args=None, **fields):
    return lab_of(*objects).filter(FitIPResource, pod("p", **fields), args)


@pytest.mark.parametrize(
    ("objects", "fields", "expected"),
    [
        pytest.param([node(ips="2"), *pods("n")], {}, {}, id="one address is left"),
        pytest.param([node(ips="2"), *pods("n", "n")], {}, FULL, id="none is left"),
        pytest.param([node(ips="2"), *pods("n", "n", "n")], {}, FULL, id="more are used than there are"),
        pytest.param([node(ips="0")], {}, TOO_SMALL, id="a node without addresses helps no eviction"),
        pytest.param([node(ips="2"), *pods("m", "m")], {}, {}, id="pods of other nodes do not count"),
        pytest.param(
            [node(ips="1"), pod("h", "n", hostNetwork=True)], {}, {}, id="pods on the network of the host take none"
        ),
        pytest.param([node(ips="0")], {"hostNetwork": True}, SKIP, id="and need none"),
        pytest.param([node(ips="4"), pod("q", "n", "2")], {"count": "2"}, {}, id="several addresses fit"),
        pytest.param([node(ips="4"), pod("q", "n", "2")], {"count": "3"}, FULL, id="several addresses do not fit"),
        pytest.param([node(ips="4")], {"count": "5"}, TOO_SMALL, id="a pod that wants more than the node has"),
        pytest.param([node(ips="2"), pod("q", "n", "some")], {}, {}, id="a placed pod of an odd annotation takes one"),
        pytest.param(
            [node(ips="0")],
            {"count": "0"},
            {"n": outcome(UNREADABLE_POD, resolvable=False, error=True)},
            id="no number",
        ),
    ],
)
def test_what_pods_take(objects, fields, expected):
    assert refused(objects, **fields) == expected


ADVERSE = {"sources": ["instanceType", "podCIDRs", "extendedResource", "annotation"]}
TYPED = {INSTANCE_TYPE: "small"}
RICH = node(ips="3", labels=TYPED, podCIDRs=["10.0.0.0/29"], allocatable={RESOURCE: 2})


def told(**args):
    """Return arguments that name an extended resource and an instance type, and others."""
    return {"extendedResource": RESOURCE, "instanceTypes": {"small": 1}} | args


@pytest.mark.parametrize(
    ("found", "args", "capacity"),
    [
        pytest.param(node(ips="3"), {}, [3], id="the annotation"),
        pytest.param(node(ips=" 3\n"), {}, [3], id="the annotation with blanks"),
        pytest.param(node(ips={"ipv4": 3, "ipv6": 4}), {}, [3], id="the smaller of two families"),
        pytest.param(node(ips={"ipv4": None, "ipv6": 4}), {}, [4], id="one family alone"),
        pytest.param(node(ips=str(10**30)), {}, [], id="more than any number of pods"),
        pytest.param(make_node("n", annotations={"ips": "3"}), {"annotation": "ips"}, [3], id="of another name"),
        pytest.param(node(allocatable={RESOURCE: 2}), told(), [2], id="the extended resource"),
        pytest.param(node(allocatable={RESOURCE: 0}), told(), [0], id="none of the extended resource"),
        pytest.param(node(allocatable={RESOURCE: 2}), {}, [], id="an extended resource that is not named"),
        pytest.param(node(podCIDRs=["10.0.0.0/29"]), {}, [5], id="a range without three addresses"),
        pytest.param(node(podCIDRs=["10.0.0.0/29"]), {"reservedPerCidr": 1}, [7], id="a range without one"),
        pytest.param(node(podCIDRs=["10.0.0.1/30", "10.0.1.0/30"]), {}, [2], id="two ranges, one off its start"),
        pytest.param(node(podCIDRs=["10.0.0.0/31"]), {}, [0], id="a range smaller than what is reserved"),
        pytest.param(node(podCIDRs=["10.0.0.0/29", "fd00::/64"]), {}, [5], id="a range of each family"),
        pytest.param(node(podCIDRs=["fd00::/64"]), {}, [], id="a range that nothing fills"),
        pytest.param(node(podCIDRs=["fd00::/125"]), {}, [5], id="a small range of the newer family"),
        pytest.param(node(podCIDRs=["10.0.0.0/99"]), {}, [], id="a range that cannot be read"),
        pytest.param(node(labels=TYPED), told(), [1], id="the instance type"),
        pytest.param(node(labels={INSTANCE_TYPE: "big"}), told(), [], id="an instance type that is not named"),
        pytest.param(node(labels=TYPED), told(instanceTypes={"small": {"ipv6": 2}}), [2], id="of one family"),
        pytest.param(
            node(ips="3", labels=TYPED, podCIDRs=["10.0.0.0/29"], allocatable={RESOURCE: 2}),
            told(),
            [3],
            id="the first",
        ),
        pytest.param(
            node(ips="3", labels=TYPED, podCIDRs=["10.0.0.0/29"], allocatable={RESOURCE: 2}),
            told(**ADVERSE),
            [1],
            id="the first in another order",
        ),
        pytest.param(node(ips="3", podCIDRs=["10.0.0.0/29"]), told(**ADVERSE), [5], id="the first that knows"),
        pytest.param(node(ips="3"), {"sources": ["podCIDRs"]}, [], id="a source that is not asked"),
        pytest.param(node(ips="3"), {"reserved": {"perNode": 2}}, [1], id="less what is reserved"),
        pytest.param(node(ips="3"), {"reserved": {"perNode": 9}}, [0], id="all of which is reserved"),
        pytest.param(node(), {}, [], id="nothing is known"),
    ],
)
def test_what_a_node_has(found, args, capacity):
    """The node takes as many pods as it has addresses, and any number where nothing is known."""
    takes = capacity[0] if capacity else 300
    lab = lab_of(found, *pods(*["n"] * (takes - 1)))
    assert bool(lab.filter(FitIPResource, pod("p"), args)) == (takes == 0)
    if capacity:
        lab.apply(pod("last", "n"))
        assert set(lab.filter(FitIPResource, pod("p"), args)) == {"n"}


@pytest.mark.parametrize(
    ("capacity", "expected"),
    [
        pytest.param({"ipv4": 1, "ipv6": 9}, {"n": outcome(NODE_REASONS[1])}, id="the one"),
        pytest.param({"ipv4": 9, "ipv6": 1}, {"n": outcome(NODE_REASONS[2])}, id="the other"),
        pytest.param({"ipv4": 1, "ipv6": 0}, {"n": outcome(*NODE_REASONS[1:], resolvable=False)}, id="both"),
        pytest.param({"ipv4": 9, "ipv6": 9}, {}, id="neither"),
    ],
)
def test_a_family_that_is_full_is_named(capacity, expected):
    assert refused([node(ips=capacity), *pods("n")]) == expected


@pytest.mark.parametrize("text", ["many", "", "-1", '"30"', "true", "3.5", "[30]", "{}", '{"ipv5": 3}', '{"ipv4": -3}'])
def test_a_node_with_an_annotation_that_cannot_be_read_is_refused(text):
    objects = [node("n", ips=text, podCIDRs=["10.0.0.0/24"]), node("m", ips="9")]
    assert refused(objects) == {"n": outcome(UNREADABLE, resolvable=False, error=True)}
    assert refused(objects, {"sources": ["podCIDRs", "annotation"]}) == {}
    assert refused(objects, {"unknownCapacity": "refuse"}).keys() == {"n"}


@pytest.mark.parametrize(
    ("args", "expected"),
    [
        pytest.param({}, set(), id="fits by default"),
        pytest.param({"unknownCapacity": "fit"}, set(), id="fits"),
        pytest.param({"unknownCapacity": "refuse"}, {"unknown", "pooled"}, id="is refused"),
        pytest.param(
            {"unknownCapacity": "refuse", "pool": {"labelKey": SUBNET, "capacity": {"s": 5}}},
            {"unknown"},
            id="is refused unless its pool is known",
        ),
        pytest.param(
            {"unknownCapacity": "refuse", "pool": {"labelKey": SUBNET}},
            {"unknown", "pooled"},
            id="is refused where it has no share in what its pool has together",
        ),
    ],
)
def test_a_node_of_unknown_capacity(args, expected):
    found = refused([node("known", ips="3"), node("unknown"), node("pooled", subnet="s")], args)
    assert found == dict.fromkeys(expected, outcome(UNKNOWN, resolvable=False))


NODES = [node("a", "3", "s"), node("b", "3", "s"), node("c", "3", "t"), node("free", "3"), node("unknown", subnet="s")]
POOL_FULL, NODE_FULL = outcome(POOL_REASONS[0]), outcome(NODE_REASONS[0])


@pytest.mark.parametrize(
    ("capacity", "where", "expected"),
    [
        pytest.param({"s": 3}, "aab", {"a": POOL_FULL, "b": POOL_FULL, "unknown": POOL_FULL}, id="a full pool"),
        pytest.param({"s": 3, "t": 9}, "aacc", {}, id="pools with room"),
        pytest.param({"s": 9}, "aaab", {"a": NODE_FULL}, id="a full node of a pool with room"),
        pytest.param({"s": 3}, "aaa", {"a": outcome(NODE_REASONS[0], POOL_REASONS[0]), "b": POOL_FULL}, id="both"),
        pytest.param({"t": 1}, "aab", {}, id="a pool that is not named has no limit"),
        pytest.param({"s": 0}, "", {"a": "none", "b": "none"}, id="a pool without addresses"),
        pytest.param({"s": 3}, ["a", "unknown", "unknown"], {"a": POOL_FULL, "b": POOL_FULL}, id="pods of any node"),
        pytest.param({"s": 1}, ["free", "gone"], {}, id="pods outside all pools"),
        pytest.param(None, "aaaaa", {}, id="a node uses what others of the pool have"),
        pytest.param(None, "aaaaab", {"a": POOL_FULL, "b": POOL_FULL}, id="all that they have together"),
        pytest.param(None, "ccc", {"c": POOL_FULL}, id="a pool of one node"),
        pytest.param(None, ["free"] * 3, {"free": NODE_FULL}, id="a node outside all pools has its own"),
        pytest.param(None, ["unknown"] * 9, {}, id="a node of unknown capacity takes nothing of the others"),
    ],
)
def test_a_pool(capacity, where, expected):
    found = refused([*NODES, *pods(*where)], {"pool": {"labelKey": SUBNET, "capacity": capacity}})
    if "unknown" not in expected:
        found.pop("unknown", None)
    too_small = outcome(POOL_REASONS[0], resolvable=False)
    assert found == {name: too_small if each == "none" else each for name, each in expected.items()}


@pytest.mark.parametrize(
    ("args", "where", "expected"),
    [
        pytest.param({"pool": {"labelKey": SUBNET, "capacity": {"s": {"ipv6": 1}}}}, "a", [2], id="one family"),
        pytest.param({"pool": {"labelKey": SUBNET, "capacity": {"s": {"ipv4": 1}}}}, "a", [1], id="the other"),
        pytest.param(
            {"pool": {"labelKey": SUBNET, "capacity": {"s": 3}}, "reserved": {"perPool": 2}}, "a", [0], id="reserved"
        ),
        pytest.param({"pool": {"labelKey": SUBNET}, "reserved": {"perPool": 4}}, "aa", [0], id="of the sum"),
        pytest.param({"pool": {"labelKey": SUBNET}, "reserved": {"perNode": 2}}, "aa", [0], id="reserved by node"),
    ],
)
def test_what_a_pool_has_by_family_and_without_what_is_reserved(args, where, expected):
    found = refused([node("a", "3", "s"), node("b", "3", "s"), *pods(*where)], args)
    assert found == dict.fromkeys("ab", outcome(*(POOL_REASONS[family] for family in expected)))


def test_nodes_share_by_family():
    objects = [node("a", {"ipv4": 2}, "s"), node("b", "2", "s"), *pods("a", "a", "b")]
    found = refused(objects, {"pool": {"labelKey": SUBNET}})
    assert found == {"a": outcome(POOL_REASONS[1])}


def test_what_is_known_follows_nodes_and_pods():
    lab = lab_of(node(ips="1"), *pods("n"))
    predicate_args = {"pool": {"labelKey": SUBNET}}
    assert lab.filter(FitIPResource, pod("p"), predicate_args) == FULL
    lab.apply(node(ips="2"))
    assert lab.filter(FitIPResource, pod("p"), predicate_args) == {}
    lab.apply(node(ips="1", subnet="s"), *[node(f"x{place}") for place in range(70)])
    assert lab.filter(FitIPResource, pod("p"), predicate_args) == {"n": POOL_FULL}
    lab.apply(pod("q0", "n", hostNetwork=True))
    assert lab.filter(FitIPResource, pod("p"), predicate_args) == {}


@pytest.mark.parametrize(
    ("args", "finding"),
    [
        pytest.param({"sources": ["dhcp"]}, "sources[0]: must be 'annotation'", id="an unknown source"),
        pytest.param({"extendedResource": "a b"}, "extendedResource: 'a b' is not a resource name", id="no resource"),
        pytest.param({"instanceTypes": {"m": "x"}}, "instanceTypes.m: must be a number of addresses", id="no number"),
        pytest.param({"instanceTypes": {"m": {}}}, "instanceTypes.m: must be a number of addresses", id="no family"),
        pytest.param({"instanceTypes": {"m": -1}}, "instanceTypes.m.addresses: must be >= 0", id="less than none"),
        pytest.param({"pool": {"capacity": {}}}, "pool.labelKey: is missing", id="a pool without a label"),
        pytest.param({"sources": []}, "sources: must not be empty", id="no sources"),
        pytest.param(
            {"sources": ["extendedResource"]},
            "extendedResource must be given where",
            id="a source without its resource",
        ),
        pytest.param(
            {"sources": ["instanceType"]}, "instanceTypes must be given where", id="a source without its table"
        ),
        pytest.param(
            {"sources": ["annotation"], "extendedResource": "example.com/ip"},
            "extendedResource must be given where",
            id="a resource that is no source",
        ),
        pytest.param(
            {"sources": ["annotation"], "instanceTypes": {"m": 1}},
            "instanceTypes must be given where",
            id="a table that is no source",
        ),
        pytest.param({"annotation": "bad key!"}, "annotation: must be an annotation key", id="no annotation"),
        pytest.param({"pool": {"labelKey": "bad key!"}}, "pool.labelKey: must be a label key", id="a pool by no label"),
        pytest.param(
            {"reservedPerCidr": 10**30}, "reservedPerCidr: must be <= 1099511627776", id="too many of a range"
        ),
        pytest.param({"reserved": {"perNode": 10**30}}, "reserved.perNode: must be <=", id="too many of a node"),
        pytest.param({"reserved": {"perPool": 10**30}}, "reserved.perPool: must be <=", id="too many of a pool"),
        pytest.param({"reserved": {"perCidr": 1}}, "reserved.perCidr: unknown key", id="an unknown key"),
        pytest.param({"unknownCapacity": "ask"}, "unknownCapacity: must be 'fit' or 'refuse'", id="an unknown policy"),
    ],
)
def test_arguments_that_are_refused(args, finding):
    with pytest.raises(ValidationError) as raised:
        FitIPResource.Arguments.model_validate(args)
    (text,) = explain(raised.value)
    assert text.startswith(finding)


@pytest.mark.parametrize(
    "args",
    [
        pytest.param({"reservedPerCidr": 2**40}, id="of a range"),
        pytest.param({"reserved": {"perNode": 2**40}}, id="of a node"),
        pytest.param({"reserved": {"perPool": 2**40}, "pool": {"labelKey": SUBNET}}, id="of a pool"),
    ],
)
def test_as_much_can_be_reserved_as_there_can_be(args):
    lab = lab_of(make_node("n", labels={SUBNET: "s"}, podCIDRs=["10.0.0.0/24", "fd00::/64"]))
    assert lab.filter(FitIPResource, pod("p"), args).keys() == {"n"}


# --- under random events ---------------------------------------------------------------------------------------------

NAMES = st.sampled_from(["a", "b", "c"])
RANDOM_NODES = st.builds(
    node,
    NAMES,
    st.none() | st.integers(0, 4),
    st.none() | st.sampled_from(["s", "t"]),
    podCIDRs=st.lists(st.sampled_from(["10.0.0.0/29", "fd00::/126", "odd"]), max_size=2),
    allocatable=st.sampled_from([{}, {RESOURCE: 0}, {RESOURCE: 2}]),
)
RANDOM_PODS = st.builds(
    pod,
    st.sampled_from(["p", "q", "r", "s"]),
    st.none() | NAMES,
    st.sampled_from([None, "2", "odd"]),
    hostNetwork=st.booleans(),
)
CROWD = st.sampled_from([[], [("apply", pod(f"x{place}", f"n{place}")) for place in range(70)]])
CHANGES = st.lists(st.tuples(st.sampled_from(["apply", "apply", "delete"]), RANDOM_NODES | RANDOM_PODS))
EVENTS = st.tuples(CHANGES, CROWD, CHANGES).map(lambda parts: [*parts[0], *parts[1], *parts[2]])


@settings(deadline=None)
@given(EVENTS)
def test_the_cache_obeys_both_laws(events):
    lab = Lab()
    check_fold_equals_rebuild(PodAddresses, events, lab)
    check_inverse_leaves_no_trace(PodAddresses, lab)


@settings(deadline=None)
@given(EVENTS, st.none() | st.fixed_dictionaries({}, optional={"s": st.integers(0, 4), "t": st.integers(0, 4)}))
def test_it_agrees_with_counting_node_by_node(events, capacity):
    lab = lab_of()
    for verb, item in events:
        getattr(lab, verb)(item)
    infos = list(lab.nodes().infos())
    own = {info.name: int(info.annotations[ANNOTATION]) for info in infos if ANNOTATION in info.annotations}
    used = dict.fromkeys((info.name for info in infos), 0)
    for info in lab.mirror.pods.values():
        if info.node_name in used and not info.shape.host_network:
            used[info.node_name] += 2 if info.annotations.get(ADDRESS_COUNT) == "2" else 1
    expected = set()
    for info in infos:
        subnet = info.labels.get(SUBNET)
        pool = [each.name for each in infos if subnet and each.labels.get(SUBNET) == subnet]
        if capacity is not None:
            if used[info.name] >= own.get(info.name, 10**9) or sum(map(used.get, pool)) >= capacity.get(subnet, 10**9):
                expected.add(info.name)
        elif info.name in own:
            sharing = [name for name in pool if name in own] or [info.name]
            if sum(map(used.get, sharing)) >= sum(map(own.get, sharing)):
                expected.add(info.name)
    args = {"sources": ["annotation"], "pool": {"labelKey": SUBNET, "capacity": capacity}}
    assert set(lab.filter(FitIPResource, pod("new"), args)) == expected
