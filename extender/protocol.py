"""HTTP on one connection, with the limits that uvicorn does not set, and with the names of the caller.

Limits: how many connections there are, how long the head of a request is, and how long a request takes to arrive. A
connection that has sent nothing yet counts as idle, however new it is: Go opens some in reserve, and loses the request
it sends on one that is being closed. Offers of another protocol are ignored, as they may be, and the request is served.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from time import monotonic
from typing import Any, Final

import httptools
from starlette.types import Scope
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

_log = logging.getLogger(__name__)

_NAME_KINDS: Final = ("DNS", "URI")
_LOG_EVERY_SECONDS: Final = 1.0
_LONGEST_NAME: Final = 64
_TLS_HANDSHAKE: Final = b"\x16"
"""The first byte of what TLS begins with."""
_PREFACE: Final = "Pause on PRI/Upgrade"
"""What the parser says of the preface of HTTP/2."""
_OFFERS: Final = frozenset((b"connection", b"upgrade", b"http2-settings"))
"""Headers that offer another protocol."""


@dataclass
class Limits:
    """What a port puts up with; ``closed`` is told the reason of each connection that is closed for them."""

    connections: int
    header_bytes: int
    header_seconds: float
    body_seconds: float
    closed: Callable[[str], None]
    _logged_at: dict[str, float] = field(default_factory=dict)

    def note(self, reason: str, client: tuple[str, int] | None, problem: str = "") -> None:
        """Count a connection that is closed, and log it unless that was done for the same reason just now."""
        self.closed(reason)
        now = monotonic()
        if now - self._logged_at.get(reason, -_LOG_EVERY_SECONDS) >= _LOG_EVERY_SECONDS:
            self._logged_at[reason] = now
            fields = {"reason": reason, "client": client and ":".join(map(str, client))}
            _log.warning("connection closed", extra=fields | ({"problem": problem} if problem else {}))


class _HeadTooLong(Exception):
    """Stops the parser."""


class LimitedProtocol(HttpToolsProtocol):
    """One connection; to be given ``limits`` besides what uvicorn gives."""

    def __init__(self, *, limits: Limits, **given: Any) -> None:
        super().__init__(**given)
        self._limits = limits
        self._names: frozenset[str] | None = None
        self._deadline: asyncio.TimerHandle | None = None
        self._held_bytes = 0
        """Bytes taken in of which nothing has come yet: the head, trailers, extensions of chunks."""
        self._is_between = True
        """Whether what comes next belongs to the head of a request."""
        self._has_begun = False
        self._is_too_long = False

    # --- the connection ----------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn has it
        """Take a connection, or refuse one too many."""
        super().connection_made(transport)
        certificate = transport.get_extra_info("peercert")
        self._names = certificate_names(certificate) if certificate else None
        if len(self.connections) > self._limits.connections:
            self.connections.discard(self)  # does not count while it is being closed
            text = f"{self._limits.connections} connections are open, as many as server.maxConnections allows"
            self._refuse(503, "too_many_connections", text)
            return
        self._wait_for_request()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the connection."""
        self._disarm()
        self._unset_keepalive_if_required()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Take in what has come, as long as the connection is not being closed."""
        if self.transport.is_closing():
            return
        self._unset_keepalive_if_required()
        self._held_bytes += len(data)
        self._parse(data)
        if self.transport.is_closing():
            return
        if self._held_bytes > self._limits.header_bytes:
            self._refuse_head()
        elif self._is_between and (self._has_begun or self._held_bytes):
            self._arm(self._limits.header_seconds, "header_timeout")

    def _parse(self, data: bytes) -> None:
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade as offer:
            self._ignore_offer(data[offer.args[0] :])
        except httptools.HttpParserError as error:
            if self._is_too_long:
                self._refuse_head()
            else:
                self._refuse(400, "malformed_request", self._explain(data, error))

    def _ignore_offer(self, rest: bytes) -> None:
        """Have the request that offers another protocol parsed anew without its offer: the parser left its body out."""
        method, version = self.parser.get_method(), self.parser.get_http_version().encode()
        if method == b"CONNECT":
            self._refuse(400, "malformed_request", "CONNECT was sent, but this is no proxy: look at HTTP_PROXY")
            return
        head = [b"%b %b HTTP/%b" % (method, self.url, version)]
        head += [b"%b: %b" % header for header in self.headers if header[0] not in _OFFERS]
        self.parser = httptools.HttpRequestParser(self)
        self.parser.set_dangerous_leniencies(lenient_data_after_close=True)  # as uvicorn has it
        self._parse(b"\r\n".join((*head, b"", rest)))

    def _explain(self, data: bytes, error: Exception) -> str:
        """Return what is wrong with a request that the parser does not take."""
        if self._is_between and data.startswith(_TLS_HANDSHAKE):
            return "TLS was sent to a port without it: call it by http://, or give it certificates (server.tls)"
        if str(error) == _PREFACE:
            return "HTTP/2 was sent, which is not served: use HTTP/1.1"
        return f"this is no request of HTTP/1.1: {error.__context__ or error}"

    # --- the request -------------------------------------------------------------------------------------------------

    def on_message_begin(self) -> None:
        """Begin a request, which is sent from one caller."""
        super().on_message_begin()
        self._has_begun = True
        if self._names is not None:
            self.scope["extensions"] = {"tls": {"client_names": self._names}}

    def on_headers_complete(self) -> None:
        """Have the request answered."""
        length = len(self.url) + sum(len(name) + len(value) + 4 for name, value in self.headers)
        if length > self._limits.header_bytes:
            self._is_too_long = True
            raise _HeadTooLong
        if self.parser.should_upgrade():
            return
        self._held_bytes = 0
        self._is_between = self._has_begun = False
        self._disarm()
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        """Pass on a piece of the body."""
        self._held_bytes = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        """End the request; one that was answered before it was all there leaves the connection idle only now."""
        if self.parser.should_upgrade():
            return
        self._held_bytes = 0
        self._is_between = True
        self._disarm()
        super().on_message_complete()
        if self.cycle.response_complete and not self.transport.is_closing():
            self._wait_for_request()

    def on_response_complete(self) -> None:
        """End the answer; the rest of a request that was answered early must come in time too."""
        super().on_response_complete()
        if self.cycle.response_complete and not self._is_between and not self.transport.is_closing():
            self._arm(self._limits.body_seconds, "body_timeout")

    # --- closing -----------------------------------------------------------------------------------------------------

    def _refuse_head(self) -> None:
        limit = self._limits.header_bytes
        text = f"the head of the request is over {limit} bytes{self._longest_part()}: raise server.maxHeaderBytes"
        self._refuse(431, "header_too_long", text)

    def _longest_part(self) -> str:
        """Return which part of a head that is too long makes most of it, as far as that is known."""
        if not self._has_begun:
            return ""
        parts = [(len(self.url), "the path")]
        for name, value in self.headers:
            parts.append((len(name) + len(value), f"the header {name[:_LONGEST_NAME].decode('latin-1')}"))
        length, part = max(parts)
        return f", {part} alone {length}" if 2 * length > self._limits.header_bytes else ""

    def _refuse(self, status: int, reason: str, text: str) -> None:
        """Answer in the protocol's place and close."""
        self._limits.note(reason, self.client, text)
        body = json.dumps({"Error": text}).encode()
        head = (
            STATUS_LINE[status],
            b"content-type: application/json\r\ncontent-length: %d\r\nconnection: close\r\n\r\n" % len(body),
        )
        self.transport.write(b"".join((*head, body)))
        self._disarm()
        self._unset_keepalive_if_required()
        self.transport.close()

    def _wait_for_request(self) -> None:
        self._unset_keepalive_if_required()
        self.timeout_keep_alive_task = self.loop.call_later(self.timeout_keep_alive, self.timeout_keep_alive_handler)

    def _arm(self, seconds: float, reason: str) -> None:
        if self._deadline is None:
            self._deadline = self.loop.call_later(seconds, self._give_up, reason)

    def _disarm(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _give_up(self, reason: str) -> None:
        self._limits.note(reason, self.client)
        self.transport.close()


def certificate_names(certificate: Mapping[str, Any]) -> frozenset[str]:
    """Return what a certificate, as ``getpeercert`` gives it, calls its holder: common names, DNS names and URIs."""
    subject = certificate.get("subject", ())
    common = [value for relative in subject for key, value in relative if key == "commonName"]
    alternative = [value for kind, value in certificate.get("subjectAltName", ()) if kind in _NAME_KINDS]
    return frozenset((*common, *alternative))


def client_names(scope: Scope) -> frozenset[str]:
    """Return the names in the certificate that the caller of a request has shown, none if it has shown none."""
    names: frozenset[str] = scope.get("extensions", {}).get("tls", {}).get("client_names", frozenset())
    return names
