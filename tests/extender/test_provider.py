"""Providers: sets of algorithms by name, and what a profile makes of one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from extender.config import ExtenderConfiguration
from extender.errors import ConfigurationError
from extender.framework import Provider
from extender.framework.loader import default_set, in_tree_modules, load_provider, module_name, providers
from extender.framework.mirror import Mirror
from extender.framework.profile import ProfileBinder
from extender.framework.registry import Registry
from extender.framework.runner import Profile
from extender.section import ProfileSection
from extender.source import bind_profiles
from tests.extender.specimen import PATH

DEFAULT = default_set()


def bind(**section: Any) -> Profile:
    return ProfileBinder(Registry(), Mirror(), "profiles[0]").bind(ProfileSection.model_validate(section))


def findings(**section: Any) -> tuple[str, ...]:
    with pytest.raises(ConfigurationError) as refusal:
        bind(**section)
    return refusal.value.problems


def names(profile: Profile) -> list[str]:
    return [predicate.name for predicate in profile.predicates]


def weights(profile: Profile) -> dict[str, int]:
    return {weighted.priority.name: weighted.weight for weighted in profile.priorities}


def strategies(profile: Profile) -> set[str]:
    algorithms = [*profile.predicates, *(weighted.priority for weighted in profile.priorities)]
    return {one.args.scoring_strategy.type for one in algorithms if one.name == "NodeResourcesFit"}


# --- what is declared ------------------------------------------------------------------------------------------------


def test_three_providers_come_with_the_service_the_default_one_first() -> None:
    assert [provider.name for provider in providers()] == [
        "DefaultProvider",
        "ClusterAutoscalerProvider",
        "ExtensionProvider",
    ]
    assert default_set() is providers()[0]


@pytest.mark.parametrize("provider", providers(), ids=lambda provider: provider.name)
def test_a_provider_names_algorithms_that_exist_and_can_be_bound(provider: Provider) -> None:
    named = {*provider.mandatory, *provider.predicates, *provider.priorities, *provider.args}
    assert {module_name(name) for name in named} <= set(in_tree_modules())
    profile = bind(provider=provider.name)
    assert names(profile) == list(provider.predicates or provider.mandatory)
    assert weights(profile) == dict(provider.priorities)


def test_the_autoscaler_s_fills_nodes_up_and_is_the_default_one_else() -> None:
    filling, default = bind(provider="ClusterAutoscalerProvider"), bind()
    assert (names(filling), weights(filling)) == (names(default), weights(default))
    assert (strategies(filling), strategies(default)) == ({"MostAllocated"}, {"LeastAllocated"})


def test_an_extension_runs_the_mandatory_predicates_alone() -> None:
    profile = bind(provider="ExtensionProvider")
    assert names(profile) == list(DEFAULT.mandatory)
    assert (weights(profile), profile.weight_sum) == ({}, 0)


def test_the_readme_names_every_provider_and_its_example_can_be_used() -> None:
    text = (Path(__file__).parents[2] / "README.md").read_text().partition("## Algorithm sources")[2]
    for provider in providers():
        assert f"\n| {provider.name} |" in text
    example = text.partition("```yaml\n")[2].partition("```")[0]
    configuration = ExtenderConfiguration.model_validate(
        yaml.safe_load(example.replace("spread_by_team:SameTeam", f"{PATH}:Picky"))
    )
    own, packing = bind_profiles(Registry(), Mirror(), configuration).values()
    assert names(own) == [*DEFAULT.mandatory, "Picky"]
    assert names(packing) == [*DEFAULT.predicates, "Picky"]
    assert weights(packing).keys() == DEFAULT.priorities.keys() - {"ImageLocality"}


def test_a_mandatory_predicate_from_outside_runs_in_every_profile() -> None:
    profiles = [{"schedulerName": "a"}, {"schedulerName": "b", "predicates": {"enabled": [{"name": f"{PATH}:Always"}]}}]
    configuration = ExtenderConfiguration.model_validate({"profiles": profiles})
    for profile in bind_profiles(Registry(), Mirror(), configuration).values():
        assert "Always" in names(profile)


# --- the registry ----------------------------------------------------------------------------------------------------


def test_the_registry_keeps_providers_by_name() -> None:
    registry = Registry()
    house = Provider("House", predicates=("NodeName",))
    registry.register_provider(house)
    registry.register_provider(house)  # once more is no mistake
    assert load_provider("DefaultProvider", registry) is DEFAULT
    assert registry.provider("House") is house
    assert list(registry.providers) == ["House", *(provider.name for provider in providers())]


@pytest.mark.parametrize(
    ("provider", "part"),
    [
        (Provider("DefaultProvider"), "provider 'DefaultProvider': the name is taken"),
        (Provider("-odd-"), "provider: name '-odd-' must consist of letters, digits"),
    ],
    ids=["a name that is taken", "a malformed name"],
)
def test_a_provider_that_cannot_be_kept_is_refused(provider: Provider, part: str) -> None:
    registry = Registry()
    load_provider("DefaultProvider", registry)
    with pytest.raises(ConfigurationError, match=part):
        registry.register_provider(provider)


HOUSE = Provider("House", predicates=("NodeName", f"{PATH}:Picky"), priorities={"ImageLocality": 7})
"""A provider from outside, found at an import path."""


def test_a_provider_from_outside_is_named_by_its_import_path() -> None:
    house = {"schedulerName": "house", "provider": f"{__name__}:HOUSE"}
    changed = {**house, "schedulerName": "changed", "predicates": {"disabled": ["NodeName"]}}
    configuration = ExtenderConfiguration.model_validate({"profiles": [house, changed]})
    profiles = bind_profiles(Registry(), Mirror(), configuration)
    assert names(profiles["house"]) == [*DEFAULT.mandatory, "NodeName", "Picky"]
    assert weights(profiles["house"]) == {"ImageLocality": 7}
    assert names(profiles["changed"]) == [*DEFAULT.mandatory, "Picky"]


@pytest.mark.parametrize(
    ("path", "part"),
    [
        (f"{__name__}:ABSENT", "has no attribute 'ABSENT'"),
        (f"{__name__}:PATH", "'PATH' is not a Provider"),
        ("no.such.module:HOUSE", "no module named 'no.such.module'; is its package installed?"),
        ("odd path:", "must have the form 'module:PROVIDER'"),
    ],
    ids=["no such attribute", "something else", "no such module", "a malformed path"],
)
def test_a_provider_that_cannot_be_found_says_at_which_step(path: str, part: str) -> None:
    (finding,) = findings(provider=path)
    assert finding.startswith("profiles[0].provider: ")
    assert part in finding


# --- a profile over a provider ---------------------------------------------------------------------------------------


def test_an_unknown_provider_is_refused_with_the_nearest_one() -> None:
    assert findings(provider="defaultprovider") == (
        "profiles[0].provider: no provider named 'defaultprovider'; did you mean 'DefaultProvider'?",
    )


def test_a_star_in_disabled_takes_out_all_of_the_provider_but_the_mandatory_ones() -> None:
    profile = bind(predicates={"disabled": ["*"]}, priorities={"disabled": ["*"]})
    assert (names(profile), weights(profile)) == (list(DEFAULT.mandatory), {})
    named = {"enabled": [{"name": "NodePorts"}], "disabled": ["*"]}
    assert names(bind(predicates=named)) == [*DEFAULT.mandatory, "NodePorts"]


def test_a_star_in_enabled_stands_for_all_of_the_provider_that_are_not_named() -> None:
    own, changed = {"name": f"{PATH}:Picky"}, {"name": "NodeAffinity", "weight": 9}
    profile = bind(
        predicates={"enabled": [own, {"name": "*"}]},
        priorities={"enabled": [{"name": "*"}, changed], "disabled": ["ImageLocality"]},
    )
    assert names(profile) == ["Picky", *DEFAULT.predicates]
    assert weights(profile) == {
        **{
            name: weight for name, weight in DEFAULT.priorities.items() if name not in ("NodeAffinity", "ImageLocality")
        },
        "NodeAffinity": 9,
    }
    assert names(bind(predicates={"enabled": [{"name": "*"}, own], "disabled": ["*"]})) == [
        *DEFAULT.mandatory,
        "Picky",
    ]


def test_arguments_of_the_profile_count_before_those_of_the_provider() -> None:
    def strategy(args: Any) -> set[str]:
        fit = {"name": "NodeResourcesFit", "args": args}
        return strategies(bind(provider="ClusterAutoscalerProvider", predicates={"enabled": [{"name": "*"}, fit]}))

    assert strategy(None) == {"MostAllocated"}
    assert strategy({}) == {"LeastAllocated"}
    assert strategy({"scoringStrategy": {"type": "LeastAllocated"}}) == {"LeastAllocated"}


def test_a_weight_that_is_left_out_is_the_provider_s() -> None:
    entry = {"priorities": {"enabled": [{"name": "NodeAffinity"}]}}
    assert weights(bind(**entry)) == {"NodeAffinity": 2}
    assert weights(bind(provider="ExtensionProvider", **entry)) == {"NodeAffinity": 1}
