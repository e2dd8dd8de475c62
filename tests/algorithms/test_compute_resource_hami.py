"""ComputeResource beside HAMi's device plug-in: what nodes register, what pods ask for, and one pod at a time."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from algorithms.compute_resource import (
    APART,
    BUSY,
    LOCKED,
    NO_DEVICES,
    NO_FREE_COMPUTE,
    NO_FREE_DEVICE,
    NO_FREE_MEMORY,
    OTHER_MODEL,
    TOO_FEW,
    TOO_LITTLE_MEMORY,
    UNHEALTHY,
    UNREADABLE_DEVICES,
    UNTOLD,
    ComputeResource,
)
from extender.framework import SKIP, Refusal
from extender.framework.device import OVERASKED
from extender.testing import make_node, make_pod
from extender.testing.lab import Lab
from tests.algorithms.device import (
    DEVICES,
    JSON,
    NEWER_TEXT,
    NOW,
    T4,
    TEXT,
    hami_node,
    hami_pod,
    judge,
    node,
    reserve,
    two_containers,
)

POLICY = {"scheduler-extender/device-policy": "sameLinkGroup"}
HUGE = 2**61
NULL = {"numa": None, "mode": None, "type": None}
NULLS = json.dumps([{"id": "GPU-a", "count": 2, "devmem": 16000, "devcore": 100, "health": True, **NULL}])
REQUESTING = "Requesting_2026-01-01 00:00:00"


def registered(text: str = TEXT, gpus: int | None = None, **notes: str) -> dict[str, Any]:
    annotations = {"hami.io/node-nvidia-register": text} | {
        f"hami.io/{key.replace('_', '-')}": value for key, value in notes.items()
    }
    return make_node("n1", annotations=annotations, allocatable={} if gpus is None else {"nvidia.com/gpu": gpus})


CASES: dict[str, tuple[list[dict[str, Any]], dict[str, Any], tuple[str, bool] | None]] = {
    "a share as text": ([hami_node(TEXT)], hami_pod(gpu=1, gpumem=4000, gpucores=30), None),
    "a device in MIG mode is left alone": (
        [hami_node(NEWER_TEXT)],
        hami_pod(gpu=2, gpumem=1),
        (UNHEALTHY, False),
    ),
    "JSON leaves out what is false": ([hami_node(JSON)], hami_pod(gpu=2, gpumem=1), (UNHEALTHY, False)),
    "no more pods on a device than it has slots": (
        [hami_node(JSON), hami_pod("p", "n1", "GPU-a,NVIDIA,1,0:;"), hami_pod("q", "n1", "GPU-a,NVIDIA,1,0:;")],
        hami_pod(gpu=1, gpumem=1),
        (NO_FREE_DEVICE, True),
    ),
    "no amount means all memory": (
        [hami_node(JSON), hami_pod("p", "n1", "GPU-a,NVIDIA,1,0:;")],
        hami_pod(gpu=1),
        (NO_FREE_MEMORY, True),
    ),
    "a percentage of what the device has": (
        [hami_node(JSON), hami_pod("p", "n1", "GPU-a,NVIDIA,8000,0:;")],
        hami_pod(gpu=1, gpumem_percentage=50),
        None,
    ),
    "all cores share with nobody": (
        [hami_node(JSON), hami_pod("p", "n1", "GPU-a,NVIDIA,1,0:;")],
        hami_pod(gpu=1, gpumem=1, gpucores=100),
        (NO_FREE_DEVICE, True),
    ),
    "no cores are asked of a device without any left": (
        [hami_node(JSON), hami_pod("p", "n1", "GPU-a,NVIDIA,1,100:;")],
        hami_pod(gpu=1, gpumem=1),
        (NO_FREE_COMPUTE, True),
    ),
    "memory without a number of devices is one": (
        [hami_node(JSON)],
        hami_pod(gpumem=16001),
        (TOO_LITTLE_MEMORY, False),
    ),
    "a type that is wanted": (
        [hami_node(TEXT)],
        hami_pod(gpu=1, notes={"nvidia.com/use-gputype": "V100,T4"}),
        None,
    ),
    "a type that is not wanted": (
        [hami_node(TEXT)],
        hami_pod(gpu=1, notes={"nvidia.com/nouse-gputype": "tesla"}),
        (OTHER_MODEL, False),
    ),
    "numa-bind": (
        [hami_node(TEXT)],
        hami_pod(gpu=2, gpumem=1, notes={"nvidia.com/numa-bind": "true"}),
        (APART, False),
    ),
    "containers share a device": (
        [hami_node(JSON)],
        two_containers({"gpu": 1, "gpumem": 9000}, {"gpumem": 7000}),
        None,
    ),
    "containers that never fit together": (
        [hami_node(JSON)],
        two_containers({"gpu": 1, "gpumem": 9000}, {"gpu": 1, "gpumem": 8000}),
        (TOO_FEW, False),
    ),
    "containers that do not fit beside others": (
        [hami_node(JSON), hami_pod("p", "n1", "GPU-a,NVIDIA,1000,0:;")],
        two_containers({"gpu": 1, "gpumem": 9000}, {"gpu": 1, "gpumem": 7000}),
        (NO_FREE_DEVICE, True),
    ),
    "a container without devices between": (
        [hami_node(JSON)],
        two_containers({}, {"gpu": 1, "gpumem": 7000}),
        None,
    ),
    "a register that cannot be read": ([hami_node("GPU-a,10:")], hami_pod(gpu=1), (UNREADABLE_DEVICES, False)),
    "the whole memory is the most there is": ([hami_node(JSON)], hami_pod(gpu=1, gpumem_percentage=100), None),
    "no share of the memory means all": (
        [hami_node(JSON), hami_pod("p", "n1", "GPU-a,NVIDIA,1,0:;")],
        hami_pod(gpu=1, gpumem_percentage=0),
        (NO_FREE_MEMORY, True),
    ),
    "more than the whole memory": ([hami_node(JSON)], hami_pod(gpu=1, gpumem_percentage=101), (OVERASKED, False)),
    "a percentage that would overflow": (
        [hami_node(JSON)],
        hami_pod(gpu=1, gpumem_percentage=1844674407370956),
        (OVERASKED, False),
    ),
    "a percentage beyond all numbers": (
        [hami_node(JSON)],
        hami_pod(gpu=1, gpumem_percentage=10**18),
        (OVERASKED, False),
    ),
    "memory beyond all numbers": ([hami_node(JSON)], hami_pod(gpu=1, gpumem=HUGE), (TOO_LITTLE_MEMORY, False)),
    "devices beyond all numbers": ([hami_node(JSON)], hami_pod(gpu=HUGE, gpumem=1), (NO_DEVICES, False)),
    "cores beyond all numbers are all": ([hami_node(JSON)], hami_pod(gpu=1, gpumem=1, gpucores=HUGE), None),
    "a second container beyond all numbers": (
        [hami_node(JSON)],
        two_containers({"gpu": 1, "gpumem": 1}, {"gpu": 1, "gpumem": HUGE}),
        (TOO_LITTLE_MEMORY, False),
    ),
    "a device of more memory than any": (
        [hami_node(f"GPU-a,10,{HUGE},100,NVIDIA,0,true:")],
        hami_pod(gpu=1),
        (UNREADABLE_DEVICES, False),
    ),
    "a NUMA node of any number": ([hami_node(f"GPU-a,10,1000,100,NVIDIA,{10**30},true:")], hami_pod(gpu=1), None),
    "null is what is left out": ([hami_node(NULLS)], hami_pod(gpu=1), None),
    "link groups are never told": ([hami_node(TEXT)], hami_pod(gpu=2, gpumem=1, notes=POLICY), (UNTOLD, False)),
    "a plug-in that HAMi has given up": (
        [registered(node_handshake="Deleted_2026.01.01 00:00:00")],
        hami_pod(gpu=1),
        (UNHEALTHY, False),
    ),
    "a plug-in that was given up and has come back": (
        [registered(gpus=20, node_handshake="Deleted_2026-01-01 00:00:00")],
        hami_pod(gpu=1),
        None,
    ),
    "a plug-in that kubelet has lost": (
        [registered(gpus=0, node_handshake=REQUESTING)],
        hami_pod(gpu=1),
        (UNHEALTHY, False),
    ),
    "a plug-in that is being asked": (
        [registered(node_handshake=REQUESTING)],
        hami_pod(gpu=1),
        None,
    ),
    "a plug-in that has answered": ([registered(node_handshake="Reported 2026-01-01")], hami_pod(gpu=1), None),
    "a device that is cordoned": (
        [registered(device_cordon="GPU-x, GPU-a")],
        hami_pod(gpu=2, gpumem=1),
        (UNHEALTHY, False),
    ),
    "a number of devices alone needs no HAMi": ([make_node("n1")], hami_pod(gpu=1), None),
    "a number of devices alone beside devices of our own": ([node(T4)], hami_pod(gpu=1), None),
    "a number of devices alone beside a declaration that is not HAMi's": (
        [make_node("n1", annotations={DEVICES: "?"})],
        hami_pod(gpu=1),
        None,
    ),
    "memory needs HAMi": ([make_node("n1")], hami_pod(gpu=1, gpumem=1), (NO_DEVICES, False)),
    "a type needs HAMi": (
        [make_node("n1")],
        hami_pod(gpu=1, notes={"nvidia.com/use-gputype": "T4"}),
        (NO_DEVICES, False),
    ),
}


@pytest.mark.parametrize(("objects", "pod", "expected"), CASES.values(), ids=CASES)
def test_where_a_pod_of_hami_fits(objects, pod, expected):
    assert judge(objects, pod) == ({} if expected is None else {"n1": expected})


@pytest.mark.parametrize(("objects", "pod", "expected"), CASES.values(), ids=CASES)
def test_hami_gets_devices_exactly_where_the_pod_fits(objects, pod, expected):
    lab = Lab(objects)
    written = reserve(lab, pod)
    if isinstance(written, Refusal):
        assert (written.reason, written.resolvable) == expected
    else:
        assert expected is None
        assert (written is None) == (lab.filter(ComputeResource, pod) is SKIP)


def test_a_number_of_devices_alone_is_judged_only_where_hami_registers():
    plain = make_node("plain", allocatable={"nvidia.com/gpu": 4})
    full = hami_pod("p", "n1", "GPU-a,NVIDIA,16000,0:GPU-b,NVIDIA,16000,0:;")
    assert judge([plain, registered(), full], hami_pod(gpu=1)) == {"n1": (NO_FREE_MEMORY, True)}
    lab = Lab([plain, registered()])
    assert lab.score(ComputeResource, hami_pod(gpu=1)).raw == {"plain": 0, "n1": 75}
    assert lab.score(ComputeResource, hami_pod(gpu=1), nodes=["plain"]) is SKIP


def test_equal_containers_are_packed_as_one_after_the_other():
    pod = two_containers({"gpu": 1, "gpumem": 5000}, {"gpu": 1, "gpumem": 5000})
    pod["spec"]["containers"] += [{**each, "name": each["name"] + "-too"} for each in pod["spec"]["containers"]]
    lab = Lab([hami_node(TEXT)])
    share = {name: f"{name},NVIDIA,5000,0:;" for name in ("GPU-a", "GPU-b")}
    assert reserve(lab, pod)["hami.io/vgpu-devices-allocated"] == share["GPU-a"] * 3 + share["GPU-b"]
    spread = {**pod, "metadata": {**pod["metadata"], "annotations": {"hami.io/gpu-scheduler-policy": "spread"}}}
    assert reserve(lab, spread)["hami.io/vgpu-devices-allocated"] == (share["GPU-a"] + share["GPU-b"]) * 2


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


NAMES = ("nvidia.com/gpu", "nvidia.com/gpumem", "nvidia.com/gpucores")
CONTAINER = st.tuples(st.integers(0, 2), st.sampled_from([0, 4000, 9000]), st.sampled_from([0, 30, 100]))


@settings(deadline=None)
@given(st.lists(st.lists(CONTAINER, min_size=1, max_size=5), max_size=6), st.sampled_from(["binpack", "spread"]))
def test_no_device_of_hami_is_ever_given_twice_over(pods, policy):
    lab, used = Lab([hami_node(TEXT)]), {name: [0, 0, 0] for name in ("GPU-a", "GPU-b")}
    for turn, containers in enumerate(pods):
        pod = hami_pod(notes={"hami.io/gpu-scheduler-policy": policy})
        pod["spec"]["containers"] = [
            {
                "name": f"c{place}",
                "resources": {"limits": dict(zip(NAMES, map(str, asked), strict=True))},
            }
            for place, asked in enumerate(containers)
        ]
        written, refused = reserve(lab, pod), lab.filter(ComputeResource, pod)
        if written is None or isinstance(written, Refusal):
            assert (written is None) == (refused is SKIP)
            assert written is None or refused["n1"].text == written.reason
            continue
        assert refused == {}
        text = written["hami.io/vgpu-devices-allocated"]
        of_containers = [part.split(":")[:-1] for part in text.split(";")[:-1]]
        assert [len(devices) for devices in of_containers] == [gpu for gpu, _, _ in containers]
        for device, _, memory, cores in (grant.split(",") for devices in of_containers for grant in devices):
            used[device] = [has + more for has, more in zip(used[device], (int(memory), int(cores), 1), strict=True)]
        assert all(memory <= 16_000 and cores <= 100 and users <= 10 for memory, cores, users in used.values())
        lab.apply(hami_pod(f"p{turn}", "n1", notes={**written, "hami.io/bind-phase": "success"}))


# --- one pod at a time -----------------------------------------------------------------------------------------------


def waiting(phase: str = "allocating", seconds_ago: float = 10, **fields: Any) -> dict[str, Any]:
    notes = {"hami.io/bind-phase": phase, "hami.io/bind-time": str(int(NOW - seconds_ago))}
    return hami_pod("before", "n1", "GPU-a,NVIDIA,1,0:;", notes=notes | fields, gpu=1)


TURNS: dict[str, tuple[list[dict[str, Any]], str | None]] = {
    "the one before is being served": ([registered(), waiting()], BUSY),
    "the one before was bound by a clock that is ahead": ([registered(), waiting(seconds_ago=-5)], BUSY),
    "the one before has been served": ([registered(), waiting("success")], None),
    "the one before has failed": ([registered(), waiting("failed")], None),
    "the one before will not be served any more": ([registered(), waiting(seconds_ago=300)], None),
    "the one before claims to be of another time": ([registered(), waiting(seconds_ago=-(10**9))], None),
    "the one before does not say when it was bound": ([registered(), waiting(**{"hami.io/bind-time": "?"})], None),
    "the one before is on another node": (
        [registered(), {**waiting(), "spec": make_pod("x", node="n2")["spec"]}],
        None,
    ),
    "nobody was before": ([registered()], None),
    "HAMi's scheduler has the node": ([registered(**{"mutex.lock": "2026-01-01T00:00:00Z,default,p"})], LOCKED),
}


@pytest.mark.parametrize(("objects", "reason"), TURNS.values(), ids=TURNS)
def test_the_plug_in_serves_one_pod_at_a_time(objects, reason):
    pod, lab = hami_pod(gpu=1, gpumem=1), Lab(objects)
    written = reserve(lab, pod)
    assert lab.filter(ComputeResource, pod) == {}  # the node is right, only not yet
    if reason is None:
        assert written["hami.io/bind-phase"] == "allocating"
    else:
        assert isinstance(written, Refusal)
        assert (written.reason, written.resolvable, written.error) == (reason, True, False)


def test_the_next_pod_has_its_turn_once_the_one_before_is_served_or_gone():
    lab = Lab([registered()])
    pod = hami_pod(gpu=1, gpumem=1)
    first = reserve(lab, pod)
    lab.apply(hami_pod("first", "n1", notes=first, gpu=1, gpumem=1))
    assert reserve(lab, pod).reason == BUSY
    lab.apply(hami_pod("first", "n1", notes=first | {"hami.io/bind-phase": "success"}, gpu=1, gpumem=1))
    second = reserve(lab, pod)
    lab.apply(hami_pod("second", "n1", notes=second, gpu=1, gpumem=1))
    assert reserve(lab, pod).reason == BUSY
    lab.delete(hami_pod("second"))
    assert reserve(lab, pod) == second


def test_plug_ins_of_others_serve_side_by_side():
    lab = Lab([node(T4), waiting()])
    assert not isinstance(
        reserve(lab, make_pod("new", annotations={"scheduler-extender/device-request": "{}"})), Refusal
    )
