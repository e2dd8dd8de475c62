"""Checking all predicates: every reason against a node is reported, and the same nodes fit."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from extender.errors import AlgorithmError, DeadlineExceeded
from extender.framework import SKIP, Predicate, Refusal
from extender.framework.outcome import Filtered, Outcome, join
from extender.framework.runner import NoRecorder, Profile, Runner
from extender.testing import make_node, make_pod
from extender.testing.lab import Lab, pending

LAB = Lab([make_node(name) for name in "abcd"])
NODES = LAB.nodes(["a", "b", "c", "d"])
POD = pending(make_pod("p"))


def predicate(
    name: str, *refusals: tuple[str, str] | tuple[str, str, bool], seen: list[int] | None = None
) -> Predicate:
    """A predicate that refuses nodes by name: pairs of names and reason, and maybe whether eviction could help."""

    def answer(_: Predicate, __: Any, nodes: Any) -> Any:
        if seen is not None:
            seen.append(len(nodes))
        if not refusals:
            return SKIP
        return [
            Refusal(np.array([node in named for node in nodes.names()]), reason, *rest)
            for named, reason, *rest in refusals
        ]

    return type(name, (Predicate,), {"filter": answer})({}, {})


def outcomes(*predicates: Predicate, check_all: bool = True) -> dict[str, Outcome]:
    filtered = Runner(Profile(predicates, [], check_all), NoRecorder()).filter(POD, NODES)
    found = {name: filtered.of(place) for place, name in enumerate(NODES.names())}
    return {name: outcome for name, outcome in found.items() if outcome is not None}


def test_a_node_has_the_reasons_of_all_predicates_that_refuse_it_in_their_order() -> None:
    found = outcomes(predicate("A", ("ab", "one")), predicate("B"), predicate("C", ("bc", "two"), ("b", "one")))
    assert {name: (outcome.text, outcome.algorithm) for name, outcome in found.items()} == {
        "a": ("one", "A"),
        "b": ("one, two", "A"),
        "c": ("two", "C"),
    }


def test_eviction_can_help_only_where_it_can_against_every_reason() -> None:
    found = outcomes(predicate("A", ("abc", "full")), predicate("B", ("b", "wrong", False), ("c", "busy", True)))
    assert {name: outcome.resolvable for name, outcome in found.items()} == {"a": True, "b": False, "c": True}


def test_every_predicate_sees_every_candidate() -> None:
    seen: list[int] = []
    outcomes(predicate("A", ("abcd", "full"), seen=seen), predicate("B", ("a", "busy"), seen=seen))
    assert seen == [4, 4]
    outcomes(predicate("A", ("abcd", "full"), seen=seen), predicate("B", seen=seen), check_all=False)
    assert seen == [4, 4, 4]


masks = st.lists(st.tuples(st.text("abcd", max_size=4), st.sampled_from(["x", "y", "z"]), st.booleans()), max_size=3)


@given(st.lists(masks, max_size=4))
def test_the_same_nodes_fit_and_the_first_reasons_are_those_of_the_first_refusal(tables: list[Any]) -> None:
    predicates = [predicate(f"P{place}", *table) for place, table in enumerate(tables)]
    every, first = outcomes(*predicates), outcomes(*predicates, check_all=False)
    assert every.keys() == first.keys()
    for name, outcome in first.items():
        assert every[name].reasons[: len(outcome.reasons)] == outcome.reasons
        assert every[name].algorithm == outcome.algorithm
        assert every[name].resolvable <= outcome.resolvable


def test_an_error_of_one_predicate_is_an_error_of_both() -> None:
    full, odd = Outcome(("full",), True, "A"), Outcome(("odd",), False, "B", error=True)
    joined = join(Filtered(np.array([1, 1, 0, 0]), [full]), Filtered(np.array([0, 1, 1, 0]), [odd]))
    assert [joined.of(place) for place in range(4)] == [
        full,
        Outcome(("full", "odd"), False, "A", error=True),
        odd,
        None,
    ]


def test_failures_and_deadlines_count_as_ever() -> None:
    def broken(*_: Any) -> Any:
        raise ZeroDivisionError("nothing")

    runner = Runner(Profile([type("Broken", (Predicate,), {"filter": broken})({}, {})], [], True), NoRecorder())
    with pytest.raises(AlgorithmError, match="Broken: ZeroDivisionError: nothing"):
        runner.filter(POD, NODES)
    late = Runner(Profile([predicate("A")], [], True), NoRecorder(), now_seconds=lambda: 2.0)
    with pytest.raises(DeadlineExceeded, match="gave up before A"):
        late.filter(POD, NODES, deadline_seconds=1.0)
