"""Whether an extender keeps idle connections: Go reuses them for 90 s and loses the request on one that is closing."""

from __future__ import annotations

import contextlib
import re
import socket
import ssl
import time
from collections.abc import Iterator, Mapping

from extender.doctor.target import Target
from extender.registration.finding import Finding, warning

GO_IDLE_SECONDS = 90
_REMEDY = "keep idle connections open for more than 90 s, 120 say"


def check_keep_alive(target: Target, headers: Mapping[str, str]) -> Iterator[Finding]:
    """Yield what the headers of a reply say of connections."""
    path = f"{target.entry.path}.urlPrefix"
    if "close" in headers.get("Connection", "").lower():
        yield warning(path, "the extender closes the connection after each call: every call makes a new one", _REMEDY)
    announced = re.search(r"timeout=(\d+)", headers.get("Keep-Alive", ""))
    if announced and int(announced[1]) <= GO_IDLE_SECONDS:
        yield _too_short(path, f"{announced[1]} s, as its Keep-Alive header says")


def watch_idle(target: Target, context: ssl.SSLContext | None, wait_seconds: float) -> Iterator[Finding]:
    """Yield a finding if a connection that has had a reply is closed within ``wait_seconds`` of idleness."""
    with contextlib.suppress(OSError, ValueError):
        closed_after = _closed_after(target, context, wait_seconds)
        if closed_after is not None:
            yield _too_short(f"{target.entry.path}.urlPrefix", f"{closed_after:.1f} s")


def _too_short(path: str, after: str) -> Finding:
    return warning(
        path,
        f"the extender closes idle connections after {after}; kube-scheduler reuses them for 90 s, does not repeat a "
        "request that was lost so, and the pod's attempt fails",
        _REMEDY,
    )


def _closed_after(target: Target, context: ssl.SSLContext | None, wait_seconds: float) -> float | None:
    """Return the seconds after which the server closed an idle connection, None if it did not, or answered nothing."""
    with contextlib.ExitStack() as stack:
        address = (target.host, target.port)
        connection: socket.socket = stack.enter_context(socket.create_connection(address, target.timeout_seconds))
        if context is not None:
            connection = stack.enter_context(context.wrap_socket(connection, server_hostname=target.server_name))
        host = target.named.netloc.rpartition("@")[2]
        path = target.named.path.rstrip("/") or "/"
        # A GET does nothing anywhere; whether it is answered 200 or 404 does not matter here.
        connection.sendall(f"GET {path} HTTP/1.1\r\nHost: {host}\r\nUser-Agent: Go-http-client/1.1\r\n\r\n".encode())
        if not _read_reply(connection):
            return None
        started = time.monotonic()
        connection.settimeout(wait_seconds)
        try:
            is_closed = not connection.recv(1)
        except TimeoutError:
            return None
        except OSError:
            is_closed = True
        return time.monotonic() - started if is_closed else None


def _read_reply(connection: socket.socket) -> bool:
    """Read one reply to its end; return whether the connection is meant to stay, and the end could be told."""
    head, _, body = _read_until(connection, b"\r\n\r\n")
    text = head.decode("latin-1").lower()
    length = re.search(r"\r\ncontent-length: *(\d+)", text)
    if not text.startswith("http/1.1") or "\r\nconnection: close" in text or length is None:
        return False
    missing = int(length[1]) - len(body)
    while missing > 0:
        chunk = connection.recv(65536)
        if not chunk:
            return False
        missing -= len(chunk)
    return True


def _read_until(connection: socket.socket, mark: bytes) -> tuple[bytes, bytes, bytes]:
    data = b""
    while mark not in data and len(data) < 65536:
        chunk = connection.recv(65536)
        if not chunk:
            break
        data += chunk
    return data.partition(mark)
