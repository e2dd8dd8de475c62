"""What a kubeconfig says about one context: the cluster, the user, and the directories their paths are relative to.

``kubernetes.config`` reads and merges the files; choosing and checking is done here, because its loader falls back to
anonymous requests where it cannot authenticate.
"""

from __future__ import annotations

import base64
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote

import msgspec

from extender.cluster.certificate import Pem
from extender.cluster.exec_plugin import ExecCommand
from extender.errors import ConfigurationError

T = TypeVar("T")

EXEC_EXTENSION = "client.authentication.k8s.io/exec"
"""Name of the cluster extension that is passed to exec plug-ins as their configuration."""


_IN_HEADER_NAMES = "!#$&'*+^`|"
"""What header names may hold besides letters, digits and ``-._~``."""


class NamedExtension(msgspec.Struct):
    """An extension of a cluster entry."""

    name: str | None = None
    extension: Any = None


class Cluster(msgspec.Struct, rename="kebab"):
    """A ``cluster`` entry: where the API server is and how it is recognised."""

    server: str = ""
    certificate_authority: str | None = None
    certificate_authority_data: str | None = None
    insecure_skip_tls_verify: bool | None = None
    tls_server_name: str | None = None
    proxy_url: str | None = None
    extensions: list[NamedExtension] | None = None


class User(msgspec.Struct, rename="kebab"):
    """A ``user`` entry: how to authenticate."""

    token: str | None = None
    token_file: str | None = msgspec.field(name="tokenFile", default=None)
    client_certificate: str | None = None
    client_certificate_data: str | None = None
    client_key: str | None = None
    client_key_data: str | None = None
    username: str | None = None
    password: str | None = None
    exec: ExecCommand | None = None
    auth_provider: dict[str, Any] | None = None
    as_user: str | None = msgspec.field(name="as", default=None)
    as_uid: str | None = None
    as_groups: list[str] | None = None
    as_user_extra: dict[str, list[str]] | None = None


class _Context(msgspec.Struct):
    cluster: str = ""
    user: str | None = None


@dataclass(frozen=True)
class Access:
    """One context of a kubeconfig; ``origin`` names it in messages.

    The methods raise ConfigurationError when inline data is not base64.
    """

    origin: str
    cluster: Cluster
    cluster_directory: Path
    user: User
    user_directory: Path

    def authority(self) -> Pem | None:
        """Return the certificate authority of the cluster, None for that of the system."""
        cluster, directory = self.cluster, self.cluster_directory
        return self._pem(
            "certificate-authority", cluster.certificate_authority_data, directory, cluster.certificate_authority
        )

    def client_certificate(self) -> Pem | None:
        """Return the user's certificate, None if there is none."""
        user, directory = self.user, self.user_directory
        return self._pem("client-certificate", user.client_certificate_data, directory, user.client_certificate)

    def client_key(self) -> Pem | None:
        """Return the key of the user's certificate, None if there is none."""
        user, directory = self.user, self.user_directory
        return self._pem("client-key", user.client_key_data, directory, user.client_key)

    def impersonation(self) -> list[tuple[str, str]]:
        """Return the headers that ask to be taken for somebody else, in client-go's spelling.

        Raises ConfigurationError when there is a group, uid or extra of nobody.
        """
        user = self.user
        if not user.as_user:
            if user.as_uid or user.as_groups or user.as_user_extra:
                raise ConfigurationError(f"{self.origin}: as-uid, as-groups and as-user-extra need as; name the user")
            return []
        headers = [("Impersonate-User", user.as_user)]
        headers += [("Impersonate-Uid", user.as_uid)] if user.as_uid else []
        headers += [("Impersonate-Group", group) for group in user.as_groups or ()]
        for key, values in (user.as_user_extra or {}).items():
            headers += [(f"Impersonate-Extra-{quote(key, safe=_IN_HEADER_NAMES)}", value) for value in values]
        return headers

    def cluster_info(self) -> dict[str, Any]:
        """Return what an exec plug-in is told of the cluster when it asks for it."""
        cluster, authority = self.cluster, self.authority()
        data = authority.read_bytes() if isinstance(authority, Path) else authority
        told = {
            "server": cluster.server,
            "tls-server-name": cluster.tls_server_name,
            "insecure-skip-tls-verify": cluster.insecure_skip_tls_verify,
            "certificate-authority-data": base64.b64encode(data).decode() if data else None,
            "proxy-url": cluster.proxy_url,
            "config": next((item.extension for item in cluster.extensions or () if item.name == EXEC_EXTENSION), None),
        }
        return {name: value for name, value in told.items() if value}

    def _pem(self, field: str, data: str | None, directory: Path, path: str | None) -> Pem | None:
        """Return inline ``data`` decoded, which counts first, else the file at ``path``."""
        if data:
            try:
                return base64.b64decode(data, validate=True)
            except ValueError as error:
                raise ConfigurationError(f"{self.origin}: {field}-data is not base64: {error}") from error
        return directory / path if path else None


def read_access(paths: str, context: str | None = None) -> Access:
    """Return what the kubeconfig at ``paths`` says of ``context``, or of its current context.

    ``paths`` may be several files, joined as in ``$KUBECONFIG``; of equal names the first one counts, as in kubectl.

    Raises ConfigurationError naming the file and the entry.
    """
    merged, current = _merge(paths)
    name = context or current
    if not name:
        raise ConfigurationError(
            f"{paths}: no current-context; name a context, or set one with kubectl config use-context"
        )
    chosen, _ = _entry(merged, paths, "contexts", name, _Context)
    cluster, cluster_directory = _entry(merged, paths, "clusters", chosen.cluster, Cluster)
    user, user_directory = User(), cluster_directory
    if chosen.user:
        user, user_directory = _entry(merged, paths, "users", chosen.user, User)
    if not cluster.server:
        raise ConfigurationError(f"{paths}: cluster {chosen.cluster} has no server")
    return Access(f"{paths} context {name}", cluster, cluster_directory, user, user_directory)


def _merge(paths: str) -> tuple[Any, str | None]:
    """Return the merged files, whose entries remember their file, and the name of the current context."""
    # The package takes more than half a second to import and is of no use inside a cluster.
    import yaml  # noqa: PLC0415
    from kubernetes.config.config_exception import ConfigException  # noqa: PLC0415
    from kubernetes.config.kube_config import KubeConfigMerger  # noqa: PLC0415

    try:
        merger = KubeConfigMerger(paths)  # type: ignore[no-untyped-call]
        if merger.config is None:
            raise ConfigurationError(f"{paths}: no such file; check the path, $KUBECONFIG, and what is mounted")
        # Of several files the first that sets it decides (clientcmd); the merger takes the last.
        current = next((c["current-context"] for c in merger.config_files.values() if c.get("current-context")), None)
    except (ConfigException, yaml.YAMLError, OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise ConfigurationError(f"{paths}: not a kubeconfig: {type(error).__name__}: {error}") from error
    return merger.config.value, current


def _entry(merged: dict[str, Any], paths: str, section: str, name: str, type_: type[T]) -> tuple[T, Path]:
    """Return the entry ``name`` of a section as ``type_``, and the directory of the file it stands in."""
    node = next((item for item in merged[section] if item.value["name"] == name), None)
    if node is None:
        known = ", ".join(item.value["name"] for item in merged[section]) or "none"
        raise ConfigurationError(f"{paths}: no {section[:-1]} named {name!r}; there is {known}")
    try:
        entry = msgspec.convert(node.value.get(section[:-1]) or {}, type_)
    except msgspec.ValidationError as error:
        raise ConfigurationError(f"{node.path}: {section[:-1]} {name}: {error}") from error
    return entry, Path(node.path).absolute().parent
