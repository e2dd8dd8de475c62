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
import threading
from collections.abc import AsyncIterator, Callable, Iterator

import uvicorn
from starlette.types import ASGIApp

from extender.app import create_app, create_management_app
from extender.config import ManagementSection, ServerSection
from extender.runtime import Runtime

_log = logging.getLogger(__name__)

_START_SECONDS = 30.0


class _Server(uvicorn.Server):
    """uvicorn without its own handling of signals."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave signals to the service."""
        yield

    @property
    def port(self) -> int:
        """The port that was bound."""
        return int(self.servers[0].sockets[0].getsockname()[1])


def _server(app: ASGIApp, section: ServerSection | ManagementSection, **settings: object) -> _Server:
    return _Server(
        uvicorn.Config(
            app,
            host=section.host,
            port=section.port,
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
            section,
            timeout_keep_alive=int(section.keep_alive_seconds),
            timeout_graceful_shutdown=max(1, round(section.grace_seconds)),
            backlog=2048,
        )
        self._management = _server(create_management_app(runtime), runtime.configuration.management)
        self._thread = threading.Thread(target=self._management.run, name="management", daemon=True)
        self._task: asyncio.Task[None] | None = None

    @property
    def url(self) -> str:
        """Where the verbs are served."""
        return f"http://{_reachable(self._server.config.host)}:{self._server.port}"

    @property
    def management_url(self) -> str:
        """Where probes and metrics are served."""
        return f"http://{_reachable(self._management.config.host)}:{self._management.port}"

    async def start(self) -> None:
        """Open both ports.

        Raises:
            SystemExit: a port could not be bound; the log says why.
        """
        self._thread.start()
        self._task = asyncio.create_task(self._server.serve(), name="verbs")
        await _until(lambda: self._management.started or not self._thread.is_alive())
        await _until(lambda: self._server.started or bool(self._task and self._task.done()))
        if not (self._management.started and self._server.started):
            raise SystemExit(1)

    async def drain(self, wait_seconds: float) -> None:
        """Become unready, serve on for ``wait_seconds``, then finish what runs and close both ports."""
        self._runtime.stopping = True
        await asyncio.sleep(wait_seconds)
        self._server.should_exit = True
        if self._task is not None:
            await self._task
        self._management.should_exit = True
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


async def _until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(_START_SECONDS):
        while not condition():  # noqa: ASYNC110 - the condition is set on another thread
            await asyncio.sleep(0.005)


def _reachable(host: str) -> str:
    """Return an address that reaches a server bound to ``host``."""
    return {"0.0.0.0": "127.0.0.1", "::": "[::1]"}.get(host, f"[{host}]" if ":" in host else host)
