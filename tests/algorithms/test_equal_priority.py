from __future__ import annotations

import pytest

from algorithms.equal_priority import EqualPriority
from extender.testing import make_node, make_pod
from extender.testing.lab import Lab

CASES = {
    "an empty node and a tainted one": [make_node("n1"), make_node("n2", taints=["a=b:PreferNoSchedule"])],
    "one node alone": [make_node("n1")],
    "a full node and an idle one": [
        make_node("n1", cpu=1),
        make_node("n2"),
        make_pod("p", node="n1", requests={"cpu": 1}),
    ],
}


@pytest.mark.parametrize("objects", CASES.values(), ids=CASES)
def test_every_node_gets_the_same(objects: list[dict[str, object]]) -> None:
    scores = Lab(objects).score(EqualPriority, make_pod("pending"))
    assert set(scores.raw.values()) == {1}
    assert scores.normalized == scores.raw
