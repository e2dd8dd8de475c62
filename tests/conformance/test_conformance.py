"""Every algorithm decides as kube-scheduler's plug-in of the same name did, in every case of the file."""

from pathlib import Path

import pytest

from extender.cli.conformance import report
from extender.framework.loader import load
from extender.framework.registry import Registry
from extender.testing.conformance import FEASIBLE, PREEMPTION, TOTAL, compare, read_cases
from extender.testing.placement import compare_default_profile

CASES = Path(__file__).with_name("cases.jsonl.gz")
ALGORITHMS = (
    "NodeName",
    "NodeUnschedulable",
    "TaintToleration",
    "NodeAffinity",
    "NodePorts",
    "NodeResourcesFit",
    "NodeResourcesBalancedAllocation",
    "ImageLocality",
    "VolumeRestrictions",
    "NodeVolumeLimits",
    "VolumeBinding",
    "VolumeZone",
    "PodTopologySpread",
    "InterPodAffinity",
)


@pytest.fixture(scope="module")
def tallies():
    registry = Registry()
    for name in ALGORITHMS:
        load(name, registry)
    classes = {**registry.priorities, **registry.predicates}
    return {tally.name: tally for tally in compare(read_cases(CASES), [classes[name] for name in ALGORITHMS])}


@pytest.mark.parametrize("name", [pytest.param(name, id=f"{name} decides every case alike") for name in ALGORITHMS])
def test_agrees_with_kube_scheduler(tallies, name):
    tally = tallies[name]
    assert tally.named
    assert tally.cases == 1600
    assert tally.agreeing
    assert not tally.disagreements, "\n".join(report([tally]))


def test_the_default_profile_places_scores_and_evicts_as_kube_scheduler():
    tally = compare_default_profile(read_cases(CASES))
    assert not tally.disagreements, "\n".join(report([tally]))
    assert tally.agreeing == dict.fromkeys((FEASIBLE, TOTAL, PREEMPTION), 1600)
