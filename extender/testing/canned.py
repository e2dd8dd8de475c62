"""An HTTP server on loopback that gives the replies it is told and keeps the requests it was sent.

It stands for an extender when its client is what is tested.
"""

from __future__ import annotations

import ssl
import threading
from collections import deque
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Self


@dataclass(frozen=True)
class Reply:
    """What to answer.

    ``pace_seconds`` pass before each byte of the body; ``stall`` never answers, ``hang_up`` closes the connection
    without a word.
    """

    body: bytes = b""
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    pace_seconds: float = 0.0
    stall: bool = False
    hang_up: bool = False


@dataclass(frozen=True)
class Received:
    """One request: its head as it stood on the wire, its target, its body and the client's port."""

    head: str
    target: str
    body: bytes
    client_port: int


class CannedServer(ThreadingHTTPServer):
    """A server that answers with ``replies`` in turn, and with the last one from then on; serves within ``with``."""

    def __init__(self, *replies: Reply, tls: ssl.SSLContext | None = None) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        if tls:
            self.socket = tls.wrap_socket(self.socket, server_side=True)
        self.url = f"{'https' if tls else 'http'}://127.0.0.1:{self.server_port}"
        self.received: list[Received] = []
        self.closing = threading.Event()
        self._replies = deque(replies)
        self._thread = threading.Thread(target=self.serve_forever, args=(0.01,), daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.closing.set()
        self.shutdown()
        self._thread.join()
        self.server_close()

    def next_reply(self) -> Reply:
        """Return what the next request is answered with."""
        return self._replies[0] if len(self._replies) == 1 else self._replies.popleft()


class _Handler(BaseHTTPRequestHandler):
    server: CannedServer
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", "0")))
        head = "\n".join((self.requestline, *(f"{name}: {value}" for name, value in self.headers.items())))
        target = self.requestline.split(" ")[1]  # http.server's own path has leading slashes folded
        self.server.received.append(Received(head, target, body, self.client_address[1]))
        reply = self.server.next_reply()
        if reply.stall:
            self.server.closing.wait()
        if reply.stall or reply.hang_up:
            self.close_connection = True
        else:
            self._answer(reply)

    def _answer(self, reply: Reply) -> None:
        self.send_response_only(reply.status)
        for name, value in reply.headers.items():
            self.send_header(name, value)
        if reply.status != 204 and "Content-Length" not in reply.headers:
            self.send_header("Content-Length", str(len(reply.body)))
        self.end_headers()
        step = 1 if reply.pace_seconds else max(len(reply.body), 1)
        for start in range(0, len(reply.body), step):
            self.server.closing.wait(reply.pace_seconds)
            self.wfile.write(reply.body[start : start + step])

    def handle(self) -> None:
        try:
            super().handle()
        except ConnectionError:
            self.close_connection = True  # the client gave up waiting

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - http.server's name
        """Keep quiet."""
