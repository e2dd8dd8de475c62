"""GCEPDLimits, by a table of what pods bring to nodes."""

import pytest

from algorithms.gcepd_limits import MOST_DISKS, GCEPDLimits
from extender.framework import SKIP
from extender.framework.in_tree_limit import REASON
from extender.framework.runner import Outcome
from extender.testing.lab import Lab
from extender.testing.maker import make_node, make_pod
from tests.algorithms.storage import claim, csi_node, storage_class, volume

PLUGIN = "kubernetes.io/gce-pd"
FULL = Outcome((REASON,), resolvable=True, algorithm="GCEPDLimits")


def disk(name):
    return {"name": "v", "gcePersistentDisk": {"pdName": name}}


def pod(name, node=None, *volumes):
    return make_pod(name, node=node, volumes=volumes)


OBJECTS = [
    make_node("empty"),
    make_node("full"),
    make_node("large", allocatable={"attachable-volumes-gce-pd": MOST_DISKS + 1}),
    make_node("moved"),
    csi_node("moved", migrated=[PLUGIN]),
    storage_class("made", PLUGIN),
    claim("waiting", "made"),
    claim("bound", volume="v"),
    volume("v", source={"gcePersistentDisk": {"pdName": "disk-0"}}),
    *(
        pod(f"{node}-{place}", node, disk(f"disk-{place}"))
        for node in ("full", "large", "moved")
        for place in range(MOST_DISKS)
    ),
]


@pytest.mark.parametrize(
    ("volumes", "refused"),
    [
        pytest.param([], SKIP, id="a pod without volumes has no opinion asked of it"),
        pytest.param([{"name": "v", "awsElasticBlockStore": {"volumeID": "vol"}}], SKIP, id="nor has one with others"),
        pytest.param([disk("new")], {"full"}, id="a disk must fit beside those that are there"),
        pytest.param(["bound", disk("disk-1")], set(), id="disks that are there already cost nothing"),
        pytest.param(["bound", "waiting"], {"full"}, id="a disk that is yet to be made counts"),
        pytest.param(["waiting", disk("new")], {"full", "large"}, id="what a node says it takes counts first"),
    ],
)
def test_filter(volumes, refused):
    found = Lab(OBJECTS).filter(GCEPDLimits, pod("p", None, *volumes))
    assert found == (SKIP if refused is SKIP else dict.fromkeys(refused, FULL))


def test_the_arguments_say_what_nodes_take_that_do_not_tell_themselves():
    found = Lab(OBJECTS).filter(GCEPDLimits, pod("p", None, disk("x"), disk("y")), {"maxVolumes": 1})
    assert found.keys() == {"empty", "full", "large"}
