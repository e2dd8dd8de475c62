"""SelectorSpread, by a table of cases, against its formula node by node, and the laws of its cache."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from algorithms.selector_spread import SelectorSpread, Zones
from extender.framework import SKIP
from extender.testing.lab import Lab
from extender.testing.law import check_fold_equals_rebuild, check_inverse_leaves_no_trace
from extender.testing.maker import make_node, make_pod

ZONE, REGION = "topology.kubernetes.io/zone", "topology.kubernetes.io/region"
OLD_ZONE, OLD_REGION = "failure-domain.beta.kubernetes.io/zone", "failure-domain.beta.kubernetes.io/region"
SERVICE = {"kind": "Service", "metadata": {"name": "web"}, "spec": {"selector": {"app": "web"}}}


def node(name, **labels):
    return make_node(name, labels=labels)


def pod(name="p", where=None, labels=None, namespace="default", **spec):
    return make_pod(name, node=where, labels={"app": "web"} if labels is None else labels, namespace=namespace, **spec)


def web(*nodes):
    return [pod(f"web-{place}", where) for place, where in enumerate(nodes)]


PLAIN = [make_node("n1"), make_node("n2"), make_node("n3")]
ZONED = [node("a1", **{ZONE: "a"}), node("a2", **{ZONE: "a"}), node("b1", **{ZONE: "b"}), make_node("n1")]


@pytest.mark.parametrize(
    ("objects", "raw", "normalized"),
    [
        pytest.param([*PLAIN, SERVICE, *web("n1", "n1", "n2")], [2, 1, 0], [0, 50, 100], id="nodes with fewer pods"),
        pytest.param([*PLAIN, SERVICE], [0, 0, 0], [100, 100, 100], id="without pods all nodes are equal"),
        pytest.param([*PLAIN, *web("n1")], [0, 0, 0], [100, 100, 100], id="and where nothing owns the pod"),
        pytest.param(
            [*PLAIN, SERVICE, *web("n1", "ghost"), pod("q", "n2", namespace="other"), pod("r", "n3", {"app": "api"})],
            [1, 0, 0],
            [0, 100, 100],
            id="only pods of the service in the same namespace, and on nodes that exist, count",
        ),
        pytest.param(
            [*ZONED, SERVICE, *web("a1", "a1", "b1")],
            [2, 0, 1, 0],
            # By node 0, 100, 50, 100, a third of it; by zone 0, 0, 50, two thirds; none for a node without zone.
            [0, 33, 50, 100],
            id="two thirds of the score are that of the zone",
        ),
        pytest.param([*ZONED, SERVICE], [0, 0, 0, 0], [100, 100, 100, 100], id="zones without pods are equal"),
    ],
)
def test_score(objects, raw, normalized):
    found = Lab(objects).score(SelectorSpread, pod())
    assert (list(found.raw.values()), list(found.normalized.values())) == (raw, normalized)


def test_zones_count_the_candidates_only():
    lab = Lab([*ZONED, SERVICE, *web("a1", "a1", "a2", "b1")])
    assert lab.score(SelectorSpread, pod(), nodes=["a2", "b1"]).normalized == {"a2": 0, "b1": 0}


def test_pods_that_are_being_deleted_do_not_count():
    leaving = pod("q", "n1")
    leaving["metadata"]["deletionTimestamp"] = "2030-01-01T00:00:00Z"
    assert Lab([*PLAIN, SERVICE, leaving]).score(SelectorSpread, pod()).raw == {"n1": 0, "n2": 0, "n3": 0}


def test_a_pod_with_spread_constraints_has_no_opinion_asked_of_it():
    rules = [{"maxSkew": 1, "topologyKey": ZONE, "whenUnsatisfiable": "DoNotSchedule"}]
    assert Lab([*PLAIN, SERVICE]).score(SelectorSpread, pod(topologySpreadConstraints=rules)) is SKIP


@pytest.mark.parametrize(
    ("labels", "zone"),
    [
        pytest.param({}, None, id="a node without labels is in no zone"),
        pytest.param({ZONE: "", REGION: ""}, None, id="nor is one whose labels are empty"),
        pytest.param({ZONE: "z"}, ("", "z"), id="the zone is enough"),
        pytest.param({REGION: "r"}, ("r", ""), id="so is the region"),
        pytest.param({ZONE: "z", OLD_ZONE: "old", REGION: "r"}, ("r", "old"), id="the old zone label comes first"),
        pytest.param({ZONE: "z", REGION: "r", OLD_REGION: ""}, ("", "z"), id="even where a label is empty"),
    ],
)
def test_zone_of_a_node(labels, zone):
    assert Lab([node("n", **labels)]).mirror.cache(Zones).dump() == ({"n": zone} if zone else {})


# --- under random events ---------------------------------------------------------------------------------------------

PLACES = st.dictionaries(st.sampled_from([ZONE, REGION, OLD_ZONE]), st.sampled_from(["", "a", "b"]))
NODE = st.builds(lambda name, labels: node(name, **labels), st.sampled_from("abcd"), PLACES)
PLACED = st.builds(pod, st.sampled_from("pqrstu"), st.sampled_from("abcde"))
EVENT = st.tuples(st.sampled_from(["apply", "apply", "delete"]), NODE | PLACED)
CROWD = st.sampled_from([[], [("apply", node(f"n{place}", **{ZONE: "a"})) for place in range(70)]])
EVENTS = st.tuples(st.lists(EVENT), CROWD, st.lists(EVENT)).map(lambda parts: [*parts[0], *parts[1], *parts[2]])


@given(EVENTS)
def test_the_cache_obeys_both_laws(events):
    lab = Lab()
    check_fold_equals_rebuild(Zones, events, lab)
    check_inverse_leaves_no_trace(Zones, lab)


def normalize(counts, zones):
    """Return the scores by upstream's formula, written for one node."""
    by_zone = {zone: sum(counts[name] for name in counts if zones.get(name) == zone) for zone in zones.values()}
    scores = {}
    for name, count in counts.items():
        score = 100.0 * (float(max(counts.values()) - count) / max(counts.values())) if any(counts.values()) else 100.0
        if name in zones:
            most = max(by_zone.values())
            zone_score = 100.0 * (float(most - by_zone[zones[name]]) / most) if most else 100.0
            score = score * (1.0 - 2.0 / 3.0) + 2.0 / 3.0 * zone_score
        scores[name] = int(score)
    return scores


@given(EVENTS)
def test_columns_agree_with_the_formula_node_by_node(events):
    lab = Lab([make_node("a"), SERVICE])
    lab.mirror.cache(Zones)
    for verb, item in events:
        getattr(lab, verb)(item)
    existing = lab.nodes().names()
    placed = [info.node_name for info in lab.mirror.pods.values()]
    found = lab.score(SelectorSpread, pod("incoming"))
    if found.raw:
        assert found.raw == {name: placed.count(name) for name in existing}
        assert found.normalized == normalize(found.raw, lab.mirror.cache(Zones).dump())
