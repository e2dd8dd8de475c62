"""The guide to ComputeResource shows what works."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import yaml

from algorithms.compute_resource import ComputeResource
from extender.config import ExtenderConfiguration
from extender.framework import CONVENTIONS
from extender.framework.mirror import Mirror
from extender.framework.profile import ProfileBinder
from extender.framework.registry import Registry
from extender.testing.lab import Lab

GUIDE = (Path(__file__).parents[2] / "docs" / "compute-resource.md").read_text()
EXAMPLES: dict[str, dict[str, Any]] = {
    example["kind"]: example
    for text in re.findall(r"^```yaml\n(.*?)^```", GUIDE, re.DOTALL | re.MULTILINE)
    for example in yaml.safe_load_all(text)
}


def test_its_configuration_gives_out_devices_and_names_the_defaults() -> None:
    configuration = ExtenderConfiguration.model_validate(EXAMPLES["ExtenderConfiguration"])
    profile = ProfileBinder(Registry(), Mirror(), "profiles[0]").bind(configuration.profiles[0])
    (reserver,) = profile.reservers
    assert reserver.args == ComputeResource.Arguments()


def test_its_pod_fits_on_its_node() -> None:
    assert Lab([EXAMPLES["Node"]]).filter(ComputeResource, EXAMPLES["Pod"]) == {}


def test_it_has_a_row_for_each_convention() -> None:
    assert re.findall(r"^\| `(\w+)` \| (?:annotation|allocatable)", GUIDE, re.MULTILINE) == list(CONVENTIONS)
