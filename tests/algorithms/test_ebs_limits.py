"""EBSLimits, by a table of what pods bring to nodes, and of how many disks instances take."""

import pytest
from pydantic import ValidationError

from algorithms.ebs_limits import BETA_TYPE_LABEL, MOST_DISKS, MOST_NITRO_DISKS, TYPE_LABEL, EBSLimits
from extender.framework import SKIP
from extender.framework.in_tree_limit import REASON
from extender.framework.runner import Outcome
from extender.testing.lab import Lab
from extender.testing.maker import make_node, make_pod
from tests.algorithms.storage import claim, csi_node, ephemeral, storage_class, volume

EBS = "kubernetes.io/aws-ebs"
LIMIT = "attachable-volumes-aws-ebs"
FULL = Outcome((REASON,), resolvable=True, algorithm="EBSLimits")


def disk(volume_id):
    return {"name": "v", "awsElasticBlockStore": {"volumeID": volume_id}}


def pod(name, node=None, *volumes):
    return make_pod(name, node=node, volumes=volumes)


OBJECTS = [
    make_node("none", allocatable={LIMIT: 0}),
    make_node("one", allocatable={LIMIT: 1}),
    make_node("two", allocatable={LIMIT: 2}),
    make_node("moved", allocatable={LIMIT: 0}),
    make_node("named", allocatable={LIMIT: 0}),
    csi_node("moved", migrated=["kubernetes.io/gce-pd", EBS]),
    csi_node("named", migrated=["kubernetes.io/gce-pd"]),
    storage_class("ebs", EBS),
    storage_class("csi", "ebs.csi.aws.com"),
    claim("bound", volume="v"),
    volume("v", source={"awsElasticBlockStore": {"volumeID": "vol-1"}}),
    claim("other", volume="w"),
    volume("w"),
    claim("waiting", "ebs"),
    claim("early", "ebs", volume="to-come"),
    claim("csi", "csi"),
    claim("p-scratch", "ebs", owner="uid-p"),
    pod("tenant", "one", "bound", disk("vol-1")),
]


@pytest.mark.parametrize(
    ("volumes", "refused"),
    [
        pytest.param([], SKIP, id="a pod without volumes has no opinion asked of it"),
        pytest.param([{"name": "g", "gcePersistentDisk": {"pdName": "d"}}], SKIP, id="nor has one with other disks"),
        pytest.param(["other"], set(), id="a volume of another driver costs nothing"),
        pytest.param(["csi"], set(), id="nor does a disk that a CSI driver makes"),
        pytest.param([disk("vol-2")], {"none", "one", "named"}, id="a disk must fit beside those that are there"),
        pytest.param([disk("vol-2"), disk("vol-2")], {"none", "one", "named"}, id="a disk counts once"),
        pytest.param(["bound"], {"none", "named"}, id="a disk that is there already costs nothing"),
        pytest.param(["bound", disk("vol-2")], {"none", "one", "named"}, id="disks of claims count as others do"),
        pytest.param(["waiting", disk("vol-2")], {"none", "one", "named"}, id="a disk that is yet to be made counts"),
        pytest.param(["early", "waiting", "bound"], {"none", "one", "two", "named"}, id="and so does one to come"),
        pytest.param([ephemeral()], {"none", "one", "named"}, id="a claim made for the pod counts"),
    ],
)
def test_filter(volumes, refused):
    found = Lab(OBJECTS).filter(EBSLimits, pod("p", None, *volumes))
    assert found == (SKIP if refused is SKIP else dict.fromkeys(refused, FULL))


@pytest.mark.parametrize(
    ("labels", "most"),
    [
        pytest.param({}, MOST_DISKS, id="an instance of no type"),
        pytest.param({TYPE_LABEL: "m4.large"}, MOST_DISKS, id="an instance of an older type"),
        pytest.param({TYPE_LABEL: "m5.large"}, MOST_NITRO_DISKS, id="an instance of a newer type"),
        pytest.param({TYPE_LABEL: "x-m5.large"}, MOST_DISKS, id="a newer type stands at the beginning"),
        pytest.param({TYPE_LABEL: "t3.nano"}, MOST_NITRO_DISKS, id="an instance of a small newer type"),
        pytest.param({TYPE_LABEL: "z1d.metal"}, MOST_NITRO_DISKS, id="an instance of a fast newer type"),
        pytest.param({BETA_TYPE_LABEL: "c5.large"}, MOST_NITRO_DISKS, id="a type under the older label"),
        pytest.param({TYPE_LABEL: "m4.large", BETA_TYPE_LABEL: "c5.large"}, MOST_DISKS, id="the newer label first"),
    ],
)
def test_an_instance_takes(labels, most):
    tenants = [pod(f"t{place}", "n", disk(f"vol-{place}")) for place in range(most)]
    lab = Lab([make_node("n", labels=labels), *tenants])
    assert lab.filter(EBSLimits, pod("p", None, disk("new"))) == {"n": FULL}
    lab.delete(tenants[0])
    assert lab.filter(EBSLimits, pod("p", None, disk("new"))) == {}


def test_the_arguments_say_what_nodes_take_that_do_not_tell_themselves():
    lab = Lab([*OBJECTS, make_node("dumb", labels={TYPE_LABEL: "m5.large"})])
    two = pod("p", None, disk("x"), disk("y"))
    assert lab.filter(EBSLimits, two).keys() == {"none", "one", "named"}
    assert lab.filter(EBSLimits, two, {"maxVolumes": 1}).keys() == {"none", "one", "named", "dumb"}
    for number in (0, 2**31):
        with pytest.raises(ValidationError, match="maxVolumes"):
            lab.filter(EBSLimits, two, {"maxVolumes": number})


@pytest.mark.parametrize(
    ("volumes", "code"),
    [
        pytest.param(["gone"], "UnschedulableAndUnresolvable", id="a claim that does not exist"),
        pytest.param([{"name": "v", "persistentVolumeClaim": {}}], "Error", id="a claim without a name"),
        pytest.param([ephemeral("other")], "Error", id="a claim that was made for another pod"),
    ],
)
def test_no_node_will_do_for(volumes, code):
    found = Lab([*OBJECTS, claim("p-other", "ebs")]).filter(EBSLimits, pod("p", None, *volumes))
    assert {outcome.code for outcome in found.values()} == {code}
    assert len(found) == 5


def test_a_placed_pod_with_a_foreign_claim_spoils_its_node():
    strange = [claim("q-scratch", "ebs"), pod("q", "two", ephemeral()), pod("r", "moved", ephemeral())]
    found = Lab([*OBJECTS, *strange, claim("r-scratch", "ebs")]).filter(EBSLimits, pod("p", None, "waiting"))
    assert {name: outcome.code for name, outcome in found.items()} == {
        "none": "Unschedulable",
        "one": "Unschedulable",
        "named": "Unschedulable",
        "two": "Error",
    }
