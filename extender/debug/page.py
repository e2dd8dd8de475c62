"""The pages below ``/debug``, each a function from the service and a query to an answer."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeVar, cast

import msgspec

from extender.debug.comparison import COMPARED, Version, Versions, compare
from extender.debug.dump import configuration_text, mirror_state, plain
from extender.debug.memory import array_bytes, memory_report
from extender.debug.sampler import profile
from extender.debug.stack import task_report, thread_report
from extender.errors import ClusterError
from extender.model.kind import NODES, Kind
from extender.runtime import Runtime

T = TypeVar("T")

_LOOP_SECONDS: Final = 10.0
_COMPARISON_SECONDS: Final = 120.0
_MOST_PROFILE_SECONDS: Final = 300
_MOST_DUMP_BYTES: Final = 2**30

TEXT, JSON = "text/plain; charset=utf-8", "application/json"


@dataclass(frozen=True)
class Answer:
    """What is sent back."""

    body: bytes
    media_type: str = TEXT
    status: int = 200


class _Refused(Exception):
    """No page can be made; says why, with a status."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status


Query = Mapping[str, str]


class DebugPages:
    """Answers for one service, from any thread; profiles and comparisons are made one at a time."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._busy = threading.Lock()
        self._pages: dict[str, tuple[str, Callable[[Query], Awaitable[Answer]]]] = {
            "pprof": ("this page", self._index),
            "pprof/profile": ("CPU profile of the verbs: seconds=30, format=collapsed or speedscope", self._profile),
            "pprof/heap": ("what holds memory: limit=50 lines", self._heap),
            "pprof/threads": ("stack of every thread", self._threads),
            "pprof/tasks": ("stack of every task of the event loop of the verbs", self._tasks),
            "cache": ("state of the caches: cache=NAME, maxBytes=33554432", self._cache),
            "cache/compare": ("nodes and pods here against those of the API server", self._compare),
            "config": ("the configuration in force, without secrets", self._config),
        }

    async def answer(self, path: str, query: Query) -> Answer:
        """Return the page at ``path``, which is what follows ``/debug/``; the index where nothing does."""
        _, page = self._pages.get(path.strip("/") or "pprof", ("", self._unknown))
        try:
            return await page(query)
        except _Refused as refused:
            return Answer(f"{refused}\n".encode(), status=refused.status)
        except ClusterError as error:
            return Answer(f"{error}\n".encode(), status=error.status)

    # --- pages -------------------------------------------------------------------------------------------------------

    async def _index(self, _: Query) -> Answer:
        lines = [f"/debug/{path:<16} {text}\n" for path, (text, _) in self._pages.items()]
        return Answer("".join(lines).encode())

    async def _unknown(self, _: Query) -> Answer:
        raise _Refused(404, f"there are: {', '.join(f'/debug/{path}' for path in self._pages)}")

    async def _profile(self, query: Query) -> Answer:
        seconds = _whole(query, "seconds", 30, 1, _MOST_PROFILE_SECONDS)
        form = query.get("format", "collapsed")
        if form not in ("collapsed", "speedscope"):
            raise _Refused(400, f"format: must be collapsed or speedscope, got {form}")
        runtime = self._runtime

        async def work() -> Answer:
            found = await asyncio.to_thread(profile, runtime.thread_id, seconds, lambda: runtime.stopping)
            if form == "speedscope":
                return Answer(found.speedscope(f"{seconds} s of the verbs"), JSON)
            return Answer(found.collapsed())

        return await self._alone(work)

    async def _heap(self, query: Query) -> Answer:
        most = _whole(query, "limit", 50, 1, 10_000)
        held = await self._on_loop(lambda: array_bytes(self._runtime.mirror.caches))
        return Answer((await asyncio.to_thread(memory_report, held, most)).encode())

    async def _threads(self, _: Query) -> Answer:
        return Answer(thread_report().encode())

    async def _tasks(self, _: Query) -> Answer:
        return Answer((await self._on_loop(task_report)).encode())

    async def _cache(self, query: Query) -> Answer:
        most = _whole(query, "maxBytes", 32 * 2**20, 1024, _MOST_DUMP_BYTES)
        caches = {type(cache).__name__: cache for cache in self._runtime.mirror.caches}
        wanted = query.get("cache")
        if wanted is not None and wanted not in caches:
            raise _Refused(404, f"cache: there are {', '.join(sorted(caches))}")
        found: dict[str, Any] = {}
        left = most
        for name in sorted(caches) if wanted is None else [wanted]:
            state = await self._on_loop(lambda cache=caches[name]: plain(cache.dump()))  # type: ignore[misc]
            text = msgspec.json.encode(state)
            if len(text) > left:
                found[name] = {"leftOut": f"{len(text)} bytes; ask for it alone with cache={name}, or raise maxBytes"}
            else:
                found[name] = msgspec.Raw(text)
                left -= len(text)
        mirror = await self._on_loop(lambda: mirror_state(self._runtime.mirror))
        return Answer(msgspec.json.encode({"mirror": mirror, "caches": found}), JSON)

    async def _compare(self, _: Query) -> Answer:
        watched = {reflector.kind for reflector in self._runtime.reflectors}
        kinds = [kind for kind in COMPARED if kind in watched]

        async def work() -> Answer:
            try:
                async with asyncio.timeout(_COMPARISON_SECONDS):
                    report = await compare(kinds, self._fetch, self._held)
            except TimeoutError:
                raise _Refused(504, f"the API server took longer than {_COMPARISON_SECONDS:g} s") from None
            except msgspec.DecodeError as error:
                raise _Refused(502, f"an answer is no list of an API server: {error}") from error
            return Answer(msgspec.json.format(msgspec.json.encode(report)), JSON)

        return await self._alone(work)

    async def _config(self, _: Query) -> Answer:
        return Answer(configuration_text(self._runtime.configuration).encode())

    # --- how ---------------------------------------------------------------------------------------------------------

    async def _alone(self, work: Callable[[], Awaitable[Answer]]) -> Answer:
        """Do what is too costly to be done twice at a time."""
        if not self._busy.acquire(blocking=False):
            raise _Refused(429, "another profile or comparison is being made: try again when it is done")
        try:
            return await work()
        finally:
            self._busy.release()

    async def _on_loop(self, function: Callable[[], T]) -> T:
        """Return what ``function`` returns when the event loop of the verbs calls it, between two requests."""

        async def turn() -> T:
            return function()

        return cast(T, await self._await_on_loop(turn, _LOOP_SECONDS))

    async def _await_on_loop(self, work: Callable[[], Any], seconds: float) -> Any:
        loop = self._runtime.loop
        if loop is None or self._runtime.stopping:
            raise _Refused(503, "the service is not running")
        future = asyncio.run_coroutine_threadsafe(work(), loop)
        try:
            async with asyncio.timeout(seconds):
                return await asyncio.wrap_future(future)
        except TimeoutError:
            raise _Refused(
                503, f"the event loop of the verbs gave no turn within {seconds:g} s: see /debug/pprof/threads"
            ) from None

    async def _fetch(self, kind: Kind, token: str) -> bytes:
        section = self._runtime.configuration.client_connection
        params = {"limit": str(section.page_size)}
        if kind.field_selector:
            params["fieldSelector"] = kind.field_selector
        if token:
            params["continue"] = token
        seconds = section.request_timeout_seconds
        client = self._runtime.client
        page = await self._await_on_loop(
            lambda: client.request("GET", kind.path, params=params, timeout_seconds=seconds), seconds + _LOOP_SECONDS
        )
        return cast(bytes, page)

    async def _held(self, kind: Kind) -> Versions:
        mirror = self._runtime.mirror
        if kind == NODES:
            nodes = await self._on_loop(lambda: [info for info in mirror.table.infos if info is not None])
            return {info.name: Version(info.uid, info.resource_version) for info in nodes}
        pods = await self._on_loop(lambda: dict(mirror.pods))
        return {key: Version(info.uid, info.resource_version, info.node_name) for key, info in pods.items()}


def _whole(query: Query, name: str, default: int, least: int, most: int) -> int:
    text = query.get(name, str(default))
    if not (text.isdecimal() and least <= int(text) <= most):
        raise _Refused(400, f"{name}: must be a whole number from {least} to {most}, got {text}")
    return int(text)
