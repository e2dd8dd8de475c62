"""The cache of pod classes obeys the laws of caches, and selects the pods that a selector asked pod by pod selects."""

import gc
import weakref

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from extender.framework import PodClasses, pod_class
from extender.model.object import LabelSelector, Requirement
from extender.model.selector import compile_label_selector
from extender.testing.lab import Lab
from extender.testing.law import check_fold_equals_rebuild, check_inverse_leaves_no_trace
from extender.testing.maker import make_node, make_pod

EVERYTHING = compile_label_selector(LabelSelector())


def pod(name, where=None, labels=None, namespace="default", *, terminating=False):
    made = make_pod(name, node=where, labels=labels, namespace=namespace, uid=f"{namespace}-{name}")
    if terminating:
        made["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    return made


def matcher(labels=None, *expressions):
    return compile_label_selector(LabelSelector(labels, [Requirement(*each) for each in expressions]))


def selected(lab, *selection, **options):
    """Return the nodes of the selected pods, sorted, with repeats."""
    cache = lab.mirror.cache(PodClasses)
    return sorted(lab.mirror.table.name(row) for row in cache.rows(cache.select(*selection, **options)).tolist())


def counted(lab, *selection, **options):
    """Return the same from the counts by row, and see that the sums by node agree with them."""
    cache, table = lab.mirror.cache(PodClasses), lab.mirror.table
    chosen = cache.select(*selection, **options)
    counts = cache.counts(chosen)
    assert cache.sums(chosen, np.arange(table.capacity), table.capacity).tolist() == counts.tolist()
    return sorted(table.name(row) for row in np.repeat(np.arange(table.capacity), counts).tolist())


PODS = [
    pod("p", "a", {"app": "web", "tier": "front"}),
    pod("q", "b", {"app": "web", "tier": "front"}),
    pod("r", "b", {"app": "web", "tier": "front"}, terminating=True),
    pod("s", "c", {"app": "api"}),
    pod("t", "d", {"app": "web"}, "other"),
    pod("u", "e"),
    pod("v", labels={"app": "web"}),
]


@pytest.mark.parametrize(
    ("selector", "namespaces", "nodes"),
    [
        pytest.param(matcher({"app": "web"}), None, "abbd", id="a label in all namespaces"),
        pytest.param(matcher({"app": "web"}), {"default"}, "abb", id="a label in one namespace"),
        pytest.param(matcher({"app": "web"}), {"default", "other"}, "abbd", id="a label in two namespaces"),
        pytest.param(matcher({"app": "web"}), {"nowhere"}, "", id="a label in a namespace without pods"),
        pytest.param(matcher({"app": "web"}), set(), "", id="a label in no namespace"),
        pytest.param(matcher({"app": "web", "tier": "front"}), None, "abb", id="two labels of one pod"),
        pytest.param(matcher({"app": "api", "tier": "front"}), None, "", id="two labels of different pods"),
        pytest.param(matcher(None, ("app", "In", ["web", "api"])), None, "abbcd", id="one label of two"),
        pytest.param(matcher({"app": "web"}, ("tier", "DoesNotExist")), None, "d", id="a label without another"),
        pytest.param(matcher(None, ("app", "NotIn", ["web"])), None, "ce", id="all but a label, and those without it"),
        pytest.param(matcher(None, ("app", "NotIn", ["web"])), {"default"}, "ce", id="all but a label in a namespace"),
        pytest.param(matcher(None, ("tier", "Exists")), {"default", "other"}, "abb", id="a key with any value"),
        pytest.param(EVERYTHING, None, "abbcde", id="everything"),
        pytest.param(EVERYTHING, {"other"}, "d", id="everything in a namespace"),
        pytest.param(EVERYTHING, set(), "", id="everything in no namespace"),
        pytest.param(compile_label_selector(None), None, "", id="no selector selects nothing"),
    ],
)
def test_select(selector, namespaces, nodes):
    lab = Lab(PODS)
    assert selected(lab, selector, None if namespaces is None else frozenset(namespaces)) == list(nodes)


def test_pods_that_are_being_deleted_are_left_out_on_request():
    lab = Lab(PODS)
    assert selected(lab, matcher({"app": "web"}), terminating=False) == ["a", "b", "d"]
    assert selected(lab, EVERYTHING, terminating=False) == ["a", "b", "c", "d", "e"]


def test_counts_are_by_row_and_as_long_as_the_table():
    lab = Lab(PODS)
    cache, table = lab.mirror.cache(PodClasses), lab.mirror.table
    counts = cache.counts(cache.select(matcher({"app": "web"})))
    assert counts.shape == (table.capacity,)
    assert {name: int(counts[row]) for name, row in table.index.items()} == {"a": 1, "b": 2, "c": 0, "d": 1, "e": 0}
    assert cache.counts(cache.select(matcher({"app": "none"}))).shape == (table.capacity,)


def test_a_selection_follows_the_pods():
    lab = Lab(PODS[:1])
    web = matcher({"app": "web"})
    assert selected(lab, web) == ["a"]
    lab.apply(PODS[1])
    assert selected(lab, web) == ["a", "b"]
    lab.apply(PODS[4])
    assert selected(lab, web) == ["a", "b", "d"]
    lab.apply(pod("p", "a", {"app": "api"}))
    assert selected(lab, web) == ["b", "d"]
    lab.delete(PODS[1], PODS[4])
    assert selected(lab, web) == []
    lab.apply(pod("w", "z", {"tier": "front"}))
    assert selected(lab, web) == []


def test_sums_are_by_code_and_of_the_rows_that_count():
    lab = Lab(PODS)
    cache, table = lab.mirror.cache(PodClasses), lab.mirror.table
    codes, where = np.zeros(table.capacity, np.int64), np.zeros(table.capacity, np.bool_)
    codes[table.index["b"]], where[[table.index["a"], table.index["b"]]] = 2, True
    web = cache.select(matcher({"app": "web"}))
    assert cache.sums(web, codes, 4).tolist() == [2, 0, 2, 0]
    assert cache.sums(web, codes, 4, where).tolist() == [1, 0, 2, 0]


def test_classes_are_forgotten_some_time_after_their_last_pod():
    lab = Lab(PODS)
    lab.mirror.cache(PodClasses)
    known = weakref.ref(lab.mirror.pods["default/s"].pod_class)
    lab.delete(PODS[3])
    for place in range(3000):
        lab.apply(pod("x", "a", {"app": f"x{place}", f"key-{place}": ""}))
    gc.collect()
    assert known() is None
    assert selected(lab, EVERYTHING) == ["a", "a", "b", "b", "d", "e"]
    assert selected(lab, matcher(None, ("key-2999", "Exists"))) == ["a"]
    assert selected(lab, matcher(None, ("key-0", "Exists"))) == []
    lab.delete(*PODS[:3], *PODS[4:], pod("x"))
    assert lab.mirror.cache(PodClasses).dump() == {}


def test_more_selections_than_are_remembered_stay_right():
    lab = Lab(PODS)
    for place in range(1100):
        assert selected(lab, matcher({"app": f"app-{place}"})) == []
    assert selected(lab, matcher({"app": "api"})) == ["c"]


# --- under random events ---------------------------------------------------------------------------------------------

KEYS, VALUES, NAMESPACES = st.sampled_from(["x", "y"]), st.sampled_from(["1", "2", "3"]), st.sampled_from(["n", "m"])
NODES = st.sampled_from(["a", "b", "c"])
RANDOM_PODS = st.builds(
    pod,
    st.sampled_from(["p", "q", "r", "s"]),
    st.none() | NODES,
    st.dictionaries(KEYS, VALUES),
    NAMESPACES,
    terminating=st.booleans(),
)
CHANGES = st.tuples(st.sampled_from(["apply", "apply", "delete"]), RANDOM_PODS | st.builds(make_node, NODES))
CROWD = st.sampled_from([[], [("apply", pod(f"x{place}", f"n{place}", {"x": "1"})) for place in range(70)]])
EVENTS = st.tuples(st.lists(CHANGES), CROWD, st.lists(CHANGES)).map(lambda parts: [*parts[0], *parts[1], *parts[2]])
EXPRESSIONS = st.one_of(
    st.builds(Requirement, KEYS, st.sampled_from(["In", "NotIn"]), st.lists(VALUES, min_size=1)),
    st.builds(Requirement, KEYS, st.sampled_from(["Exists", "DoesNotExist"])),
)
SELECTORS = st.builds(LabelSelector, st.dictionaries(KEYS, VALUES, max_size=1), st.lists(EXPRESSIONS, max_size=2))


LIMITS = st.fixed_dictionaries(
    {
        "_MOST_EMPTY": st.sampled_from([3, 1000]),
        "_MOST_NEW": st.sampled_from([3, 1000]),
        "_REMEMBERED_CHANGES": st.sampled_from([20, 1000]),
        "_FEW_CLASSES": st.sampled_from([0, 3]),
    }
)
"""Limits of what is remembered, some so small that they are passed."""

CROWDS = st.integers(0, 80).map(
    lambda size: [("apply", pod(f"x{place}", f"n{place}", {"x": str(place)})) for place in range(size)]
)


@settings(deadline=None)
@given(EVENTS)
def test_the_cache_obeys_both_laws(events):
    lab = Lab()
    check_fold_equals_rebuild(PodClasses, events, lab)
    check_inverse_leaves_no_trace(PodClasses, lab)


@settings(deadline=None)
@given(
    st.lists(EVENTS | CROWDS, min_size=2, max_size=4),
    SELECTORS | st.none() | st.just(LabelSelector()),
    st.none() | st.frozensets(NAMESPACES),
    st.booleans(),
    LIMITS,
)
def test_a_selection_agrees_with_asking_pod_by_pod(parts, selector, namespaces, terminating, limits):
    lab, wanted = Lab(), compile_label_selector(selector)
    with pytest.MonkeyPatch.context() as patch:
        for name, limit in limits.items():
            patch.setattr(pod_class, name, limit)
        for events in parts:
            for verb, item in events:
                getattr(lab, verb)(item)
            expected = sorted(
                info.node_name
                for info in lab.mirror.pods.values()
                if info.node_name
                and wanted.matches(info.pod_class.labels)
                and (namespaces is None or info.pod_class.namespace in namespaces)
                and (terminating or not info.terminating)
            )
            assert selected(lab, wanted, namespaces, terminating=terminating) == expected
            assert counted(lab, wanted, namespaces, terminating=terminating) == expected
            with lab.mirror.what_if(without=[info for info in lab.mirror.pods.values() if info.node_name]):
                assert counted(lab, wanted, namespaces, terminating=terminating) == []
            assert counted(lab, wanted, namespaces, terminating=terminating) == expected
