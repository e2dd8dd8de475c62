"""Traces of requests for an OpenTelemetry collector: a span a request, and within it its phases and algorithms.

Spans are made from the journal once a request has been answered, so requests that are not traced cost the throw of a
die. This module needs the extra ``otel`` and is imported only where tracing is enabled.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from importlib.metadata import version
from time import perf_counter, time_ns
from typing import Final
from urllib.parse import urlsplit

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import Span, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.sdk.trace.sampling import ParentBased, TraceIdRatioBased
from opentelemetry.trace import SpanKind, StatusCode, set_span_in_context
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from extender.journal import Entry

NAME: Final = "kube-scheduler-extender"
_PREFIX: Final = "scheduler_extender"
_MOST_RUNS = 200
"""Runs of algorithms that get a span of their own; preemption can have thousands."""
_FLUSH_SECONDS = 2.0
"""How long the last spans may hold up the end."""


class Tracing:
    """Makes spans of journal entries and sends them off in the background."""

    def __init__(self, endpoint: str, rate_per_million: int, processor: SpanProcessor | None = None) -> None:
        """``processor`` gets the spans instead of the collector at ``endpoint``."""
        self._provider = TracerProvider(
            sampler=ParentBased(TraceIdRatioBased(rate_per_million / 1_000_000)),
            resource=Resource.create({"service.name": NAME, "service.version": version(NAME)}),
            shutdown_on_exit=False,
        )
        self._provider.add_span_processor(processor or BatchSpanProcessor(OTLPSpanExporter(_traces_url(endpoint))))
        self._tracer = self._provider.get_tracer(NAME, version(NAME))
        self._propagator = TraceContextTextMapPropagator()

    def close(self) -> None:
        """Send what is left, as far as that goes in a short time."""
        flush = threading.Thread(target=self._provider.shutdown, name="flush of traces", daemon=True)
        flush.start()
        flush.join(_FLUSH_SECONDS)

    def record(self, entry: Entry, result: str, headers: Mapping[str, str]) -> None:
        """Trace a request that is over, if its caller traces, or else by chance."""
        epoch = time_ns() - int(perf_counter() * 1e9)

        def at(seconds: float) -> int:
            return epoch + int(seconds * 1e9)

        request = self._tracer.start_span(
            entry.verb,
            context=self._propagator.extract(headers),
            kind=SpanKind.SERVER,
            start_time=at(entry.start),
        )
        if isinstance(request, Span) and request.is_recording():
            request.set_attributes(_attributes(entry, result))
            if result != "ok":
                request.set_status(StatusCode.ERROR, result)
            inside = set_span_in_context(request)
            for name, start, seconds in entry.phases():
                self._tracer.start_span(name, inside, start_time=at(start)).end(at(start + seconds))
            for algorithm, point, end, seconds in entry.runs[:_MOST_RUNS]:
                run = self._tracer.start_span(
                    algorithm, inside, start_time=at(end - seconds), attributes={f"{_PREFIX}.point": point}
                )
                run.end(at(end))
        request.end(at(entry.start + entry.seconds))


def _attributes(entry: Entry, result: str) -> dict[str, str | int]:
    namespace, _, name = entry.pod.partition("/")
    attributes: dict[str, str | int] = {
        "http.request.body.size": entry.body_bytes,
        f"{_PREFIX}.request_id": entry.identity,
        f"{_PREFIX}.result": result,
        f"{_PREFIX}.algorithm_runs": len(entry.runs),
    }
    if entry.pod:
        attributes |= {"k8s.namespace.name": namespace, "k8s.pod.name": name, "k8s.pod.uid": entry.uid}
    if entry.nodes >= 0:
        attributes |= {f"{_PREFIX}.nodes": entry.nodes, f"{_PREFIX}.fitting": entry.fitting}
    return attributes


def _traces_url(endpoint: str) -> str:
    """Return where traces go: the address given, with the usual path where it has none."""
    return endpoint if urlsplit(endpoint).path.strip("/") else f"{endpoint.rstrip('/')}/v1/traces"
