"""Several profiles over HTTP: each pod is judged by the profile of its scheduler, and by no other."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from extender.errors import ConfigurationError
from extender.testing import make_node, make_pod
from extender.testing.cluster import RunningService, running_service
from extender.testing.reply import Json, Victims
from tests.extender.specimen import PATH

OWN = {"provider": "ExtensionProvider"}
BY_LABEL = {
    "predicates": {"enabled": [{"name": f"{PATH}:Labelled"}]},
    "priorities": {"enabled": [{"name": f"{PATH}:Graded"}]},
}
PICKY = {"predicates": {"enabled": [{"name": f"{PATH}:Picky", "args": {"names": ["b"]}}]}}
NODES = [make_node("a", labels={"refuse": "node(s) say no"}), make_node("b"), make_node("c", labels={"score": "60"})]


def pod(scheduler: str, **fields: Any) -> Json:
    return make_pod("p", schedulerName=scheduler, **fields)


@pytest.fixture(scope="module", params=[True, False], ids=["names", "nodes"])
def by_name(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


@pytest.fixture(scope="module")
def service() -> Iterator[RunningService]:
    """Two profiles; the first one serves everyone else."""
    profiles = [{"schedulerName": "by-label", **OWN, **BY_LABEL}, {"schedulerName": "picky", **OWN, **PICKY}]
    with running_service(nodes=NODES, configuration={"profiles": profiles}) as running:
        yield running


@pytest.fixture(scope="module")
def passing() -> Iterator[RunningService]:
    """One profile, past which the pods of other schedulers go."""
    configuration = {"profiles": [{"schedulerName": "picky", **PICKY}], "unmatchedSchedulerName": "passThrough"}
    with running_service(nodes=NODES, configuration=configuration) as running:
        yield running


def scores(service: RunningService, asking: Json, by_name: bool) -> dict[str, int]:
    with service.scheduler(node_cache_capable=by_name, weight=1) as scheduler:
        points = scheduler.prioritize(asking, service.nodes()).points
    return {name: value // 10 for name, value in points.items()}


@pytest.mark.parametrize(
    ("scheduler", "kept", "points"),
    [
        ("by-label", ["b", "c"], {"a": 0, "b": 0, "c": 6}),
        ("picky", ["a", "c"], {"a": 0, "b": 0, "c": 0}),
        ("default-scheduler", ["b", "c"], {"a": 0, "b": 0, "c": 6}),
        ("", ["b", "c"], {"a": 0, "b": 0, "c": 6}),
    ],
    ids=["the first profile", "the second", "a scheduler that none names", "no scheduler"],
)
def test_a_pod_is_judged_by_the_profile_of_its_scheduler(
    scheduler: str, kept: list[str], points: dict[str, int], service: RunningService, by_name: bool
) -> None:
    with service.scheduler(node_cache_capable=by_name) as client:
        assert client.filter(pod(scheduler), service.nodes()).names == kept
    assert scores(service, pod(scheduler), by_name) == points


def test_a_pod_of_another_scheduler_passes_through(passing: RunningService, by_name: bool) -> None:
    with passing.scheduler(node_cache_capable=by_name) as scheduler:
        nodes = [*passing.nodes(), make_node("unknown")]
        outcome = scheduler.filter(pod("other"), nodes)
        assert (outcome.names, outcome.failed) == (["a", "b", "c", "unknown"], {})
        assert set(scheduler.prioritize(pod("other"), nodes).points.values()) == {0}
        assert scheduler.filter(pod("picky"), passing.nodes()).names == ["a", "c"]


def test_proposals_for_a_pod_that_passes_through_are_kept(passing: RunningService, by_name: bool) -> None:
    victim = make_pod("victim", node="b")
    proposed = {"b": Victims([victim], 1)}
    with passing.scheduler(node_cache_capable=by_name) as scheduler:
        kept = scheduler.preempt(pod("other", priority=5), proposed, {"a": [], "b": [victim], "c": []})
    assert kept == proposed


def test_preemption_asks_the_profile_of_the_pod(service: RunningService) -> None:
    victims = [service.create_pod(make_pod(f"victim-{node}", node=node, namespace="eviction")) for node in ("a", "b")]
    proposed = {victim["spec"]["nodeName"]: Victims([victim], 0) for victim in victims}
    by_node = {"a": [victims[0]], "b": [victims[1]], "c": []}
    with service.scheduler() as scheduler:
        assert set(scheduler.preempt(pod("by-label", priority=5), proposed, by_node)) == {"b"}
        assert set(scheduler.preempt(pod("picky", priority=5), proposed, by_node)) == {"a"}


def test_a_pod_that_passes_through_does_not_wait_for_the_caches() -> None:
    configuration = {"profiles": [{"schedulerName": "picky", **PICKY}], "unmatchedSchedulerName": "passThrough"}
    with running_service(nodes=NODES, configuration=configuration, synced=False) as running:
        running.call(setattr, running.runtime.health, "missing", lambda: "nodes are not synced")
        answers = {
            scheduler: httpx.post(
                f"{running.url}/filter", json={"Pod": pod(scheduler), "NodeNames": ["a"]}, timeout=10
            ).json()
            for scheduler in ("other", "picky")
        }
    assert (answers["other"]["NodeNames"], answers["other"]["Error"]) == (["a"], "")
    assert "not ready" in answers["picky"]["Error"]


def test_profiles_share_the_caches_and_the_informers() -> None:
    fit = {"predicates": {"enabled": [{"name": "NodeResourcesFit"}]}}
    profiles = [{"schedulerName": name, **OWN, **fit} for name in ("one", "two")]
    with running_service(nodes=NODES, configuration={"profiles": profiles}) as running:
        one, two = (profile.predicates[-1] for profile in running.runtime.profiles.values())
        assert one is not two
        assert one.resources is two.resources
        kinds = [reflector.kind for reflector in running.runtime.reflectors]
        assert len(kinds) == len(set(kinds))


# --- from a file -----------------------------------------------------------------------------------------------------


def served_from(key: str, file: Path, tree: dict[str, Any], **keys: Any) -> Any:
    file.write_text(json.dumps(tree) if file.suffix == ".json" else yaml.safe_dump(tree))
    return running_service(nodes=NODES, configuration={"algorithmSource": {key: str(file)}, **keys})


def test_a_policy_serves_every_pod_and_reports_all_reasons(tmp_path: Path) -> None:
    policy = {
        "kind": "Policy",
        "apiVersion": "v1",
        "predicates": [
            {"name": "HostName"},
            {"name": "Labelled", "argument": {"labelsPresence": {"labels": ["refuse"], "presence": False}}},
        ],
        "priorities": [
            {"name": "Scored", "weight": 2, "argument": {"labelPreference": {"label": "score", "presence": True}}}
        ],
        "alwaysCheckAllPredicates": True,
    }
    with served_from("policyFile", tmp_path / "policy.json", policy) as running:
        with running.scheduler() as scheduler:
            outcome = scheduler.filter(make_pod("p", node=None, nodeName="b"), running.nodes())
            assert outcome.names == ["b"]
            assert outcome.unresolvable == {
                "a": "node(s) didn't match the requested node name, node(s) didn't have the requested labels",
                "c": "node(s) didn't match the requested node name",
            }
        assert scores(running, pod("any"), True) == {"a": 0, "b": 0, "c": 10}


def test_a_scheduler_s_configuration_serves_each_of_its_schedulers(tmp_path: Path) -> None:
    none = {"disabled": [{"name": "*"}]}
    tree = {
        "kind": "KubeSchedulerConfiguration",
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "profiles": [
            {"schedulerName": "default-scheduler"},
            {
                "schedulerName": "packing",
                "plugins": {"multiPoint": {**none, "enabled": [{"name": "NodeResourcesFit", "weight": 4}]}},
                "pluginConfig": [{"name": "NodeResourcesFit", "args": {"scoringStrategy": {"type": "MostAllocated"}}}],
            },
            {"schedulerName": "plain", "plugins": {"multiPoint": none}},
        ],
    }
    asking = {"requests": {"cpu": "3", "memory": "6Gi"}}
    with served_from("schedulerConfigurationFile", tmp_path / "scheduler.yaml", tree) as running:
        assert scores(running, pod("packing", **asking), True) == dict.fromkeys("abc", 8)
        assert scores(running, pod("plain", **asking), True) == dict.fromkeys("abc", 0)
        assert list(running.runtime.profiles) == ["default-scheduler", "packing", "plain"]


def test_a_file_that_cannot_be_used_keeps_the_service_from_starting(tmp_path: Path) -> None:
    file = tmp_path / "policy.json"
    policy = {"kind": "Policy", "apiVersion": "v1", "predicates": [{"name": "HostNam"}]}
    with (
        pytest.raises(ConfigurationError, match=r"policy\.json: predicates\[0\]\.name: .* did you mean 'HostName'"),
        served_from("policyFile", file, policy),
    ):
        pass
