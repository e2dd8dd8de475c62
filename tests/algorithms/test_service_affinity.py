"""ServiceAffinity, by tables of cases, and against its rules node by node."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from algorithms.service_affinity import REASON, ServiceAffinity
from extender.framework import SKIP
from extender.framework.runner import Outcome
from extender.testing.lab import Lab
from extender.testing.maker import make_node, make_pod

NODES = [
    make_node("a", labels={"region": "r1", "zone": "z1"}),
    make_node("b", labels={"region": "r1", "zone": "z2"}),
    make_node("c", labels={"region": "r2", "zone": "z3"}),
    make_node("d", labels={"region": "r2"}),
    make_node("e"),
]


def service(name="web", namespace="default", **selector):
    return {"kind": "Service", "metadata": {"name": name, "namespace": namespace}, "spec": {"selector": selector}}


def placed(name, node, namespace="default", *, terminating=False, **labels):
    made = make_pod(name, node=node, labels=labels, namespace=namespace, uid=f"{namespace}-{name}")
    if terminating:
        made["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    return made


def pod(selector=None, **labels):
    return make_pod("p", labels=labels, node_selector=selector)


WEB = service(app="web")
REGION, ZONE = {"affinityLabels": ["region"]}, {"affinityLabels": ["region", "zone"]}


@pytest.mark.parametrize(
    ("objects", "pod", "args", "refused"),
    [
        pytest.param([WEB, placed("q", "a", app="web")], pod(app="web"), {}, SKIP, id="without labels no opinion"),
        pytest.param([WEB], pod(app="web"), REGION, "", id="the first pod of a service goes anywhere"),
        pytest.param([placed("q", "a", app="web")], pod(app="web"), REGION, "", id="so does a pod without a service"),
        pytest.param([], pod({"region": "r1"}), REGION, "cde", id="its node selector binds it all the same"),
        pytest.param([], pod({"disk": "ssd"}), REGION, "", id="but only in the labels of the arguments"),
        pytest.param([WEB, placed("q", "a", app="web")], pod(app="web"), REGION, "cde", id="a placed pod binds it"),
        pytest.param(
            [WEB, placed("q", "b", app="web")], pod(app="web"), ZONE, "acde", id="in every label of the arguments"
        ),
        pytest.param(
            [WEB, placed("q", "d", app="web")], pod(app="web"), ZONE, "abe", id="but not in one its node lacks"
        ),
        pytest.param([WEB, placed("q", "e", app="web")], pod(app="web"), ZONE, "", id="nor if its node lacks them all"),
        pytest.param(
            [WEB, placed("q", "a", app="web")], pod({"region": "r2"}, app="web"), REGION, "abe", id="the selector wins"
        ),
        pytest.param(
            [WEB, placed("q", "a", app="web")],
            pod({"region": "r2"}, app="web"),
            ZONE,
            "abcde",
            id="and what it does not say still comes from the placed pod",
        ),
        pytest.param(
            [WEB, placed("q", "a", app="web")],
            pod({"region": "r2", "zone": "z3"}, app="web"),
            {"affinityLabels": ["region", "zone", "region"]},
            "abde",
            id="a label named twice changes nothing",
        ),
        pytest.param(
            [WEB, placed("q", "a", app="web")], pod(app="web", rev="2"), REGION, "", id="pods without all its labels"
        ),
        pytest.param(
            [WEB, placed("q", "a", app="web", rev="2")], pod(app="web"), REGION, "cde", id="pods with more labels bind"
        ),
        pytest.param(
            [WEB, placed("q", "a", "other", app="web")],
            pod(app="web"),
            REGION,
            "",
            id="pods of other namespaces do not",
        ),
        pytest.param(
            [service(namespace="other", app="web"), placed("q", "a", app="web")],
            pod(app="web"),
            REGION,
            "",
            id="nor do services of other namespaces",
        ),
        pytest.param(
            [WEB, placed("q", "a", terminating=True, app="web")],
            pod(app="web"),
            REGION,
            "cde",
            id="pods that are being deleted bind",
        ),
        pytest.param([WEB, placed("q", "gone", app="web")], pod(app="web"), REGION, "", id="pods on unknown nodes"),
        pytest.param(
            [WEB, placed("q", "gone", app="web"), placed("r", "c", app="web")],
            pod(app="web"),
            REGION,
            "abe",
            id="others bind then",
        ),
        pytest.param([WEB], pod({"region": "r9"}), REGION, "abcde", id="a value that no node has leaves none"),
    ],
)
def test_filter(objects, pod, args, refused):
    if refused is not SKIP:
        refused = dict.fromkeys(refused, Outcome((REASON,), resolvable=True, algorithm="ServiceAffinity"))
    assert Lab([*NODES, *objects]).filter(ServiceAffinity, pod, args) == refused


def test_it_follows_services_pods_and_nodes():
    lab = Lab(NODES)
    incoming = pod(app="web")

    def refused():
        return "".join(lab.filter(ServiceAffinity, incoming, REGION))

    lab.apply(placed("q", "a", app="web"))
    assert refused() == ""
    lab.apply(WEB)
    assert refused() == "cde"
    lab.apply(make_node("a", labels={"region": "r2"}))
    assert refused() == "be"
    lab.delete(placed("q", "a"))
    assert refused() == ""


SPREAD = {"antiAffinityLabelsPreference": ["zone"]}


@pytest.mark.parametrize(
    ("objects", "args", "raw", "normalized"),
    [
        pytest.param([WEB], SPREAD, [0, 0, 0, 0, 0], [100, 100, 100, 0, 0], id="without pods all labelled nodes do"),
        pytest.param(
            [placed("q", "a", app="web")], SPREAD, [0] * 5, [100, 100, 100, 0, 0], id="without a service as well"
        ),
        pytest.param(
            [WEB, placed("q", "a", app="web"), placed("r", "b", app="web"), placed("s", "b", app="web")],
            SPREAD,
            [1, 2, 0, 0, 0],
            [66, 33, 100, 0, 0],
            id="fewer pods in the zone are better, truncated",
        ),
        pytest.param(
            [WEB, placed("q", "a", app="web"), placed("r", "d", app="web")],
            SPREAD,
            [1, 0, 0, 1, 0],
            [50, 100, 100, 0, 0],
            id="pods on nodes without the label count in the sum",
        ),
        pytest.param(
            [WEB, placed("q", "a", app="web"), placed("r", "b", app="web"), placed("s", "c", app="web")],
            {"antiAffinityLabelsPreference": ["zone", "region"]},
            [1, 1, 1, 0, 0],
            [49, 49, 66, 33, 0],
            id="several labels count alike",
        ),
        pytest.param(
            [WEB, placed("q", "a", terminating=True, app="web"), placed("r", "b", app="web", rev="1")],
            SPREAD,
            [0, 1, 0, 0, 0],
            [100, 0, 100, 0, 0],
            id="pods that are being deleted do not count, those with more labels do",
        ),
        pytest.param(
            [
                service("b", app="web"),
                service("a", tier="front"),
                placed("q", "a", app="web"),
                placed("r", "b", tier="front"),
            ],
            SPREAD,
            [0, 1, 0, 0, 0],
            [100, 0, 100, 0, 0],
            id="of two services the first by name counts",
        ),
    ],
)
def test_score(objects, args, raw, normalized):
    found = Lab([*NODES, *objects]).score(ServiceAffinity, pod(app="web", tier="front"), args)
    assert (list(found.raw.values()), list(found.normalized.values())) == (raw, normalized)


@pytest.mark.parametrize("args", [pytest.param({}, id="no labels"), pytest.param(REGION, id="only affinity labels")])
def test_score_is_skipped(args):
    assert Lab([*NODES, WEB]).score(ServiceAffinity, pod(app="web"), args) is SKIP


def test_pods_on_nodes_that_are_no_candidates_do_not_count():
    lab = Lab([*NODES, WEB, placed("q", "a", app="web"), placed("r", "b", app="web")])
    assert lab.score(ServiceAffinity, pod(app="web"), SPREAD, nodes=["c", "b"]).normalized == {"c": 100, "b": 0}


# --- node by node ----------------------------------------------------------------------------------------------------

KEYS, NAMES, NAMESPACES = ["x", "y", "z"], st.sampled_from("abcd"), st.sampled_from(["default", "other"])
LABELS = st.dictionaries(st.sampled_from(KEYS), st.sampled_from("12"))
SOME_NODES = st.builds(lambda name, labels: make_node(name, labels=labels), NAMES, LABELS)
SOME_PODS = st.builds(
    lambda name, node, namespace, labels, terminating: placed(name, node, namespace, terminating=terminating, **labels),
    st.sampled_from("pqrstu"),
    NAMES,
    NAMESPACES,
    LABELS,
    st.booleans(),
)
SOME_SERVICES = st.builds(
    lambda name, namespace, selector: service(name, namespace, **selector), st.sampled_from("st"), NAMESPACES, LABELS
)
CHANGES = st.tuples(st.sampled_from(["apply"] * 3 + ["delete"]), SOME_NODES | SOME_PODS | SOME_SERVICES)
CHOSEN = st.lists(st.sampled_from(KEYS), min_size=1, max_size=4)

OURS = ("Service", "default")


def is_part(part, whole):
    return part.items() <= whole.items()


def build(events):
    """Return a lab after ``events``, and the plain objects that exist in it."""
    lab, held = Lab(), {}
    for cache in ServiceAffinity.declared_caches().values():
        lab.mirror.cache(cache)
    for verb, item in events:
        getattr(lab, verb)(item)
        key = (item["kind"], item["metadata"].get("namespace"), item["metadata"]["name"])
        held.pop(key, None)
        if verb == "apply":
            held[key] = item
    return lab, held


def selectors_of(held, labels):
    """Return the selectors of the services that a pod with ``labels`` is in, by the services' names."""
    found = {name: item["spec"]["selector"] for (kind, where, name), item in held.items() if (kind, where) == OURS}
    return [found[name] for name in sorted(found) if found[name] and is_part(found[name], labels)]


def pods_in(held):
    """Return node and metadata of the placed pods in the namespace of the pod to place."""
    pods = (item for (kind, where, _), item in held.items() if (kind, where) == ("Pod", "default"))
    return [(item["spec"]["nodeName"], item["metadata"]) for item in pods]


@settings(deadline=None)
@given(st.lists(CHANGES), LABELS, LABELS, CHOSEN)
def test_filter_agrees_with_the_rules_node_by_node(events, labels, selector, chosen):
    lab, held = build(events)
    nodes = {info.name: info.labels for info in lab.nodes().infos()}
    wanted = {key: selector[key] for key in chosen if key in selector}
    examples = [where for where, meta in pods_in(held) if where in nodes and is_part(labels, meta.get("labels", {}))]
    if examples and selectors_of(held, labels):
        example = nodes[min(examples, key=lab.mirror.table.index.__getitem__)]
        wanted = {key: example[key] for key in chosen if key in example} | wanted
    refused = lab.filter(ServiceAffinity, pod(selector, **labels), {"affinityLabels": chosen})
    assert refused.keys() == {name for name, own in nodes.items() if not is_part(wanted, own)}


@settings(deadline=None)
@given(st.lists(CHANGES), LABELS, CHOSEN)
def test_scores_agree_with_the_formula_node_by_node(events, labels, chosen):
    lab, held = build(events)
    nodes = {info.name: info.labels for info in lab.nodes().infos()}
    services = selectors_of(held, labels)
    counts = dict.fromkeys(nodes, 0)
    for where, meta in pods_in(held):
        if where in nodes and services and "deletionTimestamp" not in meta:
            counts[where] += is_part(services[0], meta.get("labels", {}))
    total, expected = sum(counts.values()), {}
    for name, own in nodes.items():
        score = 0.0
        for key in (key for key in chosen if key in own):
            near = sum(counts[other] for other, theirs in nodes.items() if theirs.get(key) == own[key])
            score += (100.0 * ((total - near) / total) if total else 100.0) / len(chosen)
        expected[name] = int(score)
    found = lab.score(ServiceAffinity, pod(**labels), {"antiAffinityLabelsPreference": chosen})
    assert (found.raw, found.normalized) == (counts, expected)


@pytest.mark.parametrize("field", ["affinityLabels", "antiAffinityLabelsPreference"])
@pytest.mark.parametrize("key", ["bad key!", "", "a/b/c"], ids=["a blank", "nothing", "two slashes"])
def test_keys_that_no_label_has_are_refused(field, key):
    with pytest.raises(ValidationError, match="must be a label key"):
        ServiceAffinity.Arguments.model_validate({field: ["zone", key]})
