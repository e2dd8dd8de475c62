"""How single algorithms are run: in shadow, with failures that do not count, and with a budget of time."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import numpy as np
import pytest

from extender.errors import AlgorithmError, ConfigurationError
from extender.framework import SKIP, IntArray, Nodes, PendingPod, Predicate, Priority, Refusal, Reserver
from extender.framework.mirror import Mirror
from extender.framework.preemption import Preemption
from extender.framework.profile import ProfileBinder
from extender.framework.registry import Registry
from extender.framework.runner import NoRecorder, Outcome, Profile, Runner, Weighted
from extender.framework.treatment import LOG_SECONDS, USUAL, Treatment
from extender.section import ProfileSection
from extender.testing import make_node, make_pod
from extender.testing.lab import Lab, pending
from extender.verbs.prioritize import to_wire
from extender.verbs.service import Service
from tests.extender.specimen import PATH

LAB = Lab([make_node(name) for name in "abcd"])
NODES = LAB.nodes(["a", "b", "c", "d"])
POD = pending(make_pod("p"))
SHADOW, IGNORE, QUICK = Treatment(shadow=True), Treatment(ignore_errors=True), Treatment(budget_seconds=1e-9)


class Recorder(NoRecorder):
    """Keeps what treatments tell."""

    def __init__(self) -> None:
        self.told: list[tuple[Any, ...]] = []

    def refused(self, *what: Any) -> None:
        self.told.append(("refused", *what))

    def failed(self, *what: Any) -> None:
        self.told.append(("failed", *what))

    def would_refuse(self, *what: Any) -> None:
        self.told.append(("would refuse", *what))

    def passed_over(self, *what: Any) -> None:
        self.told.append(("passed over", *what))

    def overran(self, *what: Any) -> None:
        self.told.append(("overran", *what))


def predicate(name: str, answer: Callable[[Nodes], Any], *more: type) -> Predicate:
    cls: Any = type(name, (*more, Predicate), {"filter": lambda _, pod, nodes: answer(nodes)})
    found: Predicate = cls(None, {})
    return found


def priority(name: str, answer: Callable[[Nodes], Any]) -> Priority:
    cls: Any = type(name, (Priority,), {"prioritize": lambda _, pod, nodes: answer(nodes)})
    found: Priority = cls(None, {})
    return found


def refusing(name: str, *names: str) -> Predicate:
    return predicate(name, lambda nodes: [Refusal(np.isin(np.array(nodes.names()), names), f"not by {name}")])


def scoring(name: str, *scores: int) -> Priority:
    return priority(name, lambda nodes: np.array(scores, np.int64))


def failing(nodes: Nodes) -> Any:
    raise ZeroDivisionError("by zero")


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def run(treatments: Mapping[tuple[str, str], Treatment], *algorithms: Any, **more: Any) -> tuple[Runner, Recorder]:
    """Return a runner of predicates, and of priorities of weight 1, with what it tells."""
    recorder = Recorder()
    predicates = [each for each in algorithms if isinstance(each, Predicate)]
    priorities = [Weighted(each, 1) for each in algorithms if isinstance(each, Priority)]
    return Runner(Profile(predicates, priorities, treatments=treatments), recorder, **more), recorder


def kept(runner: Runner) -> list[str]:
    return NODES.where(runner.filter(POD, NODES).fits).names()


# --- in shadow -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("check_all", [False, True])
def test_a_predicate_in_shadow_refuses_nothing_and_is_counted(check_all: bool) -> None:
    recorder = Recorder()
    predicates = [refusing("First", "a", "b"), refusing("Trial", "a", "c"), refusing("Last", "d")]
    profile = Profile(predicates, [], check_all, treatments={("filter", "Trial"): SHADOW})
    assert kept(Runner(profile, recorder)) == ["c"]
    asked_about = 2 if check_all else 1
    assert recorder.told == [
        ("refused", "First", "not by First", 2),
        ("would refuse", "Trial", "not by Trial", asked_about),
        ("refused", "Last", "not by Last", 1),
    ]


def test_what_a_predicate_in_shadow_would_refuse_is_logged_for_who_wants_to_know(
    caplog: pytest.LogCaptureFixture,
) -> None:
    runner, _ = run({("filter", "Trial"): SHADOW}, refusing("Trial", "a", "c"))
    with caplog.at_level(logging.DEBUG, "extender.framework.treatment"):
        runner.filter(POD, NODES)
    (record,) = caplog.records
    fields = {key: getattr(record, key) for key in ("algorithm", "pod", "nodes", "such_as", "candidates", "by")}
    assert (record.getMessage(), record.levelname) == ("would refuse", "DEBUG")
    assert fields == {
        "algorithm": "Trial",
        "pod": "default/p",
        "nodes": 2,
        "such_as": ["a", "c"],
        "candidates": 4,
        "by": {"not by Trial": 2},
    }


def test_a_priority_in_shadow_counts_for_nothing_and_takes_no_part_of_the_whole(
    caplog: pytest.LogCaptureFixture,
) -> None:
    runner, _ = run({("prioritize", "Trial"): SHADOW}, scoring("Real", 100, 50, 0, 0), scoring("Trial", 0, 0, 9, 9))
    with caplog.at_level(logging.DEBUG, "extender.framework.treatment"):
        totals = runner.prioritize(POD, NODES)
    assert totals.tolist() == [100, 50, 0, 0]
    assert to_wire(runner.profile, totals).tolist() == [10, 5, 0, 0]
    assert [(record.getMessage(), record.such_as, record.score) for record in caplog.records] == [  # type: ignore[attr-defined]
        ("would prefer", ["c", "d"], 9)
    ]


def test_a_failure_in_shadow_hurts_nobody() -> None:
    wrong = predicate("Wrong", lambda nodes: [Refusal(np.zeros(9, np.bool_), "too many")])
    treatments = {("filter", "Trial"): SHADOW, ("filter", "Wrong"): SHADOW, ("prioritize", "Score"): SHADOW}
    runner, recorder = run(treatments, predicate("Trial", failing), wrong, priority("Score", failing))
    assert kept(runner) == ["a", "b", "c", "d"]
    assert runner.prioritize(POD, NODES).tolist() == [0, 0, 0, 0]
    assert recorder.told == [
        ("failed", "Trial", "filter"),
        ("passed over", "Trial", "filter"),
        ("failed", "Wrong", "filter"),
        ("passed over", "Wrong", "filter"),
        ("failed", "Score", "prioritize"),
        ("passed over", "Score", "prioritize"),
    ]


def test_preemption_does_not_ask_what_is_in_shadow() -> None:
    asked: list[int] = []

    def note(nodes: Nodes) -> Any:
        asked.append(len(nodes))
        return [Refusal(None, "never")]

    lab = Lab([make_node("n"), make_pod("low", node="n", priority=0)])
    profile = Profile([predicate("Trial", note)], [], treatments={("filter", "Trial"): SHADOW})
    service = Service(lab.mirror, Runner(profile, NoRecorder()))
    evaluator = service.evaluator_of(POD)
    assert evaluator is not None
    preempting = pending(make_pod("high", priority=10))
    assert isinstance(evaluator.preemption, Preemption)
    assert not isinstance(evaluator.preemption.pick(preempting, 0), Outcome)
    assert not asked


# --- failures that do not count --------------------------------------------------------------------------------------


def test_a_failure_that_is_ignored_is_an_answer_of_no_opinion() -> None:
    wrong = priority("Wrong", lambda nodes: np.full(len(nodes), 101))
    treatments = {("filter", "Own"): IGNORE, ("prioritize", "Wrong"): IGNORE}
    runner, recorder = run(
        treatments, predicate("Own", failing), refusing("Last", "d"), wrong, scoring("S", 1, 2, 3, 4)
    )
    assert kept(runner) == ["a", "b", "c"]
    assert runner.prioritize(POD, NODES).tolist() == [1, 2, 3, 4]
    assert [what for what in recorder.told if what[0] == "passed over"] == [
        ("passed over", "Own", "filter"),
        ("passed over", "Wrong", "prioritize"),
    ]


def test_what_does_not_fail_counts_as_ever() -> None:
    treatments = {("filter", "Own"): IGNORE, ("prioritize", "S"): IGNORE}
    runner, recorder = run(treatments, refusing("Own", "a"), scoring("S", 1, 2, 3, 4))
    assert kept(runner) == ["b", "c", "d"]
    assert runner.prioritize(POD, NODES).tolist() == [1, 2, 3, 4]
    assert recorder.told == [("refused", "Own", "not by Own", 1)]


def test_a_failure_of_another_algorithm_is_not_ignored() -> None:
    runner, _ = run({("filter", "Own"): IGNORE}, refusing("Own"), predicate("Other", failing))
    with pytest.raises(AlgorithmError, match="Other: ZeroDivisionError: by zero"):
        runner.filter(POD, NODES)


def test_failures_are_logged_now_and_then_with_how_many_were_not(caplog: pytest.LogCaptureFixture) -> None:
    clock = Clock()
    runner, recorder = run({("filter", "Own"): IGNORE}, predicate("Own", failing), now_seconds=clock)
    for _ in range(5):
        runner.filter(POD, NODES)
    clock.now = LOG_SECONDS
    runner.filter(POD, NODES)
    assert recorder.told.count(("passed over", "Own", "filter")) == 6
    assert [(record.getMessage(), record.held_back) for record in caplog.records] == [  # type: ignore[attr-defined]
        ("algorithm failed and is passed over", 0),
        ("algorithm failed and is passed over", 4),
    ]
    assert "ZeroDivisionError: by zero" in caplog.text


# --- reserving -------------------------------------------------------------------------------------------------------


class Seat(Reserver, Predicate):
    """Reserves, or fails to."""

    result: ClassVar[Any] = {"seat": "1"}

    def filter(self, pod: PendingPod, nodes: Nodes) -> Any:
        return SKIP

    def reserve(self, pod: PendingPod, node: Any, now_seconds: float) -> Any:
        if isinstance(self.result, Exception):
            raise self.result
        return self.result


class ScoredSeat(Seat, Priority):
    """The same, and scores."""

    name = "Seat"

    def prioritize(self, pod: PendingPod, nodes: Nodes) -> IntArray:
        return np.zeros(len(nodes), np.int64)


def seat(cls: type[Seat] = Seat, result: Any = None) -> Seat:
    made = cls(None, {})
    if result is not None:
        made.result = result  # type: ignore[misc]
    return made


NODE = LAB.mirror.table.infos[0]


def reserved(profile: Profile) -> Any:
    assert NODE is not None
    return Runner(profile, Recorder()).reserve(POD, NODE, 0.0)


def test_what_is_in_shadow_reserves_nothing() -> None:
    profile = Profile([seat()], [], treatments={("filter", "Seat"): SHADOW})
    assert (list(profile.reservers), reserved(profile)) == ([], {})


def test_what_is_in_shadow_at_one_point_alone_reserves() -> None:
    both = seat(ScoredSeat)
    assert isinstance(both, Priority)
    profile = Profile([both], [Weighted(both, 1)], treatments={("filter", "Seat"): SHADOW})
    assert reserved(profile) == {"seat": "1"}


@pytest.mark.parametrize("result", [ZeroDivisionError("by zero"), {"seat": 1}, ["seat"]], ids=repr)
def test_a_failure_to_reserve_is_ignored_where_failures_to_filter_are(result: Any) -> None:
    with pytest.raises(AlgorithmError):
        reserved(Profile([seat(result=result)], []))
    assert reserved(Profile([seat(result=result)], [], treatments={("filter", "Seat"): IGNORE})) == {}


def test_a_refusal_to_reserve_is_no_failure() -> None:
    profile = Profile([seat(result=Refusal(None, "full"))], [], treatments={("filter", "Seat"): IGNORE})
    assert isinstance(reserved(profile), Outcome)


# --- budgets ---------------------------------------------------------------------------------------------------------


def test_runs_over_the_budget_are_reported_and_count(caplog: pytest.LogCaptureFixture) -> None:
    treatments = {("filter", "Own"): QUICK, ("prioritize", "S"): QUICK}
    runner, recorder = run(treatments, refusing("Own", "a"), scoring("S", 1, 2, 3, 4), now_seconds=Clock())
    for _ in range(2):
        assert kept(runner) == ["b", "c", "d"]
    assert runner.prioritize(POD, NODES).tolist() == [1, 2, 3, 4]
    assert recorder.told.count(("overran", "Own", "filter")) == 2
    assert recorder.told.count(("overran", "S", "prioritize")) == 1
    assert [(record.getMessage(), record.algorithm) for record in caplog.records] == [  # type: ignore[attr-defined]
        ("algorithm over its time budget", "Own"),
        ("algorithm over its time budget", "S"),
    ]


def test_runs_within_the_budget_are_not_reported() -> None:
    runner, recorder = run({("filter", "Own"): Treatment(budget_seconds=60)}, refusing("Own"))
    runner.filter(POD, NODES)
    assert not recorder.told


def test_who_is_treated_as_usual_is_run_as_it_is() -> None:
    runner, _ = run({("filter", "Other"): SHADOW}, refusing("Own"), refusing("Other"))
    evaluations = {predicate.name: evaluate for predicate, evaluate in runner._predicates}
    assert evaluations["Own"] == runner.evaluate
    assert evaluations["Other"] != runner.evaluate


# --- from the configuration ------------------------------------------------------------------------------------------


def bound(**lists: Any) -> Profile:
    section = ProfileSection.model_validate({key: {"enabled": entries} for key, entries in lists.items()})
    return ProfileBinder(Registry(), Mirror(), "profiles[0]").bind(section)


def test_entries_say_how_their_algorithms_are_run_at_their_point() -> None:
    own = {"name": f"{PATH}:Labelled", "mode": "shadow", "timeBudgetMillis": 2}
    scored = {"name": f"{PATH}:Graded", "onError": "ignore"}
    profile = bound(predicates=[own, {"name": "TaintToleration", "onError": "ignore"}], priorities=[scored])
    assert profile.treatment("filter", "Labelled") == Treatment(shadow=True, budget_seconds=0.002)
    assert profile.treatment("filter", "TaintToleration") == IGNORE
    assert profile.treatment("prioritize", "Graded") == IGNORE
    assert profile.treatment("filter", "Graded") == profile.treatment("filter", "NodeUnschedulable") == USUAL


def test_what_is_said_of_all_the_others_holds_for_each() -> None:
    profile = bound(priorities=[{"name": "*", "mode": "shadow"}, {"name": "ImageLocality"}])
    assert profile.treatment("prioritize", "NodeAffinity").shadow
    assert not profile.treatment("prioritize", "ImageLocality").shadow
    assert (profile.weight_sum, len(profile.priorities) > 1) == (1, True)
    assert [weighted.priority.name for weighted in profile.enforced.priorities] == ["ImageLocality"]


def test_a_mandatory_predicate_cannot_be_in_shadow() -> None:
    with pytest.raises(ConfigurationError) as refusal:
        bound(
            predicates=[{"name": "NodePorts"}, {"name": "TaintToleration", "mode": "shadow"}],
            priorities=[{"name": "TaintToleration", "mode": "shadow"}],
        )
    assert refusal.value.problems == (
        "profiles[0].predicates.enabled[1].mode: TaintToleration is mandatory and cannot be in shadow; let it enforce",
    )
