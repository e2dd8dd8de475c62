"""What several refusals of one candidate mean together."""

import numpy as np
import pytest

from extender.framework.algorithm import Predicate, Refusal
from extender.framework.runner import Outcome
from extender.testing.lab import Lab
from extender.testing.maker import make_node, make_pod


@pytest.mark.parametrize(
    ("refusals", "code", "resolvable"),
    [
        pytest.param([Refusal(None, "a")], "Unschedulable", True, id="eviction could help"),
        pytest.param([Refusal(None, "a", resolvable=False)], "UnschedulableAndUnresolvable", False, id="it could not"),
        pytest.param(
            [Refusal(None, "a"), Refusal(None, "b", resolvable=False)],
            "UnschedulableAndUnresolvable",
            False,
            id="it could help against one of the reasons alone",
        ),
        pytest.param([Refusal(None, "a", error=True)], "Error", False, id="the candidate could not be judged"),
        pytest.param(
            [Refusal(None, "a"), Refusal(None, "b", error=True)], "Error", False, id="not by all that was asked"
        ),
    ],
)
def test_refusals_together(refusals, code, resolvable):
    outcome = Outcome.of(refusals, "A")
    assert (outcome.code, outcome.resolvable, outcome.algorithm) == (code, resolvable, "A")
    assert outcome.reasons == tuple(refusal.reason for refusal in refusals)


class Puzzled(Predicate):
    """Cannot judge the first candidate."""

    def filter(self, pod, nodes):
        """Mark the first."""
        return [Refusal(np.arange(len(nodes)) == 0, "puzzling", error=True)]


def test_a_candidate_that_cannot_be_judged_does_not_spoil_the_others():
    found = Lab([make_node("a"), make_node("b")]).filter(Puzzled, make_pod("p"))
    assert found == {"a": Outcome(("puzzling",), resolvable=False, algorithm="Puzzled", error=True)}
