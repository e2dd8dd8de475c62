"""VolumeZone, by a table of volume labels and node labels."""

import pytest

from algorithms.volume_zone import (
    NO_CLAIM_NAME,
    NO_CLASS,
    NO_MODE,
    NO_VOLUME,
    NOT_FOUND,
    REASON,
    VolumeZone,
)
from extender.framework import BETA_REGION, BETA_ZONE, REGION, SKIP, ZONE
from extender.framework.runner import Outcome
from extender.testing.lab import Lab
from extender.testing.maker import make_node, make_pod
from tests.algorithms.storage import claim, ephemeral, storage_class, volume

NODES = [
    make_node("a", labels={ZONE: "a", REGION: "r"}),
    make_node("b", labels={ZONE: "b", REGION: "r"}),
    make_node("old-a", labels={BETA_ZONE: "a", BETA_REGION: "r"}),
    make_node("both", labels={BETA_ZONE: "b", ZONE: "a"}),
    make_node("region", labels={REGION: "r"}),
    make_node("bare"),
]
LABELLED = {"a", "b", "old-a", "both", "region"}


@pytest.mark.parametrize(
    ("labels", "refused"),
    [
        pytest.param({}, SKIP, id="a volume without labels has no zone"),
        pytest.param({"zone": "a"}, SKIP, id="a label of another name counts for nothing"),
        pytest.param({ZONE: "a"}, {"b", "old-a", "region"}, id="a zone is looked for under the key of today"),
        pytest.param({BETA_ZONE: "a"}, {"b", "both", "region"}, id="an older zone under both keys, its own first"),
        pytest.param({ZONE: "a__b"}, {"old-a", "region"}, id="a volume in several zones can be reached from each"),
        pytest.param({ZONE: " a __ b"}, {"old-a", "region"}, id="blanks around zones do not count"),
        pytest.param({ZONE: "a__"}, SKIP, id="a label with an empty zone counts for nothing"),
        pytest.param({REGION: "r"}, {"old-a", "both"}, id="a region is compared like a zone"),
        pytest.param({BETA_REGION: "r"}, {"both"}, id="an older region under both keys"),
        pytest.param({ZONE: "b", REGION: "r"}, LABELLED - {"b"}, id="zone and region must both be right"),
        pytest.param({ZONE: "nowhere"}, LABELLED, id="a node without any label of zone or region is let through"),
    ],
)
def test_filter(labels, refused):
    lab = Lab([*NODES, volume("v", labels=labels), claim("c", volume="v")])
    found = lab.filter(VolumeZone, make_pod("p", volumes=["c"]))
    if refused is not SKIP:
        refused = dict.fromkeys(refused, Outcome((REASON,), resolvable=False, algorithm="VolumeZone"))
    assert found == refused


STORAGE = [
    storage_class("wait"),
    storage_class("now", mode="Immediate"),
    storage_class("unset", mode=None),
    claim("waiting", "wait"),
    claim("by-annotation", None, annotations={"volume.beta.kubernetes.io/storage-class": "wait"}),
    claim("immediate", "now"),
    claim("classless", None),
    claim("lost-class", "gone"),
    claim("unset-mode", "unset"),
    claim("lost-volume", "wait", "gone"),
    claim("named", "wait", "v", bound=False),
    volume("v", labels={ZONE: "a"}),
]


@pytest.mark.parametrize(
    ("volumes", "reason"),
    [
        pytest.param(["gone"], NOT_FOUND.format("persistentvolumeclaim", "gone"), id="the claim does not exist"),
        pytest.param([{"name": "v", "persistentVolumeClaim": {}}], NO_CLAIM_NAME, id="the claim has no name"),
        pytest.param(["classless"], NO_CLASS, id="the claim has neither volume nor class"),
        pytest.param(
            ["lost-class"], NOT_FOUND.format("storageclass.storage.k8s.io", "gone"), id="its class does not exist"
        ),
        pytest.param(["unset-mode"], NO_MODE.format("unset"), id="its class does not say when it is bound"),
        pytest.param(["immediate"], NO_VOLUME, id="it should be bound by now"),
        pytest.param(["lost-volume"], NOT_FOUND.format("persistentvolume", "gone"), id="its volume does not exist"),
        pytest.param(["named", "gone"], NOT_FOUND.format("persistentvolumeclaim", "gone"), id="any claim is enough"),
    ],
)
def test_no_node_will_do_while(volumes, reason):
    found = Lab([*NODES, *STORAGE]).filter(VolumeZone, make_pod("p", volumes=volumes))
    outcome = Outcome((reason,), resolvable=False, algorithm="VolumeZone")
    assert found == dict.fromkeys((node["metadata"]["name"] for node in NODES), outcome)


@pytest.mark.parametrize(
    "volumes",
    [
        pytest.param([], id="a pod without claims"),
        pytest.param(["waiting"], id="a claim that waits for the pod"),
        pytest.param(["by-annotation"], id="a claim whose class is in an annotation"),
        pytest.param([ephemeral()], id="a claim made for the pod"),
    ],
)
def test_has_no_zone_yet(volumes):
    assert Lab([*NODES, *STORAGE]).filter(VolumeZone, make_pod("p", volumes=volumes)) is SKIP


def test_a_volume_counts_before_its_binding_is_complete():
    found = Lab([*NODES, *STORAGE]).filter(VolumeZone, make_pod("p", volumes=["waiting", "named"]))
    assert found.keys() == {"b", "old-a", "region"}
