"""The embedded API server: sockets, access and faults around the storage."""

from __future__ import annotations

import asyncio
import hmac
import logging
import re
import time
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Self

from aiohttp import StreamReader, web
from aiohttp.abc import AbstractStreamWriter
from aiohttp.http import RawRequestMessage

from extender.cluster.apiserver.answer import Answer, answer_error
from extender.cluster.apiserver.call import Call, is_watch, parse_target
from extender.cluster.apiserver.discovery import PUBLIC_PATHS, answer_discovery
from extender.cluster.apiserver.fault import Fault, FaultList, Interruption, pass_delay
from extender.cluster.apiserver.option import ServerOptions
from extender.cluster.apiserver.resource import Catalogue
from extender.cluster.apiserver.review import answer_review
from extender.cluster.apiserver.status import StatusError, forbidden
from extender.cluster.apiserver.storage import Storage
from extender.cluster.apiserver.stream import Stream, reset_connection
from extender.cluster.apiserver.verb import answer_call
from extender.cluster.apiserver.watch import Watch

_LOG = logging.getLogger(__name__)
_BODY_LIMIT_BYTES = 3 * 1024 * 1024
"""As the real server limits request bodies."""
_PIECES_A_WRITE = 2000
_REQUESTS_LOGGED = 10_000
_CLOSE_TIMEOUT_SECONDS = 1.0


@dataclass(frozen=True)
class LoggedRequest:
    """A request that arrived; ``at_seconds`` is on the monotonic clock."""

    method: str
    target: str
    """Path and query as they were sent."""
    at_seconds: float


class ApiServer:
    """A Kubernetes API server for one process; all methods belong to the event loop that started it.

    ``storage`` holds the objects and may be used directly, ``faults`` says what goes wrong, ``requests`` are the last
    ten thousand requests, ``options`` may be changed at any time.
    """

    def __init__(self, objects: Iterable[Mapping[str, Any]] = (), options: ServerOptions | None = None) -> None:
        """Load objects; raise ``ConfigurationError`` naming those that cannot be kept."""
        self.options = options or ServerOptions()
        self.storage = Storage(objects, Catalogue(self.options.resources), self.options.history_events)
        self.faults = FaultList()
        self.requests: deque[LoggedRequest] = deque(maxlen=_REQUESTS_LOGGED)
        self._streams: set[Stream] = set()
        self._late: set[asyncio.Task[Any]] = set()
        self._runner: web.ServerRunner | None = None
        self._address = ("127.0.0.1", 0)

    @property
    def url(self) -> str:
        """Where the server listens, without a trailing slash."""
        scheme = "https" if self.options.ssl_context else "http"
        return f"{scheme}://{self._address[0]}:{self._address[1]}"

    @property
    def open_watches(self) -> int:
        """How many watches are being served."""
        return len(self._streams)

    async def start(self, host: str = "127.0.0.1", port: int = 0) -> None:
        """Listen; port 0 is the one used before, or any free one. Raise ``OSError`` if the port is taken."""
        server = web.Server(self._serve, request_factory=_make_request, handler_cancellation=True, access_log=None)
        runner = web.ServerRunner(server, shutdown_timeout=_CLOSE_TIMEOUT_SECONDS)
        await runner.setup()
        site = web.TCPSite(
            runner,
            host,
            port or self._address[1],
            ssl_context=self.options.ssl_context,
            backlog=1024,
        )
        try:
            await site.start()
        except OSError:
            await runner.cleanup()
            raise
        self._runner = runner
        self._address = runner.addresses[0][:2]

    async def stop(self) -> None:
        """Stop at once, as a process that dies: connections break, nothing is finished, the storage stays."""
        if self._runner is None:
            return
        runner, self._runner = self._runner, None
        for task in self._late:
            task.cancel()
        for site in runner.sites:
            await site.stop()
        if runner.server is not None:
            for connection in runner.server.connections:
                if connection.transport is not None:
                    connection.transport.abort()
        await runner.cleanup()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    def interrupt_watches(self, interruption: Interruption, path: str = "") -> int:
        """Interrupt the watches whose path the regular expression ``path`` is found in; return how many there are."""
        chosen = [stream for stream in self._streams if re.search(path, stream.path)]
        for stream in chosen:
            stream.interrupt(interruption)
        return len(chosen)

    # --- one request -------------------------------------------------------------------------------------------------

    async def _serve(self, request: web.BaseRequest) -> web.StreamResponse:
        self.requests.append(LoggedRequest(request.method, request.path_qs, time.monotonic()))
        try:
            body = await request.read()
        except web.HTTPRequestEntityTooLarge:
            message = f"Request entity too large: limit is {_BODY_LIMIT_BYTES}"
            return await _send(request, answer_error(StatusError(413, message)))
        fault = self.faults.strike(request.method, request.path, is_watch(request.query))
        if fault is None:
            return await self._respond(request, self._answer(request, body), None)
        # A client that gives up does not stop what it asked for: the late answer is lost, the late change is not.
        task = asyncio.create_task(self._answer_faultily(request, body, fault))
        self._late.add(task)
        task.add_done_callback(self._late.discard)
        answer = await asyncio.shield(task)
        if answer is None:
            reset_connection(request)
            return web.Response()
        return await self._respond(request, answer, fault)

    async def _answer_faultily(self, request: web.BaseRequest, body: bytes, fault: Fault) -> Answer | Watch | None:
        """Answer as a fault has it; None is for a connection that is to be reset."""
        await pass_delay(fault.delay_before)
        if fault.cut == "before":
            return None
        answer = fault.answer() or self._answer(request, body)
        await pass_delay(fault.delay_after)
        return None if fault.cut == "after" else answer

    def _answer(self, request: web.BaseRequest, body: bytes) -> Answer | Watch:
        """Do what is asked for at once, with nothing in between."""
        try:
            return self._answer_allowed(request, body)
        except StatusError as error:
            return answer_error(error)
        except Exception:
            _LOG.exception("embedded API server failed", extra={"path": request.path_qs})
            return answer_error(StatusError(500, "Internal error occurred: see the log of the embedded API server"))

    def _answer_allowed(self, request: web.BaseRequest, body: bytes) -> Answer | Watch:
        catalogue = self.storage.catalogue
        if request.path not in PUBLIC_PATHS:
            self._check_token(request.headers.get("Authorization", ""))
        if request.method == "GET" and (discovered := answer_discovery(catalogue, request.path)):
            return discovered
        if request.method == "POST" and (reviewed := answer_review(self.options, request.path, body)):
            return reviewed
        target = parse_target(catalogue, request.path)
        call = Call(request.method, target, request.query, request.content_type, body)
        self._check_access(call)
        if call.verb == "watch":
            return Watch(self.storage, target.resource, target.namespace, request.query, self.options)
        return answer_call(self.storage, call)

    def _check_token(self, authorization: str) -> None:
        token = self.options.token
        if token is None:
            return
        sent = authorization.encode(errors="surrogateescape")  # headers may hold bytes that are no text
        if not hmac.compare_digest(sent, f"Bearer {token}".encode()):
            raise StatusError(401, "Unauthorized")

    def _check_access(self, call: Call) -> None:
        target = call.target
        if (call.verb, target.qualified) not in self.options.forbidden:
            return
        resource = f"{target.resource.plural}/{target.subresource}" if target.subresource else target.resource.plural
        scope = f'in the namespace "{target.namespace}"' if target.namespace else "at the cluster scope"
        why = (
            f'User "{self.options.user}" cannot {call.verb} resource "{resource}" '
            f'in API group "{target.resource.group}" {scope}'
        )
        raise forbidden(target.resource, target.name, why)

    async def _respond(
        self, request: web.BaseRequest, answer: Answer | Watch, fault: Fault | None
    ) -> web.StreamResponse:
        if isinstance(answer, Answer):
            return await _send(request, answer)
        stream = Stream(request, answer, fault)
        self._streams.add(stream)
        try:
            return await stream.run()
        finally:
            self._streams.discard(stream)


async def _send(request: web.BaseRequest, answer: Answer) -> web.StreamResponse:
    """Send a whole answer; one of many pieces goes out bit by bit, so that a long list is never copied as one."""
    pieces = answer.pieces
    if len(pieces) <= _PIECES_A_WRITE:
        return web.Response(
            status=answer.status, body=b"".join(pieces), headers=answer.headers, content_type=answer.content_type
        )
    response = web.StreamResponse(status=answer.status, headers=answer.headers)
    response.content_type = answer.content_type
    response.content_length = sum(map(len, pieces))
    await response.prepare(request)
    for first in range(0, len(pieces), _PIECES_A_WRITE):
        await response.write(b"".join(pieces[first : first + _PIECES_A_WRITE]))
    return response


def _make_request(
    message: RawRequestMessage,
    payload: StreamReader,
    protocol: web.RequestHandler,
    writer: AbstractStreamWriter,
    task: asyncio.Task[None],
) -> web.BaseRequest:
    loop = asyncio.get_running_loop()
    return web.BaseRequest(message, payload, protocol, writer, task, loop, client_max_size=_BODY_LIMIT_BYTES)
