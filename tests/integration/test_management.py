"""The management port: probes in the words of the API server, and metrics under promised names."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from extender.cluster.apiserver import ServerOptions
from extender.testing import make_node, make_pod
from extender.testing.cluster import RunningService, running_service
from tests.extender.specimen import profile

PREFIX = "scheduler_extender_"
SERIES = {
    "algorithm_duration_seconds": "histogram",
    "algorithm_failures": "counter",
    "algorithm_skips": "counter",
    "api_request_duration_seconds": "histogram",
    "api_requests": "counter",
    "assumed_pods": "gauge",
    "bind_duration_seconds": "histogram",
    "bind_retries": "counter",
    "broken_caches": "gauge",
    "build_info": "gauge",
    "cache_age_seconds": "gauge",
    "cache_failures": "counter",
    "cache_objects": "gauge",
    "certificate_expiry_seconds": "gauge",
    "certificate_reloads": "counter",
    "closed_connections": "counter",
    "configuration_generation": "gauge",
    "configuration_last_reload_success_timestamp_seconds": "gauge",
    "configuration_last_reload_successful": "gauge",
    "configuration_reloads": "counter",
    "configuration_settings_waiting": "gauge",
    "event_loop_lag_seconds": "histogram",
    "events_dropped": "counter",
    "events_written": "counter",
    "expired_assumed_pods": "counter",
    "ignored_failures": "counter",
    "informer_event_lag_seconds": "histogram",
    "informer_events": "counter",
    "informer_failures": "counter",
    "informer_lists": "counter",
    "informer_synced": "gauge",
    "informer_watches": "counter",
    "open_connections": "gauge",
    "over_budget_runs": "counter",
    "passed_through_requests": "counter",
    "refused_nodes": "counter",
    "request_body_bytes": "counter",
    "request_duration_seconds": "histogram",
    "requests": "counter",
    "requests_in_flight": "gauge",
    "shadow_refused_nodes": "counter",
}
"""All series by name, without the prefix and the suffixes of their type; dashboards and alerts rely on them."""

SMALL, LARGE = make_pod("small"), make_pod("large", requests={"cpu": "99"})


@pytest.fixture(scope="module")
def service() -> Iterator[RunningService]:
    with running_service(nodes=[make_node("n1"), make_node("n2")], pods=[make_pod("p", node="n1")]) as running:
        yield running


@pytest.fixture
def blind() -> Iterator[tuple[RunningService, ServerOptions]]:
    """A service that may not list pods, and what has to be changed for it to be let."""
    options = ServerOptions(forbidden={("list", "pods"), ("watch", "pods")})
    with running_service(nodes=[make_node("n1")], options=options, synced=False) as running:
        running.until(lambda: "forbidden" in running.runtime.missing())
        yield running, options


def get(service: RunningService, path: str) -> httpx.Response:
    return httpx.get(f"{service.management_url}{path}", timeout=10)


def metrics(service: RunningService) -> dict[str, dict[tuple[tuple[str, str], ...], float]]:
    """The values of all samples by name and labels."""
    found: dict[str, dict[tuple[tuple[str, str], ...], float]] = {}
    for family in text_string_to_metric_families(get(service, "/metrics").text):
        for sample in family.samples:
            labels = tuple(sorted(sample.labels.items()))
            assert labels not in found.setdefault(sample.name, {}), f"{sample.name} has {labels} twice"
            found[sample.name][labels] = sample.value
    return found


def value(service: RunningService, name: str, **labels: str) -> float:
    return metrics(service).get(PREFIX + name, {}).get(tuple(sorted(labels.items())), 0.0)


# --- probes ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["/livez", "/readyz", "/healthz"])
def test_a_probe_says_ok_and_no_more(service: RunningService, path: str) -> None:
    response = get(service, path)
    assert (response.status_code, response.text) == (200, "ok")
    assert response.headers["Content-Type"].startswith("text/plain")


def test_a_verbose_probe_has_a_line_a_check(service: RunningService) -> None:
    *checks, last, end = get(service, "/readyz?verbose").text.split("\n")
    assert (last, end) == ("readyz check passed", "")
    assert {"[+]shutdown ok", "[+]informer-nodes ok", "[+]informer-pods ok"} <= set(checks)
    assert all(check.startswith("[+]") and check.endswith(" ok") for check in checks)
    assert get(service, "/livez?verbose").text.endswith("livez check passed\n")


def test_unready_before_the_first_sync_and_why(blind: tuple[RunningService, ServerOptions]) -> None:
    service, options = blind
    response = get(service, "/readyz")
    assert response.status_code == 503
    lines = response.text.splitlines()
    assert lines[-1] == "readyz check failed"
    (why,) = [line for line in lines if line.startswith("[-]")]
    assert why.startswith("[-]informer-pods failed: not synced")
    assert "let the service account list and watch core pods" in why
    assert get(service, "/livez").text == "ok"
    assert (
        value(service, "informer_synced", resource="pods"),
        value(service, "informer_synced", resource="nodes"),
    ) == (0, 1)
    assert value(service, "cache_age_seconds", resource="pods") == math.inf
    options.forbidden.clear()
    service.until(lambda: not service.runtime.missing(), "the sync that was forbidden before")
    assert (get(service, "/readyz").status_code, value(service, "informer_synced", resource="pods")) == (200, 1)
    assert value(service, "cache_age_seconds", resource="pods") < 60


@pytest.mark.parametrize("path", ["/filter", "/openapi.json", "/", "/debug", "/debug/pprof/", "//debug"])
def test_another_path_is_told_which_ones_there_are(service: RunningService, path: str) -> None:
    response = get(service, path)
    assert response.status_code == 404
    served = "/livez, /readyz, /healthz, /metrics and with management.debug: true /debug"
    assert response.text == f"nothing is served at {path}; there are {served}\n"


def test_another_method_is_told_which_ones_to_use(service: RunningService) -> None:
    response = httpx.post(f"{service.management_url}/readyz")
    assert (response.status_code, response.text) == (405, "/readyz takes GET and HEAD, got POST\n")
    assert set(response.headers["Allow"].split(", ")) == {"GET", "HEAD"}


@pytest.mark.parametrize("path", ["/livez", "/readyz?verbose", "/healthz", "/metrics", "/metrics/", "//livez"])
def test_the_head_of_a_page_is_that_of_its_whole(service: RunningService, path: str) -> None:
    head, whole = httpx.head(f"{service.management_url}{path}"), get(service, path)
    assert (head.status_code, head.content) == (whole.status_code, b"") == (200, b"")
    assert head.headers["Content-Type"] == whole.headers["Content-Type"]
    assert "Location" not in whole.headers


# --- metrics ---------------------------------------------------------------------------------------------------------


def test_the_series_are_those_promised(service: RunningService) -> None:
    response = get(service, "/metrics")
    assert response.headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"
    families = {family.name: family for family in text_string_to_metric_families(response.text)}
    own = {name.removeprefix(PREFIX): family.type for name, family in families.items() if name.startswith(PREFIX)}
    assert own == SERIES
    assert all(family.documentation for family in families.values())
    assert {name for name in families if not name.startswith(PREFIX)} >= {"process_cpu_seconds", "process_open_fds"}


def test_requests_are_counted_by_verb_and_result(service: RunningService) -> None:
    before = {
        result: value(service, "requests_total", verb="filter", result=result) for result in ("ok", "RequestError")
    }
    size = value(service, "request_body_bytes_total", verb="filter")
    body = json.dumps({"Pod": SMALL, "NodeNames": ["n1"]})
    for content in (body, body, "{}"):
        httpx.post(f"{service.url}/filter", content=content)
    assert value(service, "requests_total", verb="filter", result="ok") == before["ok"] + 2
    assert value(service, "requests_total", verb="filter", result="RequestError") == before["RequestError"] + 1
    assert value(service, "request_body_bytes_total", verb="filter") == size + 2 * len(body) + 2
    count = value(service, "request_duration_seconds_count", verb="filter")
    assert count == value(service, "request_duration_seconds_bucket", verb="filter", le="+Inf") >= 3


def test_refused_nodes_are_counted_by_algorithm_and_reason(service: RunningService) -> None:
    reason = {"algorithm": "NodeResourcesFit", "reason": "Insufficient cpu"}
    before = value(service, "refused_nodes_total", **reason)
    with service.scheduler() as scheduler:
        scheduler.filter(LARGE, service.nodes())
    assert value(service, "refused_nodes_total", **reason) == before + 2


def test_the_cache_tells_what_it_holds(service: RunningService) -> None:
    assert value(service, "cache_objects", resource="nodes") == 2
    assert value(service, "cache_objects", resource="pods") == 1
    assert value(service, "informer_lists_total", resource="pods") == 1
    assert value(service, "informer_watches_total", resource="pods") >= 1
    created = service.create_pod(make_pod("q"))
    assert value(service, "cache_objects", resource="pods") == 2
    assert value(service, "informer_events_total", resource="pods", type="ADDED") >= 1
    service.delete_pod(created)
    assert value(service, "cache_objects", resource="pods") == 1


def test_failures_and_skips_of_algorithms_are_counted() -> None:
    configuration = profile(["Broken", "Bounded"], ["BrokenPriority"])
    broken = make_pod("broken", annotations={"break": "yes"})
    with running_service(nodes=[make_node("n1")], configuration=configuration) as service:
        for verb in ("filter", "prioritize"):
            httpx.post(f"{service.url}/{verb}", json={"Pod": broken, "NodeNames": ["n1"]})
        httpx.post(f"{service.url}/filter", json={"Pod": SMALL, "NodeNames": ["n1"]})
        assert value(service, "algorithm_failures_total", algorithm="Broken", point="filter") == 1
        assert value(service, "algorithm_failures_total", algorithm="BrokenPriority", point="prioritize") == 1
        assert value(service, "requests_total", verb="filter", result="AlgorithmError") == 1
        assert value(service, "algorithm_skips_total", algorithm="Bounded", point="filter") == 1
        assert value(service, "algorithm_duration_seconds_count", algorithm="Bounded", point="filter") == 1
