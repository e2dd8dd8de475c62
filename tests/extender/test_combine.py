"""Many refusals become one outcome a candidate, the same whether or not their sets fit a byte."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from extender.errors import AnswerError
from extender.framework.algorithm import NodeRefusals, Refusal
from extender.framework.runner import Outcome, combine


def refusal(nodes, reason="a", *, resolvable=True):
    return Refusal(None if nodes is None else np.array(nodes, np.bool_), reason, resolvable)


@st.composite
def refused(draw, most, fewest_candidates=1):
    """Draw a number of candidates and refusals of them; a refusal may name none, and reasons may be equal."""
    candidates = draw(st.integers(fewest_candidates, 12))
    masks = st.none() | st.lists(st.booleans(), min_size=candidates, max_size=candidates)
    drawn = st.builds(refusal, masks, st.sampled_from("abcd"), resolvable=st.booleans())
    return candidates, draw(st.lists(drawn, max_size=most))


def outcome_of(refusals, place):
    named = [each for each in refusals if each.nodes is None or each.nodes[place]]
    if not named:
        return None
    reasons = tuple(dict.fromkeys(each.reason for each in named))
    return Outcome(reasons, all(each.resolvable for each in named), "A")


@given(refused(most=20, fewest_candidates=0))
def test_a_candidate_has_the_reasons_of_all_that_refuse_it(drawn):
    candidates, refusals = drawn
    found = combine(refusals, candidates, "A")
    assert found.codes.shape == (candidates,)
    for place in range(candidates):
        assert found.of(place) == outcome_of(refusals, place)


@given(refused(most=8))
def test_refusals_of_nothing_change_nothing_though_with_them_the_sets_do_not_fit_a_byte(drawn):
    candidates, refusals = drawn
    idle = [refusal(np.zeros(candidates))] * 9
    few, many = combine(refusals, candidates, "A"), combine([*refusals, *idle], candidates, "A")
    assert few.codes.tolist() == many.codes.tolist()
    assert few.outcomes == many.outcomes


@pytest.mark.parametrize(
    "refusals",
    [
        pytest.param([refusal([True, False], "")], id="a refusal must have a reason"),
        pytest.param([refusal([True, False]), refusal([True])], id="a mask must be as long as the candidates"),
        pytest.param([refusal(None), Refusal(np.array([1, 0]), "a")], id="a mask must be bool"),
    ],
)
def test_refusals_that_are_no_answer(refusals):
    with pytest.raises(AnswerError, match=r"^a refusal"):
        combine(refusals, 2, "A")


@given(st.lists(st.sampled_from([None, "a", "b", "c"]), max_size=6))
def test_one_code_a_node_is_the_same_as_one_mask_a_reason(answers):
    reasons = list(dict.fromkeys(filter(None, answers)))
    codes = np.array([reasons.index(answer) + 1 if answer else 0 for answer in answers], np.int64)
    coded = NodeRefusals(codes, reasons, [reason != "b" for reason in reasons])
    found, other = combine(coded, len(answers), "A"), combine(list(coded), len(answers), "A")
    assert [found.of(place) for place in range(len(answers))] == [other.of(place) for place in range(len(answers))]
    assert [each.reason for each in coded[1:]] == reasons[1:]


def test_codes_must_be_as_many_as_the_candidates():
    with pytest.raises(AnswerError, match=r"bool of shape \(2,\), got bool of shape \(3,\)"):
        combine(NodeRefusals(np.array([1, 0, 0]), ["a"], [True]), 2, "A")
