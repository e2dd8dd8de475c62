"""The HTTP face of the service: the verbs on one port, probes and metrics on another."""

from __future__ import annotations

import asyncio
import itertools
import logging
import os
import re
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from time import monotonic, perf_counter
from typing import Any

from fastapi import FastAPI, Request, Response
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Receive, Scope, Send

from extender import journal, schema, wire
from extender.access import AccessReviewer, Guard
from extender.config import ServerSection
from extender.debug import DebugPages
from extender.errors import (
    DISCIPLINE,
    AlgorithmError,
    BodyTimeout,
    BodyTooLarge,
    Channel,
    ExtenderError,
    SubjectNotAllowed,
    reply_status,
)
from extender.health import Check
from extender.protocol import client_names
from extender.runtime import Runtime
from extender.verbs import filter as filter_verb
from extender.verbs import preempt as preempt_verb
from extender.verbs import prioritize as prioritize_verb

_log = logging.getLogger(__name__)

JSON = "application/json"
VERBS = tuple(DISCIPLINE)
_CLIENT_CLOSED = 499
_PLAIN_ID = re.compile(r"[!-~]{1,128}")
_RUN = os.urandom(3).hex()
_numbers = itertools.count(1)

Answer = Callable[[bytes, float], Awaitable[bytes]]
Endpoint = Callable[[Request], Awaitable[Response]]
Checks = Callable[[], Iterable[Check]]


def create_app(runtime: Runtime) -> ASGIApp:
    """Return the application of the verbs' port."""
    service = runtime.service

    async def answer_filter(body: bytes, deadline_seconds: float) -> bytes:
        return filter_verb.answer(service, body, deadline_seconds)

    async def answer_prioritize(body: bytes, deadline_seconds: float) -> bytes:
        return prioritize_verb.answer(service, body, deadline_seconds)

    async def answer_preempt(body: bytes, deadline_seconds: float) -> bytes:
        return preempt_verb.answer(service, body, deadline_seconds)

    async def answer_bind(body: bytes, deadline_seconds: float) -> bytes:  # noqa: ARG001 - a bind runs to its end
        return await runtime.binder.answer(body)

    app = FastAPI(
        title="kube-scheduler-extender",
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        separate_input_output_schemas=False,
    )
    answers = {
        "filter": answer_filter,
        "prioritize": answer_prioritize,
        "bind": answer_bind,
        "preempt": answer_preempt,
    }
    endpoints = {f"/{verb}": _Endpoint(runtime, verb, answer) for verb, answer in answers.items()}
    for path, endpoint in endpoints.items():
        verb = path.removeprefix("/")
        app.add_api_route(
            path,
            endpoint,
            methods=["POST"],
            summary=schema.VERBS[verb].summary,
            description=f"A failure is told by {DISCIPLINE[verb].channel.value}; then {DISCIPLINE[verb].consequence}.",
            response_class=Response,
            operation_id=verb,
        )
    _document(app)
    app.add_exception_handler(HTTPException, _explain)
    return NormalizedPath(app, runtime.configuration.server.path_prefixes, endpoints)


class _Endpoint:
    """Reads the body of a request, has it answered, and turns every failure into the reply its verb allows."""

    def __init__(self, runtime: Runtime, verb: str, answer: Answer) -> None:
        self._metrics = runtime.metrics
        self._in_flight = runtime.metrics.in_flight(verb)
        self._tracing = runtime.tracing
        self._slow_seconds = runtime.configuration.log.slow_request_seconds or float("inf")
        self._limits = runtime.configuration.server
        self._allowed = frozenset(self._limits.tls.allowed_subjects)
        self._verb = verb
        self._answer = answer

    async def __call__(self, request: Request) -> Response:
        arrived = monotonic()
        entry = journal.open_entry(self._verb, _identity(request))
        complete, result, headers = 0.0, "ok", {"X-Request-Id": entry.identity}
        problem: Exception | None = None
        self._in_flight.inc()
        try:
            self._check_subject(request.scope)
            body = await read_body(request, self._limits)
            entry.body_bytes = len(body)
            entry.enter("decode")
            complete = perf_counter()
            reply, status = await self._answer(body, arrived + self._limits.deadline_seconds), 200
        except ClientDisconnect:
            reply, status, result = b"", _CLIENT_CLOSED, "ClientDisconnect"
        except ExtenderError as error:
            problem, result = error, type(error).__name__
            reply, status = _failure(self._verb, error), reply_status(self._verb, error)
            if isinstance(error, BodyTimeout) or (isinstance(error, BodyTooLarge) and _header(request, b"expect")):
                headers["Connection"] = "close"  # the rest of the body will not come
        except Exception as error:
            problem, result = error, "InternalError"
            wrapped = ExtenderError(f"internal error: {type(error).__name__}; the log of the extender says more")
            reply, status = _failure(self._verb, wrapped), reply_status(self._verb, wrapped)
        finally:
            self._in_flight.dec()
        entry.close()
        self._metrics.verb(self._verb, result, perf_counter() - complete if complete else None, entry.body_bytes)
        self._conclude(entry, result, problem, request)
        return Response(reply, status, headers, JSON)

    def _conclude(self, entry: journal.Entry, result: str, problem: Exception | None, request: Request) -> None:
        """Log what failed or was slow, and trace what is to be traced."""
        if isinstance(problem, ExtenderError):
            # The traceback of a plug-in is what its author needs; all other texts say enough.
            cause = problem.__cause__ if isinstance(problem, AlgorithmError) else None
            fields = {**entry.subject(), "result": result, "error": str(problem)}
            _log.warning("request failed", extra=fields, exc_info=None if isinstance(cause, ExtenderError) else cause)
        elif problem is not None:
            _log.error("request failed unexpectedly", extra=entry.subject(), exc_info=problem)
        if entry.seconds >= self._slow_seconds:
            _log.warning("slow request", extra={**entry.subject(), "result": result, **entry.breakdown()})
        if self._tracing is not None:
            self._tracing.record(entry, result, request.headers)

    def _check_subject(self, scope: Scope) -> None:
        """Refuse callers whose certificate has none of the allowed names."""
        if self._allowed and self._allowed.isdisjoint(names := client_names(scope)):
            raise SubjectNotAllowed(
                f"the client certificate of {', '.join(sorted(names)) or 'nobody'} may not call; "
                "add one of its names to server.tls.allowedSubjects"
            )


def _identity(request: Request) -> str:
    """Return the id of a request: what its caller calls it, or a number that no other run of the service uses."""
    given = _header(request, b"x-request-id").decode("latin-1")
    return given if _PLAIN_ID.fullmatch(given) else f"{_RUN}-{next(_numbers)}"


def _header(request: Request, name: bytes) -> bytes:
    """Return a header, empty where it was not sent; one look costs less than a mapping of all of them."""
    for key, value in request.scope["headers"]:
        if key == name:
            return bytes(value)
    return b""


async def read_body(request: Request, limits: ServerSection) -> bytes:
    """Return the whole body of a request.

    One that is said to be over the cap is refused at once; its connection reads on, so that the sender gets to see the
    answer. One that turns out to be is read to its end, for the same reason, but not kept.

    Raises:
        BodyTooLarge: it is over ``limits.max_body_bytes``.
        BodyTimeout: it took longer than ``limits.body_timeout_seconds``.
    """
    declared = int(_header(request, b"content-length") or 0)
    if declared > limits.max_body_bytes:
        raise _too_large(declared, limits)
    chunks: list[bytes] = []
    size = 0
    try:
        async with asyncio.timeout(limits.body_timeout_seconds):
            async for chunk in request.stream():
                size += len(chunk)
                if size <= limits.max_body_bytes:
                    chunks.append(chunk)
    except TimeoutError:
        raise BodyTimeout(
            f"the body did not arrive within {limits.body_timeout_seconds:g} s, only {size} bytes of it; "
            "mind the network, or raise server.bodyTimeoutSeconds"
        ) from None
    if size > limits.max_body_bytes:
        raise _too_large(size, limits)
    return chunks[0] if len(chunks) == 1 else b"".join(chunks)


def _too_large(size: int, limits: ServerSection) -> BodyTooLarge:
    return BodyTooLarge(
        f"the body has {size} bytes, over the cap of {limits.max_body_bytes}; "
        "use nodeCacheCapable: true, or raise server.maxBodyBytes"
    )


def _failure(verb: str, error: ExtenderError) -> bytes:
    if DISCIPLINE[verb].channel is Channel.ERROR_FIELD:
        return wire.encode_filter_error(str(error)) if verb == "filter" else wire.encode_bind(str(error))
    return wire.encode_bind(str(error))


async def _explain(request: Request, error: Exception) -> Response:
    """Answer a request that no route takes, in words."""
    assert isinstance(error, HTTPException)  # noqa: S101 - registered for this class only
    path, known = _asked_path(request), ", ".join(f"/{verb}" for verb in VERBS)
    text = {
        404: f"nothing is served at {path}; the verbs are {known}: check urlPrefix and the verbs of the extender",
        405: f"{path} takes POST, got {request.method}",
    }.get(error.status_code, str(error.detail))
    return Response(wire.encode_bind(text), error.status_code, error.headers, JSON)


def _asked_path(request: Request) -> str:
    """Return the path as it was asked for, before anything was folded."""
    path: bytes = request.scope["raw_path"]
    return path.decode("latin-1")


def _document(app: FastAPI) -> None:
    """Have the OpenAPI document name the wire types, with examples that keep their nulls: FastAPI would drop them."""
    generate = app.openapi

    def openapi() -> dict[str, Any]:
        document = generate()
        document.setdefault("components", {}).setdefault("schemas", {}).update(schema.components())
        for verb in VERBS:
            document["paths"][f"/{verb}"]["post"].update(schema.operation(verb))
        return document

    app.openapi = openapi  # type: ignore[method-assign]  # FastAPI's documented way of extending the document


class NormalizedPath:
    """Folds repeated and trailing slashes and strips configured prefixes, without a redirect."""

    def __init__(self, app: ASGIApp, prefixes: Sequence[str], direct: Mapping[str, Endpoint]) -> None:
        """``direct`` are endpoints by path whose POSTs skip the router, which would cost as much as a small answer."""
        self._app = app
        self._direct = direct
        self._prefixes = sorted((prefix.strip("/") for prefix in prefixes), key=len, reverse=True)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on under its short path."""
        if scope["type"] == "http":
            scope["path"] = self.fold(scope["path"])
            endpoint = self._direct.get(scope["path"])
            if endpoint is not None and scope["method"] == "POST":
                response = await endpoint(Request(scope, receive, send))
                await response(scope, receive, send)
                return
        await self._app(scope, receive, send)

    def fold(self, path: str) -> str:
        """Return the path that routes know."""
        folded = re.sub("/+", "/", path).strip("/")
        for prefix in self._prefixes:
            if prefix and folded.startswith(f"{prefix}/"):
                return folded[len(prefix) :]
        return f"/{folded}"


# --- management ------------------------------------------------------------------------------------------------------

_READING = ["GET", "HEAD"]


def create_management_app(runtime: Runtime) -> ASGIApp:
    """Return the application of the management port; it may run on another thread than the verbs.

    To be called on the event loop of the verbs, which the client of the API server belongs to.
    """
    app = FastAPI(title="kube-scheduler-extender management", docs_url=None, redoc_url=None, openapi_url=None)
    with_debug = runtime.configuration.management.debug

    async def explain(request: Request, error: Exception) -> Response:
        return _explain_management(request, error, with_debug)

    app.add_exception_handler(HTTPException, explain)

    async def metrics() -> Response:
        return Response(runtime.metrics.exposition(), media_type="text/plain; version=0.0.4; charset=utf-8")

    async def livez(request: Request) -> Response:
        return _report("livez", runtime.liveness, request)

    async def readyz(request: Request) -> Response:
        return _report("readyz", runtime.readiness, request)

    for path, endpoint in (("/metrics", metrics), ("/livez", livez), ("/healthz", livez), ("/readyz", readyz)):
        app.add_api_route(path, endpoint, methods=_READING, response_class=Response)
    if with_debug:
        pages = DebugPages(runtime)

        async def debug(request: Request, path: str = "") -> Response:
            answer = await pages.answer(path, request.query_params)
            return Response(answer.body, answer.status, media_type=answer.media_type)

        for place in ("/debug", "/debug/{path:path}"):
            app.add_api_route(place, debug, methods=_READING, response_class=Response)
    guarded: ASGIApp = app
    if runtime.configuration.management.authentication.enabled:
        guarded = Guard(app, AccessReviewer(runtime.client, asyncio.get_running_loop()))
    return NormalizedPath(guarded, (), {})


def _explain_management(request: Request, error: Exception, with_debug: bool) -> Response:
    """Answer a request that no route of the management port takes, in words."""
    assert isinstance(error, HTTPException)  # noqa: S101 - registered for this class only
    path, further = _asked_path(request), "and /debug" if with_debug else "and with management.debug: true /debug"
    text = {
        404: f"nothing is served at {path}; there are /livez, /readyz, /healthz, /metrics {further}",
        405: f"{path} takes GET and HEAD, got {request.method}",
    }.get(error.status_code, str(error.detail))
    return Response(f"{text}\n", error.status_code, error.headers, media_type="text/plain")


def _report(name: str, checks: Checks, request: Request) -> Response:
    """Answer a probe the way the API server does: ``ok``, or a line a check."""
    found = list(checks())
    failed = any(check.problem for check in found)
    if not failed and "verbose" not in request.query_params:
        return Response("ok", media_type="text/plain")
    lines = [_line(check) for check in found]
    lines.append(f"{name} check {'failed' if failed else 'passed'}")
    return Response("\n".join(lines) + "\n", 503 if failed else 200, media_type="text/plain")


def _line(check: Check) -> str:
    if check.problem:
        return f"[-]{check.name} failed: {check.problem}"
    return f"[+]{check.name} ok: {check.note}" if check.note else f"[+]{check.name} ok"
