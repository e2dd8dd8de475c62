"""The Policies of kube-scheduler's tests and documentation, 1.0 to 1.22, load as the algorithms that they ask for.

Facts from: compatibility_test.go as of 1.8, 1.17 and 1.22, factory_test.go, the integration test of the scheduler and
server_test.go of 1.18 to 1.22, the examples and the pages on policies and bin packing.
"""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import pytest
import yaml

from extender.config import ExtenderConfiguration
from extender.errors import ConfigurationError
from extender.framework.loader import default_set
from extender.framework.mirror import Mirror
from extender.framework.registry import Registry
from extender.framework.runner import Profile
from extender.registration.decoding import decode
from extender.registration.finding import Severity
from extender.registration.rule import judge
from extender.source import bind_profiles
from tests.extender.bound_profile import args, names, weights
from tests.extender.policy_file import bind, findings, named, preference, presence, ratio, region, spreading

DEFAULT = default_set()

# --- one example a release -------------------------------------------------------------------------------------------

NAMED = {
    "1.0": ("MatchNodeSelector PodFitsResources PodFitsPorts NoDiskConflict", ""),
    "1.1": ("MatchNodeSelector PodFitsHostPorts PodFitsResources NoDiskConflict HostName", ""),
    "1.2": ("NoVolumeZoneConflict MaxEBSVolumeCount MaxGCEPDVolumeCount MaxAzureDiskVolumeCount", ""),
    "1.3": ("PodToleratesNodeTaints MatchInterPodAffinity", "CheckNodeMemoryPressure GeneralPredicates"),
    "1.4": ("", "CheckNodeDiskPressure"),
    "1.7": ("", ""),
    "1.8": ("", "CheckNodeCondition"),
    "1.9": ("CheckVolumeBinding", ""),
    "1.10": ("", "CheckNodePIDPressure"),
    "1.11": ("", ""),
    "1.12": ("MaxCSIVolumeCountPred", ""),
    "1.14": ("MaxCinderVolumeCount", ""),
    "1.16": ("", ""),
}
"""The predicates that the example of a release adds to those of the one before, and what it had besides until 1.17."""

FIRST = ("1.0", "1.1")
"""Releases with examples that do not build on one another; what follows builds on the second."""

FILTERS = {
    "NodeName": "1.1",
    "NodePorts": "1.0",
    "NodeAffinity": "1.0",
    "NodeResourcesFit": "1.0",
    "VolumeRestrictions": "1.0",
    "NodeLabel": "1.0",
    "ServiceAffinity": "1.0",
    "EBSLimits": "1.2",
    "GCEPDLimits": "1.2",
    "NodeVolumeLimits": "1.12",
    "AzureDiskLimits": "1.2",
    "VolumeBinding": "1.9",
    "VolumeZone": "1.2",
    "InterPodAffinity": "1.3",
}
"""What filters in the end, in the order of kube-scheduler 1.22, and since which example."""

ZONE, REGION = spreading("zone"), spreading("region")
BAR, FOO = preference("bar", presence=True), preference("foo")
SHAPE = [(0, 0), (50, 7)]
EQUAL = "EqualPriority LeastRequestedPriority BalancedResourceAllocation SelectorSpreadPriority"
PLACED = f"{EQUAL} ImageLocalityPriority NodeAffinityPriority"
CROWDED = f"{PLACED} TaintTolerationPriority InterPodAffinityPriority"
PACKED = f"{CROWDED} NodePreferAvoidPodsPriority MostRequestedPriority"

SCORED: dict[str, list[dict[str, Any]]] = {
    "1.0": [
        {"name": "LeastRequestedPriority", "weight": 1},
        {"name": "ServiceSpreadingPriority", "weight": 2},
        {"name": "Zones", "weight": 3, **ZONE},
        {"name": "Bars", "weight": 4, **BAR},
    ],
    "1.1": [
        *named(*EQUAL.split(), weight=2),
        *named({"name": "Zones", **ZONE}, {"name": "Regions", **REGION}, weight=3),
        *named({"name": "Bars", **BAR}, {"name": "Foos", **FOO}, weight=4),
    ],
    "1.2": [
        *named(*PLACED.split(), weight=2),
        {"name": "Zones", "weight": 3, **ZONE},
        {"name": "Bars", "weight": 4, **BAR},
    ],
    "1.3": named(*CROWDED.split(), weight=2),
    "1.4": named(*PACKED.split(), weight=2),
    "1.11": named(*PACKED.split(), {"name": "RequestedToCapacityRatioPriority", **ratio(*SHAPE)}, weight=2),
    "1.16": named(
        *PACKED.split(),
        {"name": "RequestedToCapacityRatioPriority", **ratio(*SHAPE, **{"intel.com/foo": 3, "intel.com/bar": 5})},
        weight=2,
    ),
}
"""The priorities of the example of a release; those of the one before where it has none of its own."""

SPREAD = {"EqualPriority", "NodeResourcesLeastAllocated", "NodeResourcesBalancedAllocation", "SelectorSpread"}
SEEN = {*SPREAD, "ImageLocality", "NodeAffinity"}
KEPT = {*SEEN, "TaintToleration", "InterPodAffinity", "NodePreferAvoidPods", "NodeResourcesMostAllocated"}

SCORES = {
    "1.0": {"NodeResourcesLeastAllocated": 1, "SelectorSpread": 2, "ServiceAffinity": 3, "NodeLabel": 4},
    "1.1": dict.fromkeys(SPREAD, 2) | {"ServiceAffinity": 6, "NodeLabel": 8},
    "1.2": dict.fromkeys(SEEN, 2) | {"ServiceAffinity": 3, "NodeLabel": 4},
    "1.3": dict.fromkeys(KEPT - {"NodePreferAvoidPods", "NodeResourcesMostAllocated"}, 2),
    "1.4": dict.fromkeys(KEPT, 2),
    "1.11": dict.fromkeys({*KEPT, "RequestedToCapacityRatio"}, 2),
}

HTTPS = {
    "urlPrefix": "/prefix",
    "filterVerb": "filter",
    "prioritizeVerb": "prioritize",
    "weight": 1,
    "enableHttps": True,
    "tlsConfig": {"Insecure": True},
    "httpTimeout": 1,
    "nodeCacheCapable": True,
}
MANAGING = {
    **HTTPS,
    "bindVerb": "bind",
    "managedResources": [{"name": "example.com/foo", "ignoredByScheduler": True}],
    "ignorable": True,
}
EXTENDERS = {"1.7": {**HTTPS, "BindVerb": "bind"}, "1.8": {**HTTPS, "bindVerb": "bind"}, "1.10": MANAGING}
"""The extender of the example of a release; until 1.7 the key of the bind verb began with a capital."""


def minor(release: str) -> int:
    return int(release.partition(".")[2])


def latest(table: dict[str, Any], release: str) -> Any:
    """Return what the newest row of the table says that is not newer than ``release``."""
    return table[max((one for one in table if minor(one) <= minor(release)), key=minor)]


def example(release: str, *, besides: bool) -> dict[str, Any]:
    """Return the example of a release, ``besides`` with the conditions of nodes, which it had until 1.17."""
    rows = [release] if release in FIRST else [one for one in NAMED if one != "1.0" and minor(one) <= minor(release)]
    predicates = " ".join(part for one in rows for part in NAMED[one][: 2 if besides else 1]).split()
    labels = [
        {"name": "OneRegion", **region("region")},
        {"name": "WithFoo", **presence("foo", presence=True)},
    ]
    extenders = [latest(EXTENDERS, release)] if minor(release) >= minor("1.7") else None
    return {"predicates": named(*predicates, *labels), "priorities": latest(SCORED, release), "extenders": extenders}


@pytest.mark.parametrize("release", NAMED)
def test_the_example_of_a_release_runs_in_the_order_of_kube_scheduler(release: str, tmp_path: Path) -> None:
    profile = bind(tmp_path, **example(release, besides=False))
    assert [name for name in names(profile) if name not in DEFAULT.mandatory] == [
        name for name, since in FILTERS.items() if minor(since) <= minor(release)
    ]
    assert weights(profile) == latest(SCORES, release)
    assert args(profile, "ServiceAffinity").affinity_labels == ("region",)
    assert args(profile, "NodeLabel").present_labels == ("foo",)


@pytest.mark.parametrize("release", NAMED)
def test_the_example_of_a_release_as_it_was_until_1_17_runs_as_the_same(release: str, tmp_path: Path) -> None:
    older, newer = (bind(tmp_path, **example(release, besides=besides)) for besides in (True, False))
    assert set(names(older)) == set(names(newer))
    assert weights(older) == weights(newer)


def test_volumes_were_bound_to_nodes_before_that_had_its_name(tmp_path: Path) -> None:
    policy = example("1.8", besides=True)
    policy["predicates"] += named("NoVolumeNodeConflict")
    assert set(names(bind(tmp_path, **policy))) == {*names(bind(tmp_path, **example("1.9", besides=True)))}


@pytest.mark.parametrize(
    ("release", "resources"),
    [("1.11", {"cpu": 1, "memory": 1}), ("1.16", {"intel.com/foo": 3, "intel.com/bar": 5})],
    ids=["without resources", "with resources"],
)
def test_the_shape_of_an_example_is_that_of_the_file(release: str, resources: dict[str, int], tmp_path: Path) -> None:
    found = args(bind(tmp_path, **example(release, besides=False)), "RequestedToCapacityRatio")
    assert [(point.utilization, point.score) for point in found.shape] == SHAPE
    assert found.weights == resources


# --- other examples --------------------------------------------------------------------------------------------------

LOCAL = {
    "urlPrefix": "http://127.0.0.1:12346/scheduler",
    "filterVerb": "filter",
    "bindVerb": "bind",
    "prioritizeVerb": "prioritize",
    "weight": 5,
    "enableHttps": False,
    "nodeCacheCapable": False,
}
ONE_EACH = {"predicates": named("PodFitsResources"), "priorities": named("ImageLocalityPriority", weight=1)}
BIG_EXAMPLE = {
    "predicates": named(
        "CheckNodeUnschedulable",
        "CheckVolumeBinding",
        "GeneralPredicates",
        "MatchInterPodAffinity",
        "MaxEBSVolumeCount",
        "MaxGCEPDVolumeCount",
        "MaxAzureDiskVolumeCount",
        "MaxCSIVolumeCountPred",
        "NoDiskConflict",
        "NoVolumeZoneConflict",
        "PodToleratesNodeTaints",
    ),
    "priorities": [
        *named("ServiceSpreadingPriority", "EqualPriority", "ImageLocalityPriority", "MostRequestedPriority", weight=1),
        *named("SelectorSpreadPriority", "InterPodAffinityPriority", "LeastRequestedPriority", weight=1),
        *named("BalancedResourceAllocation", "NodeAffinityPriority", "TaintTolerationPriority", weight=1),
        *named("NodePreferAvoidPodsPriority", weight=10_000),
    ],
    "extenders": [LOCAL],
    "hardPodAffinitySymmetricWeight": 10,
    "alwaysCheckAllPredicates": False,
}
WITH_LABELS = {
    "predicates": [
        {"name": "OneZone", **region("zone")},
        {"name": "OneZone", **region("foo")},
        {"name": "WithZone", **presence("zone", presence=True)},
        {"name": "WithoutFoo", **presence("foo")},
    ],
    "priorities": [
        *named({"name": "Racks", **spreading("rack")}, {"name": "Zones", **ZONE}, weight=3),
        {"name": "RequestedToCapacityRatioPriority", "weight": 2, **ratio(*SHAPE)},
        *named({"name": "A", **preference("l1", presence=True)}, {"name": "B", **preference("l2")}, weight=3),
        {"name": "NodeAffinityPriority", "weight": 2},
        {"name": "InterPodAffinityPriority", "weight": 1},
    ],
}
WITH_WEIGHT = {
    "predicates": [
        {"name": "OneZone", **region("zone")},
        {"name": "WithZone", **presence("zone", presence=True)},
        *named("PodFitsResources", "PodFitsHostPorts"),
    ],
    "priorities": [
        {"name": "Racks", "weight": 3, **spreading("rack")},
        {"name": "NodeAffinityPriority", "weight": 2},
        *named("ImageLocalityPriority", "InterPodAffinityPriority", weight=1),
    ],
    "hardPodAffinitySymmetricWeight": 10,
}
OLDEST = {
    "predicates": named("PodFitsPorts", "PodFitsResources", "NoDiskConflict", "MatchNodeSelector", "HostName"),
    "priorities": named("LeastRequestedPriority", "BalancedResourceAllocation", weight=1)
    + named("ServiceSpreadingPriority", "EqualPriority", weight=1),
}
BIN_PACKING = {
    "predicates": [],
    "priorities": [
        {
            "name": "RequestedToCapacityRatioPriority",
            "weight": 2,
            **ratio((0, 0), (100, 10), **{"intel.com/foo": 3, "intel.com/bar": 5}),
        }
    ],
}

OTHERS: dict[str, tuple[dict[str, Any], str | None, dict[str, int] | None]] = {
    "nothing said": ({}, None, None),
    "empty lists": ({"predicates": [], "priorities": []}, "", {}),
    "one predicate and one priority": (ONE_EACH, "NodeResourcesFit", {"ImageLocality": 1}),
    "pod affinity alone": (
        {
            "predicates": named("MatchInterPodAffinity"),
            "priorities": named("InterPodAffinityPriority", weight=2),
        },
        "InterPodAffinity",
        {"InterPodAffinity": 2},
    ),
    "the general predicates": (
        {"predicates": named("GeneralPredicates"), "priorities": []},
        "NodeResourcesFit NodeName NodePorts NodeAffinity",
        {},
    ),
    "the oldest one": (
        OLDEST,
        "NodeName NodePorts NodeAffinity NodeResourcesFit VolumeRestrictions",
        dict.fromkeys(SPREAD, 1),
    ),
    "an extender alone": ({"extenders": [LOCAL]}, None, None),
    "one of nearly everything": (
        BIG_EXAMPLE,
        "NodeResourcesFit NodeName NodePorts NodeAffinity VolumeRestrictions EBSLimits GCEPDLimits NodeVolumeLimits "
        "AzureDiskLimits VolumeBinding VolumeZone InterPodAffinity",
        dict.fromkeys(KEPT, 1) | {"NodePreferAvoidPods": 10_000},
    ),
    "labels": (
        WITH_LABELS,
        "NodeLabel ServiceAffinity",
        {
            "InterPodAffinity": 1,
            "NodeAffinity": 2,
            "NodeLabel": 6,
            "RequestedToCapacityRatio": 2,
            "ServiceAffinity": 6,
        },
    ),
    "a weight of required affinity": (
        WITH_WEIGHT,
        "NodePorts NodeResourcesFit NodeLabel ServiceAffinity",
        {"ImageLocality": 1, "InterPodAffinity": 1, "NodeAffinity": 2, "ServiceAffinity": 3},
    ),
    "bin packing": (BIN_PACKING, "", {"RequestedToCapacityRatio": 2}),
}
"""A Policy, what it adds to the mandatory predicates, in order, and the weights; None is what runs by default."""


def load(folder: Path, text: str) -> Profile:
    file = folder / "policy"
    file.write_text(text)
    configuration = ExtenderConfiguration.model_validate({"algorithmSource": {"policyFile": str(file)}})
    (profile,) = bind_profiles(Registry(), Mirror(), configuration).values()
    return profile


@pytest.mark.parametrize("write", [json.dumps, yaml.safe_dump], ids=["JSON", "YAML"])
@pytest.mark.parametrize(("policy", "filters", "scores"), OTHERS.values(), ids=OTHERS)
def test_an_example_loads(policy: Any, filters: str | None, scores: Any, write: Any, tmp_path: Path) -> None:
    profile = load(tmp_path, write({"kind": "Policy", "apiVersion": "v1", **policy}))
    if filters is None:
        assert names(profile) == list(DEFAULT.predicates)
    else:
        assert [name for name in names(profile) if name not in DEFAULT.mandatory] == filters.split()
        assert set(DEFAULT.mandatory) <= set(names(profile))
    assert weights(profile) == (dict(DEFAULT.priorities) if scores is None else scores)
    assert not profile.check_all


def test_an_empty_object_leaves_everything_out(tmp_path: Path) -> None:
    profile = load(tmp_path, "{}")
    assert (names(profile), weights(profile)) == (list(DEFAULT.predicates), dict(DEFAULT.priorities))


def test_the_labels_of_an_example_are_gathered(tmp_path: Path) -> None:
    profile = bind(tmp_path, **WITH_LABELS)
    service, label = args(profile, "ServiceAffinity"), args(profile, "NodeLabel")
    assert (service.affinity_labels, service.anti_affinity_labels_preference) == (("zone", "foo"), ("rack", "zone"))
    assert (label.present_labels, label.absent_labels) == (("zone",), ("foo",))
    assert (label.present_labels_preference, label.absent_labels_preference) == (("l1",), ("l2",))


@pytest.mark.parametrize("policy", [WITH_WEIGHT, BIG_EXAMPLE], ids=["few predicates", "many predicates"])
def test_the_weight_of_required_affinity_is_that_of_the_file(policy: dict[str, Any], tmp_path: Path) -> None:
    assert args(bind(tmp_path, **policy), "InterPodAffinity").hard_pod_affinity_weight == 10


def test_a_resource_without_a_weight_counts_once(tmp_path: Path) -> None:
    entry = {"name": "Packing", "weight": 1, **ratio((10, 1), (30, 5), (70, 2))}
    entry["argument"]["requestedToCapacityRatioArguments"]["resources"] = [{"name": "cpu"}, {"name": "memory"}]
    found = args(bind(tmp_path, priorities=[entry]), "RequestedToCapacityRatio")
    assert [(point.utilization, point.score) for point in found.shape] == [(10, 1), (30, 5), (70, 2)]
    assert found.weights == {"cpu": 1, "memory": 1}


# --- what kube-scheduler refuses -------------------------------------------------------------------------------------

REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "no weight": ({"priorities": named("EqualPriority")}, "priorities[0].weight: is missing"),
    "a weight of zero": ({"priorities": named("EqualPriority", weight=0)}, "priorities[0].weight: must be >= 1, got 0"),
    "a negative weight": (
        {"priorities": named("EqualPriority", weight=-2)},
        "priorities[0].weight: must be >= 1, got -2",
    ),
    "a weight that would overflow": (
        {"priorities": named("EqualPriority", weight=2**63 // 100)},
        f"priorities[0].weight: must be <= 1000000, got {2**63 // 100}",
    ),
    "two shapes": (
        {"priorities": named({"name": "a", **ratio(*SHAPE)}, {"name": "b", **ratio(*SHAPE)}, weight=1)},
        "priorities[1].argument.requestedToCapacityRatioArguments: stands in priorities[0] already; "
        "a Policy can have one",
    ),
    "preferred labels that weigh differently": (
        {"priorities": [{"name": "a", "weight": 1, **BAR}, {"name": "b", "weight": 2, **FOO}]},
        "priorities[1].weight: must be 1 as in priorities[0], got 2; all of labelPreference weigh the same",
    ),
    "spreading that weighs differently": (
        {"priorities": [{"name": "a", "weight": 1, **ZONE}, {"name": "b", "weight": 2, **REGION}]},
        "priorities[1].weight: must be 1 as in priorities[0], got 2; all of serviceAntiAffinity weigh the same",
    ),
    "required affinity that weighs too much": (
        {"hardPodAffinitySymmetricWeight": 101},
        "hardPodAffinitySymmetricWeight: must be <= 100, got 101",
    ),
    "required affinity that weighs too little": (
        {"hardPodAffinitySymmetricWeight": -1},
        "hardPodAffinitySymmetricWeight: must be >= 0, got -1",
    ),
    "a score above ten, as the page on bin packing has it": (
        {"priorities": [{"name": "a", "weight": 1, **ratio((0, 100), (100, 0))}]},
        "priorities[0].argument.requestedToCapacityRatioArguments.shape[0].score: must be <= 10, got 100",
    ),
    "a priority of somebody's own, as in an example": (
        {"priorities": named("GPUAllocationPriority", weight=10)},
        "priorities[0].name: no priority named 'GPUAllocationPriority'; did you mean 'TaintTolerationPriority'?",
    ),
    "a host, as the page on policies calls it": (
        {"predicates": named("PodFitsHost")},
        "predicates[0].name: no predicate named 'PodFitsHost'; did you mean 'HostName'?",
    ),
    "a selector, as the page on policies calls it": (
        {"predicates": named("PodMatchNodeSelector")},
        "predicates[0].name: no predicate named 'PodMatchNodeSelector'; did you mean 'MatchNodeSelector'?",
    ),
    "volumes, as the page on policies calls them": (
        {"predicates": named("MaxCSIVolumeCount")},
        "predicates[0].name: no predicate named 'MaxCSIVolumeCount'; did you mean 'MaxCSIVolumeCountPred'?",
    ),
}


@pytest.mark.parametrize(("policy", "finding"), REFUSED.values(), ids=REFUSED)
def test_what_kube_scheduler_refuses_is_refused(policy: dict[str, Any], finding: str, tmp_path: Path) -> None:
    assert findings(tmp_path, **policy) == [finding]


FIRST_OF_TWO, SECOND_OF_TWO = (
    {"urlPrefix": f"http://127.0.0.1:{port}/extender", "filterVerb": "filter"} for port in (8081, 8082)
)


@pytest.mark.parametrize(
    ("extenders", "place"),
    [
        ([{**FIRST_OF_TWO, "prioritizeVerb": "prioritize", "weight": -2}], "extenders[0].weight"),
        ([{**FIRST_OF_TWO, "bindVerb": "bind"}, {**SECOND_OF_TWO, "bindVerb": "bind"}], "extenders"),
        (
            [
                {**FIRST_OF_TWO, "managedResources": [{"name": "foo.com/bar"}]},
                {**SECOND_OF_TWO, "managedResources": [{"name": "foo.com/bar"}]},
            ],
            "extenders[1].managedResources[0].name",
        ),
        (
            [{**FIRST_OF_TWO, "managedResources": [{"name": "kubernetes.io/foo"}]}],
            "extenders[0].managedResources[0].name",
        ),
    ],
    ids=["a negative weight", "two that bind", "a resource managed twice", "a resource that cannot be managed"],
)
def test_wrong_extenders_are_left_to_the_doctor(
    extenders: Any, place: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, "extender.source"):
        profile = bind(tmp_path, extenders=extenders)
    assert names(profile) == list(DEFAULT.predicates)
    assert "extenders are left to kube-scheduler" in caplog.messages
    configuration, _ = decode({"kind": "Policy", "apiVersion": "v1", "extenders": extenders})
    assert configuration is not None
    assert [one.path for one in judge(configuration) if one.severity is Severity.ERROR] == [place]


def test_text_of_another_shape_is_no_example(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="kind: must be Policy, got None"):
        load(tmp_path, '{"predicates": []}')
