"""The cache of namespace labels follows the namespaces, and obeys the laws of caches."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from extender.framework import NamespaceLabels
from extender.model.object import LabelSelector, Requirement
from extender.model.selector import compile_label_selector
from extender.testing.lab import Lab
from extender.testing.law import check_fold_equals_rebuild


def namespace(name, **labels):
    return {"kind": "Namespace", "metadata": {"name": name, "labels": labels}}


def select(lab, *expressions):
    wanted = compile_label_selector(LabelSelector(None, [Requirement(*each) for each in expressions]))
    return lab.mirror.cache(NamespaceLabels).select(wanted)


@pytest.mark.parametrize(
    ("expression", "names"),
    [
        pytest.param(("team", "In", ["red"]), {"a"}, id="a label"),
        pytest.param(("team", "NotIn", ["red"]), {"b", "bare"}, id="all but a label, and those without it"),
        pytest.param(("team", "Exists"), {"a", "b"}, id="a key with any value"),
        pytest.param(("team", "DoesNotExist"), {"bare"}, id="those without a key"),
    ],
)
def test_select(expression, names):
    bare = {"kind": "Namespace", "metadata": {"name": "bare"}}
    lab = Lab([namespace("a", team="red"), namespace("b", team="blue"), bare])
    assert select(lab, expression) == names


def test_a_selection_follows_the_namespaces():
    red = ("team", "In", ["red"])
    lab = Lab([namespace("a", team="red")])
    assert select(lab, red) == {"a"}
    lab.apply(namespace("b", team="red"))
    assert select(lab, red) == {"a", "b"}
    lab.apply(namespace("a", team="blue"))
    assert select(lab, red) == {"b"}
    lab.delete(namespace("b"))
    assert select(lab, red) == set()


def test_labels_are_those_of_the_namespace_and_none_where_it_is_not_known():
    cache = Lab([namespace("a", team="red")]).mirror.cache(NamespaceLabels)
    assert cache.labels("a") == {"team": "red"}
    assert cache.labels("b") == {}


def test_more_selections_than_are_remembered_stay_right():
    lab = Lab([namespace("a", team="red")])
    for place in range(1100):
        assert select(lab, ("team", "In", [f"team-{place}"])) == set()
    assert select(lab, ("team", "In", ["red"])) == {"a"}


NAMESPACES = st.builds(
    lambda name, labels: namespace(name, **labels),
    st.sampled_from(["a", "b", "c"]),
    st.dictionaries(st.sampled_from(["x", "y"]), st.sampled_from(["1", "2"])),
)
EVENTS = st.lists(st.tuples(st.sampled_from(["apply", "apply", "delete"]), NAMESPACES))


@given(EVENTS, NAMESPACES)
def test_the_cache_obeys_both_laws(events, more):
    lab = Lab()
    check_fold_equals_rebuild(NamespaceLabels, events, lab)
    cache = lab.mirror.cache(NamespaceLabels)
    before = cache.dump()
    if more["metadata"]["name"] not in before:
        lab.apply(more)
        assert cache.dump() != before
        lab.delete(more)
    assert cache.dump() == before
