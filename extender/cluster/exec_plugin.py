"""Credentials from an external command, the ``exec`` section of a kubeconfig.

Source of the protocol: ``client.authentication.k8s.io`` v1 and v1beta1, client-go ``plugin/pkg/client/auth/exec`` 1.36.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec

from extender.cluster.certificate import Pair
from extender.cluster.credential import bearer
from extender.errors import ConfigurationError

_log = logging.getLogger(__name__)

API_VERSIONS = ("client.authentication.k8s.io/v1", "client.authentication.k8s.io/v1beta1")

RETRY_SECONDS = 5.0
"""How long a credential that could not be renewed early is used before the next try; also the shortest life of one."""


class EnvironmentVariable(msgspec.Struct):
    """A variable the command is given besides those of this process."""

    name: str
    value: str


class ExecCommand(msgspec.Struct, rename="camel"):
    """The ``exec`` section of a user in a kubeconfig."""

    command: str
    api_version: str
    args: list[str] | None = None
    env: list[EnvironmentVariable] | None = None
    install_hint: str | None = None
    provide_cluster_info: bool | None = None
    interactive_mode: str | None = None


class _CredentialStatus(msgspec.Struct, rename="camel"):
    token: str | None = None
    client_certificate_data: str | None = None
    client_key_data: str | None = None
    expiration_timestamp: datetime | None = None


class _ExecCredential(msgspec.Struct, rename="camel"):
    api_version: str
    kind: str
    status: _CredentialStatus | None = None


class ExecPlugin:
    """A credential that a command prints: a token, a client certificate, or both.

    The command runs before the first request, again before what it printed expires, and again after a refusal. Its
    failure is an error, never an anonymous request.
    """

    is_renewable = True

    def __init__(
        self,
        spec: ExecCommand,
        *,
        origin: str,
        directory: Path,
        cluster: Mapping[str, Any] | None = None,
        timeout_seconds: float = 30.0,
        now: Callable[[], float] = time.time,
    ) -> None:
        """``directory`` is what a relative command is relative to; ``cluster`` is told to commands that ask for it.

        Raises ConfigurationError when the section asks for what a service cannot give.
        """
        self._name = f"{origin}: exec plug-in {spec.command}"
        if spec.api_version not in API_VERSIONS:
            raise ConfigurationError(
                f"{self._name}: apiVersion {spec.api_version} is none of {', '.join(API_VERSIONS)}"
            )
        if spec.interactive_mode == "Always":
            raise ConfigurationError(f"{self._name}: interactiveMode Always needs a terminal; use IfAvailable or Never")
        self._spec = spec
        self._timeout_seconds = timeout_seconds
        self._now = now
        self._command = spec.command
        if os.sep in spec.command:
            self._command = str(directory / spec.command)
        self._environment = os.environ | {item.name: item.value for item in spec.env or ()}
        self._environment["KUBERNETES_EXEC_INFO"] = _exec_info(spec, cluster)
        self._lock = asyncio.Lock()
        self._header: str | None = None
        self._renew_at = self._expires_at = float("-inf")
        self.pair: Pair | None = None

    async def header(self) -> str | None:
        """Return the header of the token, or None if the command issues certificates only.

        Raises ConfigurationError with the command's own complaint when it fails.
        """
        if self._now() >= self._renew_at:
            async with self._lock:
                if self._now() >= self._renew_at:
                    await self._renew_early()
        return self._header

    async def renew(self, rejected: str | None) -> None:
        """Run the command again unless that has happened since ``rejected`` was issued. Raises ConfigurationError."""
        async with self._lock:
            if self._header == rejected:
                await self._renew()

    async def _renew_early(self) -> None:
        try:
            await self._renew()
        except ConfigurationError as error:
            if self._now() >= self._expires_at:
                raise
            _log.warning("credential not renewed yet", extra={"problem": str(error)})
            self._renew_at = self._now() + RETRY_SECONDS

    async def _renew(self) -> None:
        status = self._parse(await self._run())
        certificate, key = status.client_certificate_data, status.client_key_data
        if (certificate is None) != (key is None) or not (status.token or certificate):
            raise ConfigurationError(f"{self._name}: printed neither a token nor a certificate with its key")
        self._header = bearer(status.token, self._name) if status.token else None
        self.pair = Pair(certificate.encode(), key.encode()) if certificate and key else None
        self._renew_at = self._expires_at = float("inf")
        if status.expiration_timestamp is not None:
            self._set_expiry(status.expiration_timestamp)

    def _set_expiry(self, expiry: datetime) -> None:
        """Plan the next run a fifth of the life before its end, at most a minute; short lives do not cause a storm."""
        now = self._now()
        aware = expiry if expiry.tzinfo else expiry.replace(tzinfo=UTC)
        life_seconds = aware.timestamp() - now
        if life_seconds <= 0:
            _log.warning("credential expired on arrival", extra={"plugin": self._name, "expiry": aware.isoformat()})
        self._renew_at = now + max(life_seconds - min(60.0, life_seconds / 5), RETRY_SECONDS)
        self._expires_at = now + max(life_seconds, RETRY_SECONDS)

    async def _run(self) -> bytes:
        """Return what the command prints; what it writes to stderr matters only if it fails."""
        try:
            process = await asyncio.create_subprocess_exec(
                self._command,
                *(self._spec.args or ()),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                env=self._environment,
            )
        except OSError as error:
            hint = f"; {self._spec.install_hint.strip()}" if self._spec.install_hint else "; install it"
            raise ConfigurationError(f"{self._name}: cannot be started: {error}{hint}") from error
        try:
            async with asyncio.timeout(self._timeout_seconds):
                output, complaint = await process.communicate()
        except TimeoutError as error:
            raise ConfigurationError(f"{self._name}: printed nothing within {self._timeout_seconds:g} s") from error
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        if process.returncode != 0:
            text = " ".join(complaint[-500:].decode("utf-8", "replace").split()) or "no message"
            raise ConfigurationError(f"{self._name}: exit code {process.returncode}: {text}")
        return output

    def _parse(self, output: bytes) -> _CredentialStatus:
        try:
            reply = msgspec.json.decode(output, type=_ExecCredential)
        except msgspec.DecodeError as error:
            raise ConfigurationError(f"{self._name}: did not print an ExecCredential: {error}") from error
        if reply.api_version != self._spec.api_version or reply.kind != "ExecCredential":
            raise ConfigurationError(
                f"{self._name}: printed {reply.api_version} {reply.kind}, "
                f"expected {self._spec.api_version} ExecCredential"
            )
        return reply.status or _CredentialStatus()


def _exec_info(spec: ExecCommand, cluster: Mapping[str, Any] | None) -> str:
    """Return what the command finds in ``KUBERNETES_EXEC_INFO``."""
    told: dict[str, Any] = {"interactive": False}
    if spec.provide_cluster_info and cluster is not None:
        told["cluster"] = cluster
    info = {"apiVersion": spec.api_version, "kind": "ExecCredential", "spec": told}
    return msgspec.json.encode(info).decode()
