from __future__ import annotations

import pytest

from algorithms.scheduling_gates import SchedulingGates
from extender.framework import SKIP
from extender.testing import make_node, make_pod
from extender.testing.lab import Lab

CASES = {
    "a pod without gates is not judged": ([], SKIP),
    "one gate refuses every node and is named": (
        ["example.com/hold"],
        "waiting for scheduling gates: [example.com/hold]",
    ),
    "all gates are named in order": (["b", "a"], "waiting for scheduling gates: [b a]"),
}


@pytest.mark.parametrize(("gates", "expected"), CASES.values(), ids=CASES)
def test_filter(gates: list[str], expected: object) -> None:
    lab = Lab([make_node("n1"), make_node("n2")])
    refused = lab.filter(SchedulingGates, make_pod("p", schedulingGates=[{"name": gate} for gate in gates]))
    if expected is SKIP:
        assert refused is SKIP
    else:
        assert {name: outcome.text for name, outcome in refused.items()} == {"n1": expected, "n2": expected}
        assert not any(outcome.resolvable for outcome in refused.values())
