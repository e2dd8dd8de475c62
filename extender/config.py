"""ExtenderConfiguration: one YAML file, environment and flags over it, validated all at once.

Every finding carries the path of its field and what to do, such as
``server.port: must be <= 65535, got 70000``. Unknown keys are refused. Values come from, the later the stronger:
defaults, the file, environment variables ``SCHEDULER_EXTENDER_<PATH>`` (``SCHEDULER_EXTENDER_SERVER__PORT=9000``) and
flags ``--set server.port=9000``.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Final, Literal, Self, TypeAlias

from pydantic import BeforeValidator, Field, ValidationError, field_validator, model_validator
from pydantic.alias_generators import to_camel

from extender.errors import ConfigurationError
from extender.layered_tree import ENVIRONMENT_PREFIX, FLAG, LayeredTree, Location
from extender.refusal import matching, reason, shown
from extender.section import (
    AlgorithmSourceSection,
    ExemptSection,
    ProfileSection,
    ReloadSection,
    Section,
    repeated_names,
)
from extender.yaml_text import read_yaml

API_VERSION: Final = "scheduler-extender/v1"
KIND: Final = "ExtenderConfiguration"

Port: TypeAlias = Annotated[int, Field(ge=0, le=65535)]
Seconds: TypeAlias = Annotated[float, Field(gt=0, le=86400)]
Level: TypeAlias = Literal["debug", "info", "warning", "error"]


_SUBDOMAIN: Final = r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?"
_OBJECT_RULE: Final = "must be a name of small letters, digits, '-' and '.', with a letter or digit at both ends"

PathPrefix: TypeAlias = Annotated[str, matching("/.*", "must begin with '/'")]
ObjectName: TypeAlias = Annotated[str, matching(_SUBDOMAIN, _OBJECT_RULE)]
OptionalName: TypeAlias = Annotated[str, matching(f"|{_SUBDOMAIN}", _OBJECT_RULE)]
ModuleName: TypeAlias = Annotated[
    str, matching(r"[A-Za-z_]\w*(\.\w+)*", "must be the name of a module or package, such as extender.cluster")
]
HttpUrl: TypeAlias = Annotated[str, matching("https?://.+", "must begin with http:// or https://, and name a host")]


class TlsSection(Section):
    """What a port shows of itself; without a certificate it speaks plain HTTP."""

    cert_file: str = ""
    """The certificate in PEM, those of intermediate authorities after it."""
    key_file: str = ""
    """Its key in PEM, without a passphrase."""
    min_version: Annotated[Literal["1.2", "1.3"], BeforeValidator(str)] = "1.2"
    reload_seconds: Annotated[float, Field(ge=0.01, le=3600)] = 10.0
    """How often the files are looked at; new connections get what they hold then."""

    @model_validator(mode="after")
    def _complete(self) -> Self:
        if bool(self.cert_file) != bool(self.key_file):
            raise ValueError("certFile and keyFile go together: give both, or neither for plain HTTP")
        return self


class MutualTlsSection(TlsSection):
    """The same where callers show certificates too."""

    client_ca_file: str = ""
    """The authorities of those who may call, in PEM; empty lets everyone call."""
    allowed_subjects: list[Annotated[str, Field(min_length=1)]] = Field(default=[])
    """Common names, DNS names or URIs, of which a caller's certificate must have one; empty accepts all of that CA."""

    @model_validator(mode="after")
    def _asked_for(self) -> Self:
        if self.client_ca_file and not self.cert_file:
            raise ValueError("clientCaFile needs certFile and keyFile")
        if self.allowed_subjects and not self.client_ca_file:
            raise ValueError("allowedSubjects needs clientCaFile: without it nobody shows a certificate")
        return self


class ServerSection(Section):
    """The port that kube-scheduler calls."""

    host: str = "0.0.0.0"
    port: Port = 8888
    path_prefixes: list[PathPrefix] = Field(default=["/scheduler"])
    """The verbs answer at ``/filter`` and below each of these, at ``/scheduler/filter``."""
    tls: MutualTlsSection = MutualTlsSection()
    max_connections: Annotated[int, Field(ge=1, le=1_000_000)] = 4096
    """How many may be open on each of the two ports; one more is answered 503 and closed."""
    max_header_bytes: Annotated[int, Field(ge=1024, le=2**20)] = 65536
    """How long the head of a request may be, on both ports; a longer one is answered 431."""
    header_timeout_seconds: Seconds = 10.0
    """How long a TLS handshake, and then the head of each request, may take to arrive, on both ports."""
    max_body_bytes: Annotated[int, Field(ge=1024, le=4 * 2**30)] = 256 * 2**20
    body_timeout_seconds: Seconds = 4.0
    """How long a request may take to arrive; below kube-scheduler's httpTimeout of 5 s."""
    deadline_seconds: Seconds = 4.5
    """When work on a request is given up, counted from its arrival; below httpTimeout as well."""
    keep_alive_seconds: Seconds = 120.0
    """How long idle connections stay open; Go reuses them for 90 s and loses the request on one that is closing."""
    drain_seconds: Annotated[float, Field(ge=0, le=3600)] = 5.0
    """How long new connections are still served after SIGTERM, while the endpoint is being taken out."""
    grace_seconds: Seconds = 20.0
    """How long running requests may take after that."""

    @field_validator("keep_alive_seconds")
    @classmethod
    def _above_the_idle_time_of_go(cls, value: float) -> float:
        if value <= 90:
            raise ValueError("must be > 90, because kube-scheduler reuses idle connections for 90 s")
        return value


class AuthenticationSection(Section):
    """Who may read the management port; probes are open to everyone."""

    enabled: bool = False
    """Whether a reader needs a token that the API server accepts, and leave to ``get`` the path."""


class ManagementSection(Section):
    """The port for probes and metrics."""

    host: str = "0.0.0.0"
    port: Port = 8889
    tls: TlsSection = TlsSection()
    authentication: AuthenticationSection = AuthenticationSection()
    debug: bool = False
    """Whether profiles, stacks, dumps of the caches and the configuration are served below ``/debug``."""
    stuck_seconds: Seconds = 30.0
    """After so long without a turn of the event loop of the verbs the service is not alive."""

    @model_validator(mode="after")
    def _keeps_tokens_secret(self) -> Self:
        if self.authentication.enabled and not self.tls.cert_file:
            raise ValueError("authentication needs tls.certFile and tls.keyFile, or tokens would travel in the clear")
        return self


class ClientSection(Section):
    """How the API server is reached; without a kubeconfig, as a pod in the cluster."""

    kubeconfig: str = ""
    context: str = ""
    request_timeout_seconds: Seconds = 10.0
    silence_seconds: Annotated[float, Field(ge=1, le=600)] = 55.0
    """A watch that says nothing for so long is taken for dead; one that is alive is asked to end before."""
    page_size: Annotated[int, Field(ge=1, le=10_000)] = 500


class CacheSection(Section):
    """How long the service trusts what it was not told again."""

    assumed_pod_seconds: Seconds = 300.0
    """How long a bound pod is counted although the watch does not confirm it."""
    stale_seconds: Seconds = 110.0
    """A watch that is open but silent for so long makes the service unready: above twice ``silenceSeconds`` at most, so
    that a watch that was opened anew has the time to end."""
    error_after_seconds: Annotated[float, Field(ge=0, le=86400)] = 0.0
    """After so long without a word from the API server requests are answered with errors; 0 answers them for ever."""


class LeaderElectionSection(Section):
    """Which of several replicas binds; all of them answer the other verbs. Source of the defaults: kube-scheduler."""

    enabled: bool = False
    lease_name: ObjectName = "kube-scheduler-extender"
    lease_namespace: OptionalName = ""
    """The namespace of the pod's service account where left empty, or ``default`` where that is none."""
    identity: str = ""
    """Who holds the lease; the name of the host and a number where left empty. No two replicas may have the same."""
    lease_duration_seconds: Annotated[int, Field(ge=1, le=86400)] = 15
    """How long others wait for a holder that is silent."""
    renew_deadline_seconds: Seconds = 10.0
    """How long a holder acts after its last renewal."""
    retry_period_seconds: Seconds = 2.0
    """How often the lease is looked at, or renewed, at least."""

    @model_validator(mode="after")
    def _leaves_time(self) -> LeaderElectionSection:
        if self.lease_duration_seconds <= self.renew_deadline_seconds:
            raise ValueError(
                f"leaseDurationSeconds must be > renewDeadlineSeconds ({self.renew_deadline_seconds:g}), so that the "
                f"holder has stopped before another begins, got {self.lease_duration_seconds}"
            )
        if self.renew_deadline_seconds <= 1.2 * self.retry_period_seconds:
            raise ValueError(
                f"renewDeadlineSeconds must be > 1.2 * retryPeriodSeconds ({self.retry_period_seconds:g}), so that a "
                f"failed renewal can be tried again, got {self.renew_deadline_seconds:g}"
            )
        return self


class EventSection(Section):
    """Events about pods: what was bound, what could not be bound, and why no node fits."""

    enabled: bool = True
    queue_length: Annotated[int, Field(ge=1, le=1_000_000)] = 1000
    """How many wait to be written at most."""
    per_second: Annotated[float, Field(gt=0, le=10_000)] = 50.0
    burst: Annotated[int, Field(ge=1, le=100_000)] = 100


class LogSection(Section):
    """What is logged, and how."""

    level: Level = "info"
    format: Literal["json", "text"] = "json"
    levels: dict[ModuleName, Level] = Field(default={})
    """Levels of single modules and packages, such as ``extender.cluster``."""
    slow_request_seconds: Annotated[float, Field(ge=0, le=86400)] = 0.1
    """Requests that take longer are logged with what took the time; 0 logs none."""


class TracingSection(Section):
    """Traces of requests in OpenTelemetry's format; needs the extra ``otel``."""

    enabled: bool = False
    endpoint: HttpUrl = "http://127.0.0.1:4318"
    """Where a collector takes OTLP over HTTP."""
    sampling_rate_per_million: Annotated[int, Field(ge=0, le=1_000_000)] = 10_000
    """How many requests in a million are traced; those whose caller says whether it traces go by that."""


class ExtenderConfiguration(Section):
    """Everything that can be set."""

    api_version: Literal["scheduler-extender/v1"] = API_VERSION
    kind: Literal["ExtenderConfiguration"] = KIND
    profiles: Annotated[list[ProfileSection], Field(min_length=1)] = Field(default=[ProfileSection()])
    """Which algorithms serve which pods; the first one also serves pods of a scheduler that none names."""
    algorithm_source: AlgorithmSourceSection = AlgorithmSourceSection()
    unmatched_scheduler_name: Literal["default", "passThrough"] = "default"
    """What becomes of pods of a scheduler that no profile names: the first profile, or nothing, serves them."""
    exempt: ExemptSection = ExemptSection()
    reload: ReloadSection = ReloadSection()
    server: ServerSection = ServerSection()
    management: ManagementSection = ManagementSection()
    client_connection: ClientSection = ClientSection()
    cache: CacheSection = CacheSection()
    leader_election: LeaderElectionSection = LeaderElectionSection()
    events: EventSection = EventSection()
    log: LogSection = LogSection()
    tracing: TracingSection = TracingSection()


def load_configuration(
    path: Path | None = None, *, environment: Mapping[str, str] | None = None, settings: Iterable[str] = ()
) -> ExtenderConfiguration:
    """Read and validate the configuration.

    ``settings`` are flags of the form ``path=value``; values are read as YAML.

    Raises:
        ConfigurationError: all findings at once, each with its path.
    """
    configuration, problems = read_configuration(path, environment=environment, settings=settings)
    if problems:
        raise ConfigurationError(problems)
    return configuration


def read_configuration(
    path: Path | None = None, *, environment: Mapping[str, str] | None = None, settings: Iterable[str] = ()
) -> tuple[ExtenderConfiguration, list[str]]:
    """Return the configuration and the findings about it, whose places are left out, so that the rest can be tried.

    Raises:
        ConfigurationError: there is no telling anything, because the file cannot be read or is no YAML.
    """
    tree, problems = _read_file(path) if path is not None else ({}, [])
    layers = LayeredTree(tree)
    variables = os.environ if environment is None else environment
    for name in sorted(variables):
        if name.startswith(ENVIRONMENT_PREFIX):
            keys = [to_camel(part) for part in name.removeprefix(ENVIRONMENT_PREFIX).lower().split("__")]
            layers.put(name, keys, variables[name])
    for setting in settings:
        dotted, equals, value = setting.partition("=")
        if equals:
            layers.put(FLAG, dotted.split("."), value)
        else:
            layers.problems.append(f"{FLAG} {setting}: must have the form path=value")
    configuration, findings = _validate(layers)
    conflicts = [text for places, text in _conflicts(configuration) if layers.is_whole(*places)]
    return configuration, [*problems, *layers.problems, *findings, *conflicts]


def _validate(layers: LayeredTree) -> tuple[ExtenderConfiguration, list[str]]:
    """Return the configuration, with what cannot be used left out, and the findings."""
    problems: list[str] = []
    while True:
        try:
            return ExtenderConfiguration.read(layers.tree), problems
        except ValidationError as error:
            findings: list[Any] = error.errors(include_url=False)
        texts = [layers.take_as_text(finding["loc"]) for finding in findings if finding["type"] == "string_type"]
        if any(texts):
            continue
        # What comes up after something was left out is owed to that.
        problems = problems or [_blamed(finding, layers) for finding in findings]
        layers.leave_out(finding["loc"] for finding in findings)


def _blamed(finding: Any, layers: LayeredTree) -> str:
    cause = layers.cause(finding["loc"]) if finding["type"] == "extra_forbidden" else ""
    return layers.blame(finding["loc"], _line(finding, "", ExtenderConfiguration) + cause)


def _conflicts(configuration: ExtenderConfiguration) -> Iterator[tuple[tuple[Location, ...], str]]:
    """Yield what does not go together, and the places it is about."""
    server, management = configuration.server, configuration.management
    if configuration.algorithm_source.given and "profiles" in configuration.model_fields_set:
        yield (), "profiles and algorithmSource exclude each other: remove one of them"
    names = [profile.scheduler_name for profile in configuration.profiles]
    for place, first in repeated_names(names):
        text = f"profiles[{place}].schedulerName: {names[place]!r} is that of profiles[{first}]; give another"
        yield (("profiles", place, "schedulerName"), ("profiles", first, "schedulerName")), text
    if server.port and server.port == management.port:
        yield (("server", "port"), ("management", "port")), "server.port and management.port must differ"
    silence, stale = configuration.client_connection.silence_seconds, configuration.cache.stale_seconds
    if stale <= silence:
        text = (
            f"cache.staleSeconds: must be > clientConnection.silenceSeconds ({silence:g}), so that a watch that was "
            f"opened anew has the time to speak, got {stale:g}"
        )
        yield (("cache", "staleSeconds"), ("clientConnection", "silenceSeconds")), text


def explain(error: ValidationError, root: str = "") -> list[str]:
    """Return one line a finding: path, what is wrong, and what was given."""
    return [_line(finding, root) for finding in error.errors(include_url=False)]


def _line(finding: Any, root: str = "", model: type[Section] | None = None) -> str:
    location, text = finding["loc"], reason(finding, model)
    if location and location[-1] == "[key]":
        location, text = location[:-2], f"key {shown(location[-2])}: {text}"
    elif finding["type"] == "invalid_key":
        location, text = location[:-1], f"key {shown(finding['input'])}: {text}"
    path = _join(root, location)
    inside = "" if text.startswith("[") or not path else ": "  # an algorithm tells the place inside its argument
    return f"{path}{inside}{text}"


def _join(root: str, location: Location) -> str:
    path = root
    for part in location:
        path += f"[{part}]" if isinstance(part, int) else f".{part}" if path else part
    return path


def _read_file(path: Path) -> tuple[dict[str, Any], list[str]]:
    """Return what a file holds, and the keys that stand in it twice."""
    try:
        content = read_yaml(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigurationError(f"{path}: cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise ConfigurationError(f"{path}: is not YAML: {error}") from error
    if content.has_more:
        raise ConfigurationError(f"{path}: holds more than one document; leave one, and no --- after it")
    if content.tree is None:  # a write that was cut short must not put everything back to its default
        raise ConfigurationError(f"{path}: is empty; write {{}} where nothing is to be set")
    if not isinstance(content.tree, dict):
        raise ConfigurationError(f"{path}: must hold one {KIND} object")
    problems = [f"{path}: {repeated}; keep one of them" for repeated in content.repetitions]
    return content.tree, problems
