"""ComputeResource by the case: what fits on which devices, how good it is, and which ones a pod gets."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from algorithms.compute_resource import (
    APART,
    BAD_REQUEST,
    FREE_APART,
    NO_DEVICES,
    NO_FREE_COMPUTE,
    NO_FREE_DEVICE,
    NO_FREE_MEMORY,
    OTHER_MODEL,
    TOO_FEW,
    TOO_LITTLE_COMPUTE,
    TOO_LITTLE_MEMORY,
    UNHEALTHY,
    UNREADABLE_DEVICES,
    ComputeResource,
    ComputeResourceArgs,
)
from extender.framework import SKIP, DevicePool, Refusal
from extender.framework.nomination import filter_with_nominated
from extender.framework.preemption import Eviction, Preemption
from extender.framework.profile import bind
from extender.framework.runner import NoRecorder, Profile, Runner
from extender.testing import make_node, make_pod
from extender.testing.lab import Lab, pending
from extender.testing.law import check_fold_equals_rebuild, check_inverse_leaves_no_trace

NOW = 1_700_000_000.5
DEVICES, REQUEST, ALLOCATED = (
    f"scheduler-extender/{name}" for name in ("devices", "device-request", "devices-allocated")
)
POLICY = "scheduler-extender/device-policy"


def device(name: str, memory: int = 16_000, **fields: Any) -> dict[str, Any]:
    return {"id": name, "memoryMiB": memory, **fields}


def node(*devices: dict[str, Any], name: str = "n1") -> dict[str, Any]:
    return make_node(name, annotations={DEVICES: json.dumps(devices)})


def asking(policy: str = "", **request: Any) -> dict[str, Any]:
    return make_pod("new", annotations={REQUEST: json.dumps(request), **({POLICY: policy} if policy else {})})


def holding(*grants: tuple[str, int, int], name: str = "old", on: str = "n1", **fields: Any) -> dict[str, Any]:
    listed = [{"id": device, "memoryMiB": memory, "cores": cores} for device, memory, cores in grants]
    return make_pod(name, node=on, annotations={REQUEST: "{}", ALLOCATED: json.dumps(listed)}, **fields)


def share_node(memory: int = 32, count: int = 2, name: str = "n1") -> dict[str, Any]:
    return make_node(name, allocatable={"aliyun.com/gpu-mem": memory, "aliyun.com/gpu-count": count})


def share_pod(memory: int, name: str = "new", on: str | None = None, index: int | None = None) -> dict[str, Any]:
    notes = {} if index is None else {"ALIYUN_COM_GPU_MEM_IDX": str(index), "ALIYUN_COM_GPU_MEM_POD": str(memory)}
    return make_pod(name, node=on, requests={"aliyun.com/gpu-mem": memory}, annotations=notes)


def hami_node(text: str, name: str = "n1") -> dict[str, Any]:
    return make_node(name, annotations={"hami.io/node-nvidia-register": text})


TEXT = "GPU-a,10,16000,100,NVIDIA-Tesla T4,0,true:GPU-b,10,16000,100,NVIDIA-Tesla T4,1,true:"
NEWER_TEXT = "GPU-a,10,16000,100,NVIDIA-Tesla T4,0,true,0,hami-core:GPU-b,2,16000,100,NVIDIA-Tesla T4,1,true,1,mig:"
JSON = json.dumps(
    [
        {"id": "GPU-a", "count": 2, "devmem": 16000, "devcore": 100, "type": "NVIDIA A100", "health": True, "index": 1},
        {"id": "GPU-b", "count": 2, "devmem": 16000, "devcore": 100, "type": "NVIDIA A100"},
    ]
)


def hami_pod(
    name: str = "new", on: str | None = None, given: str = "", notes: Any = None, **asked: int
) -> dict[str, Any]:
    requests = {f"nvidia.com/{key.replace('_', '-')}": amount for key, amount in asked.items()}
    annotations = {**(notes or {}), **({"hami.io/vgpu-devices-allocated": given} if given else {})}
    return make_pod(name, node=on, requests=requests, annotations=annotations)


def two_containers(first: dict[str, int], second: dict[str, int]) -> dict[str, Any]:
    pod = hami_pod()
    template = pod["spec"]["containers"][0]
    pod["spec"]["containers"] = [
        {
            **template,
            "name": name,
            "resources": {"limits": {f"nvidia.com/{key}": amount for key, amount in asked.items()}},
        }
        for name, asked in (("one", first), ("two", second))
    ]
    return pod


T4, FULL, HALF = device("a", model="Tesla T4"), ("a", 16_000, 100), ("a", 8_000, 50)
QUAD = [device(name, numa=numa, linkGroup=link) for name, numa, link in zip("abcd", (0, 0, 1, 1), "xyyx", strict=True)]

CASES: dict[str, tuple[list[dict[str, Any]], dict[str, Any], tuple[str, bool] | None]] = {
    "an idle device is free": ([node(T4)], asking(), None),
    "a node without devices has none": ([make_node("n1")], asking(), (NO_DEVICES, False)),
    "a node with fewer devices never has enough": ([node(T4)], asking(count=2), (NO_DEVICES, False)),
    "a device in use is not free as a whole": ([node(T4), holding(HALF)], asking(), (NO_FREE_DEVICE, True)),
    "a share fits beside another": ([node(T4), holding(HALF)], asking(memoryMiB=8000, cores=50), None),
    "memory is counted by device, not by node": (
        [node(device("a"), device("b")), holding(("a", 9000, 0), ("b", 9000, 0))],
        asking(memoryMiB=8000),
        (NO_FREE_MEMORY, True),
    ),
    "compute runs out before memory": ([node(T4), holding(HALF)], asking(cores=60), (NO_FREE_COMPUTE, True)),
    "no compute at all is left": ([node(T4), holding(("a", 1, 100))], asking(memoryMiB=1), (NO_FREE_COMPUTE, True)),
    "no device has as much memory": ([node(T4)], asking(memoryMiB=16001), (TOO_LITTLE_MEMORY, False)),
    "no device has as much compute": ([node(T4)], asking(cores=101), (TOO_LITTLE_COMPUTE, False)),
    "too small a device stays so when it is in use": (
        [node(T4), holding(FULL)],
        asking(memoryMiB=16001),
        (TOO_LITTLE_MEMORY, False),
    ),
    "a model is found in any case": ([node(T4)], asking(model="t4"), None),
    "another model will not do": ([node(T4)], asking(model="A100"), (OTHER_MODEL, False)),
    "an unhealthy device is avoided": ([node(device("a", healthy=False))], asking(memoryMiB=1), (UNHEALTHY, False)),
    "several devices are different ones": (
        [node(T4), holding(("a", 1, 1))],
        asking(count=2, cores=1),
        (NO_DEVICES, False),
    ),
    "what is granted of an unknown device hurts nobody": ([node(T4), holding(("z", 16000, 100))], asking(), None),
    "a placed pod that names no device may have any": (
        [node(T4), make_pod("old", node="n1", annotations={REQUEST: "{}"})],
        asking(memoryMiB=1),
        (NO_FREE_DEVICE, True),
    ),
    "a declaration that cannot be read": (
        [make_node("n1", annotations={DEVICES: '[{"id": "a", "memory": 1}]'})],
        asking(),
        (UNREADABLE_DEVICES, False),
    ),
    "two devices of one id cannot be told apart": ([node(T4, T4)], asking(), (UNREADABLE_DEVICES, False)),
    "a node with more devices than anybody has": (
        [node(*(device(f"d{place}") for place in range(65)))],
        asking(),
        (UNREADABLE_DEVICES, False),
    ),
    "a request that cannot be read": ([node(T4)], make_pod("new", annotations={REQUEST: "{"}), (BAD_REQUEST, False)),
    "a request of no devices": ([node(T4)], asking(count=0), (BAD_REQUEST, False)),
    "a policy that there is none of": ([node(T4)], asking("sideways"), (BAD_REQUEST, False)),
    "more devices than there are numbers for": ([node(T4)], asking(count=10**6), (NO_DEVICES, False)),
    "two devices of one NUMA node": ([node(*QUAD)], asking("sameNuma", count=2), None),
    "three devices of one NUMA node are never there": ([node(*QUAD)], asking("sameNuma", count=3), (APART, False)),
    "free devices in different NUMA nodes": (
        [node(*QUAD), holding(("a", 1, 1), ("c", 1, 1))],
        asking("sameNuma", count=2),
        (FREE_APART, True),
    ),
    "free devices in one link group": (
        [node(*QUAD), holding(("b", 1, 1))],
        asking("sameLinkGroup", count=2),
        None,
    ),
    "devices in no link group are linked with none": (
        [node(device("a"), device("b"))],
        asking("sameLinkGroup", count=2),
        (APART, False),
    ),
    "gpushare: equal devices": ([share_node()], share_pod(16), None),
    "gpushare: a device is smaller than the node": ([share_node()], share_pod(17), (TOO_LITTLE_MEMORY, False)),
    "gpushare: the sum would do but no device does": (
        [share_node(), share_pod(9, "p", "n1", 0), share_pod(9, "q", "n1", 1)],
        share_pod(8),
        (NO_FREE_MEMORY, True),
    ),
    "gpushare: devices of another kind": ([node(T4)], share_pod(1), (NO_DEVICES, False)),
    "gpushare: memory without devices": ([share_node(32, 0)], share_pod(1), (NO_DEVICES, False)),
    "HAMi: a share as text": ([hami_node(TEXT)], hami_pod(gpu=1, gpumem=4000, gpucores=30), None),
    "HAMi: a device in MIG mode is left alone": (
        [hami_node(NEWER_TEXT)],
        hami_pod(gpu=2, gpumem=1),
        (UNHEALTHY, False),
    ),
    "HAMi: JSON leaves out what is false": ([hami_node(JSON)], hami_pod(gpu=2, gpumem=1), (UNHEALTHY, False)),
    "HAMi: no more pods on a device than it has slots": (
        [hami_node(JSON), hami_pod("p", "n1", "GPU-a,NVIDIA,1,0:;"), hami_pod("q", "n1", "GPU-a,NVIDIA,1,0:;")],
        hami_pod(gpu=1, gpumem=1),
        (NO_FREE_DEVICE, True),
    ),
    "HAMi: no amount means all memory": (
        [hami_node(JSON), hami_pod("p", "n1", "GPU-a,NVIDIA,1,0:;")],
        hami_pod(gpu=1),
        (NO_FREE_MEMORY, True),
    ),
    "HAMi: a percentage of what the device has": (
        [hami_node(JSON), hami_pod("p", "n1", "GPU-a,NVIDIA,8000,0:;")],
        hami_pod(gpu=1, gpumem_percentage=50),
        None,
    ),
    "HAMi: all cores share with nobody": (
        [hami_node(JSON), hami_pod("p", "n1", "GPU-a,NVIDIA,1,0:;")],
        hami_pod(gpu=1, gpumem=1, gpucores=100),
        (NO_FREE_DEVICE, True),
    ),
    "HAMi: no cores are asked of a device without any left": (
        [hami_node(JSON), hami_pod("p", "n1", "GPU-a,NVIDIA,1,100:;")],
        hami_pod(gpu=1, gpumem=1),
        (NO_FREE_COMPUTE, True),
    ),
    "HAMi: memory without a number of devices is one": (
        [hami_node(JSON)],
        hami_pod(gpumem=16001),
        (TOO_LITTLE_MEMORY, False),
    ),
    "HAMi: a type that is wanted": (
        [hami_node(TEXT)],
        hami_pod(gpu=1, notes={"nvidia.com/use-gputype": "V100,T4"}),
        None,
    ),
    "HAMi: a type that is not wanted": (
        [hami_node(TEXT)],
        hami_pod(gpu=1, notes={"nvidia.com/nouse-gputype": "tesla"}),
        (OTHER_MODEL, False),
    ),
    "HAMi: numa-bind": (
        [hami_node(TEXT)],
        hami_pod(gpu=2, gpumem=1, notes={"nvidia.com/numa-bind": "true"}),
        (APART, False),
    ),
    "HAMi: containers share a device": (
        [hami_node(JSON)],
        two_containers({"gpu": 1, "gpumem": 9000}, {"gpumem": 7000}),
        None,
    ),
    "HAMi: containers that never fit together": (
        [hami_node(JSON)],
        two_containers({"gpu": 1, "gpumem": 9000}, {"gpu": 1, "gpumem": 8000}),
        (TOO_FEW, False),
    ),
    "HAMi: containers that do not fit beside others": (
        [hami_node(JSON), hami_pod("p", "n1", "GPU-a,NVIDIA,1000,0:;")],
        two_containers({"gpu": 1, "gpumem": 9000}, {"gpu": 1, "gpumem": 7000}),
        (NO_FREE_DEVICE, True),
    ),
    "HAMi: a container without devices between": (
        [hami_node(JSON)],
        two_containers({}, {"gpu": 1, "gpumem": 7000}),
        None,
    ),
    "HAMi: a register that cannot be read": ([hami_node("GPU-a,10:")], hami_pod(gpu=1), (UNREADABLE_DEVICES, False)),
}


@pytest.mark.parametrize(("objects", "pod", "expected"), CASES.values(), ids=CASES)
def test_where_a_pod_fits(objects, pod, expected):
    refused = Lab(objects).filter(ComputeResource, pod)
    assert {name: (outcome.text, outcome.resolvable) for name, outcome in refused.items()} == (
        {} if expected is None else {"n1": expected}
    )


@pytest.mark.parametrize("args", [{}, {"conventions": ["own"]}], ids=["no devices asked for", "a convention left out"])
def test_a_pod_that_does_not_ask_is_no_concern(args):
    pod = hami_pod(gpu=1) if args else make_pod("new", requests={"cpu": "1"})
    lab = Lab([node(T4)])
    assert lab.filter(ComputeResource, pod, args) is SKIP
    assert lab.score(ComputeResource, pod, args) is SKIP
    assert reserve(lab, pod, **args) is None


# --- scores ----------------------------------------------------------------------------------------------------------

IDLE, USED = node(device("a"), device("b"), name="idle"), node(device("a"), device("b"), name="used")
FULLNESS = {
    "binpack prefers what is in use": (
        {},
        asking(memoryMiB=4000),
        {"idle": (25 + 12.5) // 2, "used": (75 + 37.5) // 2},
    ),
    "spread prefers what is idle": (
        {"policy": "spread"},
        asking(memoryMiB=4000),
        {"idle": 100 - (25 + 12.5) // 2, "used": 100 - (25 + 37.5) // 2},
    ),
    "the pod's policy wins": ({"policy": "spread"}, asking("binpack", memoryMiB=4000), {"idle": 18, "used": 56}),
    "whole devices fill nodes that are in use": ({}, asking(), {"idle": (100 + 50) // 2, "used": (100 + 75) // 2}),
    "the scarcer of memory and compute counts": ({}, asking(memoryMiB=1600, cores=50), {"idle": 37, "used": 52}),
    "a node without room is worth nothing": ({}, asking(count=2), {"idle": 100, "used": 0}),
}


@pytest.mark.parametrize(("args", "pod", "expected"), FULLNESS.values(), ids=FULLNESS)
def test_how_good_a_node_is(args, pod, expected):
    lab = Lab([IDLE, USED, holding(("a", 8000, 20), on="used")])
    assert lab.score(ComputeResource, pod, args).raw == expected


def test_a_request_that_cannot_be_read_scores_nothing():
    assert Lab([IDLE]).score(ComputeResource, asking(count=0)) is SKIP


# --- reservations ----------------------------------------------------------------------------------------------------


def reserve(lab: Lab, pod: dict[str, Any], on: str = "n1", **args: Any) -> Any:
    algorithm = bind(ComputeResource, ComputeResourceArgs(**args), lab.mirror)
    info = lab.mirror.table.infos[lab.mirror.table.index[on]]
    return algorithm.reserve(pending(pod), info, NOW)


PICKS = {
    "the fullest that will do": ({}, asking(memoryMiB=4000), [("c", 4000, 0)]),
    "the emptiest to spread": ({"policy": "spread"}, asking(memoryMiB=4000, cores=5), [("a", 4000, 5)]),
    "a whole one": ({}, asking(), [("a", 16000, 100)]),
    "the fullest two": ({}, asking(count=2, cores=10), [("b", 0, 10), ("c", 0, 10)]),
    "one NUMA node, even if others are fuller": (
        {"policy": "sameNuma"},
        asking(count=2, memoryMiB=9000),
        [("a", 9000, 0), ("b", 9000, 0)],
    ),
    "the smaller of two groups": ({"policy": "sameLinkGroup"}, asking(count=2, cores=40), [("a", 0, 40), ("d", 0, 40)]),
}


@pytest.mark.parametrize(("args", "pod", "expected"), PICKS.values(), ids=PICKS)
def test_which_devices_a_pod_gets(args, pod, expected):
    lab = Lab([node(*QUAD, device("e", 0, healthy=False, linkGroup="y")), holding(("b", 6000, 30), ("c", 8000, 20))])
    written = reserve(lab, pod, **args)
    assert list(written) == [ALLOCATED]
    assert [tuple(grant.values()) for grant in json.loads(written[ALLOCATED])] == expected


def test_gpushare_is_written_as_its_plug_in_reads_it():
    assert reserve(Lab([share_node(), share_pod(4, "p", "n1", 1)]), share_pod(3)) == {
        "ALIYUN_COM_GPU_MEM_IDX": "1",
        "ALIYUN_COM_GPU_MEM_POD": "3",
        "ALIYUN_COM_GPU_MEM_DEV": "16",
        "ALIYUN_COM_GPU_MEM_ASSIGNED": "false",
        "ALIYUN_COM_GPU_MEM_ASSUME_TIME": "1700000000500000000",
    }


def test_hami_is_written_by_container():
    written = reserve(Lab([hami_node(TEXT)]), two_containers({}, {"gpu": 2, "gpumem": 3000, "gpucores": 30}))
    text = ";GPU-a,NVIDIA,3000,30:GPU-b,NVIDIA,3000,30:;"
    assert written == {
        "hami.io/vgpu-node": "n1",
        "hami.io/vgpu-time": "1700000000",
        "hami.io/vgpu-devices-to-allocate": text,
        "hami.io/vgpu-devices-allocated": text,
        "hami.io/bind-phase": "allocating",
        "hami.io/bind-time": "1700000000",
    }


@pytest.mark.parametrize(("objects", "pod", "expected"), CASES.values(), ids=CASES)
def test_devices_are_given_exactly_where_the_pod_fits(objects, pod, expected):
    written = reserve(Lab(objects), pod)
    if expected is None:
        assert written
    else:
        assert isinstance(written, Refusal)
        assert (written.reason, written.resolvable) == expected


# --- what if ---------------------------------------------------------------------------------------------------------


def test_preemption_evicts_whoever_has_the_device():
    lab = Lab([node(device("a"), device("b"))])
    lab.apply(*(holding((name, 16000, 100), name=f"on-{name}", priority=rank) for name, rank in (("a", 5), ("b", 3))))
    algorithm = bind(ComputeResource, ComputeResourceArgs(), lab.mirror)
    preemption = Preemption(lab.mirror, Runner(Profile([algorithm], []), NoRecorder()))
    wanted = pending({**asking(), "spec": {**asking()["spec"], "priority": 10}})
    picked = preemption.pick(wanted, lab.mirror.table.index["n1"])
    assert isinstance(picked, Eviction)
    assert [victim.name for victim in picked.victims] == ["on-b"]


def test_room_is_kept_for_a_nominated_pod():
    lab = Lab([node(T4)])
    nominated = make_pod("first", annotations={REQUEST: "{}"}, priority=7)
    lab.apply({**nominated, "status": {"phase": "Pending", "nominatedNodeName": "n1"}})
    algorithm = bind(ComputeResource, ComputeResourceArgs(), lab.mirror)
    runner = Runner(Profile([algorithm], []), NoRecorder())
    filtered = filter_with_nominated(lab.mirror, runner, pending(asking(memoryMiB=1)), lab.nodes())
    assert filtered.of(0).reasons == (NO_FREE_DEVICE,)


# --- the cache under random events -----------------------------------------------------------------------------------

NAMES, IDS, NUMBERS = st.sampled_from(["n1", "n2"]), st.sampled_from(["a", "b", "0"]), st.integers(0, 20_000)
MANY = [device(f"d{place}", numa=place % 2) for place in range(12)]
NODE = st.one_of(
    st.builds(lambda name, ids: node(*map(device, ids), name=name), NAMES, st.lists(IDS)),
    st.builds(lambda name, count: share_node(32, count, name), NAMES, st.integers(0, 70)),
    st.builds(lambda name, text: hami_node(text, name), NAMES, st.sampled_from([TEXT, NEWER_TEXT, JSON, "?", "[]"])),
    st.builds(lambda name: node(*MANY, name=name), NAMES),
)
GIVEN = st.lists(st.tuples(IDS, NUMBERS, st.integers(0, 100)), min_size=1).map(
    lambda grants: holding(*grants)["metadata"]
)
PLACED = st.one_of(
    st.builds(lambda on, index, memory: share_pod(memory, "p", on, index), NAMES, st.integers(-1, 3), NUMBERS),
    st.builds(
        lambda on, text: hami_pod("q", on, text, gpu=1),
        NAMES,
        st.sampled_from(["GPU-a,NVIDIA,5,5:;", "x;", "a,b,c,d:"]),
    ),
    st.builds(lambda on, meta: {**holding(name="old", on=on), "metadata": meta}, NAMES, GIVEN),
    st.builds(lambda on: make_pod("r", node=on, annotations={REQUEST: "{"}), NAMES),
)
EVENTS = st.lists(st.tuples(st.sampled_from(["apply", "apply", "delete"]), NODE | PLACED))


@settings(deadline=None)
@given(EVENTS)
def test_the_cache_obeys_both_laws(events):
    lab = Lab()
    check_fold_equals_rebuild(DevicePool, events, lab)
    check_inverse_leaves_no_trace(DevicePool, lab)


def test_the_cache_grows_with_the_table():
    events = [("apply", node(T4, name=f"n{place}")) for place in range(70)]
    check_fold_equals_rebuild(DevicePool, [*events, ("apply", holding(HALF, on="n69"))])


@settings(deadline=None)
@given(
    st.lists(st.tuples(st.integers(1, 3), st.integers(0, 9000), st.integers(0, 60)), max_size=12),
    st.sampled_from(["binpack", "spread", "sameNuma", "sameLinkGroup"]),
)
def test_no_device_is_ever_given_twice_over(requests, policy):
    lab = Lab([node(*QUAD)])
    used = {name: [0, 0, 0] for name in "abcd"}
    for place, (count, memory, cores) in enumerate(requests):
        pod = asking(policy, count=count, memoryMiB=memory, cores=cores)
        written = reserve(lab, pod)
        refused = lab.filter(ComputeResource, pod)
        assert isinstance(written, Refusal) == bool(refused)
        if refused:
            assert (written.reason, written.resolvable) == (refused["n1"].text, refused["n1"].resolvable)
            continue
        for grant in json.loads(written[ALLOCATED]):
            amounts = used[grant["id"]]
            whole = not memory and not cores
            assert not whole or amounts[2] == 0
            amounts[0] += grant["memoryMiB"]
            amounts[1] += grant["cores"]
            amounts[2] += 1
            assert amounts[0] <= 16000
            assert amounts[1] <= 100
        lab.apply(make_pod(f"p{place}", node="n1", annotations={REQUEST: "{}", **written}))
