"""VolumeBinding, by the reported faults, by tables of claims and volumes, and against deciding node by node."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from algorithms.volume_binding import (
    AFFINITY_REASON,
    GONE_REASON,
    IMMEDIATE_REASON,
    SPACE_REASON,
    UNMATCHED_REASON,
    VolumeBinding,
)
from extender.framework import SKIP
from extender.testing.casefile import check_case, read_cases
from extender.testing.lab import Lab, Scores
from extender.testing.maker import make_node, make_pod
from tests.algorithms.storage import (
    HOST,
    ZONE,
    capacity,
    claim,
    csi_driver,
    csi_node,
    ephemeral,
    storage_class,
    volume,
)

REPORTED = read_cases(Path(__file__).parents[1] / "data" / "cases" / "B41-volume-binding.yaml")
EBS_ZONE = "topology.ebs.csi.aws.com/zone"
MANUAL = "kubernetes.io/no-provisioner"

NODES = [
    make_node("a1", labels={ZONE: "a"}),
    make_node("a2", labels={ZONE: "a"}),
    make_node("b1", labels={ZONE: "b"}),
]
EVERY = {"a1", "a2", "b1"}
MANY = [make_node(f"x{place}", labels={ZONE: "x"}) for place in range(80)]
CLASSES = [
    storage_class("wait"),
    storage_class("manual", MANUAL),
    storage_class("in-a", allowedTopologies=[{"matchLabelExpressions": [{"key": ZONE, "values": ["a"]}]}]),
    storage_class("now", mode="Immediate"),
    storage_class("unset", mode=None),
    storage_class("aimless", ""),
]


def ask(*objects, volumes=("c",), args=None):
    """The reasons for each node that is refused to a pod with claims."""
    found = Lab([*NODES, *CLASSES, *objects]).filter(VolumeBinding, make_pod("p", volumes=volumes), args)
    if found is SKIP:
        return SKIP
    return {name: outcome.reasons if outcome.code != "Error" else "Error" for name, outcome in found.items()}


@pytest.mark.parametrize("case", [pytest.param(case, id=case.id) for case in REPORTED])
def test_reported_fault(case):
    check_case(case, VolumeBinding)


@pytest.mark.parametrize(
    "volumes",
    [
        pytest.param((), id="a pod without volumes"),
        pytest.param(({"name": "v", "emptyDir": {}}, {"name": "w", "configMap": {}}), id="a pod without claims"),
    ],
)
def test_has_no_opinion_on(volumes):
    assert ask(volumes=volumes) is SKIP


def refuse(nodes, *reasons):
    return dict.fromkeys(nodes, reasons)


# --- claims that are bound -------------------------------------------------------------------------------------------


def bound(name="c", **fields):
    return claim(name, volume=f"v{name}"), volume(f"v{name}", ref=name, **fields)


AWS = {"awsElasticBlockStore": {"volumeID": "vol-1"}}
AFAR = {"awsElasticBlockStore": {"volumeID": "aws://zone/nothing"}}
MIGRATED = [csi_node("a2", migrated=["kubernetes.io/aws-ebs"]), csi_node("b1", {"x": 1}), csi_node("ghost")]
BY_FIELD = {
    "required": {"nodeSelectorTerms": [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["x"]}]}]}
}
UNREADABLE = {"required": {"nodeSelectorTerms": [{"matchExpressions": [{"key": "k", "operator": "Is"}]}]}}
EMPTY = {"required": {"nodeSelectorTerms": [{"matchExpressions": None}]}}


@pytest.mark.parametrize(
    ("objects", "refused"),
    [
        pytest.param(bound(), {}, id="a volume without affinity is reached from everywhere"),
        pytest.param(bound(on={ZONE: ["a"]}), refuse({"b1"}, AFFINITY_REASON), id="one in a zone from there"),
        pytest.param(bound(nodeAffinity=BY_FIELD), {}, id="fields of nodes do not restrict volumes"),
        pytest.param(bound(nodeAffinity=UNREADABLE), refuse(EVERY, AFFINITY_REASON), id="a term without sense fails"),
        pytest.param(bound(nodeAffinity=EMPTY), refuse(EVERY, AFFINITY_REASON), id="an empty term reaches nothing"),
        pytest.param(bound(nodeAffinity={}), {}, id="affinity without terms restricts nothing"),
        pytest.param([claim("c", volume="v")], refuse(EVERY, GONE_REASON), id="a volume that does not exist"),
        pytest.param(
            [*bound(on={ZONE: ["a"]}, source=AWS), *MIGRATED],
            refuse({"a2", "b1"}, AFFINITY_REASON),
            id="a node that handles a built-in driver through CSI has the labels of that",
        ),
        pytest.param(
            [*bound(on={ZONE: ["a"]}, source=AFAR), *MIGRATED],
            {"a2": "Error"} | refuse({"b1"}, AFFINITY_REASON),
            id="where a built-in disk has no CSI equivalent it cannot be told",
        ),
    ],
)
def test_a_bound_claim(objects, refused):
    assert ask(*objects) == refused


def test_the_first_bound_claim_that_fails_is_told():
    objects = [*bound("c", on={ZONE: ["a"]}), claim("d", volume="gone"), *bound("e", on={HOST: ["a2"]})]
    assert ask(*objects, volumes=["c", "d", "e"]) == refuse({"a1", "a2"}, GONE_REASON) | refuse({"b1"}, AFFINITY_REASON)
    assert ask(*objects, volumes=["c", "e"]) == refuse({"a1", "b1"}, AFFINITY_REASON)


# --- claims that wait ------------------------------------------------------------------------------------------------

WANTED = claim("c", "manual", size="5Gi")


@pytest.mark.parametrize(
    ("objects", "fits"),
    [
        pytest.param([], set(), id="without a volume there is none"),
        pytest.param([volume("v", "manual", size="5Gi")], EVERY, id="one of the right size will do"),
        pytest.param([volume("v", "manual", size="4999Mi")], set(), id="one that is too small will not"),
        pytest.param([volume("v", "manual", size="9Gi", on={ZONE: ["a"]})], {"a1", "a2"}, id="nor one that is afar"),
        pytest.param([volume("v", "wait", size="9Gi")], set(), id="nor one of another class"),
        pytest.param([volume("v", "manual", size="9Gi", volumeMode="Block")], set(), id="nor one of another mode"),
        pytest.param([volume("v", "manual", size="9Gi", volumeMode="Filesystem")], EVERY, id="files are the default"),
        pytest.param(
            [volume("v", "manual", size="9Gi", accessModes=["ReadOnlyMany"])], set(), id="nor one of other access"
        ),
        pytest.param(
            [volume("v", "manual", size="9Gi", accessModes=["ReadWriteMany", "ReadWriteOnce"])],
            EVERY,
            id="more access will",
        ),
        pytest.param(
            [volume("v", "manual", size="9Gi", volumeAttributesClassName="gold")],
            set(),
            id="nor one of other attributes",
        ),
        pytest.param([volume("v", "manual", size="9Gi", phase="Released")], set(), id="nor one that was released"),
        pytest.param([volume("v", "manual", size="9Gi", deleting=True)], set(), id="nor one that is being deleted"),
        pytest.param([volume("v", "manual", size="9Gi", ref="d")], set(), id="nor one that is kept for another claim"),
        pytest.param([volume("v", "manual", size="9Gi", ref="c")], EVERY, id="one that is kept for the claim will do"),
        pytest.param(
            [volume("v", "manual", size="9Gi", ref="c", accessModes=[], phase="Bound")], EVERY, id="whatever its access"
        ),
        pytest.param([volume("v", "manual", size="1Gi", ref="c")], set(), id="but not if it is too small"),
        pytest.param(
            [volume("v", "manual", size="9Gi", ref={"namespace": "default", "name": "c", "uid": "uid-x"})],
            set(),
            id="nor if it is kept for a claim of that name that is gone",
        ),
        pytest.param(
            [volume("v", "manual", size="9Gi", ref="c", on={HOST: ["b1"]}), volume("w", "manual", size="9Gi")],
            {"b1"},
            id="where a kept volume is afar no other is taken",
        ),
    ],
)
def test_a_claim_that_waits_gets_a_volume(objects, fits):
    assert ask(WANTED, *objects) == refuse(EVERY - fits, UNMATCHED_REASON)


@pytest.mark.parametrize(
    ("selector", "fits"),
    [
        pytest.param({"matchLabels": {"tier": "fast"}}, {"a1"}, id="with those labels"),
        pytest.param({}, {"a1", "b1"}, id="with whatever labels"),
        pytest.param({"matchExpressions": [{"key": "tier", "operator": "Is"}]}, None, id="that cannot be read"),
    ],
)
def test_a_claim_selects_volumes(selector, fits):
    volumes = [
        volume("v", "manual", on={HOST: ["a1"]}, labels={"tier": "fast"}),
        volume("w", "manual", on={HOST: ["b1"]}),
    ]
    found = ask(claim("c", "manual", selector=selector), *volumes)
    assert found == (dict.fromkeys(EVERY, "Error") if fits is None else refuse(EVERY - fits, UNMATCHED_REASON))


def test_two_claims_do_not_get_the_same_volume():
    claims = claim("c", "manual"), claim("d", "manual", size="2Gi")
    shared = volume("v", "manual", size="2Gi")
    assert ask(*claims, shared, volumes=["c", "d"]) == refuse(EVERY, UNMATCHED_REASON)
    assert ask(*claims, shared, volume("w", "manual", size="1Gi", on={ZONE: ["a"]}), volumes=["d", "c"]) == refuse(
        {"b1"}, UNMATCHED_REASON
    )
    twins = [volume(name, "manual", size="2Gi", on={HOST: ["a1"]}) for name in ("w", "x")]
    assert ask(*claims, *twins, volumes=["c", "d"]) == refuse({"a2", "b1"}, UNMATCHED_REASON)


def test_a_claim_that_a_pod_has_twice_needs_two_volumes():
    kept = volume("v", "manual", ref="c")
    assert ask(claim("c", "manual"), kept, volumes=["c", "c"]) == refuse(EVERY, UNMATCHED_REASON)
    assert ask(claim("c", "manual"), kept, volume("w", "manual"), volumes=["c", "c"]) == {}


def test_a_smaller_volume_is_taken_before_a_larger_one_though_more_nodes_reach_it():
    asked = claim("c", "manual", size="1Gi"), claim("d", "manual", size="2Gi")
    volumes = volume("v", "manual", size="1Gi"), volume("w", "manual", size="2Gi", on={ZONE: ["x"]})
    lab = Lab([*MANY, *NODES, *CLASSES, *asked, *volumes])
    assert lab.filter(VolumeBinding, make_pod("p", volumes=["c", "d"])).keys() == EVERY


def test_smaller_claims_choose_first():
    claims = claim("c", "manual", size="2Gi", accessModes=["ReadWriteMany"]), claim("d", "manual", size="1Gi")
    both = ["ReadWriteOnce", "ReadWriteMany"]
    volumes = volume("v", "manual", size="3Gi", accessModes=both), volume("w", "manual", size="4Gi")
    assert ask(*claims, *volumes, volumes=["c", "d"]) == refuse(EVERY, UNMATCHED_REASON)


TRACKED = [csi_driver(), capacity("ka", "5Gi", {ZONE: "a"})]


@pytest.mark.parametrize(
    ("objects", "refused"),
    [
        pytest.param([claim("c")], {}, id="a class that can makes it everywhere"),
        pytest.param([claim("c", "in-a")], refuse({"b1"}, UNMATCHED_REASON), id="or where its topologies allow"),
        pytest.param(
            [claim("c", "aimless")], refuse(EVERY, UNMATCHED_REASON), id="a class without a provisioner cannot"
        ),
        pytest.param(
            [claim("c", annotations={"volume.kubernetes.io/selected-node": "a2"})],
            refuse({"a1", "b1"}, UNMATCHED_REASON),
            id="a volume that is being made is made for one node",
        ),
        pytest.param(
            [claim("c", annotations={"volume.kubernetes.io/selected-node": "ghost"})],
            refuse(EVERY, UNMATCHED_REASON),
            id="even if that is not there",
        ),
        pytest.param(
            [claim("c", "manual", annotations={"volume.kubernetes.io/selected-node": "a2"}), volume("v", "manual")],
            refuse(EVERY, UNMATCHED_REASON),
            id="and one that is being made is not looked for",
        ),
        pytest.param([claim("c", size="5Gi"), *TRACKED], refuse({"b1"}, SPACE_REASON), id="or where there is space"),
        pytest.param([claim("c", size="6Gi"), *TRACKED], refuse(EVERY, SPACE_REASON), id="enough of it"),
        pytest.param([claim("c", size=None), *TRACKED], {}, id="a claim of no size needs no space"),
        pytest.param(
            [claim("c"), csi_driver(storage_capacity=False)], {}, id="a driver that publishes no space has enough"
        ),
        pytest.param(
            [claim("c"), csi_driver(), capacity("k", "9Gi", {}, maximumVolumeSize="1Mi")],
            refuse(EVERY, SPACE_REASON),
            id="the largest size of one volume counts before the space",
        ),
        pytest.param(
            [claim("c"), csi_driver(), capacity("k", "9Gi", None), capacity("l", None, {})],
            refuse(EVERY, SPACE_REASON),
            id="space that is nowhere, or of no size, is none",
        ),
        pytest.param(
            [claim("c"), csi_driver(), capacity("k", "9Gi", {}, "in-a"), capacity("l", "1Gi", {})],
            {},
            id="space for another class is none, space without a topology is everywhere",
        ),
        pytest.param(
            [claim("c", "in-a"), csi_driver(), capacity("k", "9Gi", {ZONE: "b"}, "in-a")],
            refuse({"a1", "a2"}, SPACE_REASON) | refuse({"b1"}, UNMATCHED_REASON),
            id="topologies count before space",
        ),
        pytest.param(
            [claim("c"), csi_driver(), volume("v", on={HOST: ["b1"]})],
            refuse({"a1", "a2"}, SPACE_REASON),
            id="where there is a volume already no space is needed",
        ),
    ],
)
def test_a_volume_is_made(objects, refused):
    assert ask(*objects) == refused


def test_the_first_claim_that_no_volume_can_be_made_for_is_told():
    objects = [claim("c", "in-a"), claim("d", size="6Gi"), *TRACKED, capacity("kb", "5Gi", {}, "in-a")]
    assert ask(*objects, volumes=["c", "d"]) == refuse({"a1", "a2"}, SPACE_REASON) | refuse({"b1"}, UNMATCHED_REASON)


def test_space_that_many_nodes_reach():
    lab = Lab([*MANY, *NODES, *CLASSES, claim("c"), csi_driver(), capacity("k", "9Gi", {ZONE: "x"})])
    assert lab.filter(VolumeBinding, make_pod("p", volumes=["c"])).keys() == EVERY


def test_reasons_of_bound_and_waiting_claims_are_told_together():
    objects = [*bound("c", on={HOST: ["a1"]}), claim("d", "in-a")]
    assert ask(*objects, volumes=["d", "c"]) == refuse({"a2"}, AFFINITY_REASON) | refuse(
        {"b1"}, AFFINITY_REASON, UNMATCHED_REASON
    )


# --- claims that stop the pod ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("volumes", "objects", "reason"),
    [
        pytest.param(["c"], [], 'persistentvolumeclaim "c" not found', id="that does not exist"),
        pytest.param(
            [{"name": "v", "persistentVolumeClaim": {}}], [], 'persistentvolumeclaim "" not found', id="without a name"
        ),
        pytest.param(["c"], [claim("c", "now")], IMMEDIATE_REASON, id="that should be bound by now"),
        pytest.param(["c"], [claim("c", "gone")], IMMEDIATE_REASON, id="whose class does not exist"),
        pytest.param(["c"], [claim("c", None)], IMMEDIATE_REASON, id="without a class"),
        pytest.param(
            ["c"], [claim("c", volume="v", bound=False)], IMMEDIATE_REASON, id="whose binding is not complete"
        ),
        pytest.param(["d", "c"], [claim("c", "now"), claim("d", "unset")], None, id="whose class does not say when"),
        pytest.param(
            [ephemeral()],
            [],
            'waiting for ephemeral volume controller to create the persistentvolumeclaim "p-scratch"',
            id="that is yet to be made for the pod",
        ),
        pytest.param(
            [ephemeral()],
            [claim("p-scratch", owner="uid-q")],
            "PVC default/p-scratch was not created for pod default/p (pod is not owner)",
            id="that was made for another pod",
        ),
        pytest.param(
            ["c"],
            [claim("c", volume="v", phase="Lost", deleting=True)],
            'persistentvolumeclaim "c" bound to non-existent persistentvolume "v"',
            id="that has lost its volume",
        ),
        pytest.param(
            ["d", "c"],
            [claim("c", deleting=True), claim("d", "now")],
            'persistentvolumeclaim "c" is being deleted',
            id="that is being deleted, before any that should be bound by now",
        ),
    ],
)
def test_no_node_will_do_for_a_claim(volumes, objects, reason):
    found = Lab([*NODES, *CLASSES, *objects]).filter(VolumeBinding, make_pod("p", volumes=volumes))
    assert found.keys() == EVERY
    for outcome in found.values():
        assert not outcome.resolvable
        assert outcome.error == (reason is None)
        assert outcome.reasons == (reason,) or reason is None


# --- scores ----------------------------------------------------------------------------------------------------------

SHAPE = [{"utilization": 0, "score": 0}, {"utilization": 100, "score": 10}]


@pytest.mark.parametrize(
    ("objects", "volumes", "scores"),
    [
        pytest.param(
            [claim("c", "manual", size="2Gi"), volume("v", "manual", size="5Gi", on={ZONE: ["a"]})],
            ["c"],
            {"a1": 40, "a2": 40, "b1": 0},
            id="the share of a volume that is there",
        ),
        pytest.param(
            [
                *(claim("c", "manual", size="2Gi"), volume("v", "manual", size="4Gi", ref="c")),
                *(claim("d", "manual", size="1Gi"), volume("w", "manual", size="4Gi", on={HOST: ["a1"]})),
                *(claim("e", size="1Gi"), volume("x", size="8Gi", on={HOST: ["a1", "a2"]})),
            ],
            ["c", "d", "e"],
            {"a1": 25, "a2": 31, "b1": 50},
            id="the mean over classes, of all volumes of one class",
        ),
        pytest.param(
            [claim("c", size="3Gi"), claim("d", size="1Gi"), csi_driver(), capacity("k", "10Gi", {ZONE: "a"})],
            ["c", "d"],
            {"a1": 40, "a2": 40, "b1": 0},
            id="the share of the space that volumes are made from",
        ),
        pytest.param(
            [claim("c", size="3Gi"), csi_driver(), capacity("k", "9Gi", {}), capacity("l", "30Gi", {HOST: "a1"})],
            ["c"],
            {"a1": 10, "a2": 33, "b1": 33},
            id="the largest space of several",
        ),
        pytest.param(
            [claim("c", size="3Gi"), csi_driver(), capacity("k", "2Gi", {}, maximumVolumeSize="5Gi")],
            ["c"],
            {"a1": 100, "a2": 100, "b1": 100},
            id="more than there is space for",
        ),
        pytest.param(
            [
                claim("c", size="2Gi"),
                volume("v", size="4Gi", on={HOST: ["a1"]}),
                csi_driver(),
                capacity("k", "8Gi", {}),
            ],
            ["c"],
            {"a1": 50, "a2": 25, "b1": 25},
            id="a volume that is there where it is, space elsewhere",
        ),
        pytest.param([claim("c")], ["c"], {"a1": 0, "a2": 0, "b1": 0}, id="nothing where no space is told"),
        pytest.param([claim("c", size=None), csi_driver()], ["c"], dict.fromkeys(EVERY, 0), id="nothing of no size"),
        pytest.param([*bound()], ["c"], SKIP, id="no claim that waits"),
        pytest.param([], [], SKIP, id="no claim at all"),
    ],
)
def test_a_shape_scores(objects, volumes, scores):
    lab = Lab([*NODES, *CLASSES, *objects])
    found = lab.score(VolumeBinding, make_pod("p", volumes=volumes), {"shape": SHAPE})
    assert found == (SKIP if scores is SKIP else Scores(scores, scores))
    assert lab.score(VolumeBinding, make_pod("p", volumes=volumes)) is SKIP


# --- arguments -------------------------------------------------------------------------------------------------------


def test_the_arguments_of_kube_scheduler_are_taken():
    assert ask(*bound(), args={"bindTimeoutSeconds": 0}) == {}
    with pytest.raises(ValidationError, match="bindTimeoutSeconds"):
        ask(args={"bindTimeoutSeconds": -1})
    with pytest.raises(ValidationError, match="must increase"):
        ask(args={"shape": SHAPE[::-1]})


# --- against deciding node by node -----------------------------------------------------------------------------------

PLACES = [None, {HOST: ["a1"]}, {HOST: ["a1", "b1"]}, {ZONE: ["a"]}, {ZONE: ["x"]}, {ZONE: ["a", "x"]}]
ACCESS = st.sampled_from([["ReadWriteOnce"], ["ReadWriteOnce", "ReadWriteMany"]])
OFFERS = st.lists(st.tuples(st.sampled_from(PLACES), ACCESS, st.sampled_from(["", "", "c0"])), min_size=3, max_size=8)
ASKED = st.lists(st.tuples(st.integers(1, 5), ACCESS), min_size=1, max_size=3)


@settings(max_examples=200)
@given(OFFERS, ASKED, st.booleans(), st.data())
def test_matches_as_node_by_node(offers, asked, many, data):
    sizes = data.draw(st.permutations(range(1, len(offers) + 1)))
    volumes = [
        volume(f"v{size}", "manual", size=f"{size}Gi", on=on, accessModes=access, ref=ref)
        for size, (on, access, ref) in zip(sizes, offers, strict=True)
    ]
    claims = [
        claim(f"c{place}", "manual", size=f"{size}Gi", accessModes=access) for place, (size, access) in enumerate(asked)
    ]
    nodes = [*NODES, *(MANY if many else [])]
    lab = Lab([*(MANY if many else []), *NODES, *CLASSES, *volumes, *claims])
    found = lab.filter(VolumeBinding, make_pod("p", volumes=[each["metadata"]["name"] for each in claims]))
    fitting = {node["metadata"]["name"] for node in nodes if fits(node, claims, volumes)}
    assert fitting == {node["metadata"]["name"] for node in nodes} - found.keys()


def fits(node, claims, volumes):
    """Choose volumes for all claims on one node, the smallest claims first and for each the smallest volume."""
    left = sorted(volumes, key=size_of)
    for asked in sorted(claims, key=size_of):
        name, access = asked["metadata"]["name"], set(asked["spec"]["accessModes"])
        large = [each for each in left if size_of(each) >= size_of(asked)]
        kept = [each for each in large if (each["spec"].get("claimRef") or {}).get("name") == name]
        free = [each for each in large if "claimRef" not in each["spec"] and access <= set(each["spec"]["accessModes"])]
        chosen = (
            min(kept, key=lambda each: each["metadata"]["name"])
            if kept
            else next((each for each in free if reaches(node, each)), None)
        )
        if chosen is None or not reaches(node, chosen):
            return False
        left.remove(chosen)
    return True


def size_of(item):
    spec = item["spec"]
    return int((spec.get("capacity") or spec["resources"]["requests"])["storage"].removesuffix("Gi"))


def reaches(node, item):
    if "nodeAffinity" not in item["spec"]:
        return True
    (term,) = item["spec"]["nodeAffinity"]["required"]["nodeSelectorTerms"]
    labels = node["metadata"]["labels"]
    return all(labels.get(each["key"]) in each["values"] for each in term["matchExpressions"])
