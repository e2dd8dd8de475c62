"""HardwareGeneration on a cluster in memory."""

from __future__ import annotations

from typing import Any

import pytest
from extender.framework import SKIP
from extender.testing import AlgorithmError, Lab, make_node, make_pod

from hardware_generation import REASON, HardwareGeneration

LABEL = "example.com/hardware-generation"

CASES: dict[str, tuple[dict[str, str], dict[str, Any], list[str]]] = {
    "a node without the number is refused": ({}, {}, ["none"]),
    "a pod can ask for more": ({LABEL: "3"}, {}, ["none", "two"]),
    "what others need can be set": ({}, {"minimum": 0}, []),
}


@pytest.fixture
def lab() -> Lab:
    return Lab([make_node("none"), make_node("two", labels={LABEL: "2"}), make_node("three", labels={LABEL: "3"})])


@pytest.mark.parametrize(("annotations", "args", "refused"), CASES.values(), ids=CASES)
def test_which_nodes_are_refused(
    lab: Lab, annotations: dict[str, str], args: dict[str, Any], refused: list[str]
) -> None:
    outcomes = lab.filter(HardwareGeneration, make_pod("pod", annotations=annotations), args)
    assert outcomes is not SKIP
    assert {name: outcome.text for name, outcome in outcomes.items()} == dict.fromkeys(refused, REASON)


def test_an_annotation_that_is_no_number_fails_under_its_name(lab: Lab) -> None:
    with pytest.raises(AlgorithmError, match="^HardwareGeneration: ValueError: "):
        lab.filter(HardwareGeneration, make_pod("pod", annotations={LABEL: "many"}))
