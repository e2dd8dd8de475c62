"""Runs the two ports: the verbs on the main thread's event loop, management on a thread of its own.

The loop of the verbs may be busy for tens of milliseconds with one huge body; probes are answered meanwhile. On SIGTERM
the service becomes unready, goes on serving while endpoints are being taken out, finishes what runs, and exits; on
SIGINT it does not wait, and a second signal ends it at once.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import socket
import threading
from collections.abc import AsyncIterator, Callable, Iterator

import uvicorn
from starlette.types import ASGIApp

from extender.app import create_app, create_management_app
from extender.config import ManagementSection, ServerSection
from extender.errors import ConfigurationError
from extender.runtime import Runtime

_log = logging.getLogger(__name__)

_BACKLOG = 2048
_START_SECONDS = 30.0
_START_POLL_SECONDS = 0.005


class _Server(uvicorn.Server):
    """uvicorn without its own handling of signals."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave signals to the service."""
        yield


def _server(app: ASGIApp, **settings: object) -> _Server:
    return _Server(
        uvicorn.Config(
            app,
            http="httptools",
            loop="uvloop",
            ws="none",
            lifespan="off",
            interface="asgi3",
            access_log=False,
            server_header=False,
            log_config=None,
            **settings,  # type: ignore[arg-type]  # uvicorn's own keyword types
        )
    )


class Serving:
    """The two running ports; ``url`` and ``management_url`` lead to them."""

    def __init__(self, runtime: Runtime) -> None:
        section = runtime.configuration.server
        self._runtime = runtime
        self._server = _server(
            create_app(runtime),
            timeout_keep_alive=int(section.keep_alive_seconds),
            timeout_graceful_shutdown=max(1, round(section.grace_seconds)),
            backlog=_BACKLOG,
        )
        self._management = _server(create_management_app(runtime))
        self._thread: threading.Thread | None = None
        self._task: asyncio.Task[None] | None = None
        self.url = ""
        """Where the verbs are served."""
        self.management_url = ""
        """Where probes and metrics are served."""

    async def start(self) -> None:
        """Open both ports.

        Raises:
            ConfigurationError: one of them cannot be listened on.
        """
        configuration = self._runtime.configuration
        with contextlib.ExitStack() as opened:
            verbs = opened.enter_context(_listen("server", configuration.server))
            management = opened.enter_context(_listen("management", configuration.management))
            opened.pop_all()
        self.url, self.management_url = _url(verbs), _url(management)
        self._thread = threading.Thread(
            target=self._management.run, args=([management],), name="management", daemon=True
        )
        self._thread.start()
        self._task = asyncio.create_task(self._server.serve([verbs]), name="verbs")
        async with asyncio.timeout(_START_SECONDS):
            while not (self._server.started and self._management.started):  # noqa: ASYNC110 - set on another thread
                await asyncio.sleep(_START_POLL_SECONDS)

    async def drain(self, wait_seconds: float) -> None:
        """Become unready, serve on for ``wait_seconds``, then finish what runs and close both ports."""
        self._runtime.stopping = True
        await asyncio.sleep(wait_seconds)
        self._server.should_exit = True
        if self._task is not None:
            await self._task
        self._management.should_exit = True
        if self._thread is not None:
            await asyncio.to_thread(self._thread.join)


@contextlib.asynccontextmanager
async def serving(runtime: Runtime) -> AsyncIterator[Serving]:
    """Serve while the caller waits; leaving closes both ports and finishes binds."""
    async with runtime.running():
        ports = Serving(runtime)
        await ports.start()
        try:
            yield ports
        finally:
            await ports.drain(0)


async def serve(runtime: Runtime, announce: Callable[[Serving], None]) -> None:
    """Serve until a signal says stop."""
    stopped: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    with _signals(stopped):
        async with runtime.running():
            ports = Serving(runtime)
            await ports.start()
            announce(ports)
            number = await stopped
            _log.info("stopping", extra={"signal": signal.Signals(number).name})
            await ports.drain(runtime.configuration.server.drain_seconds if number == signal.SIGTERM else 0)
    _log.info("stopped")


@contextlib.contextmanager
def _signals(stopped: asyncio.Future[int]) -> Iterator[None]:
    loop = asyncio.get_running_loop()

    def on_signal(number: int) -> None:
        if stopped.done():
            os._exit(128 + number)
        stopped.set_result(number)

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, on_signal, number)
    try:
        yield
    finally:
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.remove_signal_handler(number)


def _listen(name: str, section: ServerSection | ManagementSection) -> socket.socket:
    family = socket.AF_INET6 if ":" in section.host else socket.AF_INET
    try:
        return socket.create_server((section.host, section.port), family=family, backlog=_BACKLOG)
    except OSError as error:
        raise ConfigurationError(
            f"{name}: cannot listen on {section.host} port {section.port}: {error.strerror}"
        ) from error


def _url(listening: socket.socket) -> str:
    """Return a URL that leads to ``listening`` from this machine."""
    host, port = listening.getsockname()[:2]
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
