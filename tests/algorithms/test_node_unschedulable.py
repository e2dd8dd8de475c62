"""NodeUnschedulable, by a table of cases and by the reported faults that name it."""

from pathlib import Path

import pytest

from algorithms.node_unschedulable import REASON, NodeUnschedulable
from extender.framework.runner import Outcome
from extender.testing.casefile import check_case, read_cases
from extender.testing.lab import Lab
from extender.testing.maker import make_node, make_pod

TAINT = "node.kubernetes.io/unschedulable:NoSchedule"
OBJECTS = [
    make_node("open"),
    make_node("cordoned", unschedulable=True),
    make_node("tainted", taints=[TAINT]),
    make_node("both", unschedulable=True, taints=[TAINT]),
]
REPORTED = [
    case
    for case in read_cases(Path(__file__).parents[1] / "data" / "cases" / "B39-taints-tolerations.yaml")
    if case.plugin == "NodeUnschedulable"
]


@pytest.mark.parametrize(
    ("tolerations", "refused"),
    [
        pytest.param([], {"cordoned", "both"}, id="the flag counts, and the taint alone does not"),
        pytest.param([TAINT], set(), id="tolerating the taint is tolerating the flag"),
        pytest.param([""], set(), id="tolerating everything is tolerating the flag"),
        pytest.param(["node.kubernetes.io/unschedulable"], set(), id="any effect includes NoSchedule"),
        pytest.param(
            ["node.kubernetes.io/unschedulable:NoExecute"], {"cordoned", "both"}, id="another effect does not help"
        ),
        pytest.param(
            ["node.kubernetes.io/unschedulable=yes:NoSchedule"], {"cordoned", "both"}, id="the taint has no value"
        ),
        pytest.param(
            [{"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}],
            set(),
            id="an empty value equals none",
        ),
        pytest.param(["dedicated:NoSchedule"], {"cordoned", "both"}, id="another key does not help"),
    ],
)
def test_filter(tolerations, refused):
    found = Lab(OBJECTS).filter(NodeUnschedulable, make_pod("p", tolerations=tolerations))
    assert found == dict.fromkeys(refused, Outcome((REASON,), resolvable=False, algorithm="NodeUnschedulable"))


@pytest.mark.parametrize("case", [pytest.param(case, id=case.id) for case in REPORTED])
def test_reported_fault(case):
    check_case(case, NodeUnschedulable)


def test_it_runs_whatever_is_configured():
    assert NodeUnschedulable.mandatory
