"""What entries of a profile say of one algorithm in two lists, of many with ``*``, and of none by a wrong name."""

from __future__ import annotations

from typing import Annotated, Any

import pytest
from pydantic import Field, field_validator

from extender.framework import SKIP, Args, Nodes, PendingPod, Predicate, Priority, Skip
from extender.framework.mirror import Mirror
from extender.framework.profile import ProfileBinder, rebind
from extender.framework.registry import Registry
from extender.section import ProfileSection
from tests.extender.bound_profile import args, names, weights
from tests.extender.specimen import PATH
from tests.extender.test_profile import bind, enabled, findings

HERE = __name__


class BothArgs(Args):
    """Bounded, and read by code that may fail."""

    least: Annotated[int, Field(ge=1)] = 1
    most: Annotated[int, Field(ge=1)] = 9

    @field_validator("most")
    @classmethod
    def _read(cls, value: int) -> int:
        if value == 13:
            raise LookupError("no such number")
        return value


class Both(Predicate, Priority):
    """Filters and scores."""

    Arguments = BothArgs

    def filter(self, pod: PendingPod, nodes: Nodes) -> Skip:
        return SKIP

    def prioritize(self, pod: PendingPod, nodes: Nodes) -> Skip:
        return SKIP


class Leaving(Both):
    """Cannot be made."""

    name = "Leaving"

    def __init__(self, *_: Any) -> None:
        raise SystemExit(4)


def both(**entry: Any) -> dict[str, Any]:
    return {"name": f"{HERE}:Both", **entry}


# --- arguments -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("filtering", "scoring"),
    [({"args": {"least": 3}}, {}), ({}, {"args": {"least": 3}}), ({"args": {"least": 3}}, {"args": {"least": 3}})],
    ids=["given to the predicate", "given to the priority", "given to both"],
)
def test_arguments_hold_for_predicate_and_priority_whoever_they_are_given_to(filtering: Any, scoring: Any) -> None:
    assert args(bind(enabled(both(**filtering)), enabled(both(**scoring))), "Both").least == 3


@pytest.mark.parametrize("other", [{}, {"least": 4}], ids=["no arguments are arguments: the defaults", "others"])
def test_arguments_that_differ_are_a_finding_with_both_places(other: Any) -> None:
    assert findings(enabled(both(args={"least": 3})), enabled(both(args=other))) == (
        "profiles[0].priorities.enabled[0].args: differ from profiles[0].predicates.enabled[0].args; "
        "Both has the same in both lists, so give them in one place",
    )


def test_no_arguments_stand_for_the_defaults_in_place_of_the_providers() -> None:
    def found(**entry: Any) -> Any:
        section = ProfileSection.model_validate(
            {
                "provider": "ClusterAutoscalerProvider",
                "priorities": {"enabled": [{"name": "NodeResourcesFit", **entry}]},
            }
        )
        return args(ProfileBinder(Registry(), Mirror(), "profile").bind(section), "NodeResourcesFit").scoring_strategy

    assert found().type == "MostAllocated"
    assert found(args={}).type == "LeastAllocated"


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({"least": 0}, ".least: must be >= 1, got 0"),
        ({"most": 13}, ": Both failed to read its arguments: LookupError: no such number"),
    ],
    ids=["out of bounds", "code that fails"],
)
def test_what_is_wrong_with_arguments_of_two_lists_is_found_once(given: Any, problem: str) -> None:
    found = findings(enabled(both(args=given)), enabled(both()))
    assert found == (f"profiles[0].predicates.enabled[0].args{problem}",)


def test_an_algorithm_that_leaves_is_a_finding_and_found_once() -> None:
    entry = enabled(f"{HERE}:Leaving")
    assert findings(entry, entry) == ("profiles[0]: Leaving failed to start: SystemExit: 4",)


def test_a_profile_bound_anew_is_the_same() -> None:
    profile = bind(
        enabled("*", both(args={"least": 2}, mode="shadow")), enabled(both(weight=3), "ImageLocality"), Mirror()
    )
    mirror = Mirror()
    again = rebind(profile, mirror)
    assert (names(again), weights(again), again.treatments) == (names(profile), weights(profile), profile.treatments)
    assert args(again, "Both") == args(profile, "Both")
    held = [cache for each in again.algorithms for cache in each.held_caches()]
    assert {id(cache) for cache in held} == {id(cache) for cache in mirror.caches}


# --- many ------------------------------------------------------------------------------------------------------------


def test_a_star_has_neither_arguments_nor_a_weight() -> None:
    remedy = "'*' stands for many algorithms, and has none; give it in an entry of the one it is for"
    assert findings(enabled({"name": "*", "args": {"a": 1}}), enabled({"name": "*", "weight": 7})) == (
        f"profiles[0].predicates.enabled[0].args: {remedy}",
        f"profiles[0].priorities.enabled[0].weight: {remedy}",
    )


def test_a_second_star_is_one_finding() -> None:
    assert findings(enabled("*", "NodeName", "*")) == ("profiles[0].predicates.enabled[2].name: '*' is enabled twice",)


# --- wrong names -----------------------------------------------------------------------------------------------------


def test_what_is_disabled_must_exist() -> None:
    assert findings({"disabled": ["*", "TaintTolerations"]}, {"disabled": ["nodename", f"{PATH}:Picky"]}) == (
        "profiles[0].predicates.disabled[1]: no algorithm named 'TaintTolerations'; did you mean 'TaintToleration'?",
        "profiles[0].priorities.disabled[0]: no algorithm named 'nodename'; did you mean 'NodeName'?",
        f"profiles[0].priorities.disabled[1]: '{PATH}:Picky' is an import path; "
        "give the algorithm's name, such as Picky",
    )


def test_what_is_disabled_need_not_run_otherwise() -> None:
    disabled = bind({"disabled": ["NodeLabel"]}, {**enabled(f"{PATH}:Graded"), "disabled": ["NodeLabel", "Graded"]})
    assert "NodeLabel" not in names(disabled)
    assert weights(disabled) == {}


def test_an_algorithm_in_the_wrong_list_is_told_where_it_belongs() -> None:
    wrong = {"enabled": [{"name": "ImageLocality"}], "disabled": ["EqualPriority"]}
    assert findings(wrong, {**enabled("NodeName"), "disabled": ["NodePorts"]}) == (
        "profiles[0].predicates.disabled[0]: EqualPriority is a priority and no predicate; it belongs under priorities",
        "profiles[0].predicates.enabled[0]: ImageLocality is a priority and no predicate; it belongs under priorities",
        "profiles[0].priorities.enabled[0]: NodeName is a predicate and no priority; it belongs under predicates",
        "profiles[0].priorities.disabled[0]: NodePorts is a predicate and no priority; it belongs under predicates",
    )
