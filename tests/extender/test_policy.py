"""A Policy becomes a profile: every name of every release, arguments, what is left out, findings with their place."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest

from extender.config import ExtenderConfiguration
from extender.errors import ConfigurationError
from extender.framework.loader import default_set, in_tree_modules, module_name
from extender.framework.mirror import Mirror
from extender.framework.registry import Registry
from extender.source import bind_profiles
from extender.source.legacy_name import PREDICATES, PRIORITIES
from tests.extender.bound_profile import args, names, weights
from tests.extender.policy_file import bind, findings, named, preference, presence, ratio, region, spreading

DEFAULT = default_set()

# --- names -----------------------------------------------------------------------------------------------------------

PREDICATES_BY_RELEASE = {
    "1.0": "PodFitsPorts PodFitsResources NoDiskConflict MatchNodeSelector HostName",
    "1.1": "PodFitsHostPorts",
    "1.2": "NoVolumeZoneConflict MaxEBSVolumeCount MaxGCEPDVolumeCount GeneralPredicates",
    "1.3": "PodToleratesNodeTaints MatchInterPodAffinity CheckNodeMemoryPressure",
    "1.4": "CheckNodeDiskPressure",
    "1.6": "MaxAzureDiskVolumeCount PodToleratesNodeNoExecuteTaints",
    "1.7": "NoVolumeNodeConflict",
    "1.8": "CheckNodeCondition CheckNodeUnschedulable",
    "1.9": "CheckVolumeBinding",
    "1.10": "CheckNodePIDPressure",
    "1.12": "MaxCSIVolumeCountPred",
    "1.14": "MaxCinderVolumeCount",
    "1.16": "EvenPodsSpread",
    "1.18": "CheckNodeLabelPresence CheckServiceAffinity",
}
PRIORITIES_BY_RELEASE = {
    "1.0": "LeastRequestedPriority BalancedResourceAllocation ServiceSpreadingPriority EqualPriority",
    "1.1": "SelectorSpreadPriority",
    "1.2": "NodeAffinityPriority ImageLocalityPriority",
    "1.3": "TaintTolerationPriority InterPodAffinityPriority",
    "1.4": "NodePreferAvoidPodsPriority MostRequestedPriority",
    "1.9": "ResourceLimitsPriority",
    "1.11": "RequestedToCapacityRatioPriority",
    "1.16": "EvenPodsSpreadPriority",
    "1.18": "RequestedToCapacityRatio NodeLabel ServiceAffinity",
}
"""The names that came with a release; none went before 1.18 but for conditions of nodes."""


def since(table: dict[str, str], release: str) -> list[str]:
    """Every name known by ``release``."""
    places = list(table)
    return " ".join(table[one] for one in places if minor(one) <= minor(release)).split()


def minor(release: str) -> int:
    return int(release.partition(".")[2])


def test_every_name_of_every_release_has_a_counterpart_and_nothing_else_has() -> None:
    assert set(PREDICATES) == set(since(PREDICATES_BY_RELEASE, "1.22"))
    assert set(PRIORITIES) == set(since(PRIORITIES_BY_RELEASE, "1.22"))


@pytest.mark.parametrize("table", [PREDICATES, PRIORITIES], ids=["predicates", "priorities"])
def test_a_counterpart_names_algorithms_that_exist_and_says_why(table: dict[str, Any]) -> None:
    for name, counterpart in table.items():
        assert {module_name(one) for one in counterpart.algorithms} <= set(in_tree_modules()), name
        assert counterpart.reason
        assert set(counterpart.args) <= set(counterpart.algorithms)
        assert counterpart.algorithms or counterpart.moved


@pytest.mark.parametrize("name", PREDICATES)
def test_a_predicate_runs_as_its_counterpart(name: str, tmp_path: Path) -> None:
    profile = bind(tmp_path, predicates=named(name), priorities=[])
    assert set(names(profile)) == {*DEFAULT.mandatory, *PREDICATES[name].algorithms}
    assert weights(profile) == {}


@pytest.mark.parametrize("name", PRIORITIES)
def test_a_priority_scores_as_its_counterpart_with_its_weight(name: str, tmp_path: Path) -> None:
    profile = bind(tmp_path, predicates=[], priorities=named(name, weight=7))
    assert weights(profile) == dict.fromkeys(PRIORITIES[name].algorithms, 7)
    assert names(profile) == list(DEFAULT.mandatory)


@pytest.mark.parametrize("release", ["1.0", "1.2", "1.4", "1.8", "1.12", "1.16", "1.22"])
def test_all_names_of_a_release_run_together(release: str, tmp_path: Path) -> None:
    predicates, priorities = since(PREDICATES_BY_RELEASE, release), since(PRIORITIES_BY_RELEASE, release)
    profile = bind(tmp_path, predicates=named(*predicates), priorities=named(*priorities, weight=2))
    assert set(names(profile)) == {
        *DEFAULT.mandatory,
        *(one for name in predicates for one in PREDICATES[name].algorithms),
    }
    assert weights(profile) == {one: 2 for name in priorities for one in PRIORITIES[name].algorithms}


def test_predicates_run_in_the_old_order_whatever_that_of_the_file(tmp_path: Path) -> None:
    profile = bind(tmp_path, predicates=named("MatchInterPodAffinity", "NoDiskConflict", "GeneralPredicates"))
    assert [name for name in names(profile) if name not in DEFAULT.mandatory] == [
        "NodeResourcesFit",
        "NodeName",
        "NodePorts",
        "NodeAffinity",
        "VolumeRestrictions",
        "InterPodAffinity",
    ]


def test_what_is_not_quite_what_it_was_is_logged_with_the_reason(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, "extender.source"):
        bind(
            tmp_path,
            predicates=named("HostName", "CheckNodeMemoryPressure"),
            priorities=named("ResourceLimitsPriority", weight=1),
            extenders=[{"urlPrefix": "http://127.0.0.1:1"}],
        )
    logged = {(record.message, getattr(record, "was", None)) for record in caplog.records}
    assert logged == {
        ("extenders are left to kube-scheduler", None),
        ("not quite what it was", "CheckNodeMemoryPressure"),
        ("not quite what it was", "ResourceLimitsPriority"),
        ("profile read", None),
    }


# --- arguments -------------------------------------------------------------------------------------------------------


def test_predicates_with_arguments_have_any_name_and_become_one(tmp_path: Path) -> None:
    profile = bind(
        tmp_path,
        predicates=[
            {"name": "OneRegion", **region("region")},
            {"name": "OneRack", **region("rack", "row")},
            {"name": "CheckNodeLabelPresence", **presence("ssd", presence=True)},
            {"name": "NotRetired", **presence("retired")},
        ],
        priorities=[],
    )
    assert set(names(profile)) == {*DEFAULT.mandatory, "ServiceAffinity", "NodeLabel"}
    assert args(profile, "ServiceAffinity").affinity_labels == ("region", "rack", "row")
    assert args(profile, "NodeLabel").present_labels == ("ssd",)
    assert args(profile, "NodeLabel").absent_labels == ("retired",)


def test_priorities_with_labels_become_one_that_weighs_as_much_as_all(tmp_path: Path) -> None:
    profile = bind(
        tmp_path,
        predicates=[{"name": "OneRegion", **region("region")}],
        priorities=[
            {"name": "Zones", "weight": 3, **spreading("zone")},
            {"name": "Racks", "weight": 3, **spreading("rack")},
            {"name": "Fast", "weight": 4, **preference("ssd", presence=True)},
            {"name": "Fresh", "weight": 4, **preference("retired")},
        ],
    )
    assert weights(profile) == {"ServiceAffinity": 6, "NodeLabel": 8}
    assert args(profile, "ServiceAffinity").affinity_labels == ("region",)
    assert args(profile, "ServiceAffinity").anti_affinity_labels_preference == ("zone", "rack")
    assert args(profile, "NodeLabel").present_labels_preference == ("ssd",)
    assert args(profile, "NodeLabel").absent_labels_preference == ("retired",)


@pytest.mark.parametrize(
    "entries",
    [
        [{"name": "Packing", **ratio((0, 0), (100, 10), cpu=3)}],
        [{"name": "RequestedToCapacityRatioPriority", **ratio((0, 0), (100, 10), cpu=3)}],
        ["RequestedToCapacityRatioPriority", {"name": "Packing", **ratio((0, 0), (100, 10), cpu=3)}],
        [{"name": "Packing", **ratio((0, 0), (100, 10), cpu=3)}, "RequestedToCapacityRatioPriority"],
    ],
    ids=["under a name of its own", "under the known name", "after one without", "before one without"],
)
def test_a_shape_counts_wherever_it_stands(entries: list[Any], tmp_path: Path) -> None:
    profile = bind(tmp_path, priorities=named(*entries, weight=2))
    assert weights(profile) == {"RequestedToCapacityRatio": 2}
    found = args(profile, "RequestedToCapacityRatio")
    assert [(point.utilization, point.score) for point in found.shape] == [(0, 0), (100, 10)]
    assert found.weights == {"cpu": 3}


def test_without_a_shape_empty_nodes_are_best(tmp_path: Path) -> None:
    profile = bind(tmp_path, priorities=named("RequestedToCapacityRatioPriority", weight=1))
    shape = args(profile, "RequestedToCapacityRatio").shape
    assert [(point.utilization, point.score) for point in shape] == [(0, 10), (100, 0)]


def test_spreading_has_no_constraints_for_pods_without_any(tmp_path: Path) -> None:
    profile = bind(tmp_path, predicates=named("EvenPodsSpread"), priorities=named("EvenPodsSpreadPriority", weight=2))
    assert args(profile, "PodTopologySpread").defaulting_type == "List"


@pytest.mark.parametrize(("given", "weight"), [(10, 10), (0, 1), (None, 1)], ids=["given", "zero", "null"])
@pytest.mark.parametrize("priorities", [None, named("InterPodAffinityPriority", weight=1)], ids=["default", "named"])
def test_the_symmetric_weight_goes_to_pod_affinity(given: Any, weight: int, priorities: Any, tmp_path: Path) -> None:
    profile = bind(tmp_path, priorities=priorities, hardPodAffinitySymmetricWeight=given)
    assert args(profile, "InterPodAffinity").hard_pod_affinity_weight == weight


# --- what is left out ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("policy", [{}, {"predicates": None, "priorities": None}], ids=["left out", "null"])
def test_lists_that_are_left_out_are_those_of_the_default_provider(policy: dict[str, Any], tmp_path: Path) -> None:
    profile = bind(tmp_path, **policy)
    assert (names(profile), weights(profile)) == (list(DEFAULT.predicates), dict(DEFAULT.priorities))
    assert not profile.check_all


def test_empty_lists_leave_the_mandatory_predicates_and_no_priority(tmp_path: Path) -> None:
    profile = bind(tmp_path, predicates=[], priorities=[], alwaysCheckAllPredicates=True)
    assert (names(profile), weights(profile)) == (list(DEFAULT.mandatory), {})
    assert profile.check_all


def test_both_ways_to_score_free_room_stand_side_by_side_and_the_last_weight_counts(tmp_path: Path) -> None:
    entries = [("LeastRequestedPriority", 5), ("MostRequestedPriority", 2), ("LeastRequestedPriority", 1)]
    profile = bind(tmp_path, priorities=[{"name": name, "weight": weight} for name, weight in entries])
    assert weights(profile) == {"NodeResourcesLeastAllocated": 1, "NodeResourcesMostAllocated": 2}


# --- findings --------------------------------------------------------------------------------------------------------

ZONE, FAST = spreading("zone"), preference("ssd", presence=True)


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        (
            {"predicates": named("PodFitsResource"), "priorities": named("LeastRequested", weight=1)},
            [
                "predicates[0].name: no predicate named 'PodFitsResource'; did you mean 'PodFitsResources'?",
                "priorities[0].name: no priority named 'LeastRequested'; did you mean 'LeastRequestedPriority'?",
            ],
        ),
        (
            {"predicates": [{"nam": "x"}], "priorities": named("EqualPriority")},
            [
                "predicates[0].name: is missing",
                "predicates[0].nam: unknown key; remove it or correct its spelling",
                "priorities[0].weight: is missing",
            ],
        ),
        (
            {"predicates": [{"name": "x", "argument": {}}]},
            ["predicates[0].argument: must have exactly one of serviceAffinity, labelsPresence"],
        ),
        (
            {"priorities": [{"name": "x", "weight": 1, "argument": {**ZONE["argument"], **FAST["argument"]}}]},
            [
                "priorities[0].argument: must have exactly one of serviceAntiAffinity, labelPreference, "
                "requestedToCapacityRatioArguments"
            ],
        ),
        (
            {"priorities": [{"name": "x", "weight": 2, **ratio((5, 90))}]},
            ["priorities[0].argument.requestedToCapacityRatioArguments.shape[0].score: must be <= 10, got 90"],
        ),
        (
            {
                "priorities": [
                    {"name": "a", "weight": 2, **spreading("a")},
                    {"name": "b", "weight": 3, **spreading("b")},
                ]
            },
            ["priorities[1].weight: must be 2 as in priorities[0], got 3; all of serviceAntiAffinity weigh the same"],
        ),
        ({"hardPodAffinitySymmetricWeight": 101}, ["hardPodAffinitySymmetricWeight: must be <= 100, got 101"]),
        ({"priorities": named("EqualPriority", weight=0)}, ["priorities[0].weight: must be >= 1, got 0"]),
        (
            {"priorities": [{"name": str(n), "weight": 600_000, **spreading(str(n))} for n in range(2)]},
            ["priorities[0].weight: must be <= 1000000, got 1200000"],
        ),
        (
            {"predicate": []},
            [
                "predicate: is a key that kube-scheduler does not know, and it does not start; "
                "remove it or correct its spelling"
            ],
        ),
    ],
    ids=[
        "unknown names",
        "entries that are not complete",
        "no argument",
        "two arguments",
        "an argument that the algorithm refuses",
        "labels that weigh differently",
        "a symmetric weight that is too large",
        "no weight",
        "weights that are too large together",
        "an unknown key",
    ],
)
def test_findings_say_where_in_the_file_they_are(policy: dict[str, Any], expected: list[str], tmp_path: Path) -> None:
    assert findings(tmp_path, **policy) == expected


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("[1]", "must hold one Policy object"),
        ("kind: Pod\napiVersion: v1\n", "kind: must be Policy, got 'Pod'"),
        ("kind: Policy\napiVersion: v2\n", "apiVersion: must be one of v1, got 'v2'"),
        ("kind: ConfigMap\napiVersion: v1\n", "kind: is a ConfigMap; save the text below its data"),
        (
            "kind: KubeSchedulerConfiguration\napiVersion: kubescheduler.config.k8s.io/v1\n",
            "kind: is a KubeSchedulerConfiguration; name the file as algorithmSource.schedulerConfigurationFile",
        ),
        (
            "kind: Policy\napiVersion: v1\nkind: Policy\n",
            "kind: stands in line 1 and again in line 3: kube-scheduler does not start",
        ),
    ],
    ids=["a list", "another kind", "another version", "a ConfigMap", "a configuration", "twice"],
)
def test_a_file_that_is_no_policy_is_told_apart(text: str, part: str, tmp_path: Path) -> None:
    file = tmp_path / "policy.yaml"
    file.write_text(text)
    configuration = ExtenderConfiguration.model_validate({"algorithmSource": {"policyFile": str(file)}})
    with pytest.raises(ConfigurationError) as refusal:
        bind_profiles(Registry(), Mirror(), configuration)
    assert refusal.value.problems[0].startswith(f"{file}: {part}")


@pytest.mark.parametrize("key", ["policyFile", "schedulerConfigurationFile"])
@pytest.mark.parametrize(
    ("text", "part"),
    [
        (None, "cannot be read: No such file or directory"),
        ("", "is empty"),
        ("{", "is neither YAML nor JSON: line 1, column 2"),
    ],
    ids=["absent", "empty", "torn"],
)
def test_a_file_that_cannot_be_read_is_named_with_its_key(
    key: str, text: str | None, part: str, tmp_path: Path
) -> None:
    file = tmp_path / "file"
    if text is not None:
        file.write_text(text)
    source = {"algorithmSource": {key: str(file)}}
    with pytest.raises(ConfigurationError) as refusal:
        bind_profiles(Registry(), Mirror(), ExtenderConfiguration.model_validate(source))
    assert str(refusal.value).startswith(f"algorithmSource.{key}: {file}: {part}")
