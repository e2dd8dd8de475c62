"""Traces: a span a request with its phases and algorithms, sampled, and nothing at all where they are off."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from extender import journal
from extender.cluster.connection import from_url
from extender.config import ExtenderConfiguration
from extender.errors import ConfigurationError
from extender.runtime import Runtime
from extender.testing import make_node, make_pod
from extender.testing.cluster import RunningService, running_service
from extender.tracing import Tracing, _traces_url
from tests.extender.specimen import profile

PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331"
PREFIX = "scheduler_extender"


@pytest.fixture
def exporter(monkeypatch: pytest.MonkeyPatch) -> InMemorySpanExporter:
    """Where the spans of a service with tracing go."""
    exporter = InMemorySpanExporter()
    monkeypatch.setattr("extender.tracing.OTLPSpanExporter", lambda _: exporter)
    monkeypatch.setattr("extender.tracing.BatchSpanProcessor", SimpleSpanProcessor)
    return exporter


@pytest.fixture
def service(exporter: InMemorySpanExporter) -> Iterator[RunningService]:
    configuration = {
        **profile(["Broken", "Labelled"], ["Graded"]),
        "tracing": {"enabled": True, "samplingRatePerMillion": 1_000_000},
    }
    nodes = [make_node("n1"), make_node("n2", labels={"refuse": "no"})]
    with running_service(nodes=nodes, configuration=configuration) as running:
        yield running


def call(service: RunningService, verb: str = "filter", *, headers: dict[str, str] | None = None, **pod: Any) -> None:
    body = json.dumps({"Pod": make_pod("p", **pod), "NodeNames": ["n1", "n2"]})
    httpx.post(f"{service.url}/{verb}", content=body, headers=headers, timeout=10)


def by_name(exporter: InMemorySpanExporter) -> dict[str, ReadableSpan]:
    return {span.name: span for span in exporter.get_finished_spans()}


def test_a_request_is_a_span_with_the_pod_and_the_counts(
    service: RunningService, exporter: InMemorySpanExporter
) -> None:
    call(service, headers={"X-Request-Id": "mine"})
    span = by_name(exporter)["filter"]
    assert span.kind is SpanKind.SERVER
    assert span.parent is None
    assert span.status.status_code is StatusCode.UNSET
    attributes = dict(span.attributes or {})
    assert attributes.pop("http.request.body.size") > 100
    assert attributes.pop(f"{PREFIX}.algorithm_runs") == 5
    assert attributes == {
        "k8s.namespace.name": "default",
        "k8s.pod.name": "p",
        "k8s.pod.uid": "uid-p",
        f"{PREFIX}.nodes": 2,
        f"{PREFIX}.fitting": 1,
        f"{PREFIX}.result": "ok",
        f"{PREFIX}.request_id": "mine",
    }
    assert span.resource.attributes["service.name"] == "kube-scheduler-extender"


def test_phases_and_algorithms_are_spans_within_that_of_the_request(
    service: RunningService, exporter: InMemorySpanExporter
) -> None:
    call(service)
    spans = by_name(exporter)
    request = spans.pop("filter")
    assert list(spans)[:4] == ["read", "decode", "evaluate", "encode"]
    assert {"TaintToleration", "Broken", "Labelled"} < set(spans)
    for span in spans.values():
        assert span.parent is not None
        assert span.parent.span_id == request.context.span_id
        assert request.start_time is not None
        assert request.end_time is not None
        assert span.start_time is not None
        assert span.end_time is not None
        assert request.start_time <= span.start_time <= span.end_time <= request.end_time
    run = spans["Labelled"]
    assert dict(run.attributes or {}) == {f"{PREFIX}.point": "filter"}
    assert spans["evaluate"].start_time <= run.start_time <= run.end_time <= spans["evaluate"].end_time


def test_a_request_that_fails_has_its_failure(service: RunningService, exporter: InMemorySpanExporter) -> None:
    call(service, "prioritize")
    call(service, annotations={"break": "yes"})
    assert by_name(exporter)["prioritize"].status.status_code is StatusCode.UNSET
    failed = by_name(exporter)["filter"]
    assert failed.status.status_code is StatusCode.ERROR
    assert failed.status.description == "AlgorithmError"
    assert failed.attributes is not None
    assert f"{PREFIX}.fitting" not in failed.attributes
    httpx.post(f"{service.url}/bind", content=b"{")
    assert by_name(exporter)["bind"].status.description == "RequestError"


def test_a_caller_that_traces_is_the_parent(service: RunningService, exporter: InMemorySpanExporter) -> None:
    call(service, headers={"traceparent": f"{PARENT}-01"})
    span = by_name(exporter)["filter"]
    assert span.parent is not None
    assert f"{span.context.trace_id:032x}-{span.parent.span_id:016x}" in PARENT
    exporter.clear()
    call(service, headers={"traceparent": f"{PARENT}-00"})
    assert not exporter.get_finished_spans()


@pytest.mark.parametrize(("rate", "least", "most"), [(0, 0, 0), (1_000_000, 1000, 1000), (500_000, 350, 650)])
def test_so_many_in_a_million_are_traced(rate: int, least: int, most: int) -> None:
    exporter = InMemorySpanExporter()
    tracing = Tracing("http://127.0.0.1:1", rate, SimpleSpanProcessor(exporter))
    entry = journal.Entry("filter", "1")
    entry.close()
    for _ in range(1000):
        tracing.record(entry, "ok", {})
    requests = [span for span in exporter.get_finished_spans() if span.name == "filter"]
    assert least <= len(requests) <= most


def test_runs_without_number_do_not_become_spans_without_number() -> None:
    exporter = InMemorySpanExporter()
    entry = journal.Entry("preempt", "1")
    entry.runs = [("Fit", "filter", entry.start, 0.0)] * 5000
    entry.close()
    Tracing("http://127.0.0.1:1", 1_000_000, SimpleSpanProcessor(exporter)).record(entry, "ok", {})
    spans = exporter.get_finished_spans()
    assert len([span for span in spans if span.name == "Fit"]) == 200
    assert (spans[-1].attributes or {})[f"{PREFIX}.algorithm_runs"] == 5000


@pytest.mark.parametrize(
    ("endpoint", "url"),
    [
        ("http://otel:4318", "http://otel:4318/v1/traces"),
        ("http://otel:4318/", "http://otel:4318/v1/traces"),
        ("https://otel/in/v1/traces", "https://otel/in/v1/traces"),
    ],
)
def test_traces_go_to_the_usual_path_where_none_is_given(endpoint: str, url: str) -> None:
    assert _traces_url(endpoint) == url


def test_without_the_extra_the_configuration_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "extender.tracing", raising=False)
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk", None)
    monkeypatch.setitem(sys.modules, "opentelemetry.exporter.otlp.proto.http.trace_exporter", None)
    configuration = ExtenderConfiguration.model_validate({"tracing": {"enabled": True}})
    with pytest.raises(ConfigurationError) as caught:
        Runtime(configuration, from_url("http://127.0.0.1:1"))
    assert caught.value.problems == (
        "tracing.enabled: needs opentelemetry.exporter.otlp.proto.http.trace_exporter, which is not installed; "
        "pip install 'kube-scheduler-extender[otel]', or set it to false",
    )


def test_tracing_is_off_and_not_even_imported_unless_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "extender.tracing", None)
    assert Runtime(ExtenderConfiguration(), from_url("http://127.0.0.1:1")).tracing is None
