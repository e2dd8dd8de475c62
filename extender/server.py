"""Runs the two ports: the verbs on the main thread's event loop, management on a thread of its own.

The loop of the verbs may be busy for tens of milliseconds with one huge body; probes are answered meanwhile. On SIGTERM
the service becomes unready, goes on serving while endpoints are being taken out, finishes what runs, and exits; on
SIGINT it does not wait, and a second signal ends it at once. On SIGHUP the configuration is loaded anew.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import functools
import logging
import os
import resource
import signal
import socket
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import uvicorn
from starlette.types import ASGIApp

from extender.app import create_app, create_management_app
from extender.config import ManagementSection, ServerSection
from extender.errors import ConfigurationError, NotLeaderError
from extender.protocol import LimitedProtocol, Limits
from extender.reload import ConfigurationSource
from extender.runtime import Runtime
from extender.tls import ServerTls

_log = logging.getLogger(__name__)

_BACKLOG = 2048
_START_SECONDS = 30.0
_START_POLL_SECONDS = 0.005
_GOODBYE_SECONDS = 5.0
"""How long the other end of a TLS connection that is being closed may take to agree."""
_OTHER_FILES = 256
"""Files and connections that are not callers': to the API server, certificates, modules."""
_REMEDIES = {
    errno.EADDRINUSE: ("port", "stop what listens there, or give another"),
    errno.EACCES: ("port", "give one above 1023, or the process the right to take it"),
}
"""Which key is at fault, and what to do, where a port cannot be listened on."""


class _Server(uvicorn.Server):
    """One port: uvicorn without its own handling of signals, and with limits on TLS handshakes."""

    def __init__(self, app: ASGIApp, limits: Limits, tls: ServerTls | None, **settings: Any) -> None:
        super().__init__(
            uvicorn.Config(
                app,
                http=functools.partial(LimitedProtocol, limits=limits),  # type: ignore[arg-type]  # makes the protocol
                loop="uvloop",
                ws="none",
                lifespan="off",
                interface="asgi3",
                access_log=False,
                proxy_headers=False,
                server_header=False,
                log_config=None,
                **settings,
            )
        )
        self._limits = limits
        self._tls = tls

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave signals to the service."""
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Accept connections; uvicorn's own way leaves 60 s to each handshake, and 30 s to the end of a connection."""
        await self.lifespan.startup()
        self.servers = [
            await asyncio.get_running_loop().create_server(
                self._make_protocol,
                sock=listening,
                ssl=self._tls.context if self._tls else None,
                backlog=_BACKLOG,
                ssl_handshake_timeout=self._limits.header_seconds if self._tls else None,
                ssl_shutdown_timeout=_GOODBYE_SECONDS if self._tls else None,
            )
            for listening in sockets or ()
        ]
        self.started = True

    def _make_protocol(self) -> asyncio.Protocol:
        make: Callable[..., asyncio.Protocol] = self.config.http_protocol_class
        return make(config=self.config, server_state=self.server_state, app_state=self.lifespan.state)


class Serving:
    """The two running ports; ``url`` and ``management_url`` lead to them."""

    def __init__(self, runtime: Runtime) -> None:
        """Prepare the ports.

        Raises:
            ConfigurationError: certificates cannot be used; all findings at once.
        """
        section = runtime.configuration.server
        self._runtime = runtime
        self._tls = _certificates(runtime)
        self._server = _Server(
            create_app(runtime),
            _limits(runtime, "server"),
            self._tls.get("server"),
            timeout_keep_alive=int(section.keep_alive_seconds),
            timeout_graceful_shutdown=max(1, round(section.grace_seconds)),
        )
        self._management = _Server(
            create_management_app(runtime), _limits(runtime, "management"), self._tls.get("management")
        )
        self._sockets: list[socket.socket] = []
        self._followers: list[asyncio.Task[None]] = []
        self._thread: threading.Thread | None = None
        self._task: asyncio.Task[None] | None = None
        self.url = ""
        """Where the verbs are served."""
        self.management_url = ""
        """Where probes and metrics are served."""

    @contextlib.contextmanager
    def listening(self) -> Iterator[None]:
        """Take both ports while the caller starts and serves; who calls before the start is answered after it.

        Raises:
            ConfigurationError: they cannot be listened on; all findings at once.
        """
        configuration = self._runtime.configuration
        problems: list[str] = []
        with contextlib.ExitStack() as opened:
            for name, section in (("server", configuration.server), ("management", configuration.management)):
                try:
                    self._sockets.append(opened.enter_context(_listen(name, section)))
                except ConfigurationError as error:
                    problems += error.problems
            if problems:
                raise ConfigurationError(problems)
            yield

    async def start(self) -> None:
        """Serve both ports, which are being listened on."""
        configuration = self._runtime.configuration
        verbs, management = self._sockets
        self.url, self.management_url = (
            _url(verbs, self._tls.get("server")),
            _url(management, self._tls.get("management")),
        )
        _raise_file_limit(2 * configuration.server.max_connections)
        self._followers = [asyncio.create_task(tls.follow(), name="certificates") for tls in self._tls.values()]
        for port, server in (("server", self._server), ("management", self._management)):
            self._runtime.metrics.connections(port, functools.partial(len, server.server_state.connections))
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
        for follower in self._followers:
            follower.cancel()


@contextlib.asynccontextmanager
async def serving(runtime: Runtime) -> AsyncIterator[Serving]:
    """Serve while the caller waits; leaving closes both ports and finishes binds."""
    ports = Serving(runtime)
    with ports.listening():
        async with runtime.running():
            await ports.start()
            try:
                yield ports
            finally:
                await ports.drain(0)


async def serve(runtime: Runtime, source: ConfigurationSource, announce: Callable[[Serving], None]) -> None:
    """Serve until a signal says stop; what ``source`` changes to is taken over.

    Raises:
        NotLeaderError: the lease was lost; the process has to end and start anew.
    """
    stopped: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    ports = Serving(runtime)
    with ports.listening(), _signals(stopped, runtime.reloader.request):
        async with runtime.running():
            await ports.start()
            announce(ports)
            async with _following(runtime, source):
                number = await _first(stopped, runtime.lost)
            _log.info("stopping", extra={"signal": signal.Signals(number).name if number else "none: lease lost"})
            await ports.drain(runtime.configuration.server.drain_seconds if number == signal.SIGTERM else 0)
    _log.info("stopped")
    if not number:
        raise NotLeaderError("the lease is lost: another replica may lead; start anew")


@contextlib.asynccontextmanager
async def _following(runtime: Runtime, source: ConfigurationSource) -> AsyncIterator[None]:
    follower = asyncio.create_task(runtime.reloader.follow(source), name="configuration")
    try:
        yield
    finally:
        follower.cancel()
        await asyncio.wait([follower])


async def _first(stopped: asyncio.Future[int], lost: asyncio.Event) -> int:
    """Return the number of the signal that came, or 0 where the lease was lost before."""
    loss = asyncio.create_task(lost.wait(), name="loss of the lease")
    try:
        await asyncio.wait((stopped, loss), return_when=asyncio.FIRST_COMPLETED)
        return stopped.result() if stopped.done() else 0
    finally:
        loss.cancel()


@contextlib.contextmanager
def _signals(stopped: asyncio.Future[int], on_hangup: Callable[[], None]) -> Iterator[None]:
    loop = asyncio.get_running_loop()

    def on_signal(number: int) -> None:
        if stopped.done():
            os._exit(128 + number)
        stopped.set_result(number)

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, on_signal, number)
    loop.add_signal_handler(signal.SIGHUP, on_hangup)
    try:
        yield
    finally:
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            loop.remove_signal_handler(number)


def _listen(name: str, section: ServerSection | ManagementSection) -> socket.socket:
    family = socket.AF_INET6 if ":" in section.host else socket.AF_INET
    try:
        return socket.create_server((section.host, section.port), family=family, backlog=_BACKLOG)
    except OSError as error:
        key, remedy = _REMEDIES.get(error.errno or 0, ("host", "give an address of this machine, such as 0.0.0.0"))
        reason = (error.strerror or str(error)).partition(" (while ")[0]
        raise ConfigurationError(
            f"{name}.{key}: cannot listen on {section.host} port {section.port}: {reason}; {remedy}"
        ) from error


def _url(listening: socket.socket, tls: ServerTls | None) -> str:
    """Return a URL that leads to ``listening`` from this machine."""
    host, port = listening.getsockname()[:2]
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
    return f"{'https' if tls else 'http'}://{f'[{host}]' if ':' in host else host}:{port}"


def _certificates(runtime: Runtime) -> dict[str, ServerTls]:
    """Return the certificates of the ports that have some, by port."""
    configuration = runtime.configuration
    found: dict[str, ServerTls] = {}
    problems: list[str] = []
    for port, section in (("server", configuration.server.tls), ("management", configuration.management.tls)):
        if section.cert_file:
            try:
                found[port] = ServerTls(port, section, runtime.metrics)
            except ConfigurationError as error:
                problems += error.problems
    if problems:
        raise ConfigurationError(problems)
    return found


def _limits(runtime: Runtime, port: str) -> Limits:
    section = runtime.configuration.server
    return Limits(
        connections=section.max_connections,
        header_bytes=section.max_header_bytes,
        header_seconds=section.header_timeout_seconds,
        body_seconds=section.body_timeout_seconds,
        closed=functools.partial(runtime.metrics.closed, port),
    )


def _raise_file_limit(connections: int) -> None:
    """Let the process have as many files open as it may, if it needs them for its connections."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = connections + _OTHER_FILES
    if soft == resource.RLIM_INFINITY or soft >= needed:
        return
    allowed = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
    resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, hard))
    if allowed < needed:
        _log.warning(
            "fewer open files are allowed than server.maxConnections may need; lower it or raise ulimit -n",
            extra={"allowed": allowed, "needed": needed},
        )
