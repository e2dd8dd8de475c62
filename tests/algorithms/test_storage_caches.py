"""The caches of volumes obey the laws of caches, whatever comes in whatever order, and read null lists as empty."""

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from algorithms.volume_restrictions import VolumeUses
from extender.framework import NO_LIMIT, CsiNodes, CsiVolumes, FreeVolumes, StorageCapacities, StorageObjects
from extender.framework.in_tree_volume import InTreeVolumes
from extender.testing.lab import Lab
from extender.testing.law import check_fold_equals_rebuild, check_inverse_leaves_no_trace
from extender.testing.maker import make_node, make_pod
from tests.algorithms.storage import (
    HOST,
    ZONE,
    attachment,
    capacity,
    claim,
    csi,
    csi_driver,
    csi_node,
    ephemeral,
    storage_class,
    volume,
)

NULLS = json.loads((Path(__file__).parents[1] / "data" / "cases" / "B25-null-lists.json").read_text())["objects"]
EBS, GCE, AZURE = "kubernetes.io/aws-ebs", "kubernetes.io/gce-pd", "kubernetes.io/azure-disk"

names = st.sampled_from(["a", "b"])
claim_names = st.sampled_from(["c1", "p-scratch"])
volume_names = st.sampled_from(["v1", "v2"])
class_names = st.sampled_from(["wait", "ebs"])
sources = st.sampled_from(
    [
        csi("csi.example.com", "shared"),
        csi("ebs.csi.aws.com", "vol-1"),
        csi("", ""),
        {"awsElasticBlockStore": {"volumeID": "vol-1"}},
        {"awsElasticBlockStore": {"volumeID": "aws://zone/nothing"}},
        {"gcePersistentDisk": {"pdName": "disk"}},
        {"azureDisk": {"diskName": "disk", "diskURI": "/disk", "kind": "Managed"}},
        {"local": {"path": "/mnt"}},
    ]
)
inline = st.sampled_from(
    [
        {"name": "e", "awsElasticBlockStore": {"volumeID": "vol-1"}},
        {"name": "e", "awsElasticBlockStore": {"volumeID": "aws://zone/nothing"}},
        {"name": "g", "gcePersistentDisk": {"pdName": "disk", "readOnly": True}},
        {"name": "a", "azureDisk": {"diskName": "disk", "diskURI": "/disk", "kind": "Dedicated"}},
        {"name": "r", "rbd": {"monitors": ["m1", "m2", "m1"], "image": "i", "pool": "p"}},
        {"name": "i", "iscsi": {"iqn": "iqn", "readOnly": True}},
        {"name": "n", "persistentVolumeClaim": {}},
        ephemeral(),
        "c1",
        "p-scratch",
    ]
)
places = st.sampled_from([None, {HOST: ["a"]}, {HOST: ["a", "b"]}, {ZONE: ["z1"]}, {ZONE: ["z1"], HOST: ["b"]}])

nodes = st.builds(
    lambda name, zone, limit: make_node(name, labels={ZONE: zone}, allocatable=limit),
    names,
    st.sampled_from(["z1", "z2"]),
    st.sampled_from([{}, {"attachable-volumes-aws-ebs": 2}, {"attachable-volumes-gce-pd": 0}]),
)
pods = st.builds(
    lambda name, where, volumes: make_pod(name, node=where, volumes=volumes),
    st.sampled_from(["p", "q"]),
    st.none() | names,
    st.lists(inline, max_size=3),
)
claims = st.builds(
    lambda name, class_name, bound, owner: claim(name, class_name, bound, owner=owner),
    claim_names,
    class_names,
    st.none() | volume_names,
    st.sampled_from([None, "uid-p", "uid-q"]),
)
volumes = st.builds(
    lambda name, class_name, source, on, ref, labels: volume(
        name, class_name, source=source, on=on, ref=ref, labels=labels
    ),
    volume_names,
    class_names,
    sources,
    places,
    st.none() | claim_names,
    st.sampled_from([{}, {ZONE: "z1__z2"}]),
)
classes = st.builds(
    storage_class, class_names, st.sampled_from(["csi.example.com", EBS, "kubernetes.io/vsphere-volume"])
)
csi_nodes = st.builds(
    csi_node,
    names,
    st.dictionaries(st.sampled_from(["csi.example.com", "ebs.csi.aws.com"]), st.none() | st.integers(0, 2)),
    st.sampled_from([(), (EBS,), (EBS, GCE, AZURE)]),
)
attachments = st.builds(attachment, st.sampled_from(["x", "y"]), names, volume_names)
drivers = st.builds(lambda on: csi_driver(storage_capacity=on), st.booleans())
capacities = st.builds(
    capacity,
    st.sampled_from(["k1", "k2", "k3"]),
    st.sampled_from([None, "1Gi", "5Gi"]),
    st.none() | st.just({ZONE: "z1"}),
)
OBJECTS = {
    StorageObjects: claims | volumes | classes,
    CsiNodes: nodes | csi_nodes,
    CsiVolumes: st.one_of(nodes, pods, claims, volumes, classes, attachments),
    InTreeVolumes: st.one_of(nodes, pods, claims, volumes, classes),
    FreeVolumes: volumes,
    StorageCapacities: drivers | capacities,
    VolumeUses: pods,
}
CROWD = [make_pod(f"x{place}", node=f"n{place}", volumes=["c1"]) for place in range(70)]


def events(objects):
    return st.lists(
        st.tuples(st.sampled_from(["apply", "apply", "apply", "delete"]), objects), min_size=10, max_size=40
    )


@pytest.mark.parametrize("cache", [pytest.param(cache, id=f"{cache.__name__} obeys both laws") for cache in OBJECTS])
@settings(max_examples=50)
@given(data=st.data(), crowd=st.booleans())
def test_folding_random_events_equals_rebuilding_and_undoing_leaves_no_trace(cache, data, crowd):
    lab = Lab()
    more = [("apply", pod) for pod in CROWD] if crowd else []
    before, after = (data.draw(events(OBJECTS[cache])) for _ in range(2))
    check_fold_equals_rebuild(cache, [*before, *more, *after], lab)
    check_inverse_leaves_no_trace(cache, lab)


@settings(max_examples=60)
@given(events(nodes | volumes | capacities))
def test_where_volumes_are_found_at_once_and_bit_by_bit_is_the_same(events):
    lab = Lab()
    free, capacities = lab.mirror.cache(FreeVolumes), lab.mirror.cache(StorageCapacities)
    for verb, item in events:
        getattr(lab, verb)(item)
        for name in ("wait", "ebs"):
            fresh = FreeVolumes(lab.mirror.table)
            lab.mirror.fill(fresh)
            assert reached(free, name) == reached(fresh, name)
        again = StorageCapacities(lab.mirror.table)
        lab.mirror.fill(again)
        present = lab.mirror.table.present
        found, expected = (cache.select_rows("wait", 2**30)[present] for cache in (capacities, again))
        assert found.tolist() == expected.tolist()


def reached(cache, class_name):
    """The names of the nodes that reach each free volume of a class."""
    reach = cache.free(class_name)
    if reach is None:
        return None
    table, pairs, columns = cache.table, reach.pairs(), reach.columns()
    return {
        thing: {table.name(row) for row in pairs.rows[pairs.slots == slot].tolist() if table.present[row]}
        | {table.name(row) for row in table.rows().tolist() if slot in columns and columns[slot][row]}
        for slot, thing in reach.occupied()
    }


@pytest.mark.parametrize("cache", [pytest.param(cache, id=f"{cache.__name__} takes them") for cache in OBJECTS])
def test_null_lists_are_empty_lists(cache):
    lab = Lab(NULLS)
    assert lab.mirror.cache(cache).dump() is not None
    lab.delete(*NULLS)
    assert lab.mirror.cache(cache).dump() == Lab().mirror.cache(cache).dump()


def test_more_rows_have_no_limits():
    lab = Lab([make_node("a"), csi_node("a", {"csi.example.com": 1})])
    nodes = lab.mirror.cache(CsiNodes)
    lab.apply(*CROWD, make_node("late"), csi_node("late", {"other": 1}))
    assert nodes.limits("csi.example.com").tolist() == [1, *[NO_LIMIT] * 127]
    assert nodes.limits("other").tolist().count(NO_LIMIT) == 127


def test_a_node_without_drivers_limits_nothing():
    nodes = Lab(NULLS).mirror.cache(CsiNodes)
    assert nodes.known.sum() == 1
    assert not nodes.limited.any()
