"""Taints and tolerations: the reported faults of B39, and rules that those leave open."""

from pathlib import Path

import msgspec
import pytest
import yaml

from extender.model.object import Node, Pod, Taint, Toleration
from extender.model.toleration import (
    NO_EXECUTE,
    NO_SCHEDULE,
    PREFER_NO_SCHEDULE,
    count_intolerable_prefer_no_schedule,
    find_untolerated,
    tolerates,
)

DATA = Path(__file__).parents[1] / "data" / "cases"
CASES = yaml.safe_load((DATA / "B39-taints-tolerations.yaml").read_text())["cases"]
EXPECTED = dict(
    line.split(": ", 1)
    for line in (DATA / "B39-taints-tolerations.expected.txt").read_text().splitlines()
    if ": n1=" in line
)
UNSCHEDULABLE = Taint("node.kubernetes.io/unschedulable", None, NO_SCHEDULE)


def by_id(ask):
    return [pytest.param(case, id=case["id"]) for case in CASES if case.get("ask", "filter") == ask]


def tolerations(case):
    return msgspec.convert(case["incoming"], Pod).spec.tolerations


def taints(node):
    return (node.spec and node.spec.taints) or []


def test_the_expected_file_covers_every_case():
    assert set(EXPECTED) == {case["id"] for case in CASES}


@pytest.mark.parametrize("case", by_id("filter"))
def test_filter(case):
    (node,) = msgspec.convert(case["nodes"], list[Node])
    # spec.unschedulable counts as this taint, even where the node does not carry it.
    relevant = [UNSCHEDULABLE] if case.get("plugin") == "NodeUnschedulable" else taints(node)
    untolerated = find_untolerated(relevant, tolerations(case), (NO_SCHEDULE, NO_EXECUTE))
    assert ("pass" if untolerated is None else "FAIL UU") == EXPECTED[case["id"]].removeprefix("n1=").split(" (")[0]


@pytest.mark.parametrize("case", by_id("score"))
def test_score(case):
    nodes = msgspec.convert(case["nodes"], list[Node])
    counts = [
        f"{{{n.metadata.name} {count_intolerable_prefer_no_schedule(taints(n), tolerations(case))}}}" for n in nodes
    ]
    assert EXPECTED[case["id"]].endswith(f"raw [{' '.join(counts)}]")


@pytest.mark.parametrize(
    ("toleration", "taint", "expected"),
    [
        pytest.param(Toleration("a", "Exists"), Taint("b", "1", NO_SCHEDULE), False, id="the key must be the same"),
        pytest.param(Toleration("a", "Equal", "2"), Taint("a", "1", NO_SCHEDULE), False, id="Equal compares the value"),
        pytest.param(Toleration("a", "Exists", "2"), Taint("a", "1", NO_SCHEDULE), True, id="Exists does not"),
        pytest.param(Toleration("a", "Lt", "5"), Taint("a", "1", NO_SCHEDULE), False, id="Lt tolerates nothing"),
        pytest.param(Toleration(), Taint("a", None, NO_SCHEDULE), True, id="an empty key with Equal is every key"),
        pytest.param(Toleration(), Taint("a", "1", NO_SCHEDULE), False, id="but then the value must be empty"),
        pytest.param(Toleration("", "", "", ""), Taint("a", "", NO_EXECUTE), True, id="empty is the same as absent"),
    ],
)
def test_tolerates(toleration, taint, expected):
    assert tolerates(toleration, taint) is expected


def test_the_first_untolerated_taint_of_the_effects_is_found():
    tainted = [Taint("a", "1", PREFER_NO_SCHEDULE), Taint("b", "1", NO_SCHEDULE), Taint("c", "1", NO_EXECUTE)]
    assert find_untolerated(tainted, None, (NO_SCHEDULE, NO_EXECUTE)) is tainted[1]
    assert find_untolerated(tainted, [Toleration("b", "Exists")], (NO_SCHEDULE, NO_EXECUTE)) is tainted[2]
    assert find_untolerated(tainted, [Toleration("b", "Exists")], (NO_SCHEDULE,)) is None
    assert find_untolerated(None, None, (NO_SCHEDULE,)) is None
