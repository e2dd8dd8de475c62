"""An API server that gives scripted answers over loopback, and a store that remembers what it was told."""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aiohttp import web
from multidict import CIMultiDictProxy

from extender.cluster.backoff import Backoff
from extender.cluster.client import Client
from extender.cluster.connection import from_url
from extender.cluster.reflector import Reflector
from extender.model.kind import PODS, Kind, object_key

DATA = Path(__file__).parents[1] / "data"

Answer = Callable[[web.Request], Awaitable[web.StreamResponse]]


@dataclass
class Request:
    """What the server was asked."""

    method: str
    path: str
    query: dict[str, str]
    headers: CIMultiDictProxy[str]
    body: bytes


class ScriptedServer:
    """Gives each request the next answer of the script, and the last one to all that follow."""

    def __init__(self, *script: Answer, tls: ssl.SSLContext | None = None) -> None:
        self.script = list(script)
        self.requests: list[Request] = []
        self.hung_up = asyncio.Event()
        self.url = ""
        self.port = 0
        self._tls = tls

    async def __aenter__(self) -> ScriptedServer:
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", self._handle)
        self._runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.05)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0, ssl_context=self._tls).start()
        self.port = self._runner.addresses[0][1]
        self.url = f"{'https' if self._tls else 'http'}://127.0.0.1:{self.port}"
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._runner.cleanup()

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        body = await request.read()
        answer = self.script[min(len(self.requests), len(self.script) - 1)]
        self.requests.append(Request(request.method, request.path, dict(request.query), request.headers, body))
        try:
            return await answer(request)
        except asyncio.CancelledError:
            self.hung_up.set()
            raise


def reply(body: bytes | str | dict[str, Any] = b"{}", status: int = 200, **headers: str) -> Answer:
    """Answer with a body, once and whole; underscores in the names of headers stand for hyphens."""
    content = json.dumps(body).encode() if isinstance(body, dict) else body.encode() if isinstance(body, str) else body
    named = {name.replace("_", "-"): value for name, value in headers.items()}

    async def answer(_: web.Request) -> web.StreamResponse:
        return web.Response(body=content, status=status, headers=named, content_type="application/json")

    return answer


def recorded(name: str, status: int = 200) -> Answer:
    """Answer with what a real API server answered."""
    return reply((DATA / "apiserver" / name).read_bytes(), status)


def stream(*lines: dict[str, Any] | bytes, then: str = "end") -> Answer:
    """Answer with watch events, ``then`` end the answer, cut the connection, or say nothing more."""

    async def answer(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        for line in lines:
            await response.write(line if isinstance(line, bytes) else json.dumps(line).encode() + b"\n")
        if then == "cut":
            assert request.transport is not None
            request.transport.close()
        elif then == "silence":
            await asyncio.Event().wait()
        return response

    return answer


async def cut(request: web.Request) -> web.StreamResponse:
    """Close the connection without an answer; a client repeats a GET once before it makes anything of that."""
    assert request.transport is not None
    request.transport.close()
    return web.Response()


async def silence(_: web.Request) -> web.StreamResponse:
    """Never answer."""
    await asyncio.Event().wait()
    raise AssertionError


def failure(code: int, reason: str, message: str) -> dict[str, Any]:
    """Return a Status of the API server."""
    return {
        "kind": "Status",
        "apiVersion": "v1",
        "status": "Failure",
        "code": code,
        "reason": reason,
        "message": message,
    }


def error(code: int, reason: str, message: str) -> dict[str, Any]:
    """Return a watch event that carries a Status."""
    return {"type": "ERROR", "object": failure(code, reason, message)}


def pod(name: str, version: str, uid: str | None = None, **metadata: Any) -> dict[str, Any]:
    """Return a pod; ``version`` is its resource version."""
    meta = {"namespace": "default", "name": name, "uid": uid or f"uid-{name}", "resourceVersion": version}
    return {"metadata": meta | metadata, "spec": {"nodeName": "n1"}}


def event(type_: str, item: dict[str, Any]) -> dict[str, Any]:
    """Return a watch event."""
    return {"type": type_, "object": item}


def bookmark(version: str, *, ends_list: bool = False) -> dict[str, Any]:
    """Return a bookmark, such as ends the list of a streaming list."""
    annotations = {"annotations": {"k8s.io/initial-events-end": "true"}} if ends_list else {}
    return event("BOOKMARK", {"metadata": {"resourceVersion": version, "creationTimestamp": None} | annotations})


def listed(version: str, *items: dict[str, Any], continue_token: str = "") -> Answer:
    """Answer with a page of a list."""
    return reply({"metadata": {"resourceVersion": version, "continue": continue_token}, "items": list(items) or None})


REFUSED = reply(failure(422, "Invalid", "sendInitialEvents: Forbidden"), 422)
"""The answer of a server that has no streaming lists."""

OPEN = stream(then="silence")
"""A watch on which nothing happens."""


class Clock:
    """A clock that is set by hand."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


class RecordingStore:
    """Holds objects by name; ``changes`` is what one who watches the store would have seen."""

    def __init__(self) -> None:
        self.items: dict[str, Any] = {}
        self.changes: list[str] = []
        self.finished = 0
        self._named: set[str] = set()

    def begin(self) -> None:
        self._named = set()

    def upsert(self, item: Any) -> None:
        key = object_key(item.metadata)
        self._named.add(key)
        held = self.items.get(key)
        if held is not None and held.metadata.resource_version == item.metadata.resource_version is not None:
            return
        if held is not None and held.metadata.uid != item.metadata.uid:
            self.delete(held)
            held = None
        self.items[key] = item
        self.changes.append(f"{'ADDED' if held is None else 'MODIFIED'} {_identity(item)}")

    def delete(self, item: Any) -> None:
        held = self.items.pop(object_key(item.metadata), None)
        if held is not None:
            self.changes.append(f"DELETED {_identity(held)}")

    def finish(self) -> None:
        self.finished += 1
        for key in [key for key in self.items if key not in self._named]:
            self.delete(self.items[key])

    def identities(self) -> set[str]:
        return {_identity(item) for item in self.items.values()}


def _identity(item: Any) -> str:
    return f"{item.metadata.name}/{item.metadata.uid}"


@asynccontextmanager
async def running(reflector: Reflector) -> AsyncIterator[Reflector]:
    """Run a reflector until the end of the block, in which it must not have ended."""
    task = asyncio.create_task(reflector.run())
    try:
        yield reflector
        assert not task.done(), task.exception()
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


class Setting:
    """A reflector, its store, and the server it talks to."""

    def __init__(self, server: ScriptedServer, client: Client, kind: Kind, **options: Any) -> None:
        self.server = server
        self.store = RecordingStore()
        options.setdefault("backoff", Backoff(base_seconds=0.01))
        self.reflector = Reflector(kind, client, self.store, **options)

    def queries(self, *names: str) -> list[tuple[str | None, ...]]:
        return [tuple(request.query.get(name) for name in names) for request in self.server.requests]


@asynccontextmanager
async def follow(*script: Answer, kind: Kind = PODS, **options: Any) -> AsyncIterator[Setting]:
    """Run a reflector against a script until the end of the block."""
    async with ScriptedServer(*script) as server:
        client = Client(from_url(server.url))
        setting = Setting(server, client, kind, **options)
        try:
            async with running(setting.reflector):
                yield setting
        finally:
            await client.close()


async def eventually(condition: Callable[[], Any], seconds: float = 10.0) -> None:
    """Wait until ``condition`` holds."""
    async with asyncio.timeout(seconds):
        while not condition():  # noqa: ASYNC110 - a condition of any kind can only be polled
            await asyncio.sleep(0.005)


def case_lines(name: str) -> list[dict[str, Any]]:
    """Return the lines of a case."""
    return [json.loads(line) for line in (DATA / "cases" / name).read_text().splitlines()]


def case(name: str) -> Any:
    """Return the content of a case."""
    return json.loads((DATA / "cases" / name).read_text())


def played(name: str) -> tuple[list[Answer], list[str]]:
    """Return the answers that play a case of lists and watches, and the versions the watches are to start from."""
    script: list[Answer | list[dict[str, Any]]] = []
    starts: list[str] = []
    versions: dict[str, str] = {}
    for phase in case_lines(name):
        if phase["phase"] == "list":
            names = [identity.split("/") for identity in phase["items"]]
            items = [pod(name, versions.get(f"{name}/{uid}", phase["resourceVersion"]), uid) for name, uid in names]
            script.append(listed(phase["resourceVersion"], *items))
        elif phase["phase"] in ("watch", "expect-watch"):
            script.append([])
            starts.append(phase["from"])
        elif phase["phase"] == "event":
            meta = phase["object"].get("metadata", {})
            versions[f"{meta.get('name')}/{meta.get('uid')}"] = meta.get("resourceVersion")
            watch = script[-1]
            assert isinstance(watch, list)
            watch.append(event(phase["type"], phase["object"]))
    last = len(script) - 1
    streams = [
        stream(*part, then="silence" if index == last else "end") if isinstance(part, list) else part
        for index, part in enumerate(script)
    ]
    return streams, starts
