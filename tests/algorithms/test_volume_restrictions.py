"""VolumeRestrictions, by a table of disks and claims that go together or do not."""

import pytest

from algorithms.volume_restrictions import CLAIM_REASON, DISK_REASON, VolumeRestrictions
from extender.framework import SKIP
from extender.framework.runner import Outcome
from extender.testing.lab import Lab
from extender.testing.maker import make_node, make_pod
from tests.algorithms.storage import claim, ephemeral

NAME = "VolumeRestrictions"


def gce(name, *, read_only=False):
    return {"name": "v", "gcePersistentDisk": {"pdName": name, "readOnly": read_only}}


def ebs(volume_id, *, read_only=False):
    return {"name": "v", "awsElasticBlockStore": {"volumeID": volume_id, "readOnly": read_only}}


def iscsi(iqn, *, read_only=False, lun=0):
    return {"name": "v", "iscsi": {"targetPortal": "10.0.0.1", "iqn": iqn, "lun": lun, "readOnly": read_only}}


def rbd(*monitors, pool="p", image="i", read_only=False):
    return {"name": "v", "rbd": {"monitors": list(monitors), "pool": pool, "image": image, "readOnly": read_only}}


def pod(name, node=None, *volumes, **fields):
    return make_pod(name, node=node, volumes=volumes, **fields)


OBJECTS = [
    *map(make_node, ("writes", "reads", "empty")),
    pod("w", "writes", gce("disk"), ebs("vol"), iscsi("iqn"), rbd("m1", "m2")),
    pod("r", "reads", *(each("x", read_only=True) for each in (gce, ebs, iscsi)), rbd("m1", read_only=True)),
    pod("r2", "reads", gce("disk", read_only=True), ebs("vol", read_only=True), iscsi("iqn", read_only=True)),
    pod("waiting", None, gce("empty")),
    pod("astray", "ghost", gce("astray"), "lonely"),
    claim("once", accessModes=["ReadWriteOncePod"]),
    claim("free", accessModes=["ReadWriteOncePod"]),
    claim("lonely", accessModes=["ReadWriteOncePod"]),
    claim("shared", accessModes=["ReadWriteOnce", "ReadWriteMany"]),
    claim("p-scratch", accessModes=["ReadWriteOncePod"], owner="uid-p"),
    claim("once", namespace="other", accessModes=["ReadWriteOncePod"]),
    pod("claims", "reads", "once", "shared", "p-scratch"),
]


@pytest.mark.parametrize(
    ("volumes", "refused"),
    [
        pytest.param([], SKIP, id="a pod without volumes has no opinion asked of it"),
        pytest.param([{"name": "v", "emptyDir": {}}], SKIP, id="nor has one without disks and claims"),
        pytest.param([gce("disk")], {"writes", "reads"}, id="a GCE disk to write to must be used by nobody"),
        pytest.param([gce("disk", read_only=True)], {"writes"}, id="a GCE disk to read is shared by those who read it"),
        pytest.param([ebs("vol", read_only=True)], {"writes", "reads"}, id="an EBS disk is never shared"),
        pytest.param([iscsi("iqn", lun=9)], {"writes", "reads"}, id="an iSCSI disk is told by its name alone"),
        pytest.param([iscsi("iqn", read_only=True)], {"writes"}, id="an iSCSI disk to read is shared"),
        pytest.param([rbd("m2", "m3")], {"writes"}, id="a Ceph image is the same on any monitor of both"),
        pytest.param([rbd("m1", read_only=True)], {"writes"}, id="a Ceph image to read is shared"),
        pytest.param([rbd("m3", read_only=True)], set(), id="a Ceph image on other monitors is another"),
        pytest.param([rbd("m1", pool="other")], set(), id="a Ceph image in another pool is another"),
        pytest.param([rbd("m1", image="other")], set(), id="another Ceph image is another"),
        pytest.param([rbd()], SKIP, id="a Ceph image without monitors conflicts with none"),
        pytest.param([gce("new"), ebs("vol")], {"writes", "reads"}, id="one disk of several is enough"),
        pytest.param([gce("empty")], set(), id="a pod that is not placed has no disk"),
        pytest.param([gce("astray")], set(), id="a pod on an unknown node stands in nobody's way"),
        pytest.param(["shared"], SKIP, id="a claim that many pods may use is used by many"),
        pytest.param(["free"], SKIP, id="a claim for one pod that nobody uses is free"),
        pytest.param(["lonely"], SKIP, id="a claim for one pod that just a pod on an unknown node uses is free"),
        pytest.param(["p-scratch"], {"writes", "reads", "empty"}, id="a claim is in use under whatever name"),
        pytest.param([ephemeral()], SKIP, id="a claim made for the pod itself is not asked about"),
    ],
)
def test_filter(volumes, refused):
    found = Lab(OBJECTS).filter(VolumeRestrictions, pod("p", None, *volumes))
    if refused is not SKIP:
        reason = CLAIM_REASON if "p-scratch" in volumes else DISK_REASON
        refused = dict.fromkeys(refused, Outcome((reason,), resolvable=True, algorithm=NAME))
    assert found == refused


def test_a_claim_in_use_refuses_every_node_but_a_disk_conflict_is_told_first():
    found = Lab(OBJECTS).filter(VolumeRestrictions, pod("p", None, "once", gce("disk", read_only=True)))
    assert {name: outcome.text for name, outcome in found.items()} == {
        "writes": DISK_REASON,
        "reads": CLAIM_REASON,
        "empty": CLAIM_REASON,
    }


def test_a_claim_of_the_same_name_in_another_namespace_is_another():
    assert Lab(OBJECTS).filter(VolumeRestrictions, pod("p", None, "once", namespace="other")) is SKIP


@pytest.mark.parametrize(
    "volume",
    [
        pytest.param("gone", id="a claim that does not exist"),
        pytest.param({"name": "v", "persistentVolumeClaim": {}}, id="a claim without a name"),
    ],
)
def test_no_node_will_do_without_the_claim(volume):
    found = Lab(OBJECTS).filter(VolumeRestrictions, pod("p", None, gce("disk"), volume))
    name = volume if isinstance(volume, str) else ""
    reason = f'persistentvolumeclaim "{name}" not found'
    assert found == dict.fromkeys(("writes", "reads", "empty"), Outcome((reason,), resolvable=False, algorithm=NAME))


def test_a_disk_is_free_when_the_last_pod_that_has_it_is_gone():
    twins = [pod("one", "a", gce("disk")), pod("two", "a", gce("disk"), gce("disk"))]
    lab = Lab([make_node("a"), *twins])
    for twin in twins:
        assert lab.filter(VolumeRestrictions, pod("p", None, gce("disk"))).keys() == {"a"}
        lab.delete(twin)
    assert lab.filter(VolumeRestrictions, pod("p", None, gce("disk"))) == {}


ONCE = {"accessModes": ["ReadWriteOncePod"]}


@pytest.mark.parametrize(
    ("pods", "back", "in_use"),
    [
        pytest.param([pod("a", "n", "once")], [], False, id="evicting the only user frees a claim"),
        pytest.param([pod("a", "n", "once")], ["a"], True, id="until it is brought back"),
        pytest.param([pod("a", "n", "once"), pod("b", "m", "once")], [], False, id="it counts as the only one"),
        pytest.param([pod("b", "m", "once"), pod("c", "n", "free")], [], True, id="other claims free nothing"),
        pytest.param(
            [pod("a", "n", "once", "once"), pod("b", "m", "both")], [], False, id="each volume of it frees a claim"
        ),
        pytest.param([pod("a", "n", "once"), pod("b", "m", "both")], [], True, id="but no more than one"),
        pytest.param(
            [pod("a", "n", "once", namespace="other"), pod("b", "m", "once")],
            [],
            False,
            id="a claim of the same name in another namespace is taken for it",
        ),
        pytest.param(
            [pod("a", "n", "once", namespace="other")], ["a"], False, id="and does not stand in the way when it is back"
        ),
    ],
)
def test_evicting_pods_frees_claims_as_upstream_reckons(pods, back, in_use):
    claims = [claim(name, **ONCE) for name in ("once", "both", "free")]
    lab = Lab([make_node("n"), make_node("m"), *claims, claim("once", namespace="other", **ONCE), *pods])
    mirror = lab.mirror
    lab.filter(VolumeRestrictions, pod("p", None, "once", "both"))
    evicted = [info for info in mirror.pods.values() if info.node_name == "n"]
    with mirror.what_if(without=evicted), mirror.what_if(plus=[info for info in evicted if info.name in back]):
        found = lab.filter(VolumeRestrictions, pod("p", None, "once", "both"), nodes=["n"])
    assert found == ({"n": Outcome((CLAIM_REASON,), resolvable=True, algorithm=NAME)} if in_use else SKIP)
