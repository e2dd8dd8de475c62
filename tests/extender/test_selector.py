"""Label and node selectors: operators, emptiness, faults and canonical form."""

import pytest

from extender.errors import SelectorError
from extender.model.object import (
    LabelSelector,
    NodeSelector,
    NodeSelectorTerm,
    PreferredSchedulingTerm,
)
from extender.model.object import Requirement as Expression
from extender.model.selector import (
    Operator,
    Requirement,
    compile_label_selector,
    compile_node_selector,
    compile_node_selector_term,
    compile_preferred_terms,
)


def label_term(*expressions):
    return NodeSelectorTerm(match_expressions=[Expression(*each) for each in expressions])


def field_term(*expressions):
    return NodeSelectorTerm(match_fields=[Expression("metadata.name", *each) for each in expressions])


@pytest.mark.parametrize(
    ("operator", "values", "accepted", "refused"),
    [
        pytest.param("In", ["a", "b"], ["a", "b"], ["c", "", None], id="In wants one of the values"),
        pytest.param("NotIn", ["a"], ["b", "", None], ["a"], id="NotIn holds where the key is absent"),
        pytest.param("Exists", None, ["a", ""], [None], id="Exists wants the key with any value"),
        pytest.param("DoesNotExist", [], [None], ["a", ""], id="DoesNotExist wants the key absent"),
        pytest.param("Gt", ["5"], ["6", "+6", "06"], ["5", "4", "", None], id="Gt is strictly above"),
        pytest.param("Lt", ["5"], ["4", "-6"], ["5", "6", None], id="Lt is strictly below"),
        pytest.param("Gt", ["0"], ["1"], ["1.5", "1_0", " 1", "1k", "٣"], id="Gt reads integers as Go does"),
        pytest.param("Gt", ["0"], [str(2**63 - 1)], [str(2**63)], id="Gt reads no more than 64 bits"),
    ],
)
def test_operator(operator, values, accepted, refused):
    term = compile_node_selector_term(label_term(("disk", operator, values)))
    (requirement,) = term.labels
    assert [value for value in (*accepted, *refused) if requirement.accepts(value)] == accepted
    for value in (*accepted, *refused):
        labels = {"other": "x"} if value is None else {"disk": value}
        assert term.matches(labels, "n1") is (value in accepted)


def test_no_label_selector_matches_nothing():
    matcher = compile_label_selector(None)
    assert not matcher.matches({"a": "b"})
    assert not matcher.matches(None)
    assert not matcher.empty


def test_an_empty_label_selector_matches_everything():
    matcher = compile_label_selector(LabelSelector(match_labels={}, match_expressions=[]))
    assert matcher.empty
    assert matcher.matches(None)
    assert matcher.matches({"a": "b"})


def test_all_parts_of_a_label_selector_must_hold():
    matcher = compile_label_selector(LabelSelector({"app": "web"}, [Expression("tier", "NotIn", ["test"])]))
    assert matcher.matches({"app": "web"})
    assert matcher.matches({"app": "web", "tier": "prod"})
    assert not matcher.matches({"app": "web", "tier": "test"})
    assert not matcher.matches({"tier": "prod"})
    assert not matcher.matches(None)


def test_selectors_of_one_meaning_are_equal_and_hash_alike():
    one = LabelSelector({"app": "web"}, [Expression("tier", "In", ["a", "b"]), Expression("tier", "In", ["b", "a"])])
    other = LabelSelector(None, [Expression("tier", "In", ["b", "a"]), Expression("app", "In", ["web"])])
    assert compile_label_selector(one) == compile_label_selector(other)
    assert hash(compile_label_selector(one)) == hash(compile_label_selector(other))
    assert compile_label_selector(one).requirements == (
        Requirement("app", Operator.IN, frozenset({"web"})),
        Requirement("tier", Operator.IN, frozenset({"a", "b"})),
    )
    assert compile_node_selector_term(label_term(("gen", "Gt", ["05"]))) == compile_node_selector_term(
        label_term(("gen", "Gt", ["5"]))
    )


FAULTS = [
    pytest.param("tier", "Matches", ["a"], "one of In, NotIn, Exists, DoesNotExist", id="an unknown operator"),
    pytest.param("tier", "in", ["a"], "one of In, NotIn", id="an operator in another case"),
    pytest.param("tier", None, ["a"], "one of In, NotIn", id="a missing operator"),
    pytest.param("tier", "In", [], "at least one value", id="In without values"),
    pytest.param("tier", "NotIn", None, "at least one value", id="NotIn without values"),
    pytest.param("tier", "Exists", ["a"], "takes no values", id="Exists with values"),
    pytest.param("tier", "In", ["no blanks"], "cannot be the value of a label", id="a value no label can have"),
    pytest.param("tier", "In", ["x" * 64], "cannot be the value of a label", id="a value of 64 characters"),
    pytest.param("-tier", "Exists", None, "not a label key", id="a key no label can have"),
    pytest.param("a/b/tier", "Exists", None, "not a label key", id="a key with two slashes"),
]
NODE_FAULTS = [
    pytest.param("tier", "Gt", ["five"], "a decimal integer", id="Gt with a word"),
    pytest.param("tier", "Lt", ["1", "2"], "needs one value", id="Lt with two values"),
    pytest.param("tier", "Gt", None, "needs one value", id="Gt without a value"),
    pytest.param("tier", "Gt", ["-1"], "cannot be the value of a label", id="Gt with a sign"),
]


@pytest.mark.parametrize(("key", "operator", "values", "problem"), FAULTS)
def test_a_label_selector_that_kubernetes_refuses_names_the_expression(key, operator, values, problem):
    with pytest.raises(SelectorError) as caught:
        compile_label_selector(LabelSelector(None, [Expression(key, operator, values)]))
    assert problem in str(caught.value)
    assert repr(key) in str(caught.value)
    assert repr(operator or "") in str(caught.value)


def test_match_labels_are_checked_as_well():
    with pytest.raises(SelectorError, match="cannot be the value of a label"):
        compile_label_selector(LabelSelector({"app": "no blanks"}))


def test_label_selectors_do_not_know_gt():
    with pytest.raises(SelectorError, match="DoesNotExist"):
        compile_label_selector(LabelSelector(None, [Expression("gen", "Gt", ["5"])]))


@pytest.mark.parametrize(("key", "operator", "values", "problem"), [*FAULTS, *NODE_FAULTS])
def test_a_faulty_required_term_matches_nothing_and_spares_the_others(key, operator, values, problem):
    faulty, sound = label_term((key, operator, values)), label_term(("zone", "In", ["z1"]))
    matcher = compile_node_selector(NodeSelector([faulty, sound]))
    assert len(matcher.faults) == 1
    assert problem in matcher.faults[0]
    assert matcher.matches({"zone": "z1"}, "n1")
    assert not matcher.matches({"tier": "a"}, "n1")
    assert not compile_node_selector(NodeSelector([faulty])).matches({"tier": "a", "zone": "z1"}, "n1")


@pytest.mark.parametrize(
    ("operator", "values", "matching"),
    [
        pytest.param("In", ["n1"], ["n1"], id="In wants that name"),
        pytest.param("NotIn", ["n1"], ["n2", "n3"], id="NotIn wants any other name"),
    ],
)
def test_names(operator, values, matching):
    term = compile_node_selector_term(field_term((operator, values)))
    assert [name for name in ("n1", "n2", "n3") if term.matches({"a": "b"}, name)] == matching


@pytest.mark.parametrize(
    ("operator", "values", "problem"),
    [
        pytest.param("In", ["n1", "n2"], "exactly one value", id="two names"),
        pytest.param("NotIn", [], "exactly one value", id="no name"),
        pytest.param("Exists", None, "one of In, NotIn", id="an operator that fields do not have"),
    ],
)
def test_name_faults(operator, values, problem):
    with pytest.raises(SelectorError, match=problem):
        compile_node_selector_term(field_term((operator, values)))


def test_a_field_other_than_the_name_reads_as_empty():
    wanted = NodeSelectorTerm(match_fields=[Expression("spec.podCIDR", "In", ["n1"])])
    unwanted = NodeSelectorTerm(match_fields=[Expression("spec.podCIDR", "NotIn", ["n1"])])
    assert not compile_node_selector_term(wanted).matches({}, "n1")
    assert compile_node_selector_term(unwanted).matches({}, "n1")


def test_labels_and_fields_of_a_term_must_both_hold():
    term = NodeSelectorTerm([Expression("zone", "In", ["z1"])], [Expression("metadata.name", "NotIn", ["n1"])])
    compiled = compile_node_selector_term(term)
    assert compiled.matches({"zone": "z1"}, "n2")
    assert not compiled.matches({"zone": "z1"}, "n1")
    assert not compiled.matches({"zone": "z2"}, "n2")


def test_an_empty_term_matches_nothing():
    assert not compile_node_selector_term(NodeSelectorTerm()).matches({"zone": "z1"}, "n1")


@pytest.mark.parametrize(
    ("required", "labels", "matching"),
    [
        pytest.param(None, None, ["n1", "n2", "n3", "n4"], id="nothing required matches every node"),
        pytest.param(None, {"zone": "z1"}, ["n1", "n2"], id="a nodeSelector alone"),
        pytest.param(NodeSelector([]), None, [], id="a selector without terms matches nothing"),
        pytest.param(NodeSelector([NodeSelectorTerm()]), None, [], id="an empty term matches nothing"),
        pytest.param(
            NodeSelector([label_term(("disk", "Exists")), field_term(("In", ["n3"]))]),
            None,
            ["n2", "n3"],
            id="one term is enough",
        ),
        pytest.param(
            NodeSelector([label_term(("disk", "Exists")), field_term(("In", ["n3"]))]),
            {"zone": "z1"},
            ["n2"],
            id="the nodeSelector holds besides the terms",
        ),
        pytest.param(None, {"zone": "no blanks"}, ["n4"], id="a nodeSelector is not checked"),
    ],
)
def test_node_selector(required, labels, matching):
    nodes = {
        "n1": {"zone": "z1"},
        "n2": {"zone": "z1", "disk": "ssd"},
        "n3": {"zone": "z2"},
        "n4": {"zone": "no blanks"},
    }
    matcher = compile_node_selector(required, labels)
    assert [name for name, has in nodes.items() if matcher.matches(has, name)] == matching
    assert matcher.faults == ()


def test_preferences_without_weight_or_expressions_are_left_out():
    faulty = label_term(("disk", "Matches"))
    preferred = [
        PreferredSchedulingTerm(10, label_term(("disk", "Exists"))),
        PreferredSchedulingTerm(0, faulty),
        PreferredSchedulingTerm(5, NodeSelectorTerm()),
        PreferredSchedulingTerm(None, None),
    ]
    (kept,) = compile_preferred_terms(preferred)
    assert kept.weight == 10
    assert kept.term.matches({"disk": "ssd"}, "n1")
    assert compile_preferred_terms(None) == ()


def test_a_faulty_preference_is_an_error():
    with pytest.raises(SelectorError, match="'disk' 'Matches'"):
        compile_preferred_terms([PreferredSchedulingTerm(1, label_term(("disk", "Matches")))])
