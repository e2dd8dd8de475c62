"""Dashboard, alerts and scraping name what a running service exports, and nothing else."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from itertools import combinations
from pathlib import Path
from typing import Any

import httpx
import promql_parser as promql
import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from extender.testing import make_node, make_pod
from extender.testing.cluster import RunningService, running_service
from tests.extender.deployed import MANIFESTS, NAME, ROOT, containers, documents, needs, only, pod_of, render, tool

MONITORING = MANIFESTS / "monitoring"
RULES = [rule for group in yaml.safe_load((MONITORING / "rules.yaml").read_text())["groups"] for rule in group["rules"]]
DASHBOARD = json.loads((MONITORING / "dashboard.json").read_text())
PANELS = [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]
QUERIES = {
    **{rule["alert"]: [rule["expr"]] for rule in RULES},
    **{panel["title"]: [target["expr"] for target in panel["targets"]] for panel in PANELS},
}
TARGET = {"namespace", "pod", "container", "job", "instance"}
"""Labels that scraping adds."""

Labels = dict[str, set[str]]

needs_promtool = needs("promtool")


@pytest.fixture(scope="module")
def exported() -> Labels:
    """Return the labels of every series of a service that has had all kinds of trouble, by name."""
    configuration = {"leaderElection": {"enabled": True, "retryPeriodSeconds": 0.1}}
    with running_service(nodes=[make_node("a"), make_node("b")], configuration=configuration) as service:
        service.until(lambda: not service.runtime.not_leading(), "the lease")
        _work(service)
        service.call(_meet_trouble, service)
        text = httpx.get(f"{service.management_url}/metrics").text
    return {
        sample.name: {label for one in family.samples if one.name == sample.name for label in one.labels}
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def _work(service: RunningService) -> None:
    pod, huge = service.create_pod(make_pod("p")), service.create_pod(make_pod("huge", requests={"cpu": "1000"}))
    with service.scheduler() as scheduler:
        scheduler.filter(pod, service.nodes())
        scheduler.prioritize(pod, service.nodes())
        scheduler.filter(huge, service.nodes())
        scheduler.bind("default", "p", pod["metadata"]["uid"], "a")
    broadcaster = service.runtime.broadcaster
    assert broadcaster is not None
    service.until(lambda: bool(broadcaster.written), "an event about the pod")


def _meet_trouble(service: RunningService) -> None:
    metrics = service.runtime.metrics
    metrics.failed("Own", "filter")
    metrics.passed_over("Own", "filter")
    metrics.overran("Own", "filter")
    metrics.would_refuse("Own", "no", 1)
    metrics.passed_through("filter", "namespace")
    metrics.bind_retried("500")
    metrics.closed("server", "handshake_failed")
    metrics.reloaded("server", "failed")
    metrics.expiry("server", "tls.crt", 0)
    assert service.runtime.broadcaster is not None
    service.runtime.broadcaster.dropped["refused"] += 1
    service.runtime.reflectors[0].failures["gone"] += 1


def parsed(query: str) -> promql.Expr:
    """Return a query as Prometheus sees it, the variables of a dashboard replaced."""
    return promql.parse(query.replace("$__rate_interval", "5m").replace("$namespace", ".*").replace("$pod", ".*"))


def inside(expression: promql.Expr, kind: type) -> Iterator[Any]:
    found: list[Any] = []
    promql.walk(expression, lambda node: found.append(node) if isinstance(node, kind) else None)
    yield from found


def kept_by(expression: promql.Expr) -> set[str]:
    """Return the labels that aggregation leaves."""
    aggregates = inside(expression, promql.AggregateExpr)
    return {label for aggregate in aggregates if aggregate.modifier for label in aggregate.modifier.labels}


def promtool(*arguments: str) -> str:
    """Return what promtool complains of, or nothing."""
    done = subprocess.run([str(tool("promtool")), *arguments], capture_output=True, text=True, timeout=60, check=False)
    return "" if done.returncode == 0 else done.stdout + done.stderr


@pytest.mark.parametrize("subject", QUERIES)
def test_a_query_reads_series_that_are_exported_with_labels_that_they_have(subject: str, exported: Labels) -> None:
    for query in QUERIES[subject]:
        expression = parsed(query)
        for selector in inside(expression, promql.VectorSelector):
            assert selector.name in exported, f"{selector.name} is not exported"
            assert {matcher.name for matcher in selector.matchers.matchers} <= exported[selector.name] | TARGET
        for aggregate in inside(expression, promql.AggregateExpr):
            kept = set(aggregate.modifier.labels) if aggregate.modifier else set()
            for selector in inside(aggregate.expr, promql.VectorSelector):
                assert kept <= exported[selector.name] | TARGET, selector.name


@pytest.mark.parametrize("panel", PANELS, ids=lambda panel: panel["title"])
def test_a_legend_names_labels_that_the_query_keeps(panel: dict[str, Any], exported: Labels) -> None:
    for target in panel["targets"]:
        shown = set(re.findall(r"{{(\w+)}}", target["legendFormat"]))
        assert shown <= (kept_by(parsed(target["expr"])) or TARGET)


def test_every_series_of_the_service_is_shown_or_watched(exported: Labels) -> None:
    read = {
        re.sub(r"_(bucket|sum|count)$", "", selector.name)
        for queries in QUERIES.values()
        for query in queries
        for selector in inside(parsed(query), promql.VectorSelector)
    }
    own = {re.sub(r"_(bucket|sum|count)$", "", name) for name in exported if name.startswith("scheduler_extender_")}
    assert own - read == set()


def test_a_series_that_is_not_exported_would_be_noticed(exported: Labels) -> None:
    assert "scheduler_extender_requests_total" in exported
    assert exported["scheduler_extender_requests_total"] == {"verb", "result"}
    assert "scheduler_extender_requests" not in exported


# --- alerts ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule["alert"])
def test_an_alert_says_what_it_means_and_what_to_do(rule: dict[str, Any]) -> None:
    assert rule["alert"].startswith("SchedulerExtender")
    assert rule["labels"] == {"severity": rule["labels"]["severity"]}
    assert rule["labels"]["severity"] in ("critical", "warning", "info")
    assert set(rule["annotations"]) == {"summary", "description"}
    text = " ".join(rule["annotations"].values())
    assert set(re.findall(r"\$labels\.(\w+)", text)) <= kept_by(parsed(rule["expr"]))
    for file, title in re.findall(r'(manifests/[\w./-]+\.md), "([^"]+)"', text):
        assert re.search(rf"^#+ {title}$", (ROOT / file).read_text(), re.MULTILINE)


def test_the_operator_gets_the_same_alerts_as_the_plain_file_has() -> None:
    (rule,) = documents((MONITORING / "prometheus-rule.yaml").read_text())
    assert rule["spec"] == yaml.safe_load((MONITORING / "rules.yaml").read_text())
    assert (rule["apiVersion"], rule["kind"]) == ("monitoring.coreos.com/v1", "PrometheusRule")


@needs_promtool
def test_prometheus_accepts_the_rules() -> None:
    assert promtool("check", "rules", str(MONITORING / "rules.yaml")) == ""


@needs_promtool
def test_alerts_fire_when_they_have_to_and_only_then(tmp_path: Path) -> None:
    cases = (ROOT / "tests" / "data" / "monitoring" / "alert.test.yaml").read_text()
    assert {rule["alert"] for rule in RULES} == set(re.findall(r'alertname="(\w+)", alertstate', cases))
    file = tmp_path / "alert.test.yaml"
    file.write_text(cases.replace("[RULES]", f"[{MONITORING / 'rules.yaml'}]"))
    assert promtool("test", "rules", str(file)) == ""


# --- dashboard -------------------------------------------------------------------------------------------------------


def test_panels_have_numbers_of_their_own_and_do_not_overlap() -> None:
    everything = DASHBOARD["panels"]
    assert len({panel["id"] for panel in everything}) == len(everything)
    assert len({panel["title"] for panel in everything}) == len(everything)
    for one, other in combinations([panel["gridPos"] for panel in everything], 2):
        apart_across = one["x"] + one["w"] <= other["x"] or other["x"] + other["w"] <= one["x"]
        apart_down = one["y"] + one["h"] <= other["y"] or other["y"] + other["h"] <= one["y"]
        assert apart_across or apart_down
    assert all(panel["gridPos"]["x"] + panel["gridPos"]["w"] <= 24 for panel in everything)


def test_every_panel_asks_the_chosen_data_source_for_the_chosen_replicas() -> None:
    variables = {variable["name"]: variable for variable in DASHBOARD["templating"]["list"]}
    assert list(variables) == ["datasource", "namespace", "pod"]
    for panel in PANELS:
        for source in (panel["datasource"], *(target["datasource"] for target in panel["targets"])):
            assert source == {"type": "prometheus", "uid": "${datasource}"}
        for target in panel["targets"]:
            for selector in inside(parsed(target["expr"]), promql.VectorSelector):
                assert {"namespace", "pod"} <= {matcher.name for matcher in selector.matchers.matchers}


# --- scraping --------------------------------------------------------------------------------------------------------


@needs("kubectl")
@pytest.mark.parametrize("way", ["base", "overlays/ha", "overlays/second-scheduler"])
def test_prometheus_finds_the_port_of_every_pod(way: str) -> None:
    spec = only(render(MONITORING), "PodMonitor")["spec"]
    pod = pod_of(render(MANIFESTS / way))
    assert spec["selector"]["matchLabels"].items() <= pod["metadata"]["labels"].items()
    (endpoint,) = spec["podMetricsEndpoints"]
    assert endpoint["port"] in {port["name"] for port in containers(pod)["extender"]["ports"]}
    assert endpoint["path"] == "/metrics"


@needs("kubectl")
def test_prometheus_shows_its_token_to_the_service_of_the_kubeadm_overlay() -> None:
    overlay = MANIFESTS / "overlays" / "kubeadm"
    objects = render(overlay / "monitoring")
    assert [item["kind"] for item in objects] == ["ConfigMap", "PrometheusRule", "ServiceMonitor"]
    spec = only(objects, "ServiceMonitor")["spec"]
    service = only(render(overlay), "Service")
    assert spec["selector"]["matchLabels"].items() <= service["metadata"]["labels"].items()
    (endpoint,) = spec["endpoints"]
    assert endpoint["port"] in {port["name"] for port in service["spec"]["ports"]}
    (volume,) = (item for item in pod_of(render(overlay))["spec"]["volumes"] if item["name"] == "tls")
    assert endpoint["tlsConfig"]["ca"]["secret"] == {"name": volume["secret"]["secretName"], "key": "ca.crt"}
    document = yaml.safe_load((overlay / "control-plane" / "scheduler-extender.yaml").read_text())
    assert endpoint["tlsConfig"]["serverName"] == document["extenders"][0]["tlsConfig"]["serverName"]
    assert (endpoint["scheme"], bool(endpoint["bearerTokenFile"])) == ("https", True)


@needs("kubectl")
def test_what_is_for_monitoring_is_in_the_namespace_of_the_service() -> None:
    for directory in (MONITORING, MANIFESTS / "overlays" / "kubeadm" / "monitoring"):
        assert {item["metadata"]["namespace"] for item in render(directory)} == {NAME}
    labels = only(render(MONITORING), "ConfigMap")["metadata"]["labels"]
    assert labels["grafana_dashboard"] == "1"
