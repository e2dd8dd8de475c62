"""TaintToleration, by tables of cases, by the reported faults, and against the rules asked node by node."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from algorithms.taint_toleration import HARD_EFFECTS, REASON, TaintToleration
from extender.framework.runner import Outcome
from extender.model.toleration import count_intolerable_prefer_no_schedule, find_untolerated
from extender.testing.casefile import check_case, read_cases
from extender.testing.lab import Lab, pending
from extender.testing.maker import make_node, make_pod

REPORTED = [
    case
    for case in read_cases(Path(__file__).parents[1] / "data" / "cases" / "B39-taints-tolerations.yaml")
    if case.plugin == "TaintToleration"
]


def lab(taints):
    return Lab(make_node(name, taints=texts) for name, texts in taints.items())


HARD = {
    "bare": [],
    "gpu": ["dedicated=gpu:NoSchedule"],
    "drained": ["drained:NoExecute"],
    "soft": ["old:PreferNoSchedule"],
    "all": ["dedicated=gpu:NoSchedule", "drained:NoExecute", "old:PreferNoSchedule"],
}


@pytest.mark.parametrize(
    ("tolerations", "refused"),
    [
        pytest.param([], {"gpu", "drained", "all"}, id="NoSchedule and NoExecute keep off, PreferNoSchedule does not"),
        pytest.param(["dedicated=gpu"], {"drained", "all"}, id="every hard taint must be tolerated"),
        pytest.param(["dedicated", "drained"], set(), id="one toleration may answer for each taint"),
        pytest.param([""], set(), id="a toleration of everything answers for all"),
        pytest.param(["dedicated=cpu", "drained"], {"gpu", "all"}, id="another value does not help"),
        pytest.param(["dedicated:NoExecute", "drained"], {"gpu", "all"}, id="another effect does not help"),
    ],
)
def test_filter(tolerations, refused):
    found = lab(HARD).filter(TaintToleration, make_pod("p", tolerations=tolerations))
    assert found == dict.fromkeys(refused, Outcome((REASON,), resolvable=False, algorithm="TaintToleration"))


SOFT = {
    "none": [],
    "one": ["a:PreferNoSchedule"],
    "three": ["a:PreferNoSchedule", "b:PreferNoSchedule", "c:PreferNoSchedule"],
    "hard": ["a:NoSchedule", "b:PreferNoSchedule"],
}


@pytest.mark.parametrize(
    ("tolerations", "nodes", "raw", "normalized"),
    [
        pytest.param(
            [],
            None,
            {"none": 0, "one": 1, "three": 3, "hard": 1},
            {"none": 100, "one": 67, "three": 0, "hard": 67},
            id="fewer untolerated soft taints are better, the share rounded down before it is reversed",
        ),
        pytest.param(
            ["a", "b:PreferNoSchedule"],
            None,
            {"none": 0, "one": 0, "three": 1, "hard": 0},
            {"none": 100, "one": 100, "three": 0, "hard": 100},
            id="tolerated taints do not count",
        ),
        pytest.param(
            ["a:NoSchedule"],
            ["none", "one"],
            {"none": 0, "one": 1},
            {"none": 100, "one": 0},
            id="a toleration for a hard effect does not help",
        ),
        pytest.param([""], None, dict.fromkeys(SOFT, 0), dict.fromkeys(SOFT, 100), id="equally good nodes all get 100"),
        pytest.param([], ["three"], {"three": 3}, {"three": 0}, id="the worst node gets 0 though it is the only one"),
    ],
)
def test_score(tolerations, nodes, raw, normalized):
    found = lab(SOFT).score(TaintToleration, make_pod("p", tolerations=tolerations), nodes=nodes)
    assert (found.raw, found.normalized) == (raw, normalized)


@pytest.mark.parametrize("case", [pytest.param(case, id=case.id) for case in REPORTED])
def test_reported_fault(case):
    check_case(case, TaintToleration)


def test_it_runs_whatever_is_configured():
    assert TaintToleration.mandatory


KEYS, VALUES, EFFECTS = st.sampled_from("abc"), st.sampled_from("12"), ("NoSchedule", "PreferNoSchedule", "NoExecute")
TAINTS = st.lists(st.fixed_dictionaries({"key": KEYS, "effect": st.sampled_from(EFFECTS)}, optional={"value": VALUES}))
TOLERATIONS = st.lists(
    st.fixed_dictionaries(
        {},
        optional={
            "key": KEYS,
            "value": VALUES,
            "operator": st.sampled_from(["Exists", "Equal", "", "Gt"]),
            "effect": st.sampled_from([*EFFECTS, ""]),
        },
    )
)


@given(taints=st.lists(TAINTS, min_size=1, max_size=6), tolerations=TOLERATIONS)
def test_columns_agree_with_the_rules_asked_node_by_node(taints, tolerations):
    cluster = lab({f"n{place}": each for place, each in enumerate(taints)})
    pod = make_pod("p", tolerations=tolerations)
    parsed = pending(pod).tolerations
    infos = list(cluster.nodes().infos())
    refused = {info.name for info in infos if find_untolerated(info.taints, parsed, HARD_EFFECTS)}
    counts = {info.name: count_intolerable_prefer_no_schedule(info.taints, parsed) for info in infos}
    assert cluster.filter(TaintToleration, pod).keys() == refused
    assert cluster.score(TaintToleration, pod).raw == counts
