"""LocalReplicas, by a table of placed pods and of what limits the pod to place."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from algorithms.local_replicas import ANNOTATION, REASON, UNREADABLE, LocalReplicas
from extender.config import explain
from extender.framework import SKIP
from extender.framework.owned_pod import DesiredReplicas, OwnedPods
from extender.framework.runner import Outcome
from extender.testing.lab import Lab
from extender.testing.law import check_fold_equals_rebuild, check_inverse_leaves_no_trace
from extender.testing.maker import make_node, make_pod

ZONE = "topology.kubernetes.io/zone"
FULL = Outcome((REASON,), resolvable=True, algorithm="LocalReplicas")

# Two nodes in each of two zones, and one without any label.
NODES = [
    *(make_node(name, labels={ZONE: name[0]}) for name in ("a1", "a2", "b1", "b2")),
    {"kind": "Node", "metadata": {"name": "bare"}},
]


def replica(name, node=None, *, owner="rs", labels=None, limit=None, terminating=False, namespace="default"):
    """Return a pod, owned by the controller whose uid is ``owner`` unless that is None."""
    annotations = None if limit is None else {ANNOTATION: limit}
    pod = make_pod(name, node=node, labels=labels, annotations=annotations, namespace=namespace)
    if owner is not None:
        pod["metadata"]["ownerReferences"] = [{"kind": "ReplicaSet", "name": "w", "uid": owner, "controller": True}]
    if terminating:
        pod["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    return pod


def controller(replicas, kind="ReplicaSet", uid="rs"):
    return {"kind": kind, "metadata": {"name": "w", "uid": uid}, "spec": {"replicas": replicas}}


def refused(objects, pod, args=None):
    """Return the nodes refused, SKIP where there is no opinion; every refusal must be of the one kind there is."""
    found = Lab([*NODES, *objects]).filter(LocalReplicas, pod, args)
    if found is SKIP:
        return SKIP
    assert all(outcome == FULL for outcome in found.values())
    return set(found)


def placed(*nodes, **fields):
    return [replica(f"r{place}", node, **fields) for place, node in enumerate(nodes)]


@pytest.mark.parametrize(
    ("objects", "limit", "expected"),
    [
        pytest.param(placed("a1", "a1"), None, SKIP, id="a pod without a limit has no opinion asked of it"),
        pytest.param([], "1", set(), id="the first replica fits everywhere"),
        pytest.param(placed("a1"), "2", set(), id="fewer than the limit"),
        pytest.param(placed("a1", "a1", "b1"), "2", {"a1"}, id="as many as the limit"),
        pytest.param(placed("a1", "a1", "a1"), " 2 ", {"a1"}, id="more than the limit, which has blanks around it"),
        pytest.param(placed("bare"), "1", {"bare"}, id="a node without a hostname label is judged by itself"),
        pytest.param(placed("gone"), "1", set(), id="pods on a node that does not exist are on no other"),
        pytest.param(placed("a1", owner="other"), "1", set(), id="replicas of another controller do not count"),
        pytest.param(placed("a1", owner=None), "1", set(), id="pods without a controller do not count"),
        pytest.param(placed("a1", terminating=True), "1", set(), id="pods that are being deleted do not count"),
    ],
)
def test_a_number(objects, limit, expected):
    assert refused(objects, replica("p", limit=limit)) == expected


@pytest.mark.parametrize(
    ("objects", "limit", "expected"),
    [
        pytest.param([controller(8), *placed("a1", "a2", "a2")], "25%", {"a2"}, id="a quarter of eight is two"),
        pytest.param([controller(9), *placed("a1", "a2", "a2")], "25%", set(), id="a quarter of nine is three"),
        pytest.param([controller(3), *placed("a1")], "1%", {"a1"}, id="it is one at least"),
        pytest.param([controller(0), *placed("a1")], "50%", {"a1"}, id="even of no replicas"),
        pytest.param([controller(None), *placed("a1")], "100%", {"a1"}, id="a controller that does not say has one"),
        pytest.param([controller(4, "StatefulSet"), *placed("a1")], "50%", set(), id="a stateful set"),
        pytest.param([controller(4, "ReplicationController"), *placed("a1")], "50%", set(), id="an old controller"),
        pytest.param([controller(9, uid="other"), *placed("a1")], "50%", {"a1"}, id="another's replicas do not matter"),
        pytest.param(placed("a1"), "50%", {"a1"}, id="half of one placed and this one is one"),
        pytest.param(placed("a1", "b1"), "50%", set(), id="half of two placed and this one is two"),
        pytest.param(placed("a1", "a1", "b1"), "50%", {"a1"}, id="half of three placed and this one is two"),
    ],
)
def test_a_percentage_of_the_desired_replicas(objects, limit, expected):
    assert refused(objects, replica("p", limit=limit)) == expected


def test_a_pod_without_a_controller_is_not_limited():
    assert refused(placed("a1", owner=None), replica("p", owner=None, limit="1")) is SKIP


@pytest.mark.parametrize("text", ["0", "-1", "two", "", "1.5", "0%", "101%", "1%%", "٣"])
def test_an_annotation_that_cannot_be_read_refuses_all_nodes(text):
    found = Lab(NODES).filter(LocalReplicas, replica("p", limit=text), nodes=["a1", "b1"])
    outcome = Outcome((UNREADABLE,), resolvable=False, algorithm="LocalReplicas", error=True)
    assert found == {"a1": outcome, "b1": outcome}


@pytest.mark.parametrize(
    ("nodes", "limit", "expected"),
    [
        pytest.param(["a1", "a2"], "2", {"a1", "a2"}, id="all nodes of a full zone are refused"),
        pytest.param(["a1", "b1"], "2", set(), id="zones with room"),
        pytest.param(["a1", "a1", "b1", "b2"], "2", {"a1", "a2", "b1", "b2"}, id="both zones are full"),
        pytest.param(["bare"], "1", {"bare"}, id="a node of no zone is a domain of its own"),
        pytest.param(["gone"], "1", set(), id="a node that does not exist is in no zone"),
    ],
)
def test_a_topology_domain(nodes, limit, expected):
    assert refused(placed(*nodes), replica("p", limit=limit), {"topologyKey": ZONE}) == expected


WEB = {"labelSelector": {"matchLabels": {"app": "web"}}}


@pytest.mark.parametrize(
    ("rules", "fields", "expected"),
    [
        pytest.param([], {}, SKIP, id="no rule"),
        pytest.param([{"maxReplicas": 1}], {}, {"a1", "b1"}, id="a rule for all pods"),
        pytest.param([{"maxReplicas": "50%"}], {}, {"a1"}, id="a percentage"),
        pytest.param([{"maxReplicas": 1, **WEB}], {}, SKIP, id="a rule for pods of other labels"),
        pytest.param([{"maxReplicas": 1, **WEB}], {"labels": {"app": "web"}}, {"a1", "b1"}, id="a rule by label"),
        pytest.param([{"maxReplicas": 1, "namespaces": ["prod"]}], {}, SKIP, id="a rule for other namespaces"),
        pytest.param([{"maxReplicas": 1, "namespaces": ["x", "default"]}], {}, {"a1", "b1"}, id="a rule by namespace"),
        pytest.param([{"maxReplicas": 1, **WEB}, {"maxReplicas": 2}], {}, {"a1"}, id="the first rule that applies"),
        pytest.param([{"maxReplicas": 1}], {"limit": "2"}, {"a1"}, id="the annotation wins"),
    ],
)
def test_rules(rules, fields, expected):
    objects = [controller(4), *placed("a1", "a1", "b1")]
    assert refused(objects, replica("p", **fields), {"rules": rules}) == expected


BY_APP = {"identity": "label", "labelKey": "app"}
OLD = placed("a1", owner="old", labels={"app": "web", "rev": "1"})


@pytest.mark.parametrize(
    ("objects", "limit", "expected"),
    [
        pytest.param(OLD, "1", {"a1"}, id="revisions of a deployment count together"),
        pytest.param(placed("a1", owner=None, labels={"app": "web"}), "1", {"a1"}, id="and pods without a controller"),
        pytest.param(placed("a1", labels={"app": "api"}), "1", set(), id="pods of another value do not count"),
        pytest.param(
            placed("a1", labels={"app": "web"}, namespace="x"), "1", set(), id="nor those of other namespaces"
        ),
        pytest.param(placed("a1", labels={"app": "web"}, terminating=True), "1", set(), id="nor those being deleted"),
        pytest.param([controller(4), *OLD], "50%", set(), id="half of the four that its controller wants"),
        pytest.param([controller(1), *OLD], "50%", {"a1"}, id="half of the two that there would be"),
    ],
)
def test_identity_by_label(objects, limit, expected):
    assert refused(objects, replica("p", labels={"app": "web"}, limit=limit), BY_APP) == expected


def test_identity_by_label_leaves_pods_without_the_label_alone():
    assert refused(OLD, replica("p", limit="1"), BY_APP) is SKIP


READ = "must be a whole number of at least 1, or a percentage of 1% to 100%"


@pytest.mark.parametrize(
    ("args", "finding"),
    [
        pytest.param({"rules": [{"maxReplicas": 0}]}, f"rules[0].maxReplicas: {READ}", id="zero"),
        pytest.param({"rules": [{"maxReplicas": True}]}, f"rules[0].maxReplicas: {READ}", id="a truth value"),
        pytest.param({"rules": [{"maxReplicas": "120%"}]}, f"rules[0].maxReplicas: {READ}", id="more than all"),
        pytest.param({"rules": [{}]}, "rules[0].maxReplicas: is missing", id="a rule without a limit"),
        pytest.param(
            {"rules": [{"maxReplicas": 1, "labelSelector": {"matchExpressions": [{"key": "a", "operator": "Is"}]}}]},
            "rules[0].labelSelector: selector expression 'a' 'Is'",
            id="a selector that Kubernetes refuses",
        ),
        pytest.param({"identity": "label"}, "labelKey must be given", id="identity by label without the label"),
        pytest.param({"labelKey": "app"}, "labelKey must be given", id="a label without identity by label"),
        pytest.param({"topologyKey": ""}, "topologyKey: must be a label key, got ''", id="no topology key"),
        pytest.param({"topologyKey": "bad key!"}, "topologyKey: must be a label key", id="a topology key with a blank"),
        pytest.param(
            {"identity": "label", "labelKey": "bad key!"}, "labelKey: must be a label key", id="a label with a blank"
        ),
    ],
)
def test_arguments_that_are_refused(args, finding):
    with pytest.raises(ValidationError) as raised:
        LocalReplicas.Arguments.model_validate(args)
    (text,) = explain(raised.value)
    assert text.startswith(finding)


def test_the_count_follows_the_pods():
    pod = replica("p", limit="1")
    lab = Lab([*NODES, *placed("a1")])
    assert set(lab.filter(LocalReplicas, pod)) == {"a1"}
    lab.apply(replica("r0", "a1", terminating=True))
    assert lab.filter(LocalReplicas, pod) == {}
    lab.apply(replica("r0", "b1"))
    assert set(lab.filter(LocalReplicas, pod)) == {"b1"}
    lab.delete(replica("r0"))
    assert lab.filter(LocalReplicas, pod) == {}
    assert lab.mirror.cache(OwnedPods).dump() == {}


def test_evicting_a_replica_makes_room():
    lab, pod = Lab([*NODES, *placed("a1")]), replica("p", limit="1")
    assert set(lab.filter(LocalReplicas, pod)) == {"a1"}
    with lab.mirror.what_if(without=lab.mirror.pods.values()):
        assert lab.filter(LocalReplicas, pod) == {}
    assert set(lab.filter(LocalReplicas, pod)) == {"a1"}


def test_the_pods_of_one_owner_share_its_uid():
    infos = list(Lab(placed("a1", "b1", owner="some-uid")).mirror.pods.values())
    assert infos[0].owner is infos[1].owner == "some-uid"


# --- under random events ---------------------------------------------------------------------------------------------

OWNERS = st.none() | st.sampled_from(["x", "y"])
RANDOM_PODS = st.builds(
    replica,
    st.sampled_from(["p", "q", "r", "s"]),
    st.none() | st.sampled_from(["a1", "b1", "new"]),
    owner=OWNERS,
    terminating=st.booleans(),
)
CONTROLLERS = st.one_of(
    st.builds(controller, st.none() | st.integers(0, 3), st.just(kind), st.sampled_from([f"{kind}-1", f"{kind}-2"]))
    for kind in ("ReplicaSet", "StatefulSet")
)
EVENTS = st.lists(
    st.tuples(
        st.sampled_from(["apply", "apply", "delete"]),
        RANDOM_PODS | CONTROLLERS | st.builds(make_node, st.sampled_from(["a1", "new"])),
    )
)


@settings(deadline=None)
@given(EVENTS)
def test_the_caches_obey_both_laws(events):
    lab = Lab(NODES)
    for cache in (OwnedPods, DesiredReplicas):
        lab.mirror.cache(cache)
    check_fold_equals_rebuild(OwnedPods, events, lab)
    check_inverse_leaves_no_trace(OwnedPods, lab)
    rebuilt = DesiredReplicas(lab.mirror.table)
    lab.mirror.fill(rebuilt)
    assert lab.mirror.cache(DesiredReplicas).dump() == rebuilt.dump()


@settings(deadline=None)
@given(EVENTS, st.integers(1, 3), st.sampled_from(["kubernetes.io/hostname", ZONE]))
def test_it_agrees_with_counting_pod_by_pod(events, limit, key):
    lab = Lab(NODES)
    lab.mirror.cache(OwnedPods)
    for verb, item in events:
        getattr(lab, verb)(item)
    domain = {info.name: info.labels.get(key, f"own-{info.name}") for info in lab.nodes().infos()}
    counted = [
        domain.get(info.node_name)
        for info in lab.mirror.pods.values()
        if info.node_name and info.owner == "x" and not info.terminating
    ]
    found = lab.filter(LocalReplicas, replica("n", owner="x", limit=str(limit)), {"topologyKey": key})
    assert set(found) == {name for name, value in domain.items() if counted.count(value) >= limit}
