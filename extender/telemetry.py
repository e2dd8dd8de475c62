"""Metrics and logs.

Every series is a child that is bound once, because looking one up by labels costs more than observing it. Names follow
Prometheus' conventions: base units, ``_total`` for counters; all begin with ``scheduler_extender_``.
"""

from __future__ import annotations

import logging
import re
import sys
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from importlib.metadata import version
from platform import python_version
from typing import Any, Final

import msgspec
from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    ProcessCollector,
    disable_created_metrics,
    generate_latest,
)
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from extender import journal
from extender.tally import RunTally

PREFIX: Final = "scheduler_extender"
_VERB_BUCKETS = (0.0005, 0.001, 0.002, 0.004, 0.008, 0.016, 0.032, 0.064, 0.128, 0.256, 0.512, 1.0, 2.0, 5.0)
_NETWORK_BUCKETS = (0.001, 0.002, 0.004, 0.008, 0.016, 0.032, 0.064, 0.128, 0.256, 0.512, 1.0, 2.0, 5.0, 10.0)
_LAG_BUCKETS = (0.001, 0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 600.0)
_MOST_REASONS = 50
_OTHER = "other"
_QUOTED = re.compile(r"""(?<!\w)("[^"]*"|'[^']*')(?!\w)""")
"""What a reason names: a claim, a value, an expression. Apostrophes within words are no quotes."""


class Metrics:
    """Everything the service counts; ``registry`` is its own, so that two services in one process do not mix."""

    def __init__(self) -> None:
        disable_created_metrics()  # type: ignore[no-untyped-call]  # untyped in the library
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        self._verb_seconds = self._histogram(
            "request_duration_seconds", "Time from a complete request body to the reply.", ["verb"], _VERB_BUCKETS
        )
        self._verb_results = self._counter(
            "requests", "Requests by result: ok, or the kind of failure.", "verb", "result"
        )
        self._body_bytes = self._counter("request_body_bytes", "Bytes of request bodies.", "verb")
        self._in_flight = self._gauge("requests_in_flight", "Requests that are being read or answered.", "verb")
        self._runs = RunTally(PREFIX)
        self.registry.register(self._runs)
        self._failures = self._counter("algorithm_failures", "Requests an algorithm raised in.", "algorithm", "point")
        self._refusals = self._counter("refused_nodes", "Nodes refused, by reason.", "algorithm", "reason")
        self._shadow_refusals = self._counter(
            "shadow_refused_nodes", "Nodes that algorithms in shadow would have refused.", "algorithm", "reason"
        )
        self._ignored = self._counter(
            "ignored_failures", "Failures of algorithms that are in shadow or may fail.", "algorithm", "point"
        )
        self._overruns = self._counter(
            "over_budget_runs", "Runs of an algorithm that took longer than its timeBudgetMillis.", "algorithm", "point"
        )
        self._passed = self._counter(
            "passed_through_requests", "Requests for pods that pass through, by what lets them pass.", "verb", "reason"
        )
        self.expired_assumptions = self._counter("expired_assumed_pods", "Bound pods the watch never confirmed.")
        self._bind_seconds = self._histogram(
            "bind_duration_seconds", "Time of binding one pod, all attempts together.", ["result"], _NETWORK_BUCKETS
        )
        self._bind_retries = self._counter(
            "bind_retries", "Attempts at a binding after its first; code is none where no answer came.", "code"
        )
        self._api_results = self._counter(
            "api_requests", "Requests to the API server; code is none where no answer came.", "verb", "resource", "code"
        )
        self._api_seconds = self._histogram(
            "api_request_duration_seconds",
            "Time to an answer of the API server; of a watch, to its beginning.",
            ["verb", "resource"],
            _NETWORK_BUCKETS,
        )
        self._event_lag = self._histogram(
            "informer_event_lag_seconds",
            "Time from an object's creation, which is told in whole seconds, to its place in the cache.",
            ["resource"],
            _LAG_BUCKETS,
        )
        self.loop_lag = self._histogram(
            "event_loop_lag_seconds", "How much later than it asked a task got its turn.", [], _LAG_BUCKETS
        )
        self._gauge("build_info", "What is running.", "version", "python").labels(
            version("kube-scheduler-extender"), python_version()
        ).set(1)
        self._closed = self._counter(
            "closed_connections", "Connections closed for a limit or a failed handshake.", "port", "reason"
        )
        self._open = Gauge(f"{PREFIX}_open_connections", "Connections open.", ["port"], registry=self.registry)
        self._certificate_loads = self._counter(
            "certificate_reloads", "Certificate files found changed: ok, or failed and not used.", "port", "result"
        )
        self._certificate_expiry = Gauge(
            f"{PREFIX}_certificate_expiry_seconds",
            "When the first certificate of a file in use expires, in seconds since the epoch.",
            ["port", "file"],
            registry=self.registry,
        )
        self._children: dict[tuple[Any, ...], Any] = {}
        self._reasons: dict[str, set[str]] = {}

    def verb(self, verb: str, result: str, seconds: float | None, body_bytes: int) -> None:
        """Note one request; ``result`` is ``ok`` or the class name of what it failed with.

        ``seconds`` are None where no complete body came that could be answered.
        """
        if seconds is not None:
            self._child(self._verb_seconds, verb).observe(seconds)
        self._child(self._verb_results, verb, result).inc()
        self._child(self._body_bytes, verb).inc(body_bytes)

    def ran(self, algorithm: str, point: str, seconds: float, *, skipped: bool) -> None:
        """Note one run of an algorithm at ``filter`` or ``prioritize``."""
        self._runs.add(algorithm, point, seconds, skipped=skipped)
        journal.ran(algorithm, point, seconds)

    def refused(self, algorithm: str, reason: str, nodes: int) -> None:
        """Note that an algorithm refused some nodes.

        What a reason quotes is left out, and an algorithm's reasons past the first 50 are counted as ``other``.
        """
        self._child(self._refusals, algorithm, self._bounded(algorithm, reason)).inc(nodes)

    def would_refuse(self, algorithm: str, reason: str, nodes: int) -> None:
        """Note that an algorithm in shadow would have refused some nodes; reasons are bounded in the same way."""
        self._child(self._shadow_refusals, algorithm, self._bounded(algorithm, reason)).inc(nodes)

    def _bounded(self, algorithm: str, reason: str) -> str:
        known = self._reasons.setdefault(algorithm, set())
        if reason in known:
            return reason
        label = _QUOTED.sub('"..."', reason)
        if label not in known:
            if len(known) >= _MOST_REASONS:
                return _OTHER
            known.add(label)
        return label

    def failed(self, algorithm: str, point: str) -> None:
        """Note that an algorithm raised."""
        self._child(self._failures, algorithm, point).inc()

    def passed_over(self, algorithm: str, point: str) -> None:
        """Note that an algorithm raised, and its failure was ignored."""
        self._child(self._ignored, algorithm, point).inc()

    def overran(self, algorithm: str, point: str) -> None:
        """Note that a run took longer than its algorithm may."""
        self._child(self._overruns, algorithm, point).inc()

    def passed_through(self, verb: str, reason: str) -> None:
        """Note a request for a pod that passes through, by what lets it pass."""
        self._child(self._passed, verb, reason).inc()

    def in_flight(self, verb: str) -> Gauge:
        """Return the gauge of requests that are being worked on."""
        gauge: Gauge = self._child(self._in_flight, verb)
        return gauge

    def bound(self, result: str, seconds: float) -> None:
        """Note the end of a bind: ``bound``, ``already bound``, or the class name of what it failed with."""
        self._child(self._bind_seconds, result).observe(seconds)

    def bind_retried(self, code: str) -> None:
        """Note that a binding is asked for once more after an answer with ``code``, or ``none``."""
        self._child(self._bind_retries, code).inc()

    def api_request(self, verb: str, resource: str, code: str, seconds: float) -> None:
        """Note one request to the API server, by the names that its authorization has for it."""
        self._child(self._api_results, verb, resource, code).inc()
        self._child(self._api_seconds, verb, resource).observe(seconds)

    def event_lag(self, resource: str, seconds: float) -> None:
        """Note how old a new object was when it took its place in the cache."""
        self._child(self._event_lag, resource).observe(max(0.0, seconds))

    def closed(self, port: str, reason: str) -> None:
        """Note a connection that was closed for ``reason``."""
        self._child(self._closed, port, reason).inc()

    def connections(self, port: str, read: Callable[[], float]) -> None:
        """Have the number of a port's open connections read at every scrape."""
        self._open.labels(port).set_function(read)

    def reloaded(self, port: str, result: str) -> None:
        """Note that the certificates of a port were loaded anew, ``ok`` or ``failed``."""
        self._child(self._certificate_loads, port, result).inc()

    def expiry(self, port: str, file: str, epoch_seconds: float) -> None:
        """Note when the first certificate of a file expires."""
        self._child(self._certificate_expiry, port, file).set(epoch_seconds)

    def gauge(self, name: str, text: str, read: Callable[[], float]) -> None:
        """Add a gauge that is read at every scrape."""
        Gauge(f"{PREFIX}_{name}", text, registry=self.registry).set_function(read)

    def totals(self, name: str, text: str, label: str, read: Callable[[], Mapping[str, float]]) -> None:
        """Add a counter whose values by ``label`` are read at every scrape; without a label there is one, of ``""``."""
        self.watch(_Totals(name, text, label, read))

    def watch(self, collector: Collector) -> None:
        """Have ``collector`` asked at every scrape."""
        self.registry.register(collector)

    def exposition(self) -> bytes:
        """Return all series in Prometheus' text format."""
        return generate_latest(self.registry)

    def _child(self, family: Any, *labels: str) -> Any:
        key = (family, *labels)
        child = self._children.get(key)
        if child is None:
            child = self._children[key] = family.labels(*labels) if labels else family
        return child

    def _histogram(self, name: str, text: str, labels: list[str], buckets: tuple[float, ...]) -> Histogram:
        return Histogram(f"{PREFIX}_{name}", text, labels, buckets=buckets, registry=self.registry)

    def _gauge(self, name: str, text: str, *labels: str) -> Gauge:
        return Gauge(f"{PREFIX}_{name}", text, labels, registry=self.registry)

    def _counter(self, name: str, text: str, *labels: str) -> Counter:
        return Counter(f"{PREFIX}_{name}", text, labels, registry=self.registry)


class _Totals(Collector):
    """A counter that is kept elsewhere."""

    def __init__(self, name: str, text: str, label: str, read: Callable[[], Mapping[str, float]]) -> None:
        self._name = f"{PREFIX}_{name}"
        self._text = text
        self._labels = [label] if label else []
        self._read = read

    def collect(self) -> Iterable[Metric]:
        """Return its series."""
        family = CounterMetricFamily(self._name, self._text, labels=self._labels)
        for value, count in self._read().items():
            family.add_metric([value] if self._labels else [], count)
        return [family]


class InformerSample(msgspec.Struct, frozen=True):
    """How one informer fares."""

    resource: str
    objects: int
    synced: bool
    age_seconds: float
    lists: int
    watches: int
    events: dict[str, int]
    failures: dict[str, int]


class InformerCollector(Collector):
    """Reads the informers at every scrape instead of on every event."""

    def __init__(self, samples: Callable[[], Iterable[InformerSample]]) -> None:
        self._samples = samples

    def collect(self) -> Iterable[Metric]:
        """Return the series of all informers."""
        objects = GaugeMetricFamily(f"{PREFIX}_cache_objects", "Objects held.", labels=["resource"])
        age = GaugeMetricFamily(
            f"{PREFIX}_cache_age_seconds", "Time since the API server was heard.", labels=["resource"]
        )
        synced = GaugeMetricFamily(
            f"{PREFIX}_informer_synced", "1 once the first list is complete.", labels=["resource"]
        )
        lists = CounterMetricFamily(f"{PREFIX}_informer_lists", "Lists completed.", labels=["resource"])
        watches = CounterMetricFamily(f"{PREFIX}_informer_watches", "Watches opened.", labels=["resource"])
        events = CounterMetricFamily(f"{PREFIX}_informer_events", "Events received.", labels=["resource", "type"])
        failures = CounterMetricFamily(
            f"{PREFIX}_informer_failures", "Lists and watches that failed, by why.", labels=["resource", "reason"]
        )
        for sample in self._samples():
            resource = [sample.resource]
            objects.add_metric(resource, sample.objects)
            age.add_metric(resource, sample.age_seconds)
            synced.add_metric(resource, int(sample.synced))
            lists.add_metric(resource, sample.lists)
            watches.add_metric(resource, sample.watches)
            for kind, count in sample.events.items():
                events.add_metric([sample.resource, kind], count)
            for reason, count in sample.failures.items():
                failures.add_metric([sample.resource, reason], count)
        return [objects, age, synced, lists, watches, events, failures]


_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}
_AMBIGUOUS = re.compile(r'[\s"=]')
_QUIET: Final = {"uvicorn": "warning", "aiohttp": "warning"}
"""Levels of packages that say much, unless they are set otherwise."""


def _fields(record: logging.LogRecord) -> dict[str, Any]:
    return {key: value for key, value in vars(record).items() if key not in _STANDARD}


class JsonFormatter(logging.Formatter):
    """One JSON object a line: time, level, logger, constant message, and the fields of ``extra``."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line for ``record``."""
        line = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **_fields(record),
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return msgspec.json.encode(line, enc_hook=str).decode()


class TextFormatter(logging.Formatter):
    """The same for reading: ``time LEVEL logger: message key=value ...``; values are quoted where they must be."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line for ``record``."""
        fields = "".join(f" {key}={_legible(value)}" for key, value in _fields(record).items())
        time = datetime.fromtimestamp(record.created).astimezone().isoformat(timespec="milliseconds")
        line = f"{time} {record.levelname} {record.name}: {record.getMessage()}{fields}"
        return f"{line}\n{self.formatException(record.exc_info)}" if record.exc_info else line


def _legible(value: object) -> str:
    if isinstance(value, dict | list | tuple):
        return msgspec.json.encode(value, enc_hook=str).decode()
    text = str(value)
    return msgspec.json.encode(text).decode() if not text or _AMBIGUOUS.search(text) else text


def _add_request(record: logging.LogRecord) -> bool:
    """Have a record name the request that is worked on where it arises."""
    identity = journal.current_identity()
    if identity:
        record.request = identity
    return True


def set_up_logging(level: str, form: str, levels: Mapping[str, str] | None = None) -> None:
    """Send all logs to standard error in the given form, ``json`` or ``text``; ``levels`` are those of modules."""
    handler = logging.StreamHandler(sys.stderr)
    handler.addFilter(_add_request)
    handler.setFormatter(JsonFormatter() if form == "json" else TextFormatter())
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
    set_levels(level, levels or {})


def set_levels(level: str, levels: Mapping[str, str], before: Iterable[str] = ()) -> None:
    """Log from ``level`` on, and from those of modules; ``before`` are modules that had one until now."""
    logging.getLogger().setLevel(level.upper())
    for module, its_level in (dict.fromkeys(before, "notset") | _QUIET | dict(levels)).items():
        logging.getLogger(module).setLevel(its_level.upper())
