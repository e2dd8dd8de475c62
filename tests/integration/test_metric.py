"""The metrics: their names are promises, so all of them stand here, with what makes them move."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from extender.cluster.apiserver import Fault
from extender.telemetry import Metrics
from extender.testing import make_node, make_pod
from extender.testing.cluster import RunningService, running_service

FAMILIES = {
    "algorithm_duration_seconds": ("histogram", {"algorithm", "point"}),
    "algorithm_failures": ("counter", {"algorithm", "point"}),
    "algorithm_skips": ("counter", {"algorithm", "point"}),
    "api_request_duration_seconds": ("histogram", {"verb", "resource"}),
    "api_requests": ("counter", {"verb", "resource", "code"}),
    "assumed_pods": ("gauge", set()),
    "bind_duration_seconds": ("histogram", {"result"}),
    "bind_retries": ("counter", {"code"}),
    "broken_caches": ("gauge", set()),
    "build_info": ("gauge", {"version", "python"}),
    "cache_age_seconds": ("gauge", {"resource"}),
    "cache_failures": ("counter", {"cache"}),
    "cache_objects": ("gauge", {"resource"}),
    "certificate_expiry_seconds": ("gauge", {"port", "file"}),
    "certificate_reloads": ("counter", {"port", "result"}),
    "closed_connections": ("counter", {"port", "reason"}),
    "configuration_generation": ("gauge", set()),
    "configuration_last_reload_success_timestamp_seconds": ("gauge", set()),
    "configuration_last_reload_successful": ("gauge", set()),
    "configuration_reloads": ("counter", {"result"}),
    "configuration_settings_waiting": ("gauge", set()),
    "event_loop_lag_seconds": ("histogram", set()),
    "events_dropped": ("counter", {"reason"}),
    "events_written": ("counter", {"operation"}),
    "expired_assumed_pods": ("counter", set()),
    "ignored_failures": ("counter", {"algorithm", "point"}),
    "informer_event_lag_seconds": ("histogram", {"resource"}),
    "informer_events": ("counter", {"resource", "type"}),
    "informer_failures": ("counter", {"resource", "reason"}),
    "informer_lists": ("counter", {"resource"}),
    "informer_synced": ("gauge", {"resource"}),
    "informer_watches": ("counter", {"resource"}),
    "open_connections": ("gauge", {"port"}),
    "over_budget_runs": ("counter", {"algorithm", "point"}),
    "passed_through_requests": ("counter", {"verb", "reason"}),
    "refused_nodes": ("counter", {"algorithm", "reason"}),
    "request_body_bytes": ("counter", {"verb"}),
    "request_duration_seconds": ("histogram", {"verb"}),
    "requests": ("counter", {"verb", "result"}),
    "requests_in_flight": ("gauge", {"verb"}),
    "shadow_refused_nodes": ("counter", {"algorithm", "reason"}),
}
"""Kind and labels of every family; counters have ``_total`` after their names."""

ELECTED = {
    "leader": ("gauge", set()),
    "lease_failures": ("counter", set()),
    "lease_transitions": ("counter", set()),
}
"""Those that are there only with leader election."""

PREFIX = "scheduler_extender_"
ROOT = Path(__file__).parents[2]
REFERENCE = ROOT / "docs" / "metrics.md"


@pytest.fixture(scope="module")
def service() -> Iterator[RunningService]:
    with running_service(nodes=[make_node("n1"), make_node("full", pods=0)]) as running:
        yield running


def scraped(service: RunningService) -> str:
    answer = httpx.get(f"{service.management_url}/metrics", timeout=10)
    assert answer.headers["Content-Type"].startswith("text/plain; version=0.0.4")
    return answer.text


def families(text: str) -> dict[str, Any]:
    return {family.name: family for family in text_string_to_metric_families(text)}


def value(service: RunningService, name: str, **labels: str) -> float:
    return service.runtime.metrics.registry.get_sample_value(f"{PREFIX}{name}", labels) or 0.0


def post(service: RunningService, verb: str, body: Any) -> Any:
    return httpx.post(f"{service.url}/{verb}", content=json.dumps(body), timeout=10).json()


def asked(name: str) -> dict[str, Any]:
    return {"Pod": make_pod(name), "NodeNames": ["n1", "full"]}


def binding(service: RunningService, name: str, node: str = "n1") -> dict[str, Any]:
    uid = service.create_pod(make_pod(name))["metadata"]["uid"]
    return {"PodName": name, "PodNamespace": "default", "PodUID": uid, "Node": node}


def test_the_families_are_these_and_no_others(service: RunningService) -> None:
    post(service, "filter", asked("p"))
    post(service, "bind", binding(service, "told"))
    found = {name: family for name, family in families(scraped(service)).items() if name.startswith(PREFIX)}
    assert {name.removeprefix(PREFIX): family.type for name, family in found.items()} == {
        name: kind for name, (kind, _) in FAMILIES.items()
    }
    for name, family in found.items():
        _, labels = FAMILIES[name.removeprefix(PREFIX)]
        assert all(set(sample.labels) - {"le"} == labels for sample in family.samples), name
        assert family.documentation.endswith("."), name


def test_the_reference_has_these_and_no_others() -> None:
    rows = re.findall(rf"^\| `{PREFIX}(\w+)` \| (\w+) \| ?(.*?) ?\| .{{8,}} \|$", REFERENCE.read_text(), re.MULTILINE)
    assert len(rows) == REFERENCE.read_text().count(f"\n| `{PREFIX}")
    found = {name.removesuffix("_total"): (kind, set(re.findall(r"`(\w+)`", labels))) for name, kind, labels in rows}
    assert found == FAMILIES | ELECTED
    assert all(name.endswith("_total") == (kind == "counter") for name, kind, _ in rows)


def test_every_series_that_a_document_names_is_exported() -> None:
    names = {f"{name}_total" if kind == "counter" else name for name, (kind, _) in (FAMILIES | ELECTED).items()}
    for document in (*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), *ROOT.glob("manifests/*.md")):
        named = set(re.findall(rf"\b{PREFIX}([a-z_]+)", document.read_text()))
        assert {re.sub("_(bucket|sum|count)$", "", name) for name in named} <= names, document.name


def test_leader_election_has_its_own() -> None:
    with running_service(configuration={"leaderElection": {"enabled": True}}) as elected:
        found = families(scraped(elected))
        assert set(ELECTED) <= {name.removeprefix(PREFIX) for name in found}
        assert {name: found[f"{PREFIX}{name}"].type for name in ELECTED} == {
            n: kind for n, (kind, _) in ELECTED.items()
        }


def test_the_process_tells_its_own_under_the_usual_names(service: RunningService) -> None:
    found = families(scraped(service))
    assert {"process_resident_memory_bytes", "process_cpu_seconds", "process_open_fds"} <= set(found)


def test_names_and_units_follow_the_conventions() -> None:
    for name, (kind, _) in (FAMILIES | ELECTED).items():
        assert re.fullmatch(r"[a-z]+(_[a-z]+)*", name)
        assert not name.endswith("_total")
        assert kind != "histogram" or name.endswith("_seconds")


def test_a_request_counts_its_verb_its_result_its_bytes_and_each_algorithm(service: RunningService) -> None:
    body = asked("counted")
    watched = [
        ("requests_total", {"verb": "filter", "result": "ok"}, 1),
        ("request_duration_seconds_count", {"verb": "filter"}, 1),
        ("request_body_bytes_total", {"verb": "filter"}, len(json.dumps(body))),
        ("algorithm_duration_seconds_count", {"algorithm": "NodeResourcesFit", "point": "filter"}, 1),
        ("algorithm_skips_total", {"algorithm": "NodeAffinity", "point": "filter"}, 1),
        ("refused_nodes_total", {"algorithm": "NodeResourcesFit", "reason": "Too many pods"}, 1),
    ]
    before = [value(service, name, **labels) for name, labels, _ in watched]
    assert post(service, "filter", body)["NodeNames"] == ["n1"]
    gained = [value(service, name, **labels) - was for (name, labels, _), was in zip(watched, before, strict=True)]
    assert gained == [expected for *_, expected in watched]


def test_a_request_that_fails_counts_as_what_it_failed_with(service: RunningService) -> None:
    before = value(service, "requests_total", verb="bind", result="RequestError")
    httpx.post(f"{service.url}/bind", content=b"{")
    assert value(service, "requests_total", verb="bind", result="RequestError") == before + 1


def test_a_pod_that_asks_for_no_amount_is_no_failure_of_an_algorithm(service: RunningService) -> None:
    before = value(service, "requests_total", verb="filter", result="QuantityError")
    odd = {**asked("odd"), "Pod": make_pod("odd", requests={"cpu": "q"})}
    assert post(service, "filter", odd)["Error"].startswith("Pod.spec.containers[0].resources.requests['cpu']: 'q'")
    assert value(service, "requests_total", verb="filter", result="QuantityError") == before + 1
    assert "algorithm_failures_total{" not in scraped(service)


def reasons(metrics: Metrics, algorithm: str, family: str = "refused_nodes") -> dict[str, float]:
    """Nodes refused by an algorithm, by reason."""
    (found,) = [each for each in metrics.registry.collect() if each.name == PREFIX + family]
    samples = [each for each in found.samples if each.labels["algorithm"] == algorithm]
    return {each.labels["reason"]: each.value for each in samples}


@pytest.mark.parametrize("family", ["refused_nodes", "shadow_refused_nodes"])
def test_what_a_reason_names_is_left_out_of_its_label(family: str) -> None:
    metrics = Metrics()
    note = metrics.refused if family == "refused_nodes" else metrics.would_refuse
    for number in range(300):
        note("VolumeBinding", f'persistentvolumeclaim "claim-{number}" not found', 2)
        note("InterPodAffinity", f"parsing pod: selector expression 'k{number}' 'In' []: needs at least one value", 1)
    note("VolumeBinding", "node(s) didn't find available persistent volumes to bind, didn't", 1)
    assert reasons(metrics, "VolumeBinding", family) == {
        'persistentvolumeclaim "..." not found': 600,
        "node(s) didn't find available persistent volumes to bind, didn't": 1,
    }
    text = 'parsing pod: selector expression "..." "..." []: needs at least one value'
    assert reasons(metrics, "InterPodAffinity", family) == {text: 300}


def test_the_reasons_of_one_algorithm_take_no_room_from_those_of_others() -> None:
    metrics = Metrics()
    for number in range(300):
        metrics.refused("NodeResourcesFit", f"Insufficient example.com/{number}", 1)
    metrics.refused("NodeResourcesFit", "Insufficient example.com/1", 1)
    metrics.refused("NodePorts", "node(s) didn't have free ports", 1)
    found = reasons(metrics, "NodeResourcesFit")
    assert (len(found), found["other"], found["Insufficient example.com/1"]) == (51, 250, 2)
    assert reasons(metrics, "NodePorts") == {"node(s) didn't have free ports": 1}


def test_requests_are_in_flight_until_they_are_answered(service: RunningService) -> None:
    request = binding(service, "waiting")
    service.call(service.api.faults.add, Fault(path="/binding$", delay_before=0.3))
    caller = threading.Thread(target=post, args=(service, "bind", request))
    caller.start()
    service.until(lambda: value(service, "requests_in_flight", verb="bind") == 1, "the request")
    caller.join()
    assert value(service, "requests_in_flight", verb="bind") == 0


def test_a_bind_counts_its_result_its_time_and_its_retries(service: RunningService) -> None:
    request = binding(service, "bound")
    service.call(service.api.faults.add, Fault(path="/binding$", status=429))
    before = {
        result: value(service, "bind_duration_seconds_count", result=result)
        for result in ("bound", "already bound", "BindError")
    }
    retries = value(service, "bind_retries_total", code="429")
    assert post(service, "bind", request) == {"Error": ""}
    assert post(service, "bind", request) == {"Error": ""}
    assert post(service, "bind", {**request, "Node": "full"})["Error"]
    for result, was in before.items():
        assert value(service, "bind_duration_seconds_count", result=result) == was + 1
    assert value(service, "bind_retries_total", code="429") == retries + 1


def test_requests_to_the_api_server_count_by_their_names_and_codes(service: RunningService) -> None:
    labels = {"verb": "create", "resource": "pods/binding"}
    answers = {code: value(service, "api_requests_total", **labels, code=code) for code in ("201", "429", "none")}
    timed = value(service, "api_request_duration_seconds_count", **labels)
    service.call(service.api.faults.add, Fault(path="/binding$", status=429))
    service.call(service.api.faults.add, Fault(path="/binding$", cut="before"))
    assert post(service, "bind", binding(service, "counted-there")) == {"Error": ""}
    for code, was in answers.items():
        assert value(service, "api_requests_total", **labels, code=code) == was + 1, code
    assert value(service, "api_request_duration_seconds_count", **labels) == timed + 3
    assert value(service, "api_requests_total", verb="watch", resource="nodes", code="200") >= 1


def test_informers_tell_what_they_hold_and_how_late_it_comes(service: RunningService) -> None:
    before = value(service, "informer_event_lag_seconds_count", resource="pods")
    objects = value(service, "cache_objects", resource="pods")
    service.create_pod(make_pod("newcomer"))
    assert value(service, "cache_objects", resource="pods") == objects + 1
    assert value(service, "informer_event_lag_seconds_count", resource="pods") == before + 1
    assert value(service, "informer_synced", resource="pods") == 1
    assert value(service, "informer_lists_total", resource="pods") == 1
    assert 0 <= value(service, "cache_age_seconds", resource="pods") < 60


def test_a_lag_of_the_event_loop_is_told(service: RunningService) -> None:
    before = value(service, "event_loop_lag_seconds_count")
    service.until(lambda: value(service, "event_loop_lag_seconds_count") > before, "a look at the lag")
