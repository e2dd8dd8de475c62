"""Many refusals become one outcome a candidate, the same whether or not their sets fit a byte."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from extender.errors import AlgorithmError
from extender.framework.algorithm import Refusal
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


@given(refused(most=20, fewest_candidates=0), st.integers(0, 3))
def test_a_candidate_has_the_reasons_of_all_that_refuse_it(drawn, first):
    candidates, refusals = drawn
    found = combine(refusals, candidates, "A", first)
    assert found.codes.shape == (candidates,)
    for place, code in enumerate(found.codes.tolist()):
        assert (found.outcomes[code - 1 - first] if code else None) == outcome_of(refusals, place)


@given(refused(most=8), st.integers(0, 3))
def test_refusals_of_nothing_change_nothing_though_with_them_the_sets_do_not_fit_a_byte(drawn, first):
    candidates, refusals = drawn
    idle = [refusal(np.zeros(candidates))] * 9
    few, many = combine(refusals, candidates, "A", first), combine([*refusals, *idle], candidates, "A", first)
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
    with pytest.raises(AlgorithmError, match=r"^A: a refusal"):
        combine(refusals, 2, "A")
