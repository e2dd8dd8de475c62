"""The cache of owner selectors: which pods it says belong together, and the laws of caches."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from extender.framework import OwnerSelectors
from extender.model.selector import LabelMatcher, Operator, Requirement
from extender.testing.lab import Lab, pending
from extender.testing.law import check_fold_equals_rebuild
from extender.testing.maker import make_pod

API_VERSIONS = {"ReplicationController": "v1", "ReplicaSet": "apps/v1", "StatefulSet": "apps/v1"}


def service(name, selector, namespace="default"):
    return {"kind": "Service", "metadata": {"name": name, "namespace": namespace}, "spec": {"selector": selector}}


def controller(kind, name, selector, namespace="default"):
    return {"kind": kind, "metadata": {"name": name, "namespace": namespace}, "spec": {"selector": selector}}


def owned(kind, name, labels=None, *, api_version=None, controls=True):
    """Return a pod with ``labels``, app=web where not given, and one owner."""
    item = make_pod("p", labels={"app": "web"} if labels is None else labels)
    owner = {"apiVersion": api_version or API_VERSIONS[kind], "kind": kind, "name": name, "controller": controls}
    item["metadata"]["ownerReferences"] = [owner]
    return item


def pod(**labels):
    return make_pod("p", labels=labels)


def requirement(key, operator, *values):
    return Requirement(key, Operator(operator), frozenset(values))


def matcher(*expressions, **labels):
    requirements = [requirement(*each) for each in expressions]
    requirements += [requirement(key, "In", value) for key, value in labels.items()]
    return LabelMatcher(tuple(sorted(requirements, key=lambda each: (each.key, each.operator, sorted(each.values)))))


def not_old(kind):
    selector = {"matchLabels": {"tier": "front"}, "matchExpressions": [{"key": "old", "operator": "DoesNotExist"}]}
    return controller(kind, "web", selector)


NOTHING = matcher()
FRONT = matcher(("old", "DoesNotExist"), tier="front")
BAD = {"matchExpressions": [{"key": "app", "operator": "Near", "values": ["web"]}]}


@pytest.mark.parametrize(
    ("objects", "pod", "expected"),
    [
        pytest.param([], pod(app="web"), NOTHING, id="without owners nothing is known"),
        pytest.param([service("s", {"app": "web"})], pod(app="web", rev="1"), matcher(app="web"), id="a service"),
        pytest.param([service("s", {"app": "web"})], pod(app="api"), NOTHING, id="a service of other pods"),
        pytest.param([service("s", {"app": "web"})], pod(), NOTHING, id="a pod without labels is in no service"),
        pytest.param(
            [service("s", {"app": "web", "tier": "front"})], pod(app="web"), NOTHING, id="a service wants all labels"
        ),
        pytest.param(
            [service("s", {"app": "web"}), service("t", {"tier": "front"}), service("u", {"app": "web"})],
            pod(app="web", tier="front", rev="1"),
            matcher(app="web", tier="front"),
            id="the selectors of several services are taken together",
        ),
        pytest.param([service("s", {"app": "web"}, "other")], pod(app="web"), NOTHING, id="another namespace"),
        pytest.param([service("s", None)], pod(app="web"), NOTHING, id="a service without a selector"),
        pytest.param([service("s", {})], pod(app="web"), NOTHING, id="a service whose selector is empty"),
        pytest.param([not_old("ReplicaSet")], owned("ReplicaSet", "web"), FRONT, id="a replica set"),
        pytest.param([not_old("StatefulSet")], owned("StatefulSet", "web"), FRONT, id="a stateful set"),
        pytest.param(
            [controller("ReplicationController", "web", {"tier": "front"})],
            owned("ReplicationController", "web"),
            matcher(tier="front"),
            id="a replication controller",
        ),
        pytest.param([not_old("ReplicaSet")], owned("StatefulSet", "web"), NOTHING, id="an owner of another kind"),
        pytest.param([not_old("ReplicaSet")], owned("ReplicaSet", "api"), NOTHING, id="an owner of another name"),
        pytest.param(
            [not_old("StatefulSet")],
            owned("StatefulSet", "web", api_version="apps.example/v1"),
            NOTHING,
            id="an owner of another group with the same kind",
        ),
        pytest.param(
            [not_old("ReplicaSet")],
            owned("ReplicaSet", "web", controls=False),
            NOTHING,
            id="an owner that controls not",
        ),
        pytest.param(
            [controller("ReplicaSet", "web", {"matchLabels": {"app": "web"}}, "other")],
            owned("ReplicaSet", "web"),
            NOTHING,
            id="an owner in another namespace",
        ),
        pytest.param(
            [not_old("ReplicaSet"), service("s", {"app": "web"})],
            owned("ReplicaSet", "web"),
            matcher(("old", "DoesNotExist"), app="web", tier="front"),
            id="service and controller are taken together",
        ),
        pytest.param(
            [controller("ReplicaSet", "web", {"matchLabels": {"app": "api"}}), service("s", {"app": "web"})],
            owned("ReplicaSet", "web"),
            matcher(("app", "In", "api"), ("app", "In", "web")),
            id="even where they contradict each other",
        ),
        pytest.param(
            [controller("ReplicationController", "web", {"app": "api"}), service("s", {"app": "web"})],
            owned("ReplicationController", "web"),
            matcher(app="api"),
            id="but a replication controller overrides",
        ),
        pytest.param(
            [controller("ReplicaSet", "web", BAD), service("s", {"app": "web"})],
            owned("ReplicaSet", "web"),
            matcher(app="web"),
            id="a selector that cannot be read counts for nothing",
        ),
        pytest.param(
            [controller("ReplicaSet", "web", None), service("s", {"app": "web"})],
            owned("ReplicaSet", "web"),
            matcher(app="web"),
            id="nor does a controller without one",
        ),
        pytest.param(
            [controller("ReplicationController", "web", None)],
            owned("ReplicationController", "web"),
            NOTHING,
            id="of whatever kind",
        ),
    ],
)
def test_find(objects, pod, expected):
    assert Lab(objects).mirror.cache(OwnerSelectors).find(pending(pod)) == expected


# --- the cache under random events -----------------------------------------------------------------------------------

LABELS = st.dictionaries(st.sampled_from(["app", "tier", "rev"]), st.sampled_from("ab"))
NAMES, NAMESPACES = st.sampled_from("st"), st.sampled_from(["default", "other"])
SERVICES = st.builds(service, NAMES, LABELS | st.none(), NAMESPACES)
CONTROLLERS = st.one_of(
    st.builds(
        controller,
        st.sampled_from(["ReplicaSet", "StatefulSet"]),
        NAMES,
        LABELS.map(lambda labels: {"matchLabels": labels}) | st.none(),
        NAMESPACES,
    ),
    st.builds(controller, st.just("ReplicationController"), NAMES, LABELS | st.none(), NAMESPACES),
)
EVENTS = st.lists(st.tuples(st.sampled_from(["apply", "apply", "delete"]), SERVICES | CONTROLLERS))


@given(EVENTS)
def test_folding_equals_rebuilding_and_removing_leaves_no_trace(events):
    lab = Lab()
    check_fold_equals_rebuild(OwnerSelectors, events, lab)
    held, empty = lab.mirror.cache(OwnerSelectors), OwnerSelectors(lab.mirror.table)
    before = held.dump()
    existing = [(kind, item) for kind in OwnerSelectors.kinds for item in lab.mirror.objects(kind).values()]
    for kind, item in existing:
        held.remove(kind, item)
        held.add(kind, item)
        assert held.dump() == before
    for kind, item in existing:
        held.remove(kind, item)
    assert vars(held) == vars(empty)


@given(EVENTS, LABELS)
def test_services_are_found_whatever_else_there_was(events, labels):
    lab = Lab()
    held = lab.mirror.cache(OwnerSelectors)
    existing = {}
    for verb, item in events:
        getattr(lab, verb)(item)
        key = (item["kind"], item["metadata"]["namespace"], item["metadata"]["name"])
        existing.pop(key, None)
        if verb == "apply":
            existing[key] = item["spec"]["selector"]
    expected = {}
    for (kind, namespace, _), selector in existing.items():
        if kind == "Service" and namespace == "default" and selector and selector.items() <= labels.items():
            expected |= selector
    assert held.find(pending(pod(**labels))) == matcher(**expected)
