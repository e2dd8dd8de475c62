"""What the document on the rules of the house shows is what the service takes."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from algorithms import fit_ip_resource, local_replicas
from extender.config import ExtenderConfiguration
from extender.framework import ADDRESS_COUNT
from extender.framework.loader import default_set, load_all
from extender.framework.mirror import Mirror
from extender.framework.profile import ProfileBinder
from extender.framework.registry import Registry

ROOT = Path(__file__).parents[2]
DOCUMENT = (ROOT / "docs" / "house-algorithms.md").read_text()
EXAMPLES: list[dict[str, Any]] = [
    yaml.safe_load(text) for text in re.findall(r"^```yaml\n(.*?)^```", DOCUMENT, re.DOTALL | re.MULTILINE)
]
PROFILES = [example for example in EXAMPLES if example["kind"] == "ExtenderConfiguration"]
SECTIONS = re.findall(r"^## (\w+)$", DOCUMENT, re.MULTILINE)


@pytest.mark.parametrize(
    "example", PROFILES, ids=[each["profiles"][0]["predicates"]["enabled"][0]["name"] for each in PROFILES]
)
def test_a_profile_that_is_shown_can_be_used(example: dict[str, Any]) -> None:
    (section,) = ExtenderConfiguration.model_validate(example).profiles
    profile = ProfileBinder(Registry(), Mirror(), "profiles[0]").bind(section)
    assert type(profile.predicates[-1]).name in SECTIONS


def test_an_annotation_that_is_shown_is_one_that_is_read() -> None:
    (template,) = (example["spec"]["template"] for example in EXAMPLES if example["kind"] == "Deployment")
    assert local_replicas.read_limit(template["metadata"]["annotations"][local_replicas.ANNOTATION]).percent
    assert ADDRESS_COUNT in DOCUMENT


def test_every_reason_that_is_quoted_is_one_that_is_given() -> None:
    reasons = {
        value
        for module in (local_replicas, fit_ip_resource)
        for constant in vars(module).values()
        for value in (constant if isinstance(constant, tuple) else (constant,))
        if isinstance(value, str)
    }
    quoted = re.findall(r"`(node\(s\)[^`]*)`", DOCUMENT)
    assert quoted
    assert set(quoted) <= reasons


def test_no_rule_of_the_house_runs_by_default() -> None:
    registry = Registry()
    load_all(registry)
    known: set[str] = {*registry.predicates, *registry.priorities}
    assert set(SECTIONS) <= known
    assert not set(SECTIONS) & {*default_set().predicates, *default_set().priorities}
