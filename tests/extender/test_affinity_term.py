"""Affinity terms are compiled as the API text has it, and those that cannot be read take only their own group away."""

import msgspec
import pytest

from extender.model.affinity import AffinityTerms, compile_affinity
from extender.model.object import PodAffinity

WEB = {"matchLabels": {"app": "web"}}
BROKEN = {"topologyKey": "zone", "labelSelector": {"matchExpressions": [{"key": "app", "operator": "Like"}]}}


def compiled(required=(), preferred=(), anti_required=(), anti_preferred=()):
    def group(hard, soft):
        fields = {
            "requiredDuringSchedulingIgnoredDuringExecution": list(hard),
            "preferredDuringSchedulingIgnoredDuringExecution": [
                {"weight": weight, "podAffinityTerm": term} for weight, term in soft
            ],
        }
        return msgspec.convert(fields, PodAffinity)

    return compile_affinity(group(required, preferred), group(anti_required, anti_preferred), "own")


def term(**fields):
    return {"topologyKey": "zone", "labelSelector": WEB, **fields}


@pytest.mark.parametrize(
    ("fields", "namespaces"),
    [
        pytest.param({}, ["own"], id="its own namespace where nothing is said"),
        pytest.param({"namespaces": [], "namespaceSelector": None}, ["own"], id="its own where both are null or empty"),
        pytest.param({"namespaces": ["a"]}, ["a"], id="those named"),
        pytest.param({"namespaceSelector": {}}, ["own", "a", "red", "unknown"], id="all by the empty selector"),
        pytest.param(
            {"namespaceSelector": {"matchLabels": {"team": "red"}}}, ["red"], id="those selected, not its own"
        ),
        pytest.param(
            {"namespaces": ["a"], "namespaceSelector": {"matchLabels": {"team": "red"}}},
            ["a", "red"],
            id="those named and those selected",
        ),
    ],
)
def test_a_term_is_about_pods_in(fields, namespaces):
    (found,) = compiled([term(**fields)]).required_affinity
    labels = {"own": {}, "a": {}, "red": {"team": "red"}, "unknown": {}}
    assert [name for name in labels if found.matches(name, labels[name], {"app": "web"})] == namespaces
    assert not any(found.matches(name, labels[name], {"app": "api"}) for name in labels)


def test_a_term_without_label_selector_is_about_no_pod():
    (found,) = compiled([{"topologyKey": "zone"}]).required_affinity
    assert not found.matches("own", {}, {})


def test_groups_are_kept_apart_and_anti_affinity_has_weights_below_zero():
    found = compiled([term()], [(5, term(topologyKey="rack"))], [term(topologyKey="host")], [(7, term())])
    assert [each.topology_key for each in found.required_affinity] == ["zone"]
    assert [each.topology_key for each in found.required_anti_affinity] == ["host"]
    assert [(each.topology_key, each.weight) for each in found.preferred] == [("rack", 5), ("zone", -7)]
    assert found.faults == ()


def test_equal_terms_are_equal_whatever_the_order_of_their_parts():
    one = compiled([term(namespaces=["a", "b"])])
    other = compiled(
        [
            term(
                namespaces=["b", "a"],
                labelSelector={"matchExpressions": [{"key": "app", "operator": "In", "values": ["web"]}]},
            )
        ]
    )
    assert one == other
    assert hash(one) == hash(other)


def test_nothing_said_is_no_term_at_all():
    assert compile_affinity(None, None, "own") == AffinityTerms()
    assert compiled() == AffinityTerms()


@pytest.mark.parametrize(
    ("group", "left"),
    [
        pytest.param({"required": [term(), BROKEN]}, (0, 1, 2), id="required affinity"),
        pytest.param({"anti_required": [term(), BROKEN]}, (1, 0, 2), id="required anti-affinity"),
        pytest.param({"preferred": [(1, term()), (1, BROKEN)]}, (1, 1, 1), id="preferred affinity"),
        pytest.param({"anti_preferred": [(1, BROKEN)]}, (1, 1, 1), id="preferred anti-affinity"),
        pytest.param(
            {"required": [term(namespaceSelector=BROKEN["labelSelector"])]}, (0, 1, 2), id="a namespace selector"
        ),
    ],
)
def test_what_cannot_be_read_takes_only_its_own_group_away(group, left):
    whole = {
        "required": [term()],
        "anti_required": [term()],
        "preferred": [(1, term())],
        "anti_preferred": [(1, term())],
    }
    found = compiled(**{**whole, **group})
    assert (len(found.required_affinity), len(found.required_anti_affinity), len(found.preferred)) == left
    (fault,) = found.faults
    assert "'Like'" in fault
