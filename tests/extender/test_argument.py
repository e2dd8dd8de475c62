"""Kubernetes objects as arguments: decoded as the API has them, unknown keys refused with their place."""

from typing import Annotated

import pytest
from pydantic import ValidationError

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


@pytest.mark.parametrize(
    ("given", "message"),
    [
        pytest.param([{"maxskew": 1}], r"\[0\].maxskew: unknown key; remove it", id="an unknown key"),
        pytest.param(
            [{}, {"labelSelector": {"matchExpressions": [{"key": "a", "op": "In"}]}}],
            r"\[1\].labelSelector.matchExpressions\[0\].op: unknown key",
            id="an unknown key deep inside",
        ),
        pytest.param([{"maxSkew": "1"}], r"Expected `int \| null`, got `str`", id="a wrong type"),
        pytest.param({}, "Expected `array`", id="a wrong shape"),
    ],
)
def test_what_the_api_would_not_have_is_refused(given, message):
    with pytest.raises(ValidationError, match=message):
        Sample.model_validate({"constraints": given})
