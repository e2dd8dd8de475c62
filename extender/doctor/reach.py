"""Whether an extender can be reached at all: its name, its port, and its certificates."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from extender.doctor.target import Target
from extender.doctor.tls import UnusableTls, context_for
from extender.registration.entry import Entry
from extender.registration.finding import Finding, error, warning

_LISTEN_SECONDS = 0.3
"""How long to wait for a server to refuse the client's certificate, which TLS 1.3 does after the handshake."""
_SOON = timedelta(days=14)
_SOON_SHARE = 5
"""A certificate expires soon within this share of its life, or two weeks if that is less."""

_EXPIRED, _NOT_YET = 10, 9
_OTHER_NAME = (62, 64)
"""OpenSSL's numbers of failures; the last are for names and for addresses."""


@dataclass(frozen=True)
class Reach:
    """What was found on the way, and the TLS context for calls; ``is_open`` says that calls make sense."""

    findings: list[Finding]
    context: ssl.SSLContext | None = None
    is_open: bool = True


def check_reach(target: Target) -> Reach:
    """Connect to an extender and return what is wrong on the way."""
    closed = Reach([_unreachable(target, problem) for problem in _connection_problems(target)], is_open=False)
    if closed.findings or not target.is_https:
        return closed if closed.findings else Reach([])
    entry = target.entry
    if entry.tls.insecure and entry.tls.has_authority:
        return Reach([], is_open=False)  # kube-scheduler does not start; the rules say so
    try:
        context = context_for(entry.tls, verifies=entry.verifies)
    except UnusableTls as unusable:
        report = warning if unusable.missing else error
        problem = f"{unusable}: kube-scheduler does not start" + (" if it is so for it" if unusable.missing else "")
        finding = report(
            f"{entry.path}.tlsConfig.{unusable.key}", problem, "name a file in PEM that kube-scheduler can read"
        )
        return Reach([finding], is_open=False)
    findings = list(_shake_hands(target, context))
    return Reach(findings, context, not any(finding.severity == "error" for finding in findings))


def _unreachable(target: Target, problem: tuple[str, str]) -> Finding:
    what, remedy = problem
    return error(f"{target.entry.path}.urlPrefix", f"{target.origin}: {what}: {consequence(target.entry)}", remedy)


def consequence(entry: Entry) -> str:
    """Return what follows when an extender cannot be called."""
    if entry.ignorable:
        return "kube-scheduler goes on without this extender, against its rules"
    if {"filter", "bind"} & entry.verbs.keys():
        about = "that names one of its resources " if entry.managed_resources else ""
        return f"no pod {about}is scheduled"
    return "its scores are missing, which only a verbose log shows"


def _connection_problems(target: Target) -> Iterator[tuple[str, str]]:
    """Yield what is wrong and the remedy, if no connection can be had."""
    try:
        socket.getaddrinfo(target.host, target.port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as problem:
        why = problem.strerror if isinstance(problem, OSError) else str(problem)
        yield f"the name {target.host} does not resolve ({why})", "correct the name, or use an address"
        return
    try:
        _connect(target).close()
    except ConnectionRefusedError:
        yield "the connection is refused", "see that the extender runs and listens on that port and address"
    except TimeoutError:
        yield (
            f"no connection within {target.timeout_seconds:g} s",
            "see that the machine is up, and what firewalls and network policies let through",
        )
    except OSError as problem:
        yield f"no connection: {problem.strerror or problem}", "check the address and the route to it"


def _connect(target: Target) -> socket.socket:
    return socket.create_connection((target.host, target.port), target.timeout_seconds)


# --- TLS -------------------------------------------------------------------------------------------------------------


def _shake_hands(target: Target, context: ssl.SSLContext) -> Iterator[Finding]:
    path = f"{target.entry.path}.tlsConfig"
    try:
        with _connect(target) as raw, context.wrap_socket(raw, server_hostname=target.server_name) as secure:
            if certificate := secure.getpeercert():
                yield from _check_expiry(certificate, f"{path}.caFile")
            secure.settimeout(_LISTEN_SECONDS)
            yield from _listen(target, secure)
    except ssl.SSLCertVerificationError as problem:
        yield _distrust(target, context, problem)
    except TimeoutError:
        yield _failed(target, "the TLS handshake hangs", "see that the port speaks TLS")
    except ssl.SSLError as problem:
        yield _broken(target, problem)
    except (OSError, ValueError) as problem:  # ValueError for a name that no host can have
        yield _failed(target, f"the TLS handshake breaks off: {problem}", "see that the port speaks TLS")


def _listen(target: Target, secure: ssl.SSLSocket) -> Iterator[Finding]:
    """Yield the refusal of a client certificate, which arrives although nothing was sent."""
    try:
        if not secure.recv(1):
            yield _failed(target, "the server closes the connection at once", "see its log")
    except TimeoutError:
        return
    except ssl.SSLError as problem:
        yield _broken(target, problem)


def _broken(target: Target, problem: ssl.SSLError) -> Finding:
    reason = problem.reason or str(problem)
    if reason in ("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE", "HTTP_REQUEST", "UNKNOWN_PROTOCOL"):
        return _failed(target, "the port does not speak TLS", f"write http://{target.named.netloc}{target.named.path}")
    if "ALERT" not in reason:
        return _failed(target, f"TLS fails: {reason}", "see the log of the extender")
    tls = target.entry.tls
    if tls.has_certificate and tls.has_key:
        return error(
            f"{target.entry.path}.tlsConfig.certFile",
            f"the extender refuses the client certificate ({reason}): {consequence(target.entry)}",
            "have it issued by an authority that the extender trusts, and see that it has not expired",
        )
    return error(
        f"{target.entry.path}.tlsConfig.certFile",
        f"the extender asks for a client certificate, and none is presented ({reason}): {consequence(target.entry)}",
        "set tlsConfig.certFile and keyFile",
    )


def _distrust(target: Target, context: ssl.SSLContext, problem: ssl.SSLCertVerificationError) -> Finding:
    tls, path = target.entry.tls, target.entry.path
    if problem.verify_code in _OTHER_NAME:
        names = ", ".join(_names(target, context)) or "no name at all, only a common name, which does not count"
        return error(
            f"{path}.tlsConfig.serverName",
            f"the certificate is valid for {names}, not for {target.server_name}: {consequence(target.entry)}",
            "set serverName to one of them, or issue a certificate for the host in urlPrefix",
        )
    if problem.verify_code in (_EXPIRED, _NOT_YET):
        state = "has expired" if problem.verify_code == _EXPIRED else "is not valid yet"
        return _failed(target, f"the certificate, or one above it, {state}", "renew it, and check the clocks")
    where = "tlsConfig.caFile" if tls.has_authority else "enableHTTPS"
    remedy = "name the authority that issued it: openssl s_client -showcerts shows the chain"
    if not tls.has_authority:
        remedy = "set tlsConfig.caFile: without it the roots of kube-scheduler's system count"
    return error(
        f"{path}.{where}",
        f"the certificate is signed by an unknown authority ({problem.verify_message}): {consequence(target.entry)}",
        remedy,
    )


def _names(target: Target, context: ssl.SSLContext) -> list[str]:
    """Return the alternative names of a certificate whose chain is in order."""
    context.check_hostname = False
    try:
        with _connect(target) as raw, context.wrap_socket(raw, server_hostname=target.server_name) as secure:
            certificate: dict[str, Any] = secure.getpeercert() or {}
    except (OSError, ValueError):
        return []
    return [str(name) for _, name in certificate.get("subjectAltName", ())]


def _check_expiry(certificate: dict[str, Any], path: str) -> Iterator[Finding]:
    starts, ends = (
        datetime.fromtimestamp(ssl.cert_time_to_seconds(certificate[key]), UTC) for key in ("notBefore", "notAfter")
    )
    left = ends - datetime.now(UTC)
    if left < min(_SOON, (ends - starts) / _SOON_SHARE):
        yield warning(path, f"the certificate of the extender expires {ends:%Y-%m-%d %H:%M} UTC", "renew it")


def _failed(target: Target, what: str, remedy: str) -> Finding:
    return error(f"{target.entry.path}.urlPrefix", f"{target.origin}: {what}: {consequence(target.entry)}", remedy)
