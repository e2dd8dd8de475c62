"""PodTopologySpread, by tables of cases, and by the reported faults."""

from pathlib import Path

import pytest
from pydantic import ValidationError

from algorithms.pod_topology_spread import MISSING_LABEL_REASON, REASON, PodTopologySpread
from extender.errors import AlgorithmError
from extender.framework import SKIP
from extender.framework.runner import Outcome
from extender.testing.casefile import check_case, read_cases
from extender.testing.lab import Lab
from extender.testing.maker import make_node, make_pod

REPORTED = read_cases(Path(__file__).parents[1] / "data" / "cases" / "B37-topology-spread.yaml")
ZONE, HOSTNAME = "topology.kubernetes.io/zone", "kubernetes.io/hostname"
WEB = {"matchLabels": {"app": "web"}}

NODES = [
    make_node("a1", labels={ZONE: "a", "pool": "x"}),
    make_node("a2", labels={ZONE: "a", "pool": "x"}),
    make_node("b1", labels={ZONE: "b", "pool": "y"}),
    make_node("n1", labels={"pool": "y"}),
]
SERVICE = {"kind": "Service", "metadata": {"name": "web"}, "spec": {"selector": {"app": "web"}}}


def web(*nodes, **changes):
    """Return a pod of the application on each of ``nodes``."""
    fields = {"labels": {"app": "web"}, **changes}
    return [make_pod(f"web-{place}", node=node, **fields) for place, node in enumerate(nodes)]


def rule(key=ZONE, skew=1, action="DoNotSchedule", **fields):
    made = {"maxSkew": skew, "topologyKey": key, "whenUnsatisfiable": action, "labelSelector": WEB, **fields}
    return {name: value for name, value in made.items() if value is not None}


def prefer(key=ZONE, skew=1, **fields):
    return rule(key, skew, "ScheduleAnyway", **fields)


def pod(*rules, labels=None, **spec):
    labels = {"app": "web"} if labels is None else labels
    return make_pod("p", labels=labels, topologySpreadConstraints=list(rules), **spec)


def refusals(text):
    """Return outcomes for ``node:reason`` pairs; ``U`` is a skew that is too great, ``UU`` a label that is missing."""
    outcomes = {
        "U": Outcome((REASON,), resolvable=True, algorithm="PodTopologySpread"),
        "UU": Outcome((MISSING_LABEL_REASON,), resolvable=False, algorithm="PodTopologySpread"),
    }
    return {node: outcomes[reason] for node, reason in (pair.split(":") for pair in text.split())}


@pytest.mark.parametrize(
    ("placed", "pod", "refused"),
    [
        pytest.param(web("a1"), pod(rule()), "a1:U a2:U n1:UU", id="a domain may not get ahead of the emptiest"),
        pytest.param(web("a1"), pod(rule(skew=2)), "n1:UU", id="by more than the skew"),
        pytest.param(web("a1", "a2", "b1"), pod(rule()), "a1:U a2:U n1:UU", id="the pods of all its nodes count"),
        pytest.param([], pod(rule()), "n1:UU", id="a node without the label is in no domain"),
        pytest.param(web("n1", "n1"), pod(rule()), "n1:UU", id="and pods there do not count"),
        pytest.param(
            web("n1", "a1"),
            pod(rule(), rule(HOSTNAME)),
            "a1:U a2:U n1:UU",
            id="not even for the constraint whose label is there",
        ),
        pytest.param(web("ghost", "a1"), pod(rule()), "a1:U a2:U n1:UU", id="nor do pods on nodes that do not exist"),
        pytest.param(
            web("a1", namespace="other"), pod(rule()), "n1:UU", id="nor pods of another namespace, whatever they are"
        ),
        pytest.param(web("a1", labels={"app": "api"}), pod(rule()), "n1:UU", id="nor pods that are not selected"),
        pytest.param(
            web("a1"), pod(rule(), labels={"app": "api"}), "n1:UU", id="a pod that is not selected itself adds nothing"
        ),
        pytest.param(
            web("a1", "a1"),
            pod(rule(), labels={"app": "api"}),
            "a1:U a2:U n1:UU",
            id="but it is held to the skew of the others",
        ),
        pytest.param(
            web("a1", "a1", "a2"), pod(rule(HOSTNAME)), "a1:U a2:U", id="every node can be a domain of its own"
        ),
        pytest.param(
            web("a1", "b1"),
            pod(rule(skew=9), rule(HOSTNAME)),
            "a1:U b1:U n1:UU",
            id="every constraint must be met",
        ),
        pytest.param(
            web("n1", "n1"), pod(rule(HOSTNAME, skew=0), rule()), "a1:U a2:U b1:U n1:U", id="the first reason counts"
        ),
        pytest.param(
            [], pod(rule(), rule(HOSTNAME, skew=0)), "a1:U a2:U b1:U n1:UU", id="and no other, in the order of the pod"
        ),
        pytest.param(
            web("a1", "b1"),
            pod(rule(minDomains=3)),
            "a1:U a2:U b1:U n1:UU",
            id="too few domains make the least count 0",
        ),
        pytest.param(web("a1", "b1"), pod(rule(minDomains=2)), "n1:UU", id="enough domains do not"),
        pytest.param(
            web("b1"),
            pod(rule(), node_selector={"pool": "y"}),
            "n1:UU",
            id="nodes that the pod excludes do not count, so their domains need not keep up",
        ),
        pytest.param(
            web("b1"),
            pod(rule(nodeAffinityPolicy="Ignore"), node_selector={"pool": "y"}),
            "b1:U n1:UU",
            id="unless that is to be ignored",
        ),
        pytest.param(
            web("a1", "a2"),
            pod(rule(matchLabelKeys=["rev", "absent"]), labels={"app": "web", "rev": "2"}),
            "n1:UU",
            id="only pods with the same values of the match label keys count",
        ),
        pytest.param(
            web("a1", labels={"app": "web", "rev": "2"}),
            pod(rule(matchLabelKeys=["rev"]), labels={"app": "web", "rev": "2"}),
            "a1:U a2:U n1:UU",
            id="which do count",
        ),
        pytest.param(
            web("a1"), pod(rule(labelSelector=None)), "n1:UU", id="without a selector no pod counts, not even itself"
        ),
        pytest.param(
            web("a1", labels={"rev": "2"}),
            pod(rule(labelSelector=None, matchLabelKeys=["rev"]), labels={"rev": "2"}),
            "n1:UU",
            id="whatever the match label keys",
        ),
        pytest.param(
            web("a1", "a1", "a1"),
            pod(rule(labelSelector={})),
            "n1:UU",
            id="an empty selector counts the pod itself and no other",
        ),
        pytest.param(
            web("a1", labels={"rev": "2"}),
            pod(rule(labelSelector={}, matchLabelKeys=["rev"]), labels={"rev": "2"}),
            "a1:U a2:U n1:UU",
            id="but with match label keys it is not empty",
        ),
        pytest.param(web("a1"), pod(prefer()), SKIP, id="what is only preferred refuses nothing"),
        pytest.param(web("a1"), pod(), SKIP, id="a pod without constraints has no opinion asked of it"),
    ],
)
def test_filter(placed, pod, refused):
    expected = refused if refused is SKIP else refusals(refused)
    assert Lab([*NODES, *placed]).filter(PodTopologySpread, pod) == expected


def test_pods_that_are_being_deleted_do_not_count():
    item = web("a1")[0]
    item["metadata"]["deletionTimestamp"] = "2030-01-01T00:00:00Z"
    assert Lab([*NODES, item]).filter(PodTopologySpread, pod(rule())) == refusals("n1:UU")


@pytest.mark.parametrize(
    ("rules", "refused"),
    [
        pytest.param(rule(), "a1:U", id="a domain of tainted nodes must be kept up with"),
        pytest.param(rule(nodeTaintsPolicy="Honor"), "", id="unless taints are honored"),
        pytest.param(rule(nodeTaintsPolicy="Ignore"), "a1:U", id="and not if they are ignored"),
    ],
)
def test_filter_with_a_tainted_domain(rules, refused):
    lab = Lab([NODES[0], make_node("t1", labels={ZONE: "t"}, taints=["dedicated=x:NoSchedule"]), *web("a1")])
    assert lab.filter(PodTopologySpread, pod(rules)) == refusals(refused)
    tolerating = pod(rules, tolerations=["dedicated"])
    assert lab.filter(PodTopologySpread, tolerating) == refusals("a1:U")


def test_a_taint_that_only_lowers_the_score_does_not_take_a_node_out():
    lab = Lab([NODES[0], make_node("t1", labels={ZONE: "t"}, taints=["dedicated=x:PreferNoSchedule"]), *web("a1")])
    assert lab.filter(PodTopologySpread, pod(rule(nodeTaintsPolicy="Honor"))) == refusals("a1:U")


def test_domains_count_over_all_nodes_and_not_over_the_candidates():
    lab = Lab([*NODES, *web("a1")])
    assert lab.filter(PodTopologySpread, pod(rule()), nodes=["a2"]) == refusals("a2:U")


BAD = {"matchExpressions": [{"key": "app", "operator": "Near", "values": ["web"]}]}


def test_a_selector_that_cannot_be_read_fails_only_where_its_constraint_counts():
    lab = Lab(NODES)
    required, preferred = pod(rule(labelSelector=BAD), prefer()), pod(rule(), prefer(labelSelector=BAD))
    with pytest.raises(AlgorithmError, match="PodTopologySpread: selector expression 'app' 'Near'"):
        lab.filter(PodTopologySpread, required)
    with pytest.raises(AlgorithmError, match="PodTopologySpread: selector expression 'app' 'Near'"):
        lab.score(PodTopologySpread, preferred)
    assert lab.score(PodTopologySpread, required) is not SKIP
    assert lab.filter(PodTopologySpread, preferred) == refusals("n1:UU")


@pytest.mark.parametrize(
    ("placed", "pod", "raw", "normalized"),
    [
        # ln(2 + 2) = 1.386 for two zones, ln(2 + 4) = 1.792 for four nodes.
        pytest.param([], pod(prefer()), [0, 0, 0, 0], [100, 100, 100, 0], id="a node without the label gets nothing"),
        pytest.param(
            web("a1", "a2", "a2", "b1"), pod(prefer()), [4, 4, 1, 0], [25, 25, 100, 0], id="full domains score low"
        ),
        pytest.param(
            web("a1", "a2", "a2", "b1"),
            pod(prefer(skew=3)),
            [6, 6, 3, 0],
            [50, 50, 100, 0],
            id="a greater skew makes the difference smaller",
        ),
        pytest.param(
            web("a1", "a1", "n1"),
            pod(prefer(HOSTNAME)),
            [4, 0, 0, 2],
            [0, 100, 100, 50],
            id="by node, all may be scored",
        ),
        pytest.param(
            web("a1", "b1", "b1", "b1", "b1"),
            pod(prefer(), prefer(HOSTNAME)),
            # Only the three nodes that have both labels count: ln(2 + 3) = 1.609.
            [3, 1, 12, 0],
            [83, 100, 8, 0],
            id="constraints add up, and a node must have all labels",
        ),
        pytest.param(
            web("a1", "a1", "n1", "ghost"),
            pod(prefer(), node_selector={"pool": "y"}),
            [0, 0, 0, 0],
            [100, 100, 100, 0],
            id="nodes that the pod excludes do not count",
        ),
        pytest.param(
            web("a1"),
            pod(prefer(labelSelector=None)),
            [0, 0, 0, 0],
            [100, 100, 100, 0],
            id="no selector counts nothing",
        ),
        pytest.param(
            web("a1"), pod(prefer(labelSelector={})), [0, 0, 0, 0], [100, 100, 100, 0], id="nor does an empty one"
        ),
        pytest.param(web("a1"), pod(prefer("rack")), [0, 0, 0, 0], [0, 0, 0, 0], id="a label that no node has"),
    ],
)
def test_score(placed, pod, raw, normalized):
    found = Lab([*NODES, *placed]).score(PodTopologySpread, pod)
    assert (list(found.raw.values()), list(found.normalized.values())) == (raw, normalized)


def test_scores_weigh_by_the_domains_of_the_candidates_and_count_in_all_nodes():
    lab = Lab([*NODES, *web("a1", "a2", "b1")])
    # One zone among the candidates: 2 pods * ln(2 + 1) = 2.197.
    assert lab.score(PodTopologySpread, pod(prefer()), nodes=["a2"]).raw == {"a2": 2}


@pytest.mark.parametrize(
    "pod",
    [
        pytest.param(pod(), id="a pod that nothing owns has no opinion asked of it"),
        pytest.param(pod(rule()), id="nor has one that only requires"),
    ],
)
def test_score_is_skipped(pod):
    assert Lab(NODES).score(PodTopologySpread, pod) is SKIP


# --- default constraints ---------------------------------------------------------------------------------------------


def listed(*rules):
    return {"defaultingType": "List", "defaultConstraints": [{**each, "labelSelector": None} for each in rules]}


@pytest.mark.parametrize(
    ("pod", "args", "raw", "normalized"),
    [
        # By node 2 + pods * ln(2 + 4), and by zone 4 + pods * ln(2 + 3), where having none is one too.
        pytest.param(
            pod(),
            {},
            [14, 13, 6, 4],
            [28, 35, 85, 100],
            id="the system spreads over nodes, and over zones if there are",
        ),
        pytest.param(pod(labels={"app": "api"}), {}, None, None, id="only pods that something owns"),
        pytest.param(
            pod(prefer(HOSTNAME)), {}, [4, 2, 0, 2], [0, 50, 100, 50], id="and that have no constraints of their own"
        ),
        pytest.param(pod(rule()), {}, None, None, id="of either kind"),
        pytest.param(
            pod(), listed(prefer()), [4, 4, 0, 0], [0, 0, 100, 0], id="listed constraints want all labels of a node"
        ),
        pytest.param(pod(), listed(rule()), None, None, id="listed constraints may all be required"),
        pytest.param(pod(), listed(), None, None, id="or none listed"),
    ],
)
def test_score_by_default_constraints(pod, args, raw, normalized):
    found = Lab([*NODES, SERVICE, *web("a1", "a1", "a2", "n1")]).score(PodTopologySpread, pod, args)
    if found is not SKIP:
        found = (list(found.raw.values()), list(found.normalized.values()))
    assert found == (SKIP if raw is None else (raw, normalized))


@pytest.mark.parametrize(
    ("pod", "args", "refused"),
    [
        pytest.param(pod(), {}, SKIP, id="the system requires nothing"),
        pytest.param(pod(), listed(rule()), "a1:U a2:U n1:UU", id="listed constraints may be required"),
        pytest.param(pod(labels={"app": "api"}), listed(rule()), SKIP, id="of pods that something owns"),
        pytest.param(pod(prefer()), listed(rule()), SKIP, id="and that have no constraints of their own"),
        pytest.param(
            pod(labels={"app": "web", "rev": "2"}),
            listed(rule(matchLabelKeys=["rev"])),
            "a1:U a2:U n1:UU",
            id="match label keys mean nothing there, as the selector is that of the owners",
        ),
    ],
)
def test_filter_by_default_constraints(pod, args, refused):
    expected = refused if refused is SKIP else refusals(refused)
    assert Lab([*NODES, SERVICE, *web("a1")]).filter(PodTopologySpread, pod, args) == expected


def test_a_zone_without_a_name_is_that_of_nodes_without_the_label():
    nodes = [make_node("e1", labels={ZONE: ""}), make_node("n1"), make_node("n2")]
    found = Lab([*nodes, SERVICE, *web("n1", "n1")]).score(PodTopologySpread, pod())
    # By zone 4 + 2 * ln(2 + 1) for the node that has the label, by node 2 + pods * ln(2 + 3).
    assert found.raw == {"e1": 8, "n1": 5, "n2": 2}


LEAVING = {"deletionTimestamp": "2030-01-01T00:00:00Z"}


@pytest.mark.parametrize(
    ("leaving", "back", "fits"),
    [
        pytest.param({}, True, False, id="a pod that is being deleted does not count"),
        pytest.param({}, False, True, id="but upstream takes it off all the same when it is evicted"),
        pytest.param({"labels": {"app": "api"}}, False, False, id="not one that is not selected"),
        pytest.param({"namespace": "other"}, False, False, id="nor one of another namespace"),
    ],
)
def test_evicting_a_pod_that_is_being_deleted(leaving, back, fits):
    gone = make_pod("gone", node="a1", **{"labels": {"app": "web"}, **leaving})
    gone["metadata"] |= LEAVING
    lab = Lab([*NODES[:3], *web("a2"), gone])
    lab.filter(PodTopologySpread, pod(rule()))
    evicted = [lab.mirror.by_uid["uid-gone"]]
    with lab.mirror.what_if(without=evicted), lab.mirror.what_if(plus=evicted if back else ()):
        found = lab.filter(PodTopologySpread, pod(rule()), nodes=["a1"])
    assert found == ({} if fits else refusals("a1:U"))


@pytest.mark.parametrize(
    ("args", "message"),
    [
        pytest.param({"defaultConstraints": [rule(labelSelector=None)]}, "must be List where", id="the type is System"),
        pytest.param(listed(rule(skew=0)), r"\[0\].maxSkew: must be > 0, got 0", id="a skew of nothing"),
        pytest.param(listed(rule(key="")), r"\[0\].topologyKey: must be a label key, got ''", id="no topology key"),
        pytest.param(listed(rule(key="a b")), r"\[0\].topologyKey: must be a label key, got 'a b'", id="a bad one"),
        pytest.param(
            listed(rule(), rule("rack", action="Never")), r"\[1\].whenUnsatisfiable: must be", id="an unknown action"
        ),
        pytest.param(
            {"defaultingType": "List", "defaultConstraints": [rule()]},
            r"\[0\].labelSelector: must not be given",
            id="a selector",
        ),
        pytest.param(
            listed(rule(), prefer(), rule(skew=2)), r"\[2\]: has the .* of \[0\]", id="the same key and action twice"
        ),
        pytest.param({"defaultingType": "Some"}, "'System' or 'List'", id="an unknown type"),
        pytest.param(
            {"defaultingType": "List", "defaultConstraints": [{"skew": 1}]}, "unknown key", id="an unknown field"
        ),
    ],
)
def test_arguments_are_refused(args, message):
    with pytest.raises(ValidationError, match=message):
        PodTopologySpread.Arguments.model_validate(args)


def test_arguments_without_a_value_are_as_if_not_given():
    given = {"defaultingType": "", "defaultConstraints": None}
    assert PodTopologySpread.Arguments.model_validate(given) == PodTopologySpread.Arguments()


@pytest.mark.parametrize("case", [pytest.param(case, id=case.id) for case in REPORTED])
def test_reported_faults(case):
    check_case(case, PodTopologySpread)
