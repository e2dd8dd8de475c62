"""Volumes of built-in drivers are told by what their CSI drivers know them by, and reached by the labels these use."""

import msgspec
import pytest

from extender.framework.reach import compile_terms
from extender.model.migration import (
    BETA_REGION,
    BETA_ZONE,
    REGION,
    ZONE,
    driver_of_provisioner,
    inline_handle,
    plugin_of,
    translate_affinity,
    volume_handle,
)
from extender.model.object import Volume
from extender.model.storage import PersistentVolume


def disk(source, labels=None, terms=None):
    affinity = {"nodeAffinity": {"required": {"nodeSelectorTerms": terms}}} if terms is not None else {}
    return msgspec.convert({"metadata": {"labels": labels or {}}, "spec": source | affinity}, PersistentVolume)


AWS = {"awsElasticBlockStore": {"volumeID": "vol-1"}}
GCE = {"gcePersistentDisk": {"pdName": "disk"}}
CINDER = {"cinder": {"volumeID": "id"}}
AZURE = {"azureDisk": {"diskName": "name", "diskURI": "/uri"}}
PORTWORX = {"portworxVolume": {"volumeID": "px"}}


@pytest.mark.parametrize(
    ("volume", "driver", "handle"),
    [
        pytest.param(disk(AWS), "ebs.csi.aws.com", "vol-1", id="an EBS disk by its id"),
        pytest.param(
            disk({"awsElasticBlockStore": {"volumeID": "aws://us-east-1a/vol-2"}}),
            "ebs.csi.aws.com",
            "vol-2",
            id="an EBS disk by a URL that has its id",
        ),
        pytest.param(
            disk({"awsElasticBlockStore": {"volumeID": "aws:///vol-3/"}}),
            "ebs.csi.aws.com",
            "vol-3",
            id="an EBS disk by a URL without a zone",
        ),
        pytest.param(
            disk({"awsElasticBlockStore": {"volumeID": "aws://zone/disk"}}),
            "ebs.csi.aws.com",
            None,
            id="no EBS disk by a URL without an id",
        ),
        pytest.param(
            disk(GCE),
            "pd.csi.storage.gke.io",
            "projects/UNSPECIFIED/zones/UNSPECIFIED/disks/disk",
            id="a GCE disk without a zone",
        ),
        pytest.param(
            disk(GCE, {ZONE: "us-central1-a"}),
            "pd.csi.storage.gke.io",
            "projects/UNSPECIFIED/zones/us-central1-a/disks/disk",
            id="a GCE disk by its zone",
        ),
        pytest.param(
            disk(GCE, {BETA_ZONE: "us-central1-a__us-central1-b", ZONE: "elsewhere"}),
            "pd.csi.storage.gke.io",
            "projects/UNSPECIFIED/regions/us-central1/disks/disk",
            id="a GCE disk in two zones by their region, the older label first",
        ),
        pytest.param(
            disk(GCE, {ZONE: "z1__z2"}), "pd.csi.storage.gke.io", None, id="no GCE disk in zones of no region"
        ),
        pytest.param(
            disk(GCE, {ZONE: "us-a-1__eu-b-1"}), "pd.csi.storage.gke.io", None, id="no GCE disk in zones of two regions"
        ),
        pytest.param(disk(AZURE), "disk.csi.azure.com", "/uri", id="an Azure disk by its URI"),
        pytest.param(
            disk({"azureDisk": {"diskURI": "/uri", "kind": "managed"}}),
            "disk.csi.azure.com",
            "/uri",
            id="an Azure disk that is managed",
        ),
        pytest.param(
            disk({"azureDisk": {"diskURI": "/uri", "kind": "Shared"}}),
            "disk.csi.azure.com",
            None,
            id="no Azure disk that is not managed",
        ),
        pytest.param(disk(CINDER), "cinder.csi.openstack.org", "id", id="a Cinder disk by its id"),
        pytest.param(disk(PORTWORX), "pxd.portworx.com", "px", id="a Portworx volume by its id"),
    ],
)
def test_a_volume_is_known_as(volume, driver, handle):
    plugin = plugin_of(volume.spec)
    assert plugin.driver == driver
    assert volume_handle(plugin, volume) == handle


def test_a_volume_of_a_pod_has_no_zone():
    volume = msgspec.convert({"name": "v"} | GCE, Volume)
    assert inline_handle(plugin_of(volume), volume) == "projects/UNSPECIFIED/zones/UNSPECIFIED/disks/disk"


def test_other_volumes_are_of_no_built_in_driver():
    assert plugin_of(disk({"csi": {"driver": "d", "volumeHandle": "h"}}).spec) is None
    assert plugin_of(msgspec.convert({"name": "v", "persistentVolumeClaim": {"claimName": "c"}}, Volume)) is None


@pytest.mark.parametrize(
    ("provisioner", "driver"),
    [
        pytest.param("csi.example.com", "csi.example.com", id="a CSI driver makes its own volumes"),
        pytest.param("kubernetes.io/cinder", "cinder.csi.openstack.org", id="a CSI driver stands for a built-in one"),
        pytest.param("kubernetes.io/azure-file", None, id="volumes without limits are not counted"),
    ],
)
def test_the_driver_of_a_class(provisioner, driver):
    assert driver_of_provisioner(provisioner) == driver


def within(key, *values):
    return {"key": key, "operator": "In", "values": list(values)}


def term(*expressions, **fields):
    return {"matchExpressions": list(expressions)} | fields


EBS_ZONE = "topology.ebs.csi.aws.com/zone"


@pytest.mark.parametrize(
    ("volume", "terms"),
    [
        pytest.param(disk(AWS), None, id="without zones it is reached from everywhere"),
        pytest.param(disk(AWS, terms=[term(within(ZONE, "a"))]), [term(within(EBS_ZONE, "a"))], id="zones are renamed"),
        pytest.param(
            disk(AWS, terms=[term(within(BETA_ZONE, "a"), within(BETA_REGION, "r"), within("k", "v"))]),
            [term(within(EBS_ZONE, "a"), within(REGION, "r"), within("k", "v"))],
            id="older zones are renamed, older regions brought up to date, and the rest is kept",
        ),
        pytest.param(
            disk(AWS, {ZONE: "b__ a"}),
            [term(within(EBS_ZONE, "a", "b"))],
            id="zones of labels are put in where affinity has none",
        ),
        pytest.param(
            disk(AWS, {ZONE: "a"}, [term(within("k", "v")), term()]),
            [term(within("k", "v"), within(EBS_ZONE, "a")), term(within(EBS_ZONE, "a"))],
            id="zones of labels are put into every term, even one without any",
        ),
        pytest.param(
            disk(AWS, {ZONE: "b"}, [term(within(ZONE, "a"))]),
            [term(within(EBS_ZONE, "a"))],
            id="zones of labels count for nothing where affinity has some",
        ),
        pytest.param(disk(AWS, {ZONE: " __ "}), None, id="a label without zones counts for nothing"),
        pytest.param(
            disk(AZURE, {ZONE: "b"}, [term(within(ZONE, "a"))]), [term(within(ZONE, "a"))], id="Azure keeps its labels"
        ),
    ],
)
def test_a_volume_is_reached_by(volume, terms):
    expected = None if terms is None else disk(AWS, terms=terms).spec.node_affinity.required
    assert compile_terms(translate_affinity(plugin_of(volume.spec), volume)) == compile_terms(expected)
