"""NodeName, by a table of cases."""

import pytest

from algorithms.node_name import REASON, NodeName
from extender.framework import SKIP
from extender.framework.runner import Outcome
from extender.testing.lab import Lab
from extender.testing.maker import make_node, make_pod

OBJECTS = [make_node(name) for name in ("a", "b", "c")] + [make_pod("early", node="ghost")]


@pytest.mark.parametrize(
    ("node_name", "candidates", "refused"),
    [
        pytest.param("b", None, {"a", "c"}, id="the named node is the only one left"),
        pytest.param("b", ["c", "b"], {"c"}, id="candidates may come in any order and be few"),
        pytest.param("b", ["c", "a"], {"a", "c"}, id="nothing is left where the named node is no candidate"),
        pytest.param("nowhere", None, {"a", "b", "c"}, id="nothing is left where no node has the name"),
        pytest.param("ghost", None, {"a", "b", "c"}, id="a node known only by its pods is no candidate"),
        pytest.param(None, None, SKIP, id="a pod that names no node has no opinion asked of it"),
        pytest.param("", None, SKIP, id="the empty name names no node"),
    ],
)
def test_filter(node_name, candidates, refused):
    found = Lab(OBJECTS).filter(NodeName, make_pod("p", nodeName=node_name), nodes=candidates)
    if refused is not SKIP:
        refused = dict.fromkeys(refused, Outcome((REASON,), resolvable=False, algorithm="NodeName"))
    assert found == refused
