"""ComputeResource where nodes have devices by the number of an extended resource, and pods ask by naming it."""

from __future__ import annotations

import json
from typing import Any

import pytest
from pydantic import ValidationError

from algorithms.compute_resource import (
    ASKED_TWICE,
    NO_DEVICES,
    NO_FREE_DEVICE,
    NO_FREE_MEMORY,
    OTHER_MODEL,
    TOO_LITTLE_MEMORY,
    UNREADABLE_DEVICES,
    UNTOLD,
    ComputeResource,
    ComputeResourceArgs,
)
from extender.framework.nomination import filter_with_nominated
from extender.framework.profile import bind
from extender.framework.runner import NoRecorder, Profile, Runner
from extender.testing import make_node, make_pod
from extender.testing.lab import Lab, pending
from tests.algorithms.device import (
    ALLOCATED,
    DEVICES,
    T4,
    TEXT,
    asking,
    device,
    hami_node,
    holding,
    judge,
    node,
    reserve,
    share_node,
)

GPU, OLD = "example.com/gpu", "example.com/old-gpu"
KINDS = {GPU: {"memoryMiB": 16_000, "model": "A100"}, OLD: {"memoryMiB": 8_000, "cores": 0}}


def counted(count: int = 2, name: str = "n1", resource: str = GPU, **more: int) -> dict[str, Any]:
    return make_node(name, allocatable={resource: count, **more})


def naming(count: int = 1, name: str = "new", resource: str = GPU, **fields: Any) -> dict[str, Any]:
    return make_pod(name, requests={resource: count}, **fields)


def first(*shares: int, name: str = "old") -> dict[str, Any]:
    return holding(*((f"{GPU}-{place}", share, 0) for place, share in enumerate(shares)), name=name)


def declaring(other: dict[str, Any]) -> dict[str, Any]:
    """Return a node that has the resource, and declares devices as ``other`` does."""
    return {**counted(), "metadata": other["metadata"]}


CASES: dict[str, tuple[list[dict[str, Any]], dict[str, Any], tuple[str, bool] | None]] = {
    "whole devices": ([counted()], naming(2), None),
    "more devices than there are": ([counted()], naming(3), (NO_DEVICES, False)),
    "more devices than can be counted": ([counted()], naming(2**62), (NO_DEVICES, False)),
    "more devices on a node than are told apart": ([counted(1000)], naming(64), None),
    "a device of which another pod has a share": ([counted(1), first(1)], naming(), (NO_FREE_DEVICE, True)),
    "a device beside one that is shared": ([counted(2), first(1)], naming(), None),
    "a share by annotation": ([counted()], asking(memoryMiB=16_000), None),
    "a share in percent": ([counted(1), first(8_001)], asking(memoryPercent=50), (NO_FREE_MEMORY, True)),
    "a share larger than a device": ([counted()], asking(memoryMiB=16_001), (TOO_LITTLE_MEMORY, False)),
    "a share of a device that is given whole": (
        [counted(1), holding((f"{GPU}-0", 16_000, 100))],
        asking(memoryMiB=1),
        (NO_FREE_MEMORY, True),
    ),
    "whole devices by annotation": ([counted()], asking(count=2), None),
    "a model": ([counted()], asking(model="a100"), None),
    "another model": ([counted()], asking(model="T4"), (OTHER_MODEL, False)),
    "no groups are told": ([counted()], asking("sameNuma", count=2), (UNTOLD, False)),
    "a pod that was placed by others and names the resource": (
        [counted(2), naming(1, "other", node="n1")],
        naming(2),
        (NO_FREE_DEVICE, True),
    ),
    "pods that were placed by others have as many devices as they name": (
        [counted(2), naming(1, "other", node="n1")],
        naming(1),
        None,
    ),
    "a pod that names the resource and says which devices it has": (
        [counted(2), naming(1, "other", node="n1", annotations=first(16_000)["metadata"]["annotations"])],
        naming(1),
        None,
    ),
    "a node without the resource": ([make_node("n1")], naming(), (NO_DEVICES, False)),
    "a node with none left to allocate": ([counted(0)], naming(), (NO_DEVICES, False)),
    "a node with another resource": ([counted(resource=OLD)], naming(), (NO_DEVICES, False)),
    "of two resources of a node the first configured counts": (
        [counted(2, **{OLD: 2})],
        naming(resource=OLD),
        (NO_DEVICES, False),
    ),
    "a resource that is not configured is no concern": ([counted()], naming(resource="example.com/other"), None),
    "what a node declares counts before the resource": ([declaring(node(T4))], naming(2), (NO_DEVICES, False)),
    "a whole device of those that a node declares": ([declaring(node(T4))], naming(1), None),
    "a declaration that cannot be read is not made up for": (
        [declaring(make_node("n1", annotations={DEVICES: "?"}))],
        naming(1),
        (UNREADABLE_DEVICES, False),
    ),
    "a node that HAMi registered": ([declaring(hami_node(TEXT))], naming(1), (NO_DEVICES, False)),
    "a node of gpushare": (
        [make_node("n1", allocatable={**share_node()["status"]["allocatable"], GPU: 2})],
        naming(1),
        (NO_DEVICES, False),
    ),
    "both by name and by annotation": (
        [counted()],
        naming(annotations=asking()["metadata"]["annotations"]),
        (ASKED_TWICE, False),
    ),
    "two resources at once": ([counted()], make_pod("new", requests={GPU: 1, OLD: 1}), (ASKED_TWICE, False)),
}


@pytest.mark.parametrize(("objects", "pod", "expected"), CASES.values(), ids=CASES)
def test_where_a_pod_fits_by_the_number_of_a_resource(objects, pod, expected):
    assert judge(objects, pod, resources=KINDS) == ({} if expected is None else {"n1": expected})


PICKS = {
    "whole devices": (naming(2), [(0, 16_000, 100), (2, 16_000, 100)]),
    "the fullest that will do": (asking(memoryMiB=2_000, cores=5), [(1, 2_000, 5)]),
    "the emptiest to spread": (asking("spread", memoryPercent=50), [(0, 8_000, 0)]),
}


@pytest.mark.parametrize(("pod", "expected"), PICKS.values(), ids=PICKS)
def test_devices_are_called_by_resource_and_number(pod, expected):
    lab = Lab([counted(3), holding((f"{GPU}-1", 10_000, 10))])
    written = reserve(lab, pod, resources=KINDS)
    assert list(written) == [ALLOCATED]
    assert json.loads(written[ALLOCATED]) == [
        {"id": f"{GPU}-{place}", "memoryMiB": memory, "cores": cores} for place, memory, cores in expected
    ]


def test_no_device_is_given_twice_whoever_asks_and_however():
    lab, given = Lab([counted(3)]), []
    for turn, pod in enumerate([asking(memoryPercent=60), naming(), asking(memoryPercent=60), naming()]):
        written = reserve(lab, pod, resources=KINDS)
        if isinstance(written, dict):
            given += [grant["id"] for grant in json.loads(written[ALLOCATED])]
            meta = {**pod["metadata"], "name": f"p{turn}", "uid": f"u{turn}", "annotations": written}
            lab.apply({**pod, "metadata": meta, "spec": {**pod["spec"], "nodeName": "n1"}})
    assert sorted(given) == [f"{GPU}-{place}" for place in range(3)]


def test_both_kinds_of_nodes_are_judged_and_scored_side_by_side():
    declared = node(device("a"), device("b"), name="declared")
    lab = Lab([counted(2, "counted"), declared, make_node("none"), counted(1, "old", OLD)])
    pod, args = asking(memoryMiB=8_000), {"resources": KINDS}
    assert lab.filter(ComputeResource, pod, args).keys() == {"none"}
    assert lab.score(ComputeResource, pod, args).raw == {"counted": 37, "declared": 37, "none": 0, "old": 100}


def test_it_follows_the_number_that_is_left_to_allocate():
    lab, args = Lab([counted(2)]), {"resources": KINDS}
    assert lab.filter(ComputeResource, naming(2), args) == {}
    lab.apply(counted(1))
    assert lab.filter(ComputeResource, naming(2), args).keys() == {"n1"}
    lab.apply(*(counted(2, f"x{place}") for place in range(70)))
    assert lab.filter(ComputeResource, naming(2), args).keys() == {"n1"}


def test_room_is_kept_for_a_nominated_pod_that_names_the_resource():
    lab = Lab([counted(2)])
    lab.apply({**naming(1, "nominated", priority=7), "status": {"phase": "Pending", "nominatedNodeName": "n1"}})
    algorithm = bind(ComputeResource, ComputeResourceArgs.model_validate({"resources": KINDS}), lab.mirror)
    runner = Runner(Profile([algorithm], []), NoRecorder())
    filtered = filter_with_nominated(lab.mirror, runner, pending(naming(2)), lab.nodes())
    assert filtered.of(0).reasons == (NO_FREE_DEVICE,)


FAULTS = {
    "a resource of Kubernetes": ({"resources": {"cpu": {}}}, "'cpu' is not an extended resource"),
    "no name of a resource": ({"resources": {"a b/c": {}}}, "is not an extended resource"),
    "a resource of HAMi": ({"resources": {"nvidia.com/gpu": {}}}, "nvidia.com/gpu means something in hami"),
    "a resource of gpushare": ({"resources": {"aliyun.com/gpu-mem": {}}}, "means something in gpushare"),
    "our own convention left out": ({"resources": KINDS, "conventions": ["hami"]}, "conventions must have own"),
    "memory beyond all numbers": ({"resources": {GPU: {"memoryMiB": 2**41}}}, "memoryMiB"),
    "less than no memory": ({"resources": {GPU: {"memoryMiB": -1}}}, "memoryMiB"),
    "no conventions": ({"conventions": []}, "must not be empty"),
    "a convention named twice": ({"conventions": ["own", "own"]}, "one is named twice"),
}


@pytest.mark.parametrize(("args", "message"), FAULTS.values(), ids=FAULTS)
def test_arguments_that_do_not_go_together_are_refused(args, message):
    with pytest.raises(ValidationError, match=message):
        ComputeResourceArgs.model_validate(args)


def test_a_resource_of_a_convention_that_is_left_out_can_be_configured():
    args = {"conventions": ["own"], "resources": {"nvidia.com/gpu": {"memoryMiB": 1}}}
    assert judge([counted(resource="nvidia.com/gpu")], naming(3, resource="nvidia.com/gpu"), **args) == {
        "n1": (NO_DEVICES, False)
    }
