"""What an algorithm returns is checked where it is run: no answer is named, counted and treated like a failure."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from extender.errors import AlgorithmError
from extender.framework import IntArray, NodeInfo, NodePredicate, NodePriority, Nodes, PendingPod, Predicate, Refusal
from extender.framework.algorithm import Priority, Reserver
from extender.framework.runner import NoRecorder, Outcome, Profile, Runner, Weighted
from extender.framework.treatment import Treatment
from extender.testing import make_node, make_pod
from extender.testing.lab import Lab, pending

LAB = Lab([make_node(name, labels={} if name == "e" else {"team": "red"}) for name in "abcde"])
NODES = LAB.nodes(list("abcde"))
POD = pending(make_pod("p"))
NODE = LAB.mirror.table.infos[LAB.mirror.table.index["a"]]


class Recorder(NoRecorder):
    """Keeps failures, those that are ignored, and refusals."""

    def __init__(self) -> None:
        self.told: list[tuple[Any, ...]] = []

    def failed(self, *what: Any) -> None:
        self.told.append(("failed", *what))

    def passed_over(self, *what: Any) -> None:
        self.told.append(("passed over", *what))

    def refused(self, *what: Any) -> None:
        self.told.append(("refused", *what))


def made(*bases: type, **methods: Callable[..., Any]) -> Any:
    cls = type("Bad", bases, {name: staticmethod(method) for name, method in methods.items()})
    return cls(None, {})


def exits(*_: Any) -> Any:
    raise SystemExit(3)


FITS: dict[str, tuple[Any, str]] = {
    "true": (lambda pod, node: True, "Bad: fits must return text or None, got bool"),
    "a comparison": (lambda pod, node: np.bool_(False), "Bad: fits must return text or None, got bool"),
    "a list": (lambda pod, node: ["no"], "Bad: fits must return text or None, got list"),
    "an empty reason": (lambda pod, node: "", "Bad: a refusal must have a reason"),
    "an exit": (exits, "Bad: SystemExit: 3"),
}
MASKS: dict[str, tuple[Any, str]] = {
    "too short a mask": (
        lambda pod, nodes: [Refusal(np.ones(3, np.bool_), "x")],
        "Bad: a refusal's nodes must be bool of shape (5,), got bool of shape (3,)",
    ),
    "numbers as a mask": (
        lambda pod, nodes: [Refusal(np.ones(5, np.int64), "x")],  # type: ignore[arg-type]
        "Bad: a refusal's nodes must be bool of shape (5,), got int64 of shape (5,)",
    ),
    "no reason": (lambda pod, nodes: [Refusal(None, "")], "Bad: a refusal must have a reason"),
    "a number as a reason": (
        lambda pod, nodes: [Refusal(None, 5)],  # type: ignore[arg-type]
        "Bad: a refusal's reason must be text, got int",
    ),
    "nothing": (lambda pod, nodes: None, "Bad: TypeError: 'NoneType' object is not iterable"),
}
SCORES: dict[str, tuple[Any, str]] = {
    "a fraction": (lambda pod, node: 1.5, "Bad: score must return an integer, got float"),
    "a truth": (lambda pod, node: True, "Bad: score must return an integer, got bool"),
    "text": (lambda pod, node: "5", "Bad: score must return an integer, got str"),
    "too much": (lambda pod, node: 101, "Bad: normalised scores must be 0 to 100, got 101 to 101"),
    "an exit": (exits, "Bad: SystemExit: 3"),
}
COLUMNS: dict[str, tuple[Any, str]] = {
    "a list": (lambda pod, nodes: [1] * 5, "Bad: scores must be integers of shape (5,), got list"),
    "too little": (
        lambda pod, nodes: np.full(5, -1),
        "Bad: normalised scores must be 0 to 100, got -1 to -1",
    ),
}
RESERVED: dict[str, tuple[Any, str]] = {
    "a number": (lambda *_: {"seat": 5}, "Bad: a reserver must return annotations of text, got {'seat': 5}"),
    "false": (lambda *_: False, "Bad: a reserver must return annotations of text, got False"),
    "no reason": (lambda *_: Refusal(None, ""), "Bad: a refusal must have a reason"),
    "what another has": (lambda *_: {"taken": "1"}, "Bad: annotation 'taken' is set by another algorithm as well"),
    "an exit": (exits, "Bad: SystemExit: 3"),
}
FILTERS = [
    *((made(NodePredicate, fits=fits), text, f"fits: {what}") for what, (fits, text) in FITS.items()),
    *((made(Predicate, filter=filter_), text, f"filter: {what}") for what, (filter_, text) in MASKS.items()),
]
PRIORITIES = [
    *((made(NodePriority, score=score), text, f"score: {what}") for what, (score, text) in SCORES.items()),
    *((made(Priority, prioritize=scores), text, f"prioritize: {what}") for what, (scores, text) in COLUMNS.items()),
]
TREATMENTS = {"ignored": Treatment(ignore_errors=True), "in shadow": Treatment(shadow=True)}


def cases(rows: list[tuple[Any, str, str]]) -> list[Any]:
    return [pytest.param(algorithm, text, id=what) for algorithm, text, what in rows]


def run(point: str, treatment: Treatment | None, profile: Callable[[Any], Profile]) -> tuple[Runner, Recorder]:
    recorder = Recorder()
    return Runner(profile({(point, "Bad"): treatment} if treatment else {}), recorder), recorder


@pytest.mark.parametrize(("predicate", "text"), cases(FILTERS))
def test_what_is_no_answer_of_a_predicate(predicate: Predicate, text: str) -> None:
    runner, recorder = run("filter", None, lambda treatments: Profile([predicate], [], treatments=treatments))
    with pytest.raises(AlgorithmError) as failure:
        runner.filter(POD, NODES)
    assert str(failure.value) == text
    assert recorder.told == [("failed", "Bad", "filter")]
    for treatment in TREATMENTS.values():
        runner, recorder = run("filter", treatment, lambda treatments: Profile([predicate], [], treatments=treatments))
        assert runner.filter(POD, NODES).fits.all()
        assert recorder.told == [("failed", "Bad", "filter"), ("passed over", "Bad", "filter")]


@pytest.mark.parametrize(("priority", "text"), cases(PRIORITIES))
def test_what_is_no_answer_of_a_priority(priority: Priority, text: str) -> None:
    def profile(treatments: Any) -> Profile:
        return Profile([], [Weighted(priority, 1)], treatments=treatments)

    runner, recorder = run("prioritize", None, profile)
    with pytest.raises(AlgorithmError) as failure:
        runner.prioritize(POD, NODES)
    assert str(failure.value) == text
    assert recorder.told == [("failed", "Bad", "prioritize")]
    for treatment in TREATMENTS.values():
        runner, recorder = run("prioritize", treatment, profile)
        assert runner.prioritize(POD, NODES).tolist() == [0] * 5
        assert recorder.told == [("failed", "Bad", "prioritize"), ("passed over", "Bad", "prioritize")]


class First(Predicate, Reserver):
    """Takes an annotation before all others."""

    def filter(self, pod: PendingPod, nodes: Nodes) -> list[Refusal]:
        return []

    def reserve(self, pod: PendingPod, node: NodeInfo, now_seconds: float) -> dict[str, str]:
        return {"taken": "0"}


@pytest.mark.parametrize(("reserve", "text"), RESERVED.values(), ids=RESERVED)
def test_what_is_no_answer_of_a_reserver(reserve: Any, text: str) -> None:
    assert NODE is not None
    predicates = [First(None, {}), made(Reserver, Predicate, filter=lambda pod, nodes: [], reserve=reserve)]
    runner, recorder = run("filter", None, lambda treatments: Profile(predicates, [], treatments=treatments))
    with pytest.raises(AlgorithmError) as failure:
        runner.reserve(POD, NODE, 0.0)
    assert str(failure.value) == text
    assert recorder.told == [("failed", "Bad", "reserve")]
    runner, recorder = run(
        "filter", TREATMENTS["ignored"], lambda treatments: Profile(predicates, [], treatments=treatments)
    )
    assert runner.reserve(POD, NODE, 0.0) == {"taken": "0"}
    assert recorder.told == [("failed", "Bad", "reserve"), ("passed over", "Bad", "reserve")]


@pytest.mark.parametrize("stop", [KeyboardInterrupt, GeneratorExit])
def test_what_ends_the_service_is_no_failure(stop: type[BaseException]) -> None:
    def stops(*_: Any) -> Any:
        raise stop

    with pytest.raises(stop):
        Runner(Profile([made(Predicate, filter=stops)], []), Recorder()).filter(POD, NODES)


# --- about whom ------------------------------------------------------------------------------------------------------


class Team(Predicate):
    """Refuses nodes without a team: few enough for the next predicate by column to be asked about them too."""

    def filter(self, pod: PendingPod, nodes: Nodes) -> list[Refusal]:
        return [Refusal(np.array(["team" not in node.labels for node in nodes.infos()]), "no team")]


class RedByNode(NodePredicate):
    """Reads a label that nodes may not have."""

    def __init__(self) -> None:
        super().__init__(None, {})
        self.asked: list[str] = []

    def fits(self, pod: PendingPod, node: NodeInfo) -> str | None:
        self.asked.append(node.name)
        return "red" if node.labels["team"] == "red" and node.name == "a" else None


class RedByColumn(Predicate):
    """Does the same by column."""

    def __init__(self) -> None:
        super().__init__(None, {})
        self.asked: list[list[str]] = []

    def filter(self, pod: PendingPod, nodes: Nodes) -> list[Refusal]:
        self.asked.append(nodes.names())
        return [Refusal(np.array([node.labels["team"] == "red" and node.name == "a" for node in nodes.infos()]), "red")]


def outcomes(*predicates: Predicate, check_all: bool = False) -> tuple[dict[str, str], list[tuple[Any, ...]]]:
    recorder = Recorder()
    filtered = Runner(Profile(predicates, [], check_all), recorder).filter(POD, NODES)
    found = ((name, filtered.of(place)) for place, name in enumerate(NODES.names()))
    return {name: outcome.text for name, outcome in found if outcome is not None}, recorder.told


REFUSED = [("refused", "Team", "no team", 1), ("refused", "RedByNode", "red", 1)]


def test_a_predicate_by_node_is_asked_about_what_is_left_and_no_other() -> None:
    red = RedByNode()
    found, told = outcomes(Team(None, {}), red)
    assert (found, red.asked) == ({"e": "no team", "a": "red"}, list("abcd"))
    assert told == REFUSED


def test_a_predicate_by_column_that_fails_over_what_is_out_is_asked_once_more_without_it() -> None:
    red, last = RedByColumn(), RedByColumn()
    found, told = outcomes(Team(None, {}), red, last)
    assert (found, red.asked) == ({"e": "no team", "a": "red"}, [list("abcde"), list("abcd")])
    assert last.asked == [["b", "c", "d"]]
    assert told == [("refused", "Team", "no team", 1), ("refused", "RedByColumn", "red", 1)]


def test_where_all_are_checked_too() -> None:
    found, told = outcomes(Team(None, {}), RedByColumn(), RedByNode(), check_all=True)
    assert found == {"e": "no team", "a": "red"}
    assert ("failed", "RedByColumn", "filter") not in told


def test_one_that_fails_over_what_is_left_fails_once() -> None:
    asked: list[int] = []

    def fails(pod: PendingPod, nodes: Nodes) -> Any:
        asked.append(len(nodes))
        raise ZeroDivisionError("by zero")

    recorder = Recorder()
    with pytest.raises(AlgorithmError, match=r"^Bad: ZeroDivisionError: by zero"):
        Runner(Profile([Team(None, {}), made(Predicate, filter=fails)], []), recorder).filter(POD, NODES)
    assert asked == [5, 4]
    assert recorder.told == [("refused", "Team", "no team", 1), ("failed", "Bad", "filter")]


# --- many reasons ----------------------------------------------------------------------------------------------------


class Named(NodePredicate):
    """Has a reason for each node."""

    def fits(self, pod: PendingPod, node: NodeInfo) -> str | None:
        return None if node.name == "n-0" else f"{node.name} is not n-0"

    def resolvable(self, reason: str) -> bool:
        return reason.startswith("n-1")


class Scored(NodePriority):
    """Scores by numpy's integers."""

    def score(self, pod: PendingPod, node: NodeInfo) -> int:
        return np.int64(len(node.name))  # type: ignore[return-value]


def test_each_node_may_have_a_reason_of_its_own_but_is_better_off_without(caplog: pytest.LogCaptureFixture) -> None:
    lab = Lab([make_node(f"n-{place}") for place in range(300)])
    nodes = lab.nodes()
    runner = Runner(Profile([Named(None, {})], []), NoRecorder())
    for _ in range(2):
        filtered = runner.filter(POD, nodes)
    found = {name: filtered.of(place) for place, name in enumerate(nodes.names())}
    assert found.pop("n-0") is None
    assert found == {name: Outcome((f"{name} is not n-0",), name.startswith("n-1"), "Named") for name in found}
    (record,) = (record for record in caplog.records if record.levelno == logging.WARNING)
    assert "should be constants" in record.getMessage()
    assert (record.__dict__["algorithm"], record.__dict__["reasons"]) == ("Named", 299)


def test_integers_of_numpy_are_integers() -> None:
    scores: IntArray = Runner(Profile([], [Weighted(Scored(None, {}), 2)]), NoRecorder()).prioritize(POD, NODES)
    assert scores.tolist() == [2] * 5
