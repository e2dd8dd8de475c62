"""The guide to ComputeResource shows what works."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import yaml

from algorithms.compute_resource import ComputeResource
from extender.config import ExtenderConfiguration
from extender.framework import CONVENTIONS, SKIP, is_extended_resource
from extender.framework.mirror import Mirror
from extender.framework.profile import ProfileBinder
from extender.framework.registry import Registry
from extender.testing.lab import Lab

GUIDE = (Path(__file__).parents[2] / "docs" / "compute-resource.md").read_text()
EXAMPLES: list[dict[str, Any]] = [
    example
    for text in re.findall(r"^```yaml\n(.*?)^```", GUIDE, re.DOTALL | re.MULTILINE)
    for example in yaml.safe_load_all(text)
]
NAMED = {example["metadata"]["name"]: example for example in EXAMPLES if "metadata" in example}
CONFIGURATIONS = [example for example in EXAMPLES if example.get("kind") == "ExtenderConfiguration"]


def bound(example: dict[str, Any]) -> Any:
    configuration = ExtenderConfiguration.model_validate(example)
    profile = ProfileBinder(Registry(), Mirror(), "profiles[0]").bind(configuration.profiles[0])
    (reserver,) = profile.reservers
    return reserver.args


def test_its_configuration_gives_out_devices_and_names_the_defaults() -> None:
    assert bound(CONFIGURATIONS[0]) == ComputeResource.Arguments()


def test_its_pod_fits_on_its_node() -> None:
    assert Lab([NAMED["gpu-1"]]).filter(ComputeResource, NAMED["train"]) == {}


def test_its_resource_tells_devices_for_whole_pods_and_shares() -> None:
    bound(CONFIGURATIONS[1])
    (entry, _) = CONFIGURATIONS[1]["profiles"][0]["predicates"]["enabled"]
    whole = NAMED["whole"]
    (container,) = whole["spec"]["containers"]
    container["resources"]["requests"] = container["resources"]["limits"]  # as the API server fills it in
    for pod in (whole, NAMED["share"]):
        assert Lab([NAMED["gpu-2"]]).filter(ComputeResource, pod, entry["args"]) == {}
        assert Lab([NAMED["gpu-2"]]).score(ComputeResource, pod, entry["args"]) is not SKIP


def test_its_managed_resources_are_as_kube_scheduler_takes_them() -> None:
    (extender,) = EXAMPLES[-1]["extenders"]
    for resource in extender["managedResources"]:
        assert is_extended_resource(resource.pop("name"))
        assert resource in ({}, {"ignoredByScheduler": True})


def test_it_has_a_row_for_each_convention() -> None:
    assert re.findall(r"^\| `(\w+)` \| (?:annotation|allocatable)", GUIDE, re.MULTILINE) == list(CONVENTIONS)
