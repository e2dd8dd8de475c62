"""Another configuration is put in force while the service runs: over HTTP, with an embedded API server."""

from __future__ import annotations

import json
import logging
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from extender.cluster.apiserver import Fault
from extender.errors import ConfigurationError
from extender.framework.eviction import DisruptionBudgets, PlacedPods
from extender.framework.resource import RequestedResources
from extender.model.kind import NODES, POD_DISRUPTION_BUDGETS, PODS, SERVICES
from extender.testing import make_node, make_pod
from extender.testing.cluster import RunningService, running_service
from tests.extender.specimen import PATH
from tests.integration.taken import Taken

BARE = {"provider": "ExtensionProvider"}
NODE_LIST = [make_node("a"), make_node("b"), make_node("c")]
UNTAKEN = "tests.integration.taken:Untaken"
HELD = make_pod("held", node="b", annotations={"example/taken": "yes"})


def only(*predicates: str | dict[str, Any], **more: Any) -> dict[str, Any]:
    """A configuration of the mandatory predicates and these."""
    entries = [{"name": entry} if isinstance(entry, str) else entry for entry in predicates]
    return {"profiles": [{**BARE, "predicates": {"enabled": entries}, "priorities": {"enabled": []}}], **more}


PICKY_A, PICKY_C = ({"name": f"{PATH}:Picky", "args": {"names": [name]}} for name in "ac")


@pytest.fixture
def service() -> Iterator[RunningService]:
    with running_service(nodes=NODE_LIST, pods=[HELD], configuration=only()) as running:
        yield running


def post(service: RunningService, verb: str, pod: Any = None) -> Any:
    body = {"Pod": pod or make_pod("p"), "NodeNames": ["a", "b", "c"]}
    return httpx.post(f"{service.url}/{verb}", content=json.dumps(body), timeout=10).json()


def kept(service: RunningService, pod: Any = None) -> list[str]:
    reply = post(service, "filter", pod)
    assert reply["Error"] == ""
    names: list[str] = reply["NodeNames"]
    return names


def value(service: RunningService, name: str, **labels: str) -> float:
    return service.runtime.metrics.registry.get_sample_value(f"scheduler_extender_{name}", labels) or 0.0


def told(service: RunningService) -> str:
    answer = httpx.get(f"{service.management_url}/readyz?verbose")
    assert answer.status_code == 200
    (line,) = (line for line in answer.text.splitlines() if "configuration" in line.split(" ")[0])
    return line


def refusal(service: RunningService, configuration: dict[str, Any]) -> tuple[str, ...]:
    with pytest.raises(ConfigurationError) as refused:
        service.reconfigure(configuration)
    return refused.value.problems


# --- algorithms come and go ------------------------------------------------------------------------------------------


def test_an_algorithm_from_outside_comes_with_all_that_it_needs_and_goes_again(service: RunningService) -> None:
    kinds, caches = service.runtime.informers.kinds, set(map(type, service.runtime.mirror.caches))
    assert (kinds, caches) == ({NODES, PODS, POD_DISRUPTION_BUDGETS}, {PlacedPods, DisruptionBudgets})
    assert kept(service) == ["a", "b", "c"]

    service.reconfigure(only(UNTAKEN, "NodeResourcesFit"))
    assert kept(service) == ["a", "c"]  # what pods are annotated with is known by then
    assert service.runtime.informers.kinds == {*kinds, SERVICES}
    assert set(map(type, service.runtime.mirror.caches)) > {Taken, RequestedResources}
    assert value(service, "informer_synced", resource="services") == 1
    assert value(service, "configuration_generation") == 2
    service.create_pod(make_pod("late", node="c", annotations={"example/taken": "yes"}))
    assert kept(service) == ["a"]

    service.reconfigure(only())
    assert kept(service) == ["a", "b", "c"]
    assert service.runtime.informers.kinds == kinds
    assert set(map(type, service.runtime.mirror.caches)) == caches
    assert value(service, "configuration_reloads_total", result="ok") == 2
    assert value(service, "configuration_generation") == 3


def test_a_module_that_was_not_there_at_the_start_is_found(
    service: RunningService, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    path = tmp_path / "late_rule.py"
    assert refusal(service, only("late_rule:Late")) == (
        "profiles[0].predicates.enabled[0].name: import path 'late_rule:Late': no module named 'late_rule'; "
        "is its package installed?",
    )
    path.write_text("raise ZeroDivisionError('not yet')\n")
    (problem,) = refusal(service, only("late_rule:Late"))
    assert problem.endswith("module 'late_rule' failed to load: ZeroDivisionError: not yet")
    assert told(service).endswith(f"the last is refused: {problem}")
    path.write_text(
        "from extender.framework import NodePredicate\n\n\n"
        "class Late(NodePredicate):\n"
        "    def fits(self, pod, node):\n"
        "        return None if node.name == 'b' else 'node(s) are not b'\n"
    )
    try:
        service.reconfigure(only("late_rule:Late"))
        assert kept(service) == ["b"]
    finally:
        sys.modules.pop("late_rule", None)
    assert told(service) == "[+]configuration ok"
    service.reconfigure(only())
    assert kept(service) == ["a", "b", "c"]


def test_what_cannot_be_listed_leaves_the_last_good_one_in_force(service: RunningService) -> None:
    service.reconfigure(only(PICKY_A))
    fault = service.call(service.api.faults.add, Fault(path="/services$", status=403, count=None))
    wanted = only(UNTAKEN, reload={"syncSeconds": 0.3})
    (problem,) = refusal(service, wanted)
    assert problem.startswith("services were not listed within 0.3 s, reload.syncSeconds: services: ")
    assert problem.endswith("; let the service account list and watch core services")
    assert kept(service) == ["b", "c"]
    assert service.runtime.informers.kinds == {NODES, PODS, POD_DISRUPTION_BUDGETS}
    assert Taken not in set(map(type, service.runtime.mirror.caches))
    assert told(service) == f"[+]configuration ok: number 2 stays, the last is refused: {problem}"
    assert value(service, "configuration_last_reload_successful") == 0
    assert value(service, "configuration_reloads_total", result="failed") == 1
    since = value(service, "configuration_last_reload_success_timestamp_seconds")

    service.call(service.api.faults.remove, fault)
    service.reconfigure(wanted)
    assert kept(service) == ["a", "c"]
    assert value(service, "configuration_last_reload_successful") == 1
    assert since < value(service, "configuration_last_reload_success_timestamp_seconds") <= time.time()


def test_pods_that_cannot_be_listed_again_leave_the_last_good_one_in_force(service: RunningService) -> None:
    service.call(service.api.faults.add, Fault(path="/pods$", status=500, count=None))
    (problem,) = refusal(service, only(UNTAKEN, reload={"syncSeconds": 0.3}))
    assert problem.startswith("pods, whose annotations a new algorithm reads, were not listed again within 0.3 s")
    assert kept(service) == ["a", "b", "c"]
    service.call(service.api.faults.clear)
    service.reconfigure(only(UNTAKEN))
    assert kept(service) == ["a", "c"]


def test_all_findings_come_at_once(service: RunningService) -> None:
    problems = refusal(service, only("Nonsense", {"name": f"{PATH}:Bounded", "args": {"most": 11}}))
    assert len(problems) == 2
    assert told(service).endswith("; and 1 more")


def test_no_request_fails_while_configurations_change(service: RunningService) -> None:
    """A hundred requests a second, from four callers."""
    wrong: list[Any] = []
    answers: list[tuple[str, ...]] = []
    over = threading.Event()

    def call() -> None:
        with httpx.Client(base_url=service.url, timeout=10) as client:
            body = json.dumps({"Pod": make_pod("p"), "NodeNames": ["a", "b", "c"]})
            while not over.wait(0.04):
                for verb in ("filter", "prioritize"):
                    answer = client.post(f"/{verb}", content=body)
                    if answer.status_code != 200 or (verb == "filter" and answer.json()["Error"]):
                        wrong.append(answer.text)
                    elif verb == "filter":
                        answers.append(tuple(answer.json()["NodeNames"]))

    callers = [threading.Thread(target=call) for _ in range(4)]
    for caller in callers:
        caller.start()
    plans = {
        ("b", "c"): only(PICKY_A, "NodeResourcesFit", "InterPodAffinity"),
        ("a", "c"): only(UNTAKEN, "VolumeBinding"),
        ("a", "b", "c"): {},
    }
    try:
        for expected, plan in [*plans.items()] * 3:
            service.reconfigure(plan)
            answers.clear()
            while len(answers) < 25 and not wrong:
                over.wait(0.01)
            assert set(answers[8:]) <= {expected}
    finally:
        over.set()
        for caller in callers:
            caller.join()
    assert not wrong
    assert service.runtime.reloader.generation == 10


# --- what takes effect -----------------------------------------------------------------------------------------------


def test_what_needs_a_restart_is_told_and_stays_as_it_was(service: RunningService) -> None:
    management = {"stuckSeconds": 5, "host": "127.0.0.1", "port": 0}
    service.reconfigure(only(PICKY_A, management=management, leaderElection={"enabled": True}, log={"format": "text"}))
    assert kept(service) == ["b", "c"]
    settings = "log.format, leaderElection.enabled, management.stuckSeconds"
    assert set(service.runtime.reloader.waiting) == set(settings.split(", "))
    assert told(service).startswith("[+]configuration ok: number 2; a restart is needed for ")
    assert value(service, "configuration_settings_waiting") == 3
    assert service.runtime.configuration.management.stuck_seconds == 30
    assert not service.runtime.configuration.leader_election.enabled
    service.reconfigure(only(PICKY_A))
    assert told(service) == "[+]configuration ok"


def test_levels_of_logs_take_effect(service: RunningService) -> None:
    root, module, other = (logging.getLogger(name) for name in ("", "extender.verbs", "extender.cluster"))
    level = root.level
    try:
        service.reconfigure(only(log={"level": "error", "levels": {"extender.verbs": "debug"}}))
        assert (root.level, module.level) == (logging.ERROR, logging.DEBUG)
        service.reconfigure(only(log={"level": "info", "levels": {"extender.cluster": "warning"}}))
        assert (root.level, module.level, other.level) == (logging.INFO, logging.NOTSET, logging.WARNING)
    finally:
        root.setLevel(level)
        for logger in (module, other):
            logger.setLevel(logging.NOTSET)


def test_profiles_and_who_is_let_through_take_effect(service: RunningService) -> None:
    mine, other = make_pod("p", schedulerName="mine"), make_pod("p")
    profile = only(PICKY_A)["profiles"][0] | {"schedulerName": "mine"}
    service.reconfigure({"profiles": [profile], "unmatchedSchedulerName": "passThrough"})
    assert (kept(service, mine), kept(service, other)) == (["b", "c"], ["a", "b", "c"])
    assert value(service, "passed_through_requests_total", verb="filter", reason="schedulerName") == 1
    service.reconfigure({"profiles": [profile]})
    assert (kept(service, mine), kept(service, other)) == (["b", "c"], ["b", "c"])


def test_a_file_of_kube_scheduler_takes_the_place_of_profiles(service: RunningService, tmp_path: Path) -> None:
    policy = tmp_path / "policy.json"
    policy.write_text('{"apiVersion": "v1", "kind": "Policy", "predicates": [{"name": "HostName"}], "priorities": []}')
    service.reconfigure({"algorithmSource": {"policyFile": str(policy)}})
    pod = make_pod("p")
    pod["spec"]["nodeName"] = "c"
    assert kept(service, pod) == ["c"]
    policy.write_text("{")
    assert refusal(service, {"algorithmSource": {"policyFile": str(policy)}})
    assert kept(service, pod) == ["c"]


# --- how algorithms are run ------------------------------------------------------------------------------------------


def test_an_algorithm_in_shadow_is_counted_and_does_nothing(service: RunningService) -> None:
    service.reconfigure(only({**PICKY_A, "mode": "shadow"}))
    assert kept(service) == ["a", "b", "c"]
    labels = {"algorithm": "Picky", "reason": "node(s) not to its taste"}
    assert value(service, "shadow_refused_nodes_total", **labels) == 1
    assert value(service, "refused_nodes_total", **labels) == 0
    service.reconfigure(only(PICKY_A))
    assert kept(service) == ["b", "c"]
    assert value(service, "refused_nodes_total", **labels) == 1


def test_a_failure_fails_the_request_or_is_ignored_as_the_entry_says(service: RunningService) -> None:
    pod = make_pod("p", annotations={"break": "yes"})
    service.reconfigure(only(f"{PATH}:Broken", PICKY_A))
    assert post(service, "filter", pod)["Error"] == "Broken: ZeroDivisionError: division by zero nodes"
    service.reconfigure(only({"name": f"{PATH}:Broken", "onError": "ignore", "timeBudgetMillis": 1}, PICKY_A))
    assert kept(service, pod) == ["b", "c"]
    assert value(service, "ignored_failures_total", algorithm="Broken", point="filter") == 1
    assert value(service, "algorithm_failures_total", algorithm="Broken", point="filter") == 2


def test_a_run_over_its_budget_is_counted(service: RunningService) -> None:
    service.reconfigure(only({"name": f"{PATH}:Sleepy", "timeBudgetMillis": 1}))
    assert kept(service, make_pod("p", annotations={"seconds": "0.02"})) == ["a", "b", "c"]
    assert value(service, "over_budget_runs_total", algorithm="Sleepy", point="filter") == 1
