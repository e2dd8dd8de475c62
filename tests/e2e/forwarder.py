"""What a Service does: it leads new connections to a replica that is ready, and leaves open ones where they are."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator, Sequence
from types import TracebackType
from typing import Self
from urllib.parse import urlsplit

from tests.e2e.peer import Service

_PROBE_SECONDS = 0.3
_CHUNK_BYTES = 65536


class Forwarder:
    """Forwards connections to ``url``; use as a context manager. Without a ready replica they are closed at once."""

    def __init__(self, services: Sequence[Service]) -> None:
        self._services = services
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listening.getsockname()[1]}"
        self._ready: Service | None = None
        self._over = threading.Event()

    def __enter__(self) -> Self:
        for work in (self._probe, self._accept):
            threading.Thread(target=work, daemon=True).start()
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self._over.set()
        self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()

    def _probe(self) -> None:
        while not self._over.wait(_PROBE_SECONDS):
            self._ready = next((service for service in self._services if service.is_ready), None)

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                caller, _ = self._listening.accept()
                threading.Thread(target=self._serve, args=(caller,), daemon=True).start()

    def _serve(self, caller: socket.socket) -> None:
        with caller, contextlib.suppress(OSError):
            for called in self._connect():
                with called:
                    back = threading.Thread(target=_pipe, args=(called, caller), daemon=True)
                    back.start()
                    _pipe(caller, called)
                    back.join()

    def _connect(self) -> Iterator[socket.socket]:
        if self._ready is not None:
            target = urlsplit(self._ready.verbs_url)
            yield socket.create_connection((target.hostname, target.port))


def _pipe(source: socket.socket, sink: socket.socket) -> None:
    """Hand on what comes until its end, and the end too."""
    with contextlib.suppress(OSError):
        while chunk := source.recv(_CHUNK_BYTES):
            sink.sendall(chunk)
    with contextlib.suppress(OSError):
        sink.shutdown(socket.SHUT_WR)
