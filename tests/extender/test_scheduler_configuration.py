"""A KubeSchedulerConfiguration becomes profiles: merging of plug-in sets, weights, arguments, findings with places."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest
import yaml

from extender.config import ExtenderConfiguration
from extender.errors import ConfigurationError
from extender.framework.loader import default_set, in_tree_modules, module_name
from extender.framework.mirror import Mirror
from extender.framework.registry import Registry
from extender.framework.runner import Profile
from extender.source import bind_profiles
from extender.source.plugin_name import ALGORITHMS, FILTERING, IN_TREE_LIMITS, KNOWN, PASSED_OVER, SCORING
from extender.source.plugin_set import Plugin, PluginSet, expand
from tests.extender.bound_profile import args, names, weights

DEFAULT = default_set()
GROUP = "kubescheduler.config.k8s.io"


def bind_all(folder: Path, version: str = "v1", **keys: Any) -> dict[str, Profile]:
    file = folder / "scheduler.yaml"
    file.write_text(yaml.safe_dump({"kind": "KubeSchedulerConfiguration", "apiVersion": f"{GROUP}/{version}", **keys}))
    configuration = ExtenderConfiguration.model_validate({"algorithmSource": {"schedulerConfigurationFile": str(file)}})
    return bind_profiles(Registry(), Mirror(), configuration)


def bind(folder: Path, plugins: Any = None, config: Any = None, version: str = "v1") -> Profile:
    """Bind the one profile with these plug-ins and arguments by plug-in."""
    entries = [{"name": name, "args": args} for name, args in (config or {}).items()]
    profiles = bind_all(folder, version, profiles=[{"plugins": plugins, "pluginConfig": entries}])
    return profiles["default-scheduler"]


def findings(folder: Path, **keys: Any) -> list[str]:
    with pytest.raises(ConfigurationError) as refusal:
        bind_all(folder, **keys)
    file = f"{folder / 'scheduler.yaml'}: "
    assert all(problem.startswith(file) for problem in refusal.value.problems)
    return [problem.removeprefix(file) for problem in refusal.value.problems]


def plugins(*entries: str, **weighed: int) -> list[dict[str, Any]]:
    return [{"name": name} for name in entries] + [{"name": name, "weight": weight} for name, weight in weighed.items()]


EVERYTHING = plugins("*")

# --- names -----------------------------------------------------------------------------------------------------------


def test_every_plug_in_of_the_defaults_is_known_and_has_its_part() -> None:
    assert set(DEFAULT.predicates) <= {*FILTERING, "SchedulingGates"}
    assert set(DEFAULT.priorities) <= SCORING
    assert ALGORITHMS.keys() == FILTERING | SCORING
    assert not ALGORITHMS.keys() & PASSED_OVER.keys()
    assert {module_name(algorithm) for algorithm in ALGORITHMS.values()} <= set(in_tree_modules())


@pytest.mark.parametrize("name", sorted(ALGORITHMS))
def test_a_plug_in_filters_and_scores_as_its_algorithm(name: str, tmp_path: Path) -> None:
    shape = [{"utilization": 0, "score": 0}, {"utilization": 100, "score": 10}]
    config = {name: {"shape": shape}} if name in ("RequestedToCapacityRatio", "VolumeBinding") else {}
    profile = bind(tmp_path, {"multiPoint": {"disabled": EVERYTHING, "enabled": plugins(**{name: 4})}}, config)
    algorithm = ALGORITHMS[name]
    assert (algorithm in names(profile)) == (name in FILTERING or algorithm in DEFAULT.mandatory)
    assert weights(profile) == ({algorithm: 4} if name in SCORING else {})


@pytest.mark.parametrize("name", sorted(PASSED_OVER))
def test_a_plug_in_without_a_counterpart_is_passed_over(
    name: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.DEBUG, "extender.source"):
        profile = bind(tmp_path, {"filter": {"enabled": plugins(name)}, "score": {"enabled": plugins(name)}})
    assert (names(profile), weights(profile)) == (list(DEFAULT.predicates), dict(DEFAULT.priorities))
    passed = [record for record in caplog.records if record.message == "plug-in passed over"]
    assert [(record.levelname, record.__dict__["plugin"]) for record in passed] == [("DEBUG", name)] * 2


# --- the defaults of a version ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("keys", [{}, {"profiles": None}, {"profiles": [{}]}, {"profiles": [{"plugins": None}]}])
def test_a_file_that_says_nothing_gives_the_default_profile(keys: dict[str, Any], tmp_path: Path) -> None:
    (profile,) = bind_all(tmp_path, **keys).values()
    assert (names(profile), weights(profile)) == (list(DEFAULT.predicates), dict(DEFAULT.priorities))


@pytest.mark.parametrize(
    ("version", "expected"),
    [
        ("v1beta3", dict(DEFAULT.priorities)),
        ("v1beta2", {**dict.fromkeys(DEFAULT.priorities, 1), "PodTopologySpread": 2}),
        (
            "v1beta1",
            {
                **{name: 1 for name in DEFAULT.priorities if name != "NodeResourcesFit"},
                "PodTopologySpread": 2,
                "NodeResourcesLeastAllocated": 1,
                "NodePreferAvoidPods": 10_000,
            },
        ),
    ],
)
def test_an_older_version_has_its_own_defaults(version: str, expected: dict[str, int], tmp_path: Path) -> None:
    profile = bind(tmp_path, version=version)
    assert weights(profile) == expected
    assert [name for name in names(profile) if name not in DEFAULT.predicates] == list(IN_TREE_LIMITS)


# --- merging ---------------------------------------------------------------------------------------------------------

BUT_FIT = {name: weight for name, weight in DEFAULT.priorities.items() if name != "NodeResourcesFit"}


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"score": {"enabled": plugins(NodeResourcesFit=5)}}, {**DEFAULT.priorities, "NodeResourcesFit": 5}),
        ({"multiPoint": {"enabled": plugins(NodeResourcesFit=5)}}, {**DEFAULT.priorities, "NodeResourcesFit": 5}),
        (
            {"multiPoint": {"enabled": plugins(NodeResourcesFit=5)}, "score": {"enabled": plugins(NodeResourcesFit=7)}},
            {**DEFAULT.priorities, "NodeResourcesFit": 7},
        ),
        (
            {"multiPoint": {"enabled": plugins(NodeResourcesFit=5)}, "score": {"enabled": plugins("NodeResourcesFit")}},
            {**DEFAULT.priorities, "NodeResourcesFit": 1},
        ),
        ({"score": {"disabled": plugins("NodeResourcesFit")}}, BUT_FIT),
        ({"multiPoint": {"disabled": plugins("NodeResourcesFit")}}, BUT_FIT),
        (
            {"score": {"disabled": plugins("NodeResourcesFit"), "enabled": plugins(NodeResourcesFit=9)}},
            {**BUT_FIT, "NodeResourcesFit": 9},
        ),
        ({"score": {"disabled": EVERYTHING}}, {}),
        ({"score": {"disabled": EVERYTHING, "enabled": plugins(ImageLocality=3)}}, {"ImageLocality": 3}),
        ({"multiPoint": {"disabled": EVERYTHING}}, {}),
        (
            {"multiPoint": {"disabled": EVERYTHING}, "score": {"enabled": plugins(ImageLocality=3)}},
            {"ImageLocality": 3},
        ),
        ({"score": {"enabled": plugins(SelectorSpread=4)}}, {**DEFAULT.priorities, "SelectorSpread": 4}),
        ({"preScore": {"disabled": EVERYTHING}, "preFilter": {"disabled": EVERYTHING}}, dict(DEFAULT.priorities)),
    ],
    ids=[
        "a point changes a weight",
        "multiPoint changes a weight",
        "the point's weight counts before multiPoint's",
        "a point without a weight stands for 1",
        "a point disables",
        "multiPoint disables",
        "disabled and enabled anew",
        "a point disables all",
        "a point disables all but its own",
        "multiPoint disables all",
        "multiPoint disables all, and a point enables",
        "what is no default is added",
        "preScore and preFilter decide nothing",
    ],
)
def test_scores(given: dict[str, Any], expected: dict[str, int], tmp_path: Path) -> None:
    profile = bind(tmp_path, given)
    assert weights(profile) == expected


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"filter": {"disabled": plugins("NodePorts", "VolumeZone")}}, ["NodePorts", "VolumeZone"]),
        ({"multiPoint": {"disabled": plugins("NodePorts")}}, ["NodePorts"]),
        ({"score": {"disabled": plugins("NodePorts", "NodeAffinity")}}, []),
    ],
    ids=["a point", "multiPoint", "another point"],
)
def test_filters_that_are_disabled_do_not_run(given: dict[str, Any], expected: list[str], tmp_path: Path) -> None:
    assert names(bind(tmp_path, given)) == [name for name in DEFAULT.predicates if name not in expected]


def test_a_filter_of_the_point_runs_first_if_it_is_multi_point_s_too_and_last_if_not(tmp_path: Path) -> None:
    given = {"filter": {"enabled": plugins("NodeLabel", "VolumeZone")}}
    assert names(bind(tmp_path, given)) == [
        "SchedulingGates",
        "VolumeZone",
        *(name for name in DEFAULT.predicates[1:] if name != "VolumeZone"),
        "NodeLabel",
    ]


def test_mandatory_filters_run_although_disabled_and_that_is_said(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, "extender.source"):
        profile = bind(tmp_path, {"filter": {"disabled": plugins("TaintToleration", "NoSuchPlugin")}})
    assert set(names(profile)) == set(DEFAULT.predicates)
    logged = {(record.message, record.__dict__.get("plugin")) for record in caplog.records}
    assert {("runs although disabled", "TaintToleration"), ("no such plug-in to disable", "NoSuchPlugin")} < logged


def test_in_older_versions_the_points_have_the_defaults(tmp_path: Path) -> None:
    given = {"score": {"disabled": EVERYTHING, "enabled": plugins(NodeResourcesMostAllocated=2)}}
    profile = bind(tmp_path, given, version="v1beta1")
    assert weights(profile) == {"NodeResourcesMostAllocated": 2}
    assert "NodeResourcesFit" in names(profile)


def test_plug_in_sets_are_merged_in_place() -> None:
    a, b, c = Plugin("a", 1), Plugin("b", 1), Plugin("c", 1)
    default = PluginSet([a, b])
    assert PluginSet([Plugin("b", 5), c]).over(default).enabled == [a, Plugin("b", 5), c]
    assert PluginSet([a], frozenset({"a"})).over(default).enabled == [b, a]
    assert expand(PluginSet([a, b, c]), PluginSet([c]), {"a", "c"}) == [c, a]


# --- arguments -------------------------------------------------------------------------------------------------------


def test_arguments_reach_the_filter_and_the_score(tmp_path: Path) -> None:
    config = {
        "NodeResourcesFit": {
            "apiVersion": f"{GROUP}/v1",
            "kind": "NodeResourcesFitArgs",
            "ignoredResources": ["example.com/gpu"],
            "scoringStrategy": {"type": "MostAllocated", "resources": [{"name": "cpu", "weight": 3}]},
            "ignoredResourceGroups": None,
        },
        "InterPodAffinity": {"hardPodAffinityWeight": 7},
        "DefaultPreemption": {"minCandidateNodesPercentage": 10},
        "NodeAffinity": None,
    }
    profile = bind(tmp_path, config=config)
    fit = args(profile, "NodeResourcesFit")
    assert (fit.ignored_resources, fit.scoring_strategy.type) == (("example.com/gpu",), "MostAllocated")
    assert args(profile, "InterPodAffinity").hard_pod_affinity_weight == 7


def test_arguments_of_what_does_not_run_do_not_matter(tmp_path: Path) -> None:
    profile = bind(tmp_path, {"score": {"disabled": EVERYTHING}}, {"ImageLocality": {"anything": 1}})
    assert weights(profile) == {}


def test_storage_is_scored_where_a_shape_says_how(tmp_path: Path) -> None:
    shape = [{"utilization": 0, "score": 0}, {"utilization": 100, "score": 10}]
    assert weights(bind(tmp_path, config={"VolumeBinding": {"shape": shape}})) == {
        **DEFAULT.priorities,
        "VolumeBinding": 1,
    }
    assert "VolumeBinding" not in weights(bind(tmp_path, config={"VolumeBinding": {"bindTimeoutSeconds": 5}}))


# --- several profiles ------------------------------------------------------------------------------------------------


def test_profiles_are_kept_by_scheduler_name_in_their_order(tmp_path: Path) -> None:
    packed = {"multiPoint": {"disabled": EVERYTHING, "enabled": plugins(NodeResourcesFit=3)}}
    profiles = bind_all(tmp_path, profiles=[{"schedulerName": "packing", "plugins": packed}, {}])
    assert list(profiles) == ["packing", "default-scheduler"]
    assert weights(profiles["packing"]) == {"NodeResourcesFit": 3}
    assert names(profiles["packing"]) == [*DEFAULT.mandatory, "NodeResourcesFit"]
    assert weights(profiles["default-scheduler"]) == dict(DEFAULT.priorities)


# --- findings --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("profile", "expected"),
    [
        (
            {"plugins": {"score": {"enabled": plugins("ImageLocallity")}, "bind": {"enabled": plugins("DefaultBind")}}},
            [
                "plugins.score.enabled[0].name: no plug-in named 'ImageLocallity'; did you mean 'ImageLocality'?",
                "plugins.bind.enabled[0].name: no plug-in named 'DefaultBind'; did you mean 'DefaultBinder'?",
            ],
        ),
        (
            {"plugins": {"score": {"enabled": plugins("NodeName")}, "filter": {"enabled": plugins("ImageLocality")}}},
            [
                "plugins.filter.enabled[0].name: ImageLocality does not filter; remove it",
                "plugins.score.enabled[0].name: NodeName does not score; remove it",
            ],
        ),
        (
            {"plugins": {"score": {"enabled": plugins("ImageLocality", "ImageLocality")}}},
            ["plugins.score.enabled[1].name: ImageLocality is enabled twice"],
        ),
        (
            {"plugins": {"Score": {}, "filter": {"enabled": [{"weight": -1}]}}},
            [
                "plugins.filter.enabled[0].name: is missing",
                "plugins.filter.enabled[0].weight: must be >= 0, got -1",
                "plugins.Score: unknown key; remove it or correct its spelling",
            ],
        ),
        (
            {"pluginConfig": [{"name": "NodeAfinity"}, {"name": "ImageLocality"}, {"name": "ImageLocality"}]},
            [
                "pluginConfig[2].name: ImageLocality has arguments in [1] already",
                "pluginConfig[0].name: no plug-in named 'NodeAfinity'; did you mean 'NodeAffinity'?",
            ],
        ),
        (
            {"pluginConfig": [{"name": "InterPodAffinity", "args": {"hardPodAffinityWeight": 101, "more": 1}}]},
            [
                "pluginConfig[0].args.hardPodAffinityWeight: must be <= 100, got 101",
                "pluginConfig[0].args.more: unknown key; remove it or correct its spelling",
            ],
        ),
        (
            {"plugins": {"score": {"enabled": plugins(ImageLocality=2_000_000)}}},
            ["plugins.score.enabled[0].weight: must be <= 1000000, got 2000000"],
        ),
    ],
    ids=[
        "unknown plug-ins",
        "a point that a plug-in has no part in",
        "enabled twice",
        "wrong keys",
        "arguments twice and for nobody",
        "wrong arguments",
        "a weight that is too large",
    ],
)
def test_findings_say_where_in_the_file_they_are(profile: dict[str, Any], expected: list[str], tmp_path: Path) -> None:
    found = findings(tmp_path, profiles=[{"schedulerName": "other"}, profile])
    assert list(dict.fromkeys(found)) == [f"profiles[1].{one}" for one in expected]


def test_findings_of_all_profiles_come_at_once(tmp_path: Path) -> None:
    wrong = {"plugins": {"filter": {"enabled": plugins("A")}}}
    found = findings(tmp_path, profiles=[wrong, {**wrong, "schedulerName": "b"}, {"schedulerName": "b"}])
    assert [problem.partition(": ")[0] for problem in found] == [
        "profiles[2].schedulerName",
        "profiles[0].plugins.filter.enabled[0].name",
        "profiles[1].plugins.filter.enabled[0].name",
    ]


@pytest.mark.parametrize(
    ("keys", "part"),
    [
        ({"version": "v1alpha1"}, "apiVersion: must be one of kubescheduler.config.k8s.io/v1, "),
        ({"kind": "Policy"}, "kind: is a Policy; name the file as algorithmSource.policyFile"),
        ({"profile": []}, "profile: is a key that kube-scheduler does not know"),
    ],
    ids=["another version", "a Policy", "an unknown key"],
)
def test_a_file_that_cannot_be_used_is_refused(keys: dict[str, Any], part: str, tmp_path: Path) -> None:
    assert findings(tmp_path, **keys)[0].startswith(part)


def test_every_known_plug_in_can_be_named_at_any_other_point(tmp_path: Path) -> None:
    assert names(bind(tmp_path, {"preFilter": {"enabled": plugins(*sorted(KNOWN))}})) == list(DEFAULT.predicates)
