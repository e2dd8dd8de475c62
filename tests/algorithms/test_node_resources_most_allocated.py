"""NodeResourcesMostAllocated, by a table of cases, and as the scoring strategy of NodeResourcesFit."""

import pytest
from pydantic import ValidationError

from algorithms.node_resources_fit import NodeResourcesFit
from algorithms.node_resources_most_allocated import NodeResourcesMostAllocated
from extender.config import explain
from extender.testing.maker import make_pod
from tests.algorithms.allocation import REFUSED, USED, lab


@pytest.mark.parametrize(("requests", "args", "score"), USED)
def test_score(requests, args, score):
    found = lab().score(NodeResourcesMostAllocated, make_pod("p", requests=requests), args)
    assert found.raw == found.normalized == {"n": score}


@pytest.mark.parametrize(("requests", "args", "score"), USED)
def test_the_strategy_of_that_name_scores_the_same(requests, args, score):
    strategy = {"scoringStrategy": {"type": "MostAllocated", **args}}
    found = lab().score(NodeResourcesFit, make_pod("p", requests=requests), strategy)
    assert found.normalized == {"n": score}


@pytest.mark.parametrize(("args", "finding"), REFUSED)
def test_wrong_arguments(args, finding):
    with pytest.raises(ValidationError) as refusal:
        NodeResourcesMostAllocated.Arguments.model_validate(args)
    assert explain(refusal.value) == [finding]
