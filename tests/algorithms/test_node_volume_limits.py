"""NodeVolumeLimits, by a table of what pods bring to nodes, and by what changes while they are there."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from algorithms.node_volume_limits import REASON, NodeVolumeLimits
from extender.framework import SKIP
from extender.framework.runner import Outcome
from extender.testing.lab import Lab
from extender.testing.maker import make_node, make_pod
from tests.algorithms.storage import attachment, claim, csi, csi_node, ephemeral, storage_class, volume

NAME = "NodeVolumeLimits"
DRIVER = "csi.example.com"
EBS = {"name": "v", "awsElasticBlockStore": {"volumeID": "vol-1"}}
BROKEN = {"name": "broken", "awsElasticBlockStore": {"volumeID": "aws://zone/nothing"}}
FULL = Outcome((REASON,), resolvable=True, algorithm=NAME)


def pod(name, node=None, *volumes, **fields):
    return make_pod(name, node=node, volumes=volumes, **fields)


def bound(name, source=None, **fields):
    """A claim and the volume it is bound to, which bears its name with a v."""
    return claim(name, volume=f"v{name}"), volume(f"v{name}", ref=name, source=source, **fields)


OBJECTS = [
    *map(make_node, ("none", "one", "two", "silent", "bare")),
    csi_node("none", {DRIVER: 0, "ebs.csi.aws.com": 0}),
    csi_node("one", {DRIVER: 1, "ebs.csi.aws.com": 1}),
    csi_node("two", {DRIVER: 2, "other": 0}),
    csi_node("silent", {DRIVER: None}),
    storage_class("wait", DRIVER),
    storage_class("ebs", "kubernetes.io/aws-ebs"),
    storage_class("file", "kubernetes.io/azure-file"),
    *bound("used"),
    *bound("new"),
    *bound("twin", csi(DRIVER, "handle-vused")),
    *bound("old", {"awsElasticBlockStore": {"volumeID": "vol-1"}}),
    *bound("local", {"local": {"path": "/mnt"}}),
    *bound("nameless", csi(DRIVER, "")),
    *bound("broken", {"awsElasticBlockStore": {"volumeID": "aws://zone/nothing"}}),
    claim("waiting"),
    claim("early", volume="to-come"),
    claim("ebs", "ebs"),
    claim("file", "file"),
    claim("classless", None),
    claim("gone-class", "gone"),
    claim("p-scratch", owner="uid-p"),
    pod("tenant", "one", "used", "used"),
    pod("second", "one", "twin"),
    pod("third", "two", "used"),
]


@pytest.mark.parametrize(
    ("volumes", "refused"),
    [
        pytest.param([], SKIP, id="a pod without volumes has no opinion asked of it"),
        pytest.param([{"name": "v", "emptyDir": {}}], SKIP, id="nor has one without claims and disks"),
        pytest.param(["new"], {"none", "one"}, id="a volume must fit beside those that are there"),
        pytest.param(["new", "new"], {"none", "one"}, id="a volume that a pod has twice counts once"),
        pytest.param(["used"], {"none"}, id="a volume that is there already costs nothing"),
        pytest.param(["twin"], {"none"}, id="a volume is told by its handle, whatever claim it has"),
        pytest.param(["new", "waiting"], {"none", "one", "two"}, id="a volume that is yet to be made counts"),
        pytest.param(["early"], {"none", "one"}, id="a volume that does not exist yet counts for its class"),
        pytest.param([ephemeral()], {"none", "one"}, id="a claim made for the pod counts"),
        pytest.param([EBS], {"none"}, id="a built-in disk counts as one of the CSI driver in its place"),
        pytest.param(["old", EBS], {"none"}, id="a built-in disk is the same in a pod and in a volume"),
        pytest.param(["ebs", EBS], {"none", "one"}, id="a built-in disk that is yet to be made is another one"),
        pytest.param(["file"], set(), id="a built-in driver without limits is not counted"),
        pytest.param(["local"], set(), id="a volume of no driver is not counted"),
        pytest.param(["nameless"], set(), id="a volume without a handle is not counted"),
        pytest.param(["broken"], set(), id="a volume that has no CSI equivalent is not counted"),
        pytest.param(["classless"], set(), id="a claim without a class is not counted"),
        pytest.param(["gone-class"], set(), id="a claim whose class does not exist is not counted"),
        pytest.param(["used", EBS], {"none"}, id="drivers are counted one by one"),
    ],
)
def test_filter(volumes, refused):
    found = Lab(OBJECTS).filter(NodeVolumeLimits, pod("p", None, *volumes))
    assert found == (SKIP if refused is SKIP else dict.fromkeys(refused, FULL))


def test_a_node_over_its_limit_takes_pods_that_bring_nothing_new():
    lab = Lab([*OBJECTS, pod("fourth", "one", "new")])
    assert lab.filter(NodeVolumeLimits, pod("p", None, "used", "new")).keys() == {"none"}


def test_what_is_attached_counts_until_a_pod_uses_it():
    lab = Lab(
        [*OBJECTS, attachment("x", "two", "vnew"), attachment("y", "two", "vused"), attachment("z", "one", "gone")]
    )
    assert lab.filter(NodeVolumeLimits, pod("p", None, "waiting")).keys() == {"none", "one", "two"}
    # Upstream counts a volume twice that is attached and not yet used by a pod.
    assert lab.filter(NodeVolumeLimits, pod("p", None, "new")).keys() == {"none", "one", "two"}
    lab.apply(pod("fourth", "two", "new"))
    assert lab.filter(NodeVolumeLimits, pod("p", None, "new")).keys() == {"none", "one"}
    lab.delete(pod("fourth", "two", "new"), attachment("x", "two", "vnew"))
    assert lab.filter(NodeVolumeLimits, pod("p", None, "waiting")).keys() == {"none", "one"}


# --- what cannot be told ---------------------------------------------------------------------------------------------

EVERY = ("none", "one", "two", "silent", "bare")
UNNAMED = {"name": "v", "persistentVolumeClaim": {}}


@pytest.mark.parametrize(
    ("volumes", "code", "nodes"),
    [
        pytest.param(["gone"], "UnschedulableAndUnresolvable", EVERY, id="a claim that does not exist"),
        pytest.param([ephemeral("gone")], "UnschedulableAndUnresolvable", EVERY, id="a claim not made yet"),
        pytest.param([ephemeral("other")], "Error", EVERY, id="a claim that was made for another pod"),
        pytest.param([UNNAMED], "Error", EVERY, id="a claim without a name"),
        pytest.param([BROKEN], "Error", EVERY[:-1], id="a disk that has no CSI equivalent, where that is asked for"),
        pytest.param([BROKEN, UNNAMED], "Error", EVERY, id="such a disk and a claim without a name"),
    ],
)
def test_a_pod_has(volumes, code, nodes):
    lab = Lab([*OBJECTS, claim("p-other", owner="uid-q")])
    found = lab.filter(NodeVolumeLimits, pod("p", None, *volumes))
    assert {name: outcome.code for name, outcome in found.items()} == dict.fromkeys(nodes, code)


@pytest.mark.parametrize(
    ("other", "more"),
    [
        pytest.param(ephemeral(), [claim("q-scratch", owner="uid-r")], id="an ephemeral claim made for another pod"),
        pytest.param(UNNAMED, [], id="a claim without a name"),
        pytest.param(BROKEN, [], id="a disk that has no CSI equivalent"),
    ],
)
def test_a_placed_pod_spoils_its_node_for_pods_that_bring_volumes_if_there_are_limits(other, more):
    lab = Lab([*OBJECTS, *more, pod("q", "two", other), pod("s", "bare", other), pod("t", "silent", other)])
    found = lab.filter(NodeVolumeLimits, pod("p", None, "waiting"))
    assert {name: outcome.code for name, outcome in found.items()} == {
        "none": "Unschedulable",
        "one": "Unschedulable",
        "two": "Error",
    }
    assert lab.filter(NodeVolumeLimits, pod("p", None, "local")) == {}
    lab.delete(pod("q"))
    assert lab.filter(NodeVolumeLimits, pod("p", None, "waiting")).keys() == {"none", "one"}


def test_placed_pods_whose_claims_are_gone_count_for_nothing():
    lab = Lab([*OBJECTS, pod("q", "two", "gone", ephemeral())])
    assert lab.filter(NodeVolumeLimits, pod("p", None, "waiting")).keys() == {"none", "one"}


# --- what changes while pods are there -------------------------------------------------------------------------------


def allows(*changes):
    """Say whether a node that takes one volume takes another, after the changes to what its pod uses."""
    classes = storage_class("wait", DRIVER), storage_class("own", DRIVER)
    lab = Lab([make_node("n"), csi_node("n", {DRIVER: 1}), *classes, claim("new")])
    lab.filter(NodeVolumeLimits, pod("p", None, "new"))
    for verb, item in changes:
        getattr(lab, verb)(item)
    return not lab.filter(NodeVolumeLimits, pod("p", None, "new"))


TENANT = ("apply", pod("tenant", "n", "c"))
OWN = ("apply", claim("c", "own"))
OTHER = csi("other.example.com", "h")


@pytest.mark.parametrize(
    ("changes", "allowed"),
    [
        pytest.param([TENANT], True, id="a claim that does not exist takes no room"),
        pytest.param([TENANT, OWN], False, id="one that is created does"),
        pytest.param([TENANT, OWN, ("delete", claim("c", "own"))], True, id="until it is deleted"),
        pytest.param([TENANT, OWN, ("delete", storage_class("own"))], True, id="or its class is deleted"),
        pytest.param(
            [TENANT, ("apply", claim("c", "own", volume="v")), ("apply", volume("v", source=OTHER))],
            True,
            id="or it is bound to a volume of another driver",
        ),
        pytest.param(
            [
                ("apply", claim("c", "own", volume="v")),
                ("apply", volume("v", source=OTHER)),
                TENANT,
                ("delete", volume("v")),
            ],
            False,
            id="a volume that is gone counts for the class of its claim",
        ),
        pytest.param(
            [TENANT, OWN, ("apply", storage_class("own", "other"))],
            True,
            id="a class that has another provisioner now makes volumes of that",
        ),
        pytest.param([TENANT, OWN, ("apply", csi_node("n", {DRIVER: 2}))], True, id="a limit that is raised"),
        pytest.param(
            [TENANT, OWN, ("delete", csi_node("n")), ("apply", make_node("n"))],
            True,
            id="a node without a CSINode object has no limits",
        ),
        pytest.param(
            [TENANT, OWN, ("delete", make_node("n")), ("apply", make_node("n"))],
            False,
            id="a node that comes back has its pods and its limits",
        ),
    ],
)
def test_room_for_another(changes, allowed):
    assert allows(*changes) == allowed


# --- against counting node by node -----------------------------------------------------------------------------------

CLAIMS = ["c0", "c1", "c2", "c3"]
NODES = ["a", "b"]
USERS = st.lists(st.tuples(st.sampled_from(NODES), st.lists(st.sampled_from(CLAIMS), max_size=3)), max_size=4)


@given(
    st.lists(st.sampled_from(["x/1", "x/2", "y/1"]), min_size=len(CLAIMS), max_size=len(CLAIMS)),
    st.dictionaries(st.sampled_from(NODES), st.dictionaries(st.sampled_from(["x", "y"]), st.integers(0, 2))),
    USERS,
    st.lists(st.sampled_from(CLAIMS), min_size=1, max_size=3),
)
def test_counts_as_node_by_node(handles, limits, users, wanted):
    of = dict(zip(CLAIMS, handles, strict=True))
    lab = Lab(map(make_node, NODES))
    for name, handle in of.items():
        lab.apply(*bound(name, csi(*handle.split("/"))))
    lab.apply(*(csi_node(node, drivers) for node, drivers in limits.items()))
    lab.apply(*(pod(f"u{place}", node, *claims) for place, (node, claims) in enumerate(users)))
    found = lab.filter(NodeVolumeLimits, pod("p", None, *wanted))
    for node in NODES:
        there = {of[name] for user, claims in users for name in claims if user == node}
        new = {of[name] for name in wanted} - there
        full = any(
            new_of(driver, new) and len(new_of(driver, new | there)) > limit
            for driver, limit in limits.get(node, {}).items()
        )
        assert (node in found) == full


def new_of(driver, handles):
    return [handle for handle in handles if handle.split("/")[0] == driver]
