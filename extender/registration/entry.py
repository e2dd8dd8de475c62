"""One extender of a scheduler's configuration, as kube-scheduler takes it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import SplitResult, urlsplit

from extender.registration.dialect import Dialect

VERBS = ("filter", "prioritize", "preempt", "bind")
DEFAULT_TIMEOUT_SECONDS = 5.0
"""What kube-scheduler takes for an ``httpTimeout`` of nothing."""


@dataclass(frozen=True)
class TlsSettings:
    """``tlsConfig``; the data count before the files."""

    insecure: bool = False
    server_name: str = ""
    ca_file: str = ""
    cert_file: str = ""
    key_file: str = ""
    ca_data: bytes = b""
    cert_data: bytes = b""
    key_data: bytes = b""

    @property
    def has_authority(self) -> bool:
        """Whether a certificate authority is named."""
        return bool(self.ca_file or self.ca_data)

    @property
    def has_certificate(self) -> bool:
        """Whether a certificate to present is named."""
        return bool(self.cert_file or self.cert_data)

    @property
    def has_key(self) -> bool:
        """Whether the key of that certificate is named."""
        return bool(self.key_file or self.key_data)

    @property
    def files(self) -> dict[str, str]:
        """The files that are read, by key."""
        named = {"caFile": (self.ca_file, self.ca_data), "certFile": (self.cert_file, self.cert_data)}
        named["keyFile"] = (self.key_file, self.key_data)
        return {key: file for key, (file, data) in named.items() if file and not data}


@dataclass(frozen=True)
class ManagedResource:
    """A resource that only an extender's pods name; ``ignored`` leaves it to the extender alone."""

    name: str
    ignored: bool = False


@dataclass(frozen=True)
class Entry:
    """One extender; ``path`` is its place in the file, ``verbs`` what is appended to the URL, by verb."""

    path: str
    url_prefix: str = ""
    verbs: Mapping[str, str] = field(default_factory=dict)
    weight: int = 0
    enable_https: bool = False
    tls: TlsSettings = field(default_factory=TlsSettings)
    timeout_nanoseconds: int | None = None
    node_cache_capable: bool = False
    managed_resources: tuple[ManagedResource, ...] = ()
    ignorable: bool = False

    @property
    def address(self) -> SplitResult | None:
        """The URL taken apart; None if there is no telling host and port of an HTTP server from it."""
        try:
            parts = urlsplit(self.url_prefix)
            usable = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
        except ValueError:
            return None
        return parts if usable else None

    @property
    def timeout_seconds(self) -> float | None:
        """How long kube-scheduler waits for a call; None for ever."""
        nanoseconds = self.timeout_nanoseconds or 0
        return None if nanoseconds < 0 else nanoseconds / 1e9 or DEFAULT_TIMEOUT_SECONDS

    @property
    def verifies(self) -> bool:
        """Whether the server's certificate is looked at. Source: makeTransport of pkg/scheduler/extender.go, 1.36."""
        return not self.tls.insecure and (self.tls.has_authority or not self.enable_https)

    def is_interested(self, pod: Mapping[str, Any]) -> bool:
        """Tell whether the extender is asked about a pod."""
        names = [resource.name for resource in self.managed_resources]
        return not names or any(names_resource(pod, name) for name in names)

    def url(self, verb: str) -> str:
        """Return what a verb is POSTed to."""
        return f"{self.url_prefix.rstrip('/')}/{self.verbs[verb]}"


def names_resource(pod: Mapping[str, Any], name: str) -> bool:
    """Tell whether a container or init container requests or limits a resource, if only to 0.

    Nothing else in a pod counts. Source: IsInterested of pkg/scheduler/extender.go, 1.36.
    """
    spec = pod.get("spec") or {}
    containers = [*(spec.get("containers") or ()), *(spec.get("initContainers") or ())]
    return any(in_resources(container.get("resources"), name) for container in containers)


def in_resources(resources: Mapping[str, Any] | None, name: str) -> bool:
    """Tell whether ``name`` stands in requests or limits."""
    return any(name in ((resources or {}).get(kind) or {}) for kind in ("requests", "limits"))


@dataclass(frozen=True)
class SchedulerConfiguration:
    """A document: its version, its content as it stands there, and the extenders that could be read."""

    dialect: Dialect
    tree: Mapping[str, Any]
    entries: tuple[Entry, ...] = ()

    @property
    def profiles(self) -> list[Mapping[str, Any]]:
        """The profiles; kube-scheduler has one when none is given."""
        profiles = self.tree.get("profiles")
        return [profile for profile in profiles if isinstance(profile, dict)] if isinstance(profiles, list) else []

    @property
    def scheduler_names(self) -> tuple[str, ...]:
        """The names by which pods choose this scheduler."""
        names = [profile.get("schedulerName") or "default-scheduler" for profile in self.profiles]
        return tuple(dict.fromkeys(str(name) for name in names)) or ("default-scheduler",)
