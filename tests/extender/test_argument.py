"""Kubernetes objects as arguments: decoded as the API has them, unknown keys refused with their place."""

from typing import Annotated

import pytest
from pydantic import Field, ValidationError

from extender.config import explain
from extender.framework.algorithm import Args
from extender.framework.argument import API_OBJECT
from extender.model.object import LabelSelector, TopologySpreadConstraint


class Sample(Args):
    constraints: Annotated[list[TopologySpreadConstraint], API_OBJECT]


def test_an_object_is_decoded_and_null_is_the_same_as_absent():
    given = [{"maxSkew": 1, "topologyKey": "zone", "labelSelector": {"matchLabels": {"a": "b"}}, "minDomains": None}]
    assert Sample.model_validate({"constraints": given}).constraints == [
        TopologySpreadConstraint(max_skew=1, topology_key="zone", label_selector=LabelSelector({"a": "b"}))
    ]


UNKNOWN = "unknown key; remove it or correct its spelling"


@pytest.mark.parametrize(
    ("given", "findings"),
    [
        pytest.param(
            [{"maxskew": 1, "max": 2}], [f"[0].maxskew: {UNKNOWN}", f"[0].max: {UNKNOWN}"], id="two unknown keys"
        ),
        pytest.param(
            [{}, {"labelSelector": {"matchExpressions": [{"key": "a", "op": "In"}]}}],
            [f"[1].labelSelector.matchExpressions[0].op: {UNKNOWN}"],
            id="an unknown key deep inside",
        ),
        pytest.param([{"maxSkew": "1"}], ["[0].maxSkew: expected `int | null`, got `str`"], id="a wrong type"),
        pytest.param(
            [{"labelSelector": {"matchLabels": {"a": 1}}}],
            ["[0].labelSelector.matchLabels: expected `str`, got `int`"],
            id="a wrong type in a map",
        ),
        pytest.param({}, [": expected `array`, got `object`"], id="a wrong shape"),
    ],
)
def test_what_the_api_would_not_have_is_refused_with_its_place(given, findings):
    with pytest.raises(ValidationError) as refusal:
        Sample.model_validate({"constraints": given})
    assert explain(refusal.value, "args") == [f"args.constraints{finding}" for finding in findings]


# --- numbers and truths ----------------------------------------------------------------------------------------------


class Point(Args):
    weight: Annotated[int, Field(ge=1)] = 1


class Numbers(Args):
    whole: int | None = None
    real: Annotated[float, Field(gt=0)] = 1.0
    truth: bool = False
    points: tuple[Point, ...] = ()
    by_name: dict[str, int] = Field(default={})
    type: int = 0
    default: int = 0


@pytest.mark.parametrize(
    "given",
    [
        {"whole": "1"},
        {"whole": True},
        {"whole": 1.0},
        {"real": "1.5"},
        {"real": True},
        {"truth": "yes"},
        {"truth": 1},
        {"points": [{"weight": "1"}]},
        {"byName": {"a": "1"}},
        {"type": "1"},
        {"default": "1"},
    ],
    ids=repr,
)
def test_text_is_no_number_and_no_truth(given):
    with pytest.raises(ValidationError):
        Numbers.model_validate(given)


def test_lists_are_taken_for_tuples_and_whole_numbers_for_real_ones():
    found = Numbers.model_validate({"whole": None, "real": 2, "truth": True, "points": [{"weight": 3}]})
    assert (found.whole, found.real, found.truth, found.points) == (None, 2.0, True, (Point(weight=3),))
