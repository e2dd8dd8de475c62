"""From the names in a profile to bound algorithms: order, weights, arguments, and every finding with its path."""

from __future__ import annotations

from typing import Any

import pytest

from extender.errors import ConfigurationError
from extender.framework.loader import default_set
from extender.framework.mirror import Mirror
from extender.framework.profile import ProfileBinder, watched_kinds
from extender.framework.registry import Registry
from extender.framework.runner import Profile
from extender.section import ProfileSection
from tests.extender.specimen import PATH

DEFAULT = default_set()


def bind(predicates: Any = None, priorities: Any = None, mirror: Mirror | None = None) -> Profile:
    section = ProfileSection.model_validate({"predicates": predicates or {}, "priorities": priorities or {}})
    return ProfileBinder(Registry(), mirror or Mirror(), "profiles[0]").bind(section)


def names(profile: Profile) -> list[str]:
    return [predicate.name for predicate in profile.predicates]


def weights(profile: Profile) -> dict[str, int]:
    return {weighted.priority.name: weighted.weight for weighted in profile.priorities}


def findings(predicates: Any = None, priorities: Any = None) -> tuple[str, ...]:
    with pytest.raises(ConfigurationError) as refusal:
        bind(predicates, priorities)
    return refusal.value.problems


def enabled(*entries: str | dict[str, Any]) -> dict[str, Any]:
    return {"enabled": [{"name": entry} if isinstance(entry, str) else entry for entry in entries]}


def test_a_profile_that_names_nothing_has_the_default_algorithms() -> None:
    profile = bind()
    assert names(profile) == list(DEFAULT.predicates)
    assert weights(profile) == dict(DEFAULT.priorities)


def test_mandatory_predicates_run_first_where_they_are_not_named() -> None:
    assert names(bind(enabled())) == list(DEFAULT.mandatory)
    assert names(bind(enabled("NodePorts", "NodeName"))) == [*DEFAULT.mandatory, "NodePorts", "NodeName"]
    assert names(bind(enabled("NodeName", *DEFAULT.mandatory))) == ["NodeName", *DEFAULT.mandatory]


def test_what_is_disabled_does_not_run() -> None:
    profile = bind({"disabled": ["NodePorts"]}, {"disabled": ["ImageLocality"]})
    assert names(profile) == [name for name in DEFAULT.predicates if name != "NodePorts"]
    assert weights(profile) == {name: weight for name, weight in DEFAULT.priorities.items() if name != "ImageLocality"}


def test_algorithms_from_outside_run_like_any_other_with_weight_and_arguments() -> None:
    profile = bind(
        enabled({"name": f"{PATH}:Picky", "args": {"names": ["n1"]}}), enabled({"name": f"{PATH}:Graded", "weight": 7})
    )
    assert profile.predicates[-1].args.names == ("n1",)
    assert weights(profile) == {"Graded": 7}
    assert profile.weight_sum == 7


def test_a_weight_that_is_left_out_is_the_default_one() -> None:
    found = weights(
        bind(priorities=enabled("TaintToleration", f"{PATH}:Graded", {"name": "NodeAffinity", "weight": 9}))
    )
    assert found == {"TaintToleration": DEFAULT.priorities["TaintToleration"], "Graded": 1, "NodeAffinity": 9}


def test_arguments_given_to_the_predicate_hold_for_the_priority() -> None:
    args = {"scoringStrategy": {"type": "MostAllocated"}}
    profile = bind(enabled({"name": "NodeResourcesFit", "args": args}), enabled("NodeResourcesFit"))
    (weighted,) = profile.priorities
    assert weighted.priority.args.scoring_strategy.type == "MostAllocated"


def test_algorithms_that_use_one_cache_share_it() -> None:
    mirror = Mirror()
    profile = bind(enabled("NodeResourcesFit"), enabled("NodeResourcesFit", "NodeResourcesBalancedAllocation"), mirror)
    algorithms: list[Any] = [profile.predicates[-1], *(weighted.priority for weighted in profile.priorities)]
    assert len({id(algorithm.resources) for algorithm in algorithms}) == 1
    assert len(list(mirror.caches)) == 1


def test_only_what_the_enabled_algorithms_need_is_watched() -> None:
    assert {kind.name for kind in watched_kinds(bind(enabled(), enabled()))} == {"Node", "Pod", "PodDisruptionBudget"}


# --- findings --------------------------------------------------------------------------------------------------------


def test_all_findings_come_at_once_each_with_its_path() -> None:
    bounded, graded = f"{PATH}:Bounded", f"{PATH}:Graded"
    predicates = ("NodeResourceFit", "NodeName", {"name": bounded, "args": {"most": 0, "least": 1}}, "NodeName", graded)
    found = findings(
        {**enabled(*predicates), "disabled": ["NodePorts", "TaintToleration"]},
        enabled(bounded, graded, graded, f"{PATH}:Missing"),
    )
    # What is known depends on what was loaded before.
    assert [finding.partition("; known are ")[0].removeprefix("profiles[0].") for finding in found] == [
        "predicates.enabled[0].name: no algorithm named 'NodeResourceFit'; did you mean 'NodeResourcesFit'?",
        "predicates.enabled[3].name: NodeName is enabled twice",
        "predicates.disabled[1]: TaintToleration is mandatory and cannot be disabled",
        "predicates.enabled[4]: Graded is a priority and no predicate; it belongs under priorities",
        "priorities.enabled[2].name: Graded is enabled twice",
        f"priorities.enabled[3].name: import path '{PATH}:Missing': module '{PATH}' has no attribute 'Missing'",
        "priorities.enabled[0]: Bounded is a predicate and no priority; it belongs under predicates",
        "predicates.enabled[2].args.most: must be >= 1, got 0",
        "predicates.enabled[2].args.least: unknown key; remove it or correct its spelling",
    ]


@pytest.mark.parametrize("reference", ["noderesourcesfit", "NodeResourceFit", "NodeResources", "TaintTolerations"])
def test_a_name_that_is_nearly_right_is_mended(reference: str) -> None:
    (finding,) = findings(enabled(reference))
    assert "did you mean '" in finding


def test_a_name_like_no_other_is_told_what_there_is() -> None:
    (finding,) = findings(enabled("Zzz"))
    assert "no algorithm named 'Zzz'; known are " in finding
    assert "NodeResourcesFit" in finding
