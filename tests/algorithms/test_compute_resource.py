"""ComputeResource by the case: what fits on which devices, how good it is, and which ones a pod gets."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from algorithms.compute_resource import (
    APART,
    ASKED_TWICE,
    BAD_REQUEST,
    FREE_APART,
    NO_DEVICES,
    NO_FREE_COMPUTE,
    NO_FREE_DEVICE,
    NO_FREE_MEMORY,
    OTHER_MODEL,
    TOO_LITTLE_COMPUTE,
    TOO_LITTLE_MEMORY,
    UNHEALTHY,
    UNREADABLE_DEVICES,
    UNTOLD,
    ComputeResource,
    ComputeResourceArgs,
)
from extender.framework import SKIP, Refusal
from extender.framework.device import OVERASKED
from extender.framework.nomination import filter_with_nominated
from extender.framework.preemption import Eviction, Preemption
from extender.framework.profile import bind
from extender.framework.runner import NoRecorder, Profile, Runner
from extender.testing import make_node, make_pod
from extender.testing.lab import Lab, pending
from tests.algorithms.device import (
    ALLOCATED,
    DEVICES,
    FULL,
    HALF,
    REQUEST,
    T4,
    asking,
    device,
    hami_pod,
    holding,
    node,
    reserve,
    share_node,
    share_pod,
)

HUGE = 2**61
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
        (UNTOLD, False),
    ),
    "devices on no NUMA node are near to none": (
        [node(device("a"), device("b", numa=0))],
        asking("sameNuma", count=2),
        (UNTOLD, False),
    ),
    "one device is near to itself": ([node(device("a"))], asking("sameNuma"), None),
    "a share of the memory in percent": ([node(T4), holding(HALF)], asking(memoryPercent=50), None),
    "a larger share of the memory than is left": (
        [node(T4), holding(("a", 8001, 0))],
        asking(memoryPercent=50),
        (NO_FREE_MEMORY, True),
    ),
    "a share of no memory": ([node(device("a", 0))], asking(memoryPercent=50), (TOO_LITTLE_MEMORY, False)),
    "more than all of a device": ([node(T4)], asking(memoryPercent=101), (OVERASKED, False)),
    "a share larger than any number": ([node(T4)], asking(memoryPercent=10**9), (OVERASKED, False)),
    "memory both as a number and as a share": (
        [node(T4)],
        asking(memoryMiB=1, memoryPercent=1),
        (BAD_REQUEST, False),
    ),
    "memory of more than any device": ([node(T4)], asking(memoryMiB=HUGE), (BAD_REQUEST, False)),
    "compute of more than any device": ([node(T4)], asking(cores=HUGE), (BAD_REQUEST, False)),
    "more devices than can be counted": ([node(T4)], asking(count=HUGE), (BAD_REQUEST, False)),
    "a device of more memory than any": ([node(device("a", HUGE))], asking(), (UNREADABLE_DEVICES, False)),
    "a grant of more memory than any device has names nothing": (
        [node(T4), holding(("a", HUGE, 0))],
        asking(memoryMiB=1),
        (NO_FREE_DEVICE, True),
    ),
    "many grants of all that can be had": (
        [node(T4), holding(*[("a", 2**40, 2**40)] * 200)],
        asking(memoryMiB=1),
        (NO_FREE_MEMORY, True),
    ),
    "gpushare: memory of more than any device": ([share_node()], share_pod(HUGE), (TOO_LITTLE_MEMORY, False)),
    "gpushare: a node of more memory than any": ([share_node(HUGE, 1)], share_pod(HUGE), (TOO_LITTLE_MEMORY, False)),
    "two conventions at once, of which the node has one": (
        [node(T4)],
        {**asking(), "spec": hami_pod(gpu=1)["spec"]},
        (ASKED_TWICE, False),
    ),
    "two conventions at once, of which the node has none": (
        [make_node("n1")],
        {**asking(), "spec": share_pod(1)["spec"]},
        (ASKED_TWICE, False),
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
}


@pytest.mark.parametrize(("objects", "pod", "expected"), CASES.values(), ids=CASES)
def test_where_a_pod_fits(objects, pod, expected):
    refused = Lab(objects).filter(ComputeResource, pod)
    assert {name: (outcome.text, outcome.resolvable) for name, outcome in refused.items()} == (
        {} if expected is None else {"n1": expected}
    )


@pytest.mark.parametrize("args", [{}, {"conventions": ["own"]}], ids=["no devices asked for", "a convention left out"])
def test_a_pod_that_does_not_ask_is_no_concern(args):
    pod = hami_pod(gpu=1, gpumem=1) if args else make_pod("new", requests={"cpu": "1"})
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


PICKS = {
    "the fullest that will do": ({}, asking(memoryMiB=4000), [("c", 4000, 0)]),
    "the emptiest to spread": ({"policy": "spread"}, asking(memoryMiB=4000, cores=5), [("a", 4000, 5)]),
    "a whole one": ({}, asking(), [("a", 16000, 100)]),
    "a share of the memory in percent": ({}, asking(memoryPercent=25), [("c", 4000, 0)]),
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


# --- under random requests -------------------------------------------------------------------------------------------


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
