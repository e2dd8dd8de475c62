"""What ``register`` was asked for, and why some of it cannot be had."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Self
from urllib.parse import SplitResult, urlsplit

from extender.errors import ConfigurationError
from extender.model.name import is_qualified_name
from extender.model.request import is_extended_resource
from extender.registration.dialect import BY_NAME, DIALECTS, OLDEST_RELEASE, Dialect, newest, parse_release
from extender.registration.duration import parse_duration
from extender.registration.entry import VERBS, ManagedResource, TlsSettings

_IGNORED = "ignored"
_LARGEST_WEIGHT = 10**6


@dataclass(frozen=True)
class Request:
    """The options of ``register``, as they were given; ``checked`` says which cannot be used, all at once."""

    url: str
    kubernetes: str = ""
    api_version: str = ""
    verbs: tuple[str, ...] = VERBS
    weight: int | None = None
    managed_resources: tuple[str, ...] = ()
    ignorable: bool = False
    http_timeout: str = "5s"
    scheduler_names: tuple[str, ...] = ()
    kubeconfig: str = "/etc/kubernetes/scheduler.conf"
    config_file: str = "/etc/kubernetes/scheduler-extender.yaml"
    tls: TlsSettings = field(default_factory=TlsSettings)

    def checked(self) -> Self:
        """Return the request if all of it can be had. Raises ConfigurationError with a line an option."""
        problems = list(self._version_problems())
        if not problems and self.dialect.is_policy and self.scheduler_names:
            problems.append("--scheduler-name: a Policy has no profiles; give kube-scheduler the flag of that name")
        problems += [
            *self._url_problems(),
            *self._verb_problems(),
            *self._resource_problems(),
            *self._tls_problems(),
            *self._other_problems(),
        ]
        if problems:
            raise ConfigurationError(problems)
        return self

    @property
    def dialect(self) -> Dialect:
        """The version to write: the one named, else the newest that the release reads."""
        if self.api_version:
            return BY_NAME[self.api_version]
        return newest(parse_release(self.kubernetes)) if self.kubernetes else DIALECTS[0]

    @property
    def minor(self) -> int | None:
        """The minor number of the release: the one named, else the last that reads the version; None for no end."""
        return parse_release(self.kubernetes) if self.kubernetes else self.dialect.last

    @property
    def timeout_nanoseconds(self) -> int:
        """How long kube-scheduler is to wait for a call."""
        return parse_duration(self.http_timeout)

    @property
    def score_weight(self) -> int:
        """How much scores are to count: as was asked for, or 1."""
        return 1 if self.weight is None else self.weight

    @property
    def resources(self) -> tuple[ManagedResource, ...]:
        """The managed resources, taken apart."""
        parted = [text.partition("=") for text in self.managed_resources]
        return tuple(ManagedResource(name, suffix == _IGNORED) for name, _, suffix in parted)

    @property
    def address(self) -> SplitResult:
        """The URL taken apart."""
        return urlsplit(self.url)

    def _version_problems(self) -> Iterator[str]:
        minor = None
        if self.kubernetes:
            try:
                minor = parse_release(self.kubernetes)
            except ValueError as error:
                yield f"--kubernetes: {error}"
            else:
                if minor < OLDEST_RELEASE:
                    yield f"--kubernetes: 1.{minor} is older than 1.{OLDEST_RELEASE}, the oldest that is written for"
        if not self.api_version:
            return
        if self.api_version not in BY_NAME:
            yield f"--api-version: must be one of {', '.join(BY_NAME)}, got {self.api_version!r}"
        elif minor is not None and not BY_NAME[self.api_version].serves(minor):
            releases = BY_NAME[self.api_version].releases
            yield (
                f"--api-version: {self.api_version} is read by kube-scheduler {releases}, not by 1.{minor}; "
                f"leave it out, or use {newest(minor).name}"
            )

    def _url_problems(self) -> Iterator[str]:
        try:
            parts = urlsplit(self.url)
            is_usable = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
        except ValueError:
            is_usable = False
        if not is_usable:
            yield f"--url: {self.url!r} is no URL of HTTP; write it as http://HOST:8888/scheduler"
            return
        if "?" in self.url or "#" in self.url:
            yield "--url: what follows ? or # would take the verbs along; leave it out, a path can tell services apart"
        if parts.username is not None:
            yield (
                "--url: name and password would stand in the events of pods and in kube-scheduler's log; "
                "have it present a certificate instead: --cert-file and --key-file"
            )
        if (last := parts.path.rstrip("/").rpartition("/")[2]) in VERBS:
            yield f"--url: ends in {last}, and kube-scheduler appends the verb; leave it out"

    def _verb_problems(self) -> Iterator[str]:
        for verb in dict.fromkeys(self.verbs):
            if verb in VERBS:
                if self.verbs.count(verb) > 1:
                    more = "; only one extender may bind" if verb == "bind" else ""
                    yield f"--verb: {verb} is named {self.verbs.count(verb)} times; name it once{more}"
                continue
            bare = verb.strip("/")
            remedy = f"write {bare}" if bare in VERBS else f"the verbs are {', '.join(VERBS)}"
            what = "the slash is kube-scheduler's own" if "/" in verb else "is not served"
            yield f"--verb: {verb!r}: {what}; {remedy}"
        if not self.verbs:
            yield f"--verb: name at least one of {', '.join(VERBS)}"
        if "prioritize" not in self.verbs:
            if self.weight is not None:
                yield "--weight: is that of scores, which are not asked for; leave it out, or add --verb prioritize"
        elif not 1 <= self.score_weight <= _LARGEST_WEIGHT:
            yield (
                f"--weight: must be from 1 to {_LARGEST_WEIGHT} with prioritize, got {self.weight}; "
                "to go without scores name the other verbs by --verb"
            )

    def _resource_problems(self) -> Iterator[str]:
        names = [resource.name for resource in self.resources]
        for text, resource in zip(self.managed_resources, self.resources, strict=True):
            if "=" in text and not resource.ignored:
                yield f"--managed-resource: {text!r} must have the form NAME or NAME={_IGNORED}"
            if not (is_qualified_name(resource.name) and is_extended_resource(resource.name)):
                yield (
                    f"--managed-resource: {resource.name!r} is no extended resource; "
                    "only names such as example.com/gpu can be managed"
                )
            if resource.ignored and "filter" not in self.verbs:
                yield f"--managed-resource: nobody would look whether {resource.name} is enough; add --verb filter"
        for name in dict.fromkeys(names):
            if names.count(name) > 1:
                yield f"--managed-resource: {name} is named {names.count(name)} times; name it once"

    def _tls_problems(self) -> Iterator[str]:
        tls = self.tls
        options = {"--ca-file": tls.ca_file, "--cert-file": tls.cert_file, "--key-file": tls.key_file}
        given = [option for option, file in options.items() if file]
        given += ["--server-name"] if tls.server_name else []
        given += ["--insecure"] if tls.insecure else []
        if not self.url.startswith("https:"):
            if given:
                yield f"{', '.join(given)}: the URL is not of HTTPS, so TLS would not be used; write --url https://..."
            return
        if tls.insecure and tls.ca_file:
            yield "--insecure: kube-scheduler does not start with --ca-file beside it; leave one of them out"
        if not tls.insecure and not tls.ca_file:
            yield (
                "--url: over HTTPS nothing is verified without a certificate authority; name one by --ca-file "
                "(/etc/ssl/certs/ca-certificates.crt for public ones), or say --insecure"
            )
        if bool(tls.cert_file) != bool(tls.key_file):
            yield "--cert-file, --key-file: a client certificate needs both"
        if tls.server_name and tls.insecure:
            yield "--server-name: is not looked at with --insecure; leave one of them out"

    def _other_problems(self) -> Iterator[str]:
        files = {"--kubeconfig": self.kubeconfig, "--config-file": self.config_file}
        files |= {"--ca-file": self.tls.ca_file, "--cert-file": self.tls.cert_file, "--key-file": self.tls.key_file}
        for option, file in files.items():
            if file and not PurePosixPath(file).is_absolute():
                yield f"{option}: {file!r} must be absolute, as it is on the machine of kube-scheduler"
            elif file.endswith("/"):
                yield f"{option}: {file!r} is a directory; name the file in it"
        try:
            nanoseconds = parse_duration(self.http_timeout)
        except ValueError as error:
            yield f"--http-timeout: {error}"
        else:
            if nanoseconds <= 0:
                means = "the default of 5s" if nanoseconds == 0 else "no limit at all"
                yield f"--http-timeout: {self.http_timeout} would mean {means}; write what is meant, such as 5s"
        for name in dict.fromkeys(self.scheduler_names):
            if self.scheduler_names.count(name) > 1 or not name:
                yield f"--scheduler-name: {name!r} must be a name, given once"
