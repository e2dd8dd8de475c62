"""The whole service over an embedded cluster, both on loopback, for tests in plain synchronous code.

::

    with running_service(nodes=[make_node("a")], configuration={"profiles": [...]}) as service:
        with service.scheduler() as scheduler:
            assert scheduler.filter(make_pod("p"), service.nodes()).names == ["a"]

Everything runs on one event loop in a thread of its own. Whatever belongs to that loop, the API server's storage and
the service's mirror above all, is read and changed through ``call`` and ``until``.
"""

from __future__ import annotations

import asyncio
import inspect
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any

import uvloop

from extender.cluster.apiserver import ApiServer, Fault, ServerOptions
from extender.cluster.connection import connect
from extender.config import ExtenderConfiguration
from extender.runtime import Runtime
from extender.server import Serving, serving
from extender.testing.reply import Json
from extender.testing.scheduler import SchedulerClient

_PATIENCE_SECONDS = 20.0
_POLL_SECONDS = 0.005


class RunningService:
    """Handles on a running service: ``url`` of the verbs, ``management_url``, the ``api`` server, the ``runtime``."""

    def __init__(self, loop: asyncio.AbstractEventLoop, api: ApiServer, runtime: Runtime, ports: Serving) -> None:
        self.api = api
        self.runtime = runtime
        self.url = ports.url
        self.management_url = ports.management_url
        self._loop = loop

    def call(self, function: Callable[..., Any], *args: Any, **named: Any) -> Any:
        """Return what ``function``, plain or a coroutine function, returns when the service's event loop calls it."""

        async def turn() -> Any:
            result = function(*args, **named)
            return await result if inspect.isawaitable(result) else result

        return asyncio.run_coroutine_threadsafe(turn(), self._loop).result(_PATIENCE_SECONDS)

    def until(self, condition: Callable[[], bool], what: str = "the condition") -> None:
        """Wait until ``condition`` holds on the service's event loop.

        Raises:
            TimeoutError: it did not hold in time; says ``what`` was waited for.
        """
        late = time.monotonic() + _PATIENCE_SECONDS
        while not self.call(condition):
            if time.monotonic() > late:
                raise TimeoutError(f"{what} did not come about within {_PATIENCE_SECONDS:g} s")
            time.sleep(_POLL_SECONDS)

    def reconfigure(self, configuration: Mapping[str, Any]) -> None:
        """Put another ExtenderConfiguration in force, as it stands in YAML, as if its file had changed.

        Raises:
            ConfigurationError: it cannot be used, and the one before stays.
        """
        wanted = ExtenderConfiguration.model_validate(_on_loopback(configuration))
        self.call(self.runtime.reloader.apply, lambda: wanted)

    def scheduler(self, **options: Any) -> SchedulerClient:
        """Return a stand-in for kube-scheduler that calls this service, with the options of ``SchedulerClient``."""
        return SchedulerClient(self.url, **options)

    def nodes(self) -> list[Json]:
        """Return the cluster's nodes as the API server holds them."""
        nodes: list[Json] = self.call(self.api.storage.list, "nodes")
        return nodes

    def create_pod(self, pod: Mapping[str, Any]) -> Json:
        """Create a pod, wait until the service knows it, and return it as the API server holds it."""
        created: Json = self.call(self.api.storage.create, "pods", pod)
        uid = created["metadata"]["uid"]
        self.until(lambda: uid in self.runtime.mirror.by_uid, f"news of pod {created['metadata']['name']}")
        return created

    def delete_pod(self, pod: Mapping[str, Any]) -> None:
        """Delete a pod and wait until the service has forgotten it."""
        meta = pod["metadata"]
        deleted = self.call(self.api.storage.delete, "pods", meta["name"], meta.get("namespace", "default"))
        uid = deleted["metadata"]["uid"]
        self.until(lambda: uid not in self.runtime.mirror.by_uid, f"news of the end of pod {meta['name']}")


@contextmanager
def running_service(
    *,
    nodes: Iterable[Mapping[str, Any]] = (),
    pods: Iterable[Mapping[str, Any]] = (),
    objects: Iterable[Mapping[str, Any]] = (),
    configuration: Mapping[str, Any] | None = None,
    options: ServerOptions | None = None,
    faults: Iterable[Fault] = (),
    synced: bool = True,
) -> Iterator[RunningService]:
    """Run an embedded cluster that holds the given objects and the service on free ports; stop both on leaving.

    ``nodes`` and ``pods`` need no kind, ``objects`` are of any kind. ``configuration`` is an ExtenderConfiguration as
    it stands in YAML. ``options`` and ``faults`` are those of the API server, in force from the start. The service is
    waited for until it is ready, unless ``synced`` is false.

    Raises:
        ConfigurationError: the objects or the configuration cannot be used.
    """
    cluster = [*_of_kind("Node", nodes), *_of_kind("Pod", pods), *objects]
    settings = ExtenderConfiguration.model_validate(_on_loopback(configuration or {}))
    started: Future[tuple[RunningService, asyncio.Event]] = Future()

    async def serve() -> None:
        async with ApiServer(cluster, options) as api:
            for fault in faults:
                api.faults.add(fault)
            runtime = Runtime(settings, connect(url=api.url))
            async with serving(runtime) as ports:
                stopped = asyncio.Event()
                service = RunningService(asyncio.get_running_loop(), api, runtime, ports)
                started.set_result((service, stopped))
                await stopped.wait()

    def run() -> None:
        try:
            with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
                runner.run(serve())
        except BaseException as error:
            if started.done():
                raise
            started.set_exception(error)

    thread = threading.Thread(target=run, name="service", daemon=True)
    thread.start()
    try:
        service, stopped = started.result(_PATIENCE_SECONDS)
        try:
            if synced:
                service.until(lambda: not service.runtime.missing(), "the first sync")
            yield service
        finally:
            service.call(stopped.set)
    finally:
        thread.join(_PATIENCE_SECONDS)


def _of_kind(kind: str, items: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    return [{"apiVersion": "v1", "kind": kind, **item} for item in items]


def _on_loopback(configuration: Mapping[str, Any]) -> dict[str, Any]:
    """Return ``configuration`` with both ports free ones of this machine."""
    ports = {name: {"host": "127.0.0.1", "port": 0, **configuration.get(name, {})} for name in ("server", "management")}
    return {**configuration, **ports}
