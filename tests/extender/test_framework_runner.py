"""Running a profile: order, first refusal, weights, and what becomes of algorithms that break the rules."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from extender.errors import AlgorithmError, DeadlineExceeded, ExtenderError, QuantityError, SelectorError
from extender.framework import (
    SKIP,
    IntArray,
    NodeInfo,
    NodePredicate,
    NodePriority,
    Nodes,
    PendingPod,
    Predicate,
    Priority,
    Refusal,
    Skip,
    normalize_to_best,
)
from extender.framework.runner import Profile, Runner, Weighted
from extender.testing import make_node, make_pod
from extender.testing.lab import Lab, pending
from extender.verbs.prioritize import to_wire

LAB = Lab([make_node(name) for name in "abcd"])
NODES = LAB.nodes(["a", "b", "c", "d"])
POD = pending(make_pod("p"))


class Recorder:
    """Keeps what a runner tells."""

    def __init__(self) -> None:
        self.runs: list[tuple[str, str, bool]] = []
        self.refusals: list[tuple[str, str, int]] = []
        self.failures: list[tuple[str, str]] = []

    def ran(self, algorithm: str, point: str, seconds: float, *, skipped: bool) -> None:
        assert seconds >= 0
        self.runs.append((algorithm, point, skipped))

    def refused(self, algorithm: str, reason: str, nodes: int) -> None:
        self.refusals.append((algorithm, reason, nodes))

    def failed(self, algorithm: str, point: str) -> None:
        self.failures.append((algorithm, point))


def predicate(name: str, verdict: Callable[[Nodes], Any]) -> Predicate:
    """A predicate that answers as told."""

    def answer(_: Predicate, __: PendingPod, nodes: Nodes) -> Any:
        return verdict(nodes)

    found: Predicate = type(name, (Predicate,), {"filter": answer})(None, {})
    return found


def refusing(name: str, *refusals: tuple[str, str] | tuple[str, str, bool]) -> Predicate:
    """A predicate that refuses the nodes named in each text for a reason, resolvable unless it says otherwise."""
    return predicate(
        name,
        lambda nodes: [
            Refusal(np.isin(np.array(nodes.names()), list(named)), reason, *resolvable)
            for named, reason, *resolvable in refusals
        ],
    )


def priority(name: str, scores: Callable[[Nodes], Any]) -> Priority:
    """A priority that answers as told."""

    def answer(_: Priority, __: PendingPod, nodes: Nodes) -> Any:
        return scores(nodes)

    found: Priority = type(name, (Priority,), {"prioritize": answer})(None, {})
    return found


def scoring(name: str, *scores: int) -> Priority:
    return priority(name, lambda nodes: np.array(scores[: len(nodes)], np.int64))


def runner(*algorithms: Predicate | tuple[Priority, int], recorder: Recorder | None = None, **more: Any) -> Runner:
    predicates = [algorithm for algorithm in algorithms if isinstance(algorithm, Predicate)]
    priorities = [Weighted(*algorithm) for algorithm in algorithms if isinstance(algorithm, tuple)]
    return Runner(Profile(predicates, priorities), recorder or Recorder(), **more)


def outcomes(found: Runner) -> dict[str, tuple[str, str, bool]]:
    """Which nodes are refused, by whom, why, and whether eviction could help."""
    filtered = found.filter(POD, NODES)
    refused = {name: filtered.of(place) for place, name in enumerate(NODES.names())}
    assert filtered.fits.tolist() == [outcome is None for outcome in refused.values()]
    return {name: (one.algorithm, one.text, one.resolvable) for name, one in refused.items() if one is not None}


# --- filter ----------------------------------------------------------------------------------------------------------


def test_a_node_is_out_at_its_first_refusal() -> None:
    asked: dict[str, list[str]] = {}

    def noting(name: str, refused: str) -> Predicate:
        def verdict(nodes: Nodes) -> list[Refusal]:
            asked[name] = nodes.names()
            return [Refusal(np.isin(np.array(nodes.names()), list(refused)), f"by {name}")]

        return predicate(name, verdict)

    found = outcomes(runner(noting("One", "b"), noting("Two", "ab"), noting("Three", ""), noting("Four", "d")))
    assert found == {"b": ("One", "by One", True), "a": ("Two", "by Two", True), "d": ("Four", "by Four", True)}
    assert asked == {
        "One": ["a", "b", "c", "d"],
        "Two": ["a", "b", "c", "d"],  # one that is out among many costs less than leaving it out
        "Three": ["c", "d"],
        "Four": ["c", "d"],
    }


def test_nothing_is_asked_once_no_node_is_left() -> None:
    recorder = Recorder()
    everything = predicate("Everything", lambda nodes: [Refusal(None, "no")])
    never = predicate("Never", lambda nodes: pytest.fail("asked"))
    assert set(outcomes(runner(everything, never, recorder=recorder))) == set("abcd")
    assert recorder.runs == [("Everything", "filter", False)]
    assert runner(never).filter(POD, LAB.nodes([])).codes.tolist() == []


def test_all_reasons_of_one_predicate_are_told_each_once() -> None:
    found = outcomes(
        runner(
            refusing("Many", ("ab", "cpu"), ("bc", "memory", False), ("b", "cpu"), ("", "nobody"), ("d", "cpu", False))
        )
    )
    assert found == {
        "a": ("Many", "cpu", True),
        "b": ("Many", "cpu, memory", False),
        "c": ("Many", "memory", False),
        "d": ("Many", "cpu", False),
    }


@given(st.lists(st.sets(st.sampled_from("abcd")), min_size=60, max_size=90))
@settings(max_examples=30)
def test_any_number_of_reasons_can_be_told_apart(named: list[set[str]]) -> None:
    found = outcomes(runner(refusing("Many", *(("".join(names), f"r{n}") for n, names in enumerate(named)))))
    for node in "abcd":
        reasons = [f"r{number}" for number, names in enumerate(named) if node in names]
        assert found.get(node) == (("Many", ", ".join(reasons), True) if reasons else None)


def test_a_predicate_may_skip_or_refuse_nothing_in_any_way() -> None:
    verdicts: list[Callable[[Nodes], Any]] = [
        lambda nodes: SKIP,
        lambda nodes: [],
        lambda nodes: iter(()),
        lambda nodes: [Refusal(np.zeros(len(nodes), np.bool_), "nobody")],
    ]
    recorder = Recorder()
    found = runner(*(predicate(f"P{n}", verdict) for n, verdict in enumerate(verdicts)), recorder=recorder)
    assert outcomes(found) == {}
    assert recorder.runs == [(f"P{n}", "filter", n == 0) for n in range(4)]
    assert recorder.refusals == []


def test_refusals_are_counted_by_reason() -> None:
    recorder = Recorder()
    outcomes(
        runner(refusing("One", ("ab", "cpu"), ("b", "memory")), refusing("Two", ("abc", "zone")), recorder=recorder)
    )
    assert sorted(recorder.refusals) == [("One", "cpu", 1), ("One", "cpu", 1), ("One", "memory", 1), ("Two", "zone", 1)]


# --- prioritize ------------------------------------------------------------------------------------------------------


def test_scores_are_summed_by_weight_and_skips_add_nothing() -> None:
    skipping = priority("Skipping", lambda nodes: SKIP)
    found = runner((scoring("One", 0, 50, 100, 10), 3), (skipping, 100), (scoring("Two", 100, 0, 1, 2), 1))
    assert found.prioritize(POD, NODES).tolist() == [100, 150, 301, 32]
    assert found.profile.weight_sum == 104


@given(st.lists(st.integers(0, 100), min_size=1, max_size=4), st.lists(st.integers(1, 1000), min_size=1, max_size=3))
def test_the_wire_has_the_weighted_mean_rounded_half_up(scores: list[int], weights: list[int]) -> None:
    profile = Profile([], [Weighted(scoring("One", *scores), weight) for weight in weights])
    totals = np.array(scores, np.int64) * sum(weights)
    assert to_wire(profile, totals).tolist() == [(score + 5) // 10 for score in scores]


def test_a_profile_without_priorities_scores_nothing() -> None:
    found = runner()
    assert to_wire(found.profile, found.prioritize(POD, NODES)).tolist() == [0, 0, 0, 0]


@pytest.mark.parametrize(
    ("scores", "reverse", "normalized"),
    [
        ([0, 5, 10], False, [0, 50, 100]),
        ([0, 5, 10], True, [100, 50, 0]),
        ([0, 0], False, [0, 0]),
        ([0, 0], True, [100, 100]),
        ([1, 3], False, [33, 100]),
        ([1, 3], True, [67, 0]),
        ([], False, []),
    ],
)
def test_the_best_raw_score_becomes_100(scores: list[int], reverse: bool, normalized: list[int]) -> None:
    assert normalize_to_best(np.array(scores, np.int64), reverse=reverse).tolist() == normalized


# --- broken rules ----------------------------------------------------------------------------------------------------


def _raise(error: Exception) -> Any:
    raise error


def refusal(nodes: Any) -> Refusal:
    return Refusal(nodes, "why")


def _late(nodes: Nodes) -> Iterable[Refusal]:
    yield Refusal(None, "first")
    raise ZeroDivisionError("later")


BAD_VERDICTS: dict[str, tuple[Callable[[Nodes], Any], str]] = {
    "raises": (lambda nodes: _raise(KeyError("zone")), "Bad: KeyError: 'zone'"),
    "raises after a refusal": (_late, "Bad: ZeroDivisionError: later"),
    "returns nothing": (lambda nodes: None, "Bad: TypeError: 'NoneType' object is not iterable"),
    "returns a mask": (
        lambda nodes: np.zeros(len(nodes), np.bool_),
        "Bad: a predicate must return refusals, got bool",
    ),
    "returns reasons": (lambda nodes: ["full"], "Bad: a predicate must return refusals, got str"),
    "has no reason": (lambda nodes: [Refusal(None, "")], "Bad: a refusal must have a reason"),
    "has too long a mask": (
        lambda nodes: [Refusal(np.zeros(5, np.bool_), "why")],
        "Bad: a refusal's nodes must be bool of shape (4,), got bool of shape (5,)",
    ),
    "has rows in place of a mask": (
        lambda nodes: [refusal(nodes.rows)],
        "Bad: a refusal's nodes must be bool of shape (4,), got int64 of shape (4,)",
    ),
    "has a list in place of a mask": (
        lambda nodes: [refusal([True] * 4)],
        "Bad: a refusal's nodes must be bool of shape (4,), got list",
    ),
}


@pytest.mark.parametrize(("verdict", "text"), BAD_VERDICTS.values(), ids=[f"it {what}" for what in BAD_VERDICTS])
def test_a_predicate_that_breaks_the_rules_is_named(verdict: Callable[[Nodes], Any], text: str) -> None:
    with pytest.raises(AlgorithmError) as failure:
        runner(predicate("Bad", verdict)).filter(POD, NODES)
    assert (str(failure.value), failure.value.algorithm) == (text, "Bad")


BAD_SCORES: dict[str, tuple[Callable[[Nodes], Any], str]] = {
    "raises": (lambda nodes: _raise(KeyError("zone")), "Bad: KeyError: 'zone'"),
    "returns nothing": (lambda nodes: None, "Bad: scores must be integers of shape (4,), got NoneType"),
    "returns a list": (lambda nodes: [1, 2, 3, 4], "Bad: scores must be integers of shape (4,), got list"),
    "returns fractions": (
        lambda nodes: np.zeros(4),
        "Bad: scores must be integers of shape (4,), got float64 of shape (4,)",
    ),
    "returns too few": (
        lambda nodes: np.zeros(3, np.int64),
        "Bad: scores must be integers of shape (4,), got int64 of shape (3,)",
    ),
    "is above 100": (
        lambda nodes: np.array([0, 0, 0, 101]),
        "Bad: normalised scores must be 0 to 100, got 0 to 101",
    ),
    "is below 0": (lambda nodes: np.array([-1, 0, 0, 9]), "Bad: normalised scores must be 0 to 100, got -1 to 9"),
}


@pytest.mark.parametrize(("scores", "text"), BAD_SCORES.values(), ids=[f"it {what}" for what in BAD_SCORES])
def test_a_priority_that_breaks_the_rules_is_named(scores: Callable[[Nodes], Any], text: str) -> None:
    with pytest.raises(AlgorithmError) as failure:
        runner((priority("Bad", scores), 1)).prioritize(POD, NODES)
    assert (str(failure.value), failure.value.algorithm) == (text, "Bad")


def test_what_an_algorithm_raised_is_kept_and_counted() -> None:
    recorder, error = Recorder(), ValueError("odd")
    bad = predicate("Bad", lambda nodes: _raise(error))
    with pytest.raises(AlgorithmError) as failure:
        runner(bad, recorder=recorder).filter(POD, NODES)
    assert failure.value.__cause__ is error
    with pytest.raises(AlgorithmError):
        runner((priority("Worse", lambda nodes: _raise(error)), 1), recorder=recorder).prioritize(POD, NODES)
    assert recorder.failures == [("Bad", "filter"), ("Worse", "prioritize")]


@pytest.mark.parametrize("fault", [QuantityError("odd"), SelectorError("odd")], ids=repr)
def test_a_pod_that_is_at_fault_is_no_failure_of_the_service(fault: ExtenderError) -> None:
    with pytest.raises(AlgorithmError, match="Picky: odd") as failure:
        runner(predicate("Picky", lambda nodes: _raise(fault))).filter(POD, NODES)
    assert (failure.value.status, AlgorithmError.status) == (400, 500)


def test_work_stops_between_two_algorithms_once_the_deadline_has_passed() -> None:
    clock = iter(range(10))
    found = runner(
        refusing("One", ("a", "x")),
        refusing("Two", ("b", "x")),
        (scoring("Three", 1, 1, 1, 1), 1),
        (scoring("Four", 1, 1, 1, 1), 1),
        now_seconds=lambda: next(clock),
    )
    with pytest.raises(DeadlineExceeded, match="gave up before Two: "):
        found.filter(POD, NODES, 0)
    with pytest.raises(DeadlineExceeded, match="gave up before Four: "):
        found.prioritize(POD, NODES, 2)


# --- per node --------------------------------------------------------------------------------------------------------


class ByNode(NodePredicate, NodePriority):
    """Asked node by node."""

    def fits(self, pod: PendingPod, node: NodeInfo) -> str | None:
        return {"a": None, "b": "full", "c": "lost", "d": "full"}[node.name]

    def resolvable(self, reason: str) -> bool:
        return reason == "full"

    def score(self, pod: PendingPod, node: NodeInfo) -> int:
        return ord(node.name) - ord("a")


class ByColumn(Predicate, Priority):
    """The same for all nodes at once."""

    def filter(self, pod: PendingPod, nodes: Nodes) -> Skip | list[Refusal]:
        names = np.array(nodes.names())
        return [Refusal(np.isin(names, ["b", "d"]), "full"), Refusal(names == "c", "lost", resolvable=False)]

    def prioritize(self, pod: PendingPod, nodes: Nodes) -> IntArray:
        return np.array([ord(name) - ord("a") for name in nodes.names()], np.int64)


@given(st.permutations("abcd"), st.integers(0, 4))
def test_an_algorithm_asked_node_by_node_is_like_one_asked_at_once(order: list[str], length: int) -> None:
    names = order[:length]
    found: list[Any] = [LAB.filter(algorithm, make_pod("p"), nodes=names) for algorithm in (ByNode, ByColumn)]
    one, other = ({name: (why.text, why.resolvable) for name, why in refused.items()} for refused in found)
    assert one == other
    assert LAB.score(ByNode, make_pod("p"), nodes=names) == LAB.score(ByColumn, make_pod("p"), nodes=names)
