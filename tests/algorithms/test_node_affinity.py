"""NodeAffinity, by tables of cases: what it refuses, what it scores, and which arguments it refuses."""

import pytest
from pydantic import ValidationError

from algorithms.node_affinity import CONFLICT_REASON, ENFORCED_REASON, REASON, NodeAffinity
from extender.errors import AlgorithmError
from extender.framework import SKIP
from extender.framework.runner import Outcome
from extender.testing.lab import Lab
from extender.testing.maker import make_node, make_pod

NODES = [
    make_node("a", labels={"zone": "z1", "cpus": "8"}),
    make_node("b", labels={"zone": "z2", "cpus": "16"}),
    make_node("c", labels={"cpus": "many"}),
]


def term(*expressions, fields=()):
    """Return a node selector term of (key, operator, values...)."""
    parts = {"matchExpressions": expressions, "matchFields": fields}
    return {
        name: [{"key": key, "operator": operator, "values": list(values)} for key, operator, *values in each]
        for name, each in parts.items()
        if each
    }


def required(*terms):
    return {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": list(terms)}}


def preferred(*weighted):
    return {
        "preferredDuringSchedulingIgnoredDuringExecution": [
            {"weight": weight, "preference": each} for weight, each in weighted
        ]
    }


def pod(affinity=None, selector=None):
    return make_pod("p", node_selector=selector, affinity=affinity and {"nodeAffinity": affinity})


def names(*terms):
    """Return required terms of which each wants the node's name to be every one of some."""
    return required(*(term(fields=[("metadata.name", "In", name) for name in wanted]) for wanted in terms))


ZONE_1, ZONE_2 = term(("zone", "In", "z1")), term(("zone", "In", "z2"))


@pytest.mark.parametrize(
    ("pod", "refused"),
    [
        pytest.param(pod(), SKIP, id="a pod without rules has no opinion asked of it"),
        pytest.param(pod(preferred((1, ZONE_1))), SKIP, id="nor has one that only prefers"),
        pytest.param(pod(selector={"zone": "z1"}), "bc", id="the node selector must match"),
        pytest.param(pod(selector={"zone": "z1", "cpus": "16"}), "abc", id="every label of the selector must match"),
        pytest.param(pod(required(ZONE_1)), "bc", id="required terms must match"),
        pytest.param(pod(required(ZONE_1, ZONE_2)), "c", id="one matching term is enough"),
        pytest.param(pod(required(ZONE_1, ZONE_2), {"cpus": "16"}), "ac", id="selector and affinity must both match"),
        pytest.param(pod(required(term(("zone", "NotIn", "z1")))), "a", id="NotIn matches a label that is absent"),
        pytest.param(pod(required(term(("zone", "Exists")))), "c", id="Exists wants the label"),
        pytest.param(pod(required(term(("zone", "DoesNotExist")))), "ab", id="DoesNotExist wants it absent"),
        pytest.param(pod(required(term(("cpus", "Gt", "8")))), "ac", id="Gt compares numbers, and text is none"),
        pytest.param(pod(required(term(("cpus", "Lt", "16")))), "bc", id="Lt alike"),
        pytest.param(pod(required(term(("zone", "Exists"), ("cpus", "Gt", "8")))), "ac", id="a term wants all it says"),
        pytest.param(pod(required({})), "abc", id="an empty term matches nothing"),
        pytest.param(pod(required({}, ZONE_1)), "bc", id="an empty term does not spoil the others"),
        pytest.param(pod(required()), "abc", id="no terms match nothing"),
        pytest.param(pod(required(term(("zone", "Near", "z1")), ZONE_2)), "ac", id="nor does one that cannot be read"),
        pytest.param(pod(names(["b"])), "ac", id="a node may be asked for by name"),
        pytest.param(pod(names(["b"], ["c"])), "a", id="or several"),
        pytest.param(pod(names(["nowhere"])), "abc", id="a name that no node has leaves none"),
        pytest.param(
            pod(required(term(fields=[("metadata.name", "NotIn", "b")]))), "b", id="a node may be ruled out by name"
        ),
        pytest.param(
            pod(required(term(("zone", "Exists"), fields=[("metadata.name", "In", "c")]))),
            "abc",
            id="name and labels must match in one term",
        ),
        pytest.param(
            pod(required(term(fields=[("spec.unschedulable", "In", "true")]))), "abc", id="other fields read as empty"
        ),
    ],
)
def test_filter(pod, refused):
    if refused is not SKIP:
        refused = dict.fromkeys(refused, Outcome((REASON,), resolvable=False, algorithm="NodeAffinity"))
    assert Lab(NODES).filter(NodeAffinity, pod) == refused


@pytest.mark.parametrize(
    ("affinity", "reason"),
    [
        pytest.param(names(["a", "b"]), CONFLICT_REASON, id="a term that asks for two names at once leaves no node"),
        pytest.param(names(["a", "b"], ["a", "c"]), CONFLICT_REASON, id="so do several"),
        pytest.param(names(["a", "b"], ["d", "d"]), REASON, id="a term with one name is no conflict"),
        pytest.param(
            required(names(["a", "b"])["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"][0], {}),
            REASON,
            id="nor is a term without names",
        ),
    ],
)
def test_conflicting_names(affinity, reason):
    outcome = Outcome((reason,), resolvable=False, algorithm="NodeAffinity")
    assert Lab(NODES).filter(NodeAffinity, pod(affinity)) == dict.fromkeys("abc", outcome)


@pytest.mark.parametrize(
    ("pod", "added", "refused"),
    [
        pytest.param(
            pod(), required(ZONE_1), {"b": ENFORCED_REASON, "c": ENFORCED_REASON}, id="it holds for every pod"
        ),
        pytest.param(
            pod(required(ZONE_2)),
            required(ZONE_1),
            {"a": REASON, "b": ENFORCED_REASON, "c": ENFORCED_REASON},
            id="a node has one reason, and that of the arguments comes first",
        ),
        pytest.param(
            pod(names(["a", "b"])), required(ZONE_1), dict.fromkeys("abc", CONFLICT_REASON), id="but a conflict"
        ),
        pytest.param(pod(), required(), dict.fromkeys("abc", ENFORCED_REASON), id="no terms match nothing"),
        pytest.param(pod(), preferred((1, ZONE_1)), SKIP, id="what is only preferred refuses nothing"),
        pytest.param(pod(), None, SKIP, id="there may be none"),
    ],
)
def test_filter_with_added_affinity(pod, added, refused):
    found = Lab(NODES).filter(NodeAffinity, pod, {"addedAffinity": added})
    if found is not SKIP:
        assert not any(outcome.resolvable for outcome in found.values())
        found = {name: outcome.text for name, outcome in found.items()}
    assert found == refused


@pytest.mark.parametrize(
    ("pod", "added", "raw", "normalized"),
    [
        pytest.param(pod(preferred((3, ZONE_1))), {}, [3, 0, 0], [100, 0, 0], id="a matching term adds its weight"),
        pytest.param(
            pod(preferred((3, ZONE_1), (4, term(("zone", "Exists"))))), {}, [7, 4, 0], [100, 57, 0], id="terms add up"
        ),
        pytest.param(
            pod(preferred((2, ZONE_1))),
            preferred((5, ZONE_2)),
            [2, 5, 0],
            [40, 100, 0],
            id="so do those of the arguments",
        ),
        pytest.param(pod(), preferred((5, ZONE_2)), [0, 5, 0], [0, 100, 0], id="which hold for every pod"),
        pytest.param(
            pod(preferred((9, term(fields=[("metadata.name", "In", "c")])))), {}, [0, 0, 9], [0, 0, 100], id="by name"
        ),
        pytest.param(pod(preferred((5, {}))), {}, [0, 0, 0], [0, 0, 0], id="an empty preference prefers nothing"),
        pytest.param(pod(preferred((0, ZONE_1))), {}, [0, 0, 0], [0, 0, 0], id="nor does one without weight"),
        pytest.param(
            pod(preferred((5, term(("zone", "In", "z9"))))), {}, [0, 0, 0], [0, 0, 0], id="nor one that is unmet"
        ),
    ],
)
def test_score(pod, added, raw, normalized):
    found = Lab(NODES).score(NodeAffinity, pod, {"addedAffinity": added})
    assert (list(found.raw.values()), list(found.normalized.values())) == (raw, normalized)


@pytest.mark.parametrize(
    ("pod", "added"),
    [
        pytest.param(pod(), {}, id="a pod without preferences has no opinion asked of it"),
        pytest.param(pod(required(ZONE_1)), required(ZONE_1), id="nor has one that only requires"),
        pytest.param(
            pod(), {"preferredDuringSchedulingIgnoredDuringExecution": []}, id="no added terms are no opinion"
        ),
    ],
)
def test_score_is_skipped(pod, added):
    assert Lab(NODES).score(NodeAffinity, pod, {"addedAffinity": added}) is SKIP


def test_a_preference_that_cannot_be_read_fails_the_pod():
    with pytest.raises(AlgorithmError, match="NodeAffinity: selector expression 'zone' 'Near'"):
        Lab(NODES).score(NodeAffinity, pod(preferred((1, term(("zone", "Near", "z1"))))))


@pytest.mark.parametrize(
    ("added", "message"),
    [
        pytest.param(required(term(("zone", "Near", "z1"))), "'zone' 'Near'", id="an unknown operator"),
        pytest.param(
            preferred((1, term(("zone", "In")))), "needs at least one value", id="a preference without values"
        ),
        pytest.param({"required": []}, "unknown key; remove it", id="an unknown key"),
        pytest.param({"preferredDuringSchedulingIgnoredDuringExecution": {}}, "expected `array", id="a wrong shape"),
    ],
)
def test_arguments_are_refused(added, message):
    with pytest.raises(ValidationError, match=message):
        NodeAffinity.Arguments.model_validate({"addedAffinity": added})
