"""How to reach the API server: a plain URL, a kubeconfig, or the service account of the pod."""

from __future__ import annotations

import ipaddress
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from extender.cluster.certificate import TlsContext
from extender.cluster.credential import Credential, FixedHeader, TokenFile
from extender.cluster.exec_plugin import ExecPlugin
from extender.cluster.kubeconfig import Access, read_access
from extender.errors import ConfigurationError

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
"""Where the kubelet mounts the token and the authority of a pod's service account."""

DEFAULT_KUBECONFIG = Path("~/.kube/config")


@dataclass(frozen=True)
class Connection:
    """An API server and the means to be let in; ``origin`` says in messages where this was found."""

    url: str
    origin: str
    credential: Credential
    tls: TlsContext | None = None
    server_name: str | None = None
    proxy: str | None = None
    impersonation: Sequence[tuple[str, str]] = ()
    """Headers, by which requests are made in the name of another user."""


def connect(
    *,
    url: str | None = None,
    kubeconfig: str | None = None,
    context: str | None = None,
    environ: Mapping[str, str] = os.environ,
) -> Connection:
    """Return the connection that was asked for, or else the one that is there.

    Without arguments: ``$KUBECONFIG``, then the service account of the pod, then ``~/.kube/config``. Proxy variables of
    the environment are not used; a kubeconfig names its proxy in ``proxy-url``.

    Raises ConfigurationError naming what is missing.
    """
    if url:
        return from_url(url)
    named = kubeconfig or environ.get("KUBECONFIG")
    default = DEFAULT_KUBECONFIG.expanduser()
    if named or context:
        return from_kubeconfig(named or str(default), context)
    if environ.get("KUBERNETES_SERVICE_HOST"):
        return in_cluster(environ=environ)
    if default.exists():
        return from_kubeconfig(str(default))
    raise ConfigurationError(
        f"no API server: $KUBECONFIG is not set, this is no pod, and there is no {default}; "
        "name a kubeconfig or a URL, or start with an embedded cluster"
    )


def from_url(url: str) -> Connection:
    """Return an anonymous connection to ``url``; over HTTPS the roots of the system are trusted.

    Raises ConfigurationError when it is not a URL.
    """
    tls = TlsContext(url) if _scheme(url, "API server") == "https" else None
    return Connection(url.rstrip("/"), url, FixedHeader(), tls)


def in_cluster(*, directory: Path = SERVICE_ACCOUNT, environ: Mapping[str, str] = os.environ) -> Connection:
    """Return the connection of the pod's service account. Raises ConfigurationError when it is not mounted."""
    host, port = environ.get("KUBERNETES_SERVICE_HOST"), environ.get("KUBERNETES_SERVICE_PORT")
    if not host or not port:
        raise ConfigurationError("KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT are not set: this is no pod")
    token, authority = directory / "token", directory / "ca.crt"
    if missing := [str(path) for path in (token, authority) if not path.is_file()]:
        raise ConfigurationError(f"{', '.join(missing)}: not there; set automountServiceAccountToken on the pod")
    origin = f"service account in {directory}"
    tls = TlsContext(origin, authority=authority)
    tls.current()
    return Connection(f"https://{_bracketed(host)}:{port}", origin, TokenFile(token), tls)


def from_kubeconfig(paths: str, context: str | None = None) -> Connection:
    """Return the connection of a context of one or several kubeconfigs, joined as in ``$KUBECONFIG``.

    Raises ConfigurationError naming the file, the entry and the remedy.
    """
    access = read_access(paths, context)
    cluster, origin = access.cluster, access.origin
    if cluster.proxy_url:
        _scheme(cluster.proxy_url, f"{origin}: proxy-url", may_authenticate=True)
    plugin = _plugin(access)
    tls = None
    if _scheme(cluster.server, f"{origin}: server") == "https":
        tls = TlsContext(
            origin,
            authority=access.authority(),
            certificate=access.client_certificate(),
            key=access.client_key(),
            verify=not cluster.insecure_skip_tls_verify,
            issued=lambda: plugin.pair if plugin is not None else None,
        )
        tls.current()
    return Connection(
        cluster.server.rstrip("/"),
        origin,
        _credential(access, plugin),
        tls,
        cluster.tls_server_name or None,
        cluster.proxy_url or None,
        access.impersonation(),
    )


def _plugin(access: Access) -> ExecPlugin | None:
    """Return the exec plug-in of a user who has one."""
    user = access.user
    if user.exec is None:
        return None
    cluster = access.cluster_info() if user.exec.provide_cluster_info else None
    return ExecPlugin(user.exec, origin=access.origin, directory=access.user_directory, cluster=cluster)


def _credential(access: Access, plugin: ExecPlugin | None) -> Credential:
    """Return what the user authenticates with besides a certificate; ``tokenFile`` counts before ``token``."""
    user = access.user
    if user.token_file:
        return TokenFile(access.user_directory / user.token_file, fallback=user.token)
    if user.token:
        return FixedHeader.bearer(user.token, access.origin)
    if user.username:
        return FixedHeader.basic(user.username, user.password or "")
    if plugin is not None:
        return plugin
    if user.auth_provider is not None:
        raise ConfigurationError(
            f"{access.origin}: auth-provider {user.auth_provider.get('name', '')} is not supported; "
            "use an exec plug-in, such as kubelogin for OIDC"
        )
    return FixedHeader()


def _scheme(url: str, place: str, *, may_authenticate: bool = False) -> str:
    """Return the scheme of ``url``; a user in it is for proxies only, and a password is not repeated in messages.

    Raises ConfigurationError naming ``place`` when it is no URL of HTTP.
    """
    shown = re.sub(r"^([a-z0-9+.-]+://)?.*@", r"\1***@", url, flags=re.IGNORECASE | re.DOTALL)
    try:
        parts = urlsplit(url)
        is_usable = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        is_usable = False
    if not is_usable:
        raise ConfigurationError(f"{place}: {shown!r} is no URL of HTTP; write it as https://HOST:PORT")
    if "@" in parts.netloc and not may_authenticate:
        raise ConfigurationError(f"{place}: {shown!r} holds a user; name the user in the context of a kubeconfig")
    return parts.scheme


def _bracketed(host: str) -> str:
    """Return an IPv6 address in the brackets that a URL needs, and any other host as it is."""
    try:
        return f"[{host}]" if ipaddress.ip_address(host).version == 6 else host
    except ValueError:
        return host
