"""The cache of devices under random events: declared in every way, given by anybody, of any size."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from extender.framework import DevicePool
from extender.testing import make_node, make_pod
from extender.testing.lab import Lab
from extender.testing.law import check_fold_equals_rebuild, check_inverse_leaves_no_trace
from tests.algorithms.device import (
    HALF,
    JSON,
    NEWER_TEXT,
    REQUEST,
    T4,
    TEXT,
    device,
    hami_node,
    hami_pod,
    holding,
    node,
    share_node,
    share_pod,
)

NAMES, IDS, NUMBERS = (
    st.sampled_from(["n1", "n2"]),
    st.sampled_from(["a", "b", "0", "x/y-0", "x/z-0", "x/y-9", "x/y-64", "x/y-00"]),
    st.one_of(st.integers(0, 20_000), st.just(2**40)),
)
MANY = [device(f"d{place}", numa=place % 2) for place in range(12)]
NODE = st.one_of(
    st.builds(lambda name, ids: node(*map(device, ids), name=name), NAMES, st.lists(IDS)),
    st.builds(lambda name, count: share_node(32, count, name), NAMES, st.integers(0, 70)),
    st.builds(lambda name, text: hami_node(text, name), NAMES, st.sampled_from([TEXT, NEWER_TEXT, JSON, "?", "[]"])),
    st.builds(lambda name: node(*MANY, name=name), NAMES),
    st.builds(lambda name, count: make_node(name, allocatable={"x/y": count}), NAMES, st.integers(0, 70)),
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
    st.builds(lambda on, count: make_pod("s", node=on, requests={"x/y": count}), NAMES, st.integers(0, 2**62)),
    st.builds(
        lambda on, phase, time: hami_pod(
            "t", on, "GPU-a,NVIDIA,5,5:;", {"hami.io/bind-phase": phase, "hami.io/bind-time": time}, gpu=1
        ),
        NAMES,
        st.sampled_from(["allocating", "success"]),
        st.sampled_from(["1700000000", "?"]),
    ),
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


def test_grants_of_all_there_is_do_not_overflow_the_tables():
    pods = [holding(*[("a", 2**40, 2**40)] * 500, name=f"p{place}") for place in range(4)]
    for place, pod in enumerate(pods):
        pod["metadata"]["uid"] = f"u{place}"
    lab = Lab([node(T4), *pods])
    pool = lab.mirror.cache(DevicePool)
    row = lab.mirror.table.index["n1"]
    assert (pool.used_memory[0, row], pool.used_cores[0, row], pool.users[0, row]) == (2**40, 2**40, 2000)
    lab.delete(*pods)
    assert (pool.used_memory[0, row], pool.used_cores[0, row], pool.users[0, row]) == (0, 0, 0)
