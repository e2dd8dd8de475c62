"""``/bind``: reserve the room, bind the pod through the API server, and keep or give back the room.

::

    request ──▶ already there? ──▶ reserve, assume ──▶ POST binding ──▶ bound: keep until the watch confirms
                                                ▲   ├─ refused: forget, and say why
                                                │   ├─ 409, 5xx: GET the pod; bound to this very node is success
                                                │   ├─ no answer: GET the pod before trying again
                                                ├───┴─ 429, no connection: try again within the time allowed
                                                └─ nobody can tell in time: counted until somebody can (``doubt``)

What algorithms reserve travels as annotations inside the Binding, and counts from the moment the pod is assumed.

A bind is never cancelled half-way: when the caller hangs up it runs on, and a repeated call for the same pod waits for
the same outcome. No lock is held; binds of different pods run side by side.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from itertools import chain
from typing import Protocol

from extender import journal, wire
from extender.errors import (
    ApiError,
    ApiUnreachable,
    BindError,
    ClusterError,
    NotLeaderError,
    QuantityError,
    RequestError,
)
from extender.framework.outcome import Outcome
from extender.model.object import Labels, ObjectMeta, Pod, PodSpec
from extender.model.pod import PendingPod, PodInfo
from extender.verbs.doubt import Doubts
from extender.verbs.service import Service
from extender.wire import BindRequest

_log = logging.getLogger(__name__)

_CONFLICT, _NOT_FOUND, _TOO_MANY = 409, 404, 429
_RETRY_PAUSE_SECONDS = 0.1


class Binding(Protocol):
    """What is asked of the API server's client."""

    async def bind(
        self, namespace: str, name: str, uid: str, node: str, annotations: Labels | None, *, timeout_seconds: float
    ) -> None:
        """Create the Binding; raises ApiError or ApiUnreachable."""

    async def get_pod(self, namespace: str, name: str) -> Pod:
        """Read a pod; raises ApiError or ApiUnreachable."""


class BindObserver(Protocol):
    """Counts what became of binds."""

    def bound(self, result: str, seconds: float) -> None:
        """Note the end of a bind: ``bound``, ``already bound``, or the class name of what it failed with."""

    def bind_retried(self, code: str) -> None:
        """Note that a binding is asked for once more after an answer with ``code``, or ``none``."""


class Unobserved:
    """Counts nothing."""

    def bound(self, *_: object) -> None:
        """Forget it."""

    def bind_retried(self, *_: object) -> None:
        """Forget it."""


class Binder:
    """Binds pods; ``now_seconds`` is the clock of deadlines and of assumed pods, ``wall_seconds`` that of reservations.

    ``barred`` says why nothing may be bound here and now, or returns nothing: one replica of several binds.
    """

    def __init__(
        self,
        service: Service,
        client: Binding,
        *,
        now_seconds: Callable[[], float],
        bind_seconds: float,
        confirm_seconds: float,
        barred: Callable[[], str] = str,
        wall_seconds: Callable[[], float] = time.time,
        observer: BindObserver = Unobserved(),  # noqa: B008 - it has no state
    ) -> None:
        self._service = service
        self._client = client
        self._now_seconds = now_seconds
        self._bind_seconds = bind_seconds
        self._confirm_seconds = confirm_seconds
        self._barred = barred
        self._wall_seconds = wall_seconds
        self._observer = observer
        self._running: dict[str, tuple[str, asyncio.Task[str]]] = {}
        self._unanswered: set[str] = set()
        """Pods that may have been bound by a request of which nothing was heard yet, by uid."""
        self._doubts = Doubts(service.mirror, client, now_seconds=now_seconds, confirm_seconds=confirm_seconds)

    async def answer(self, body: bytes) -> bytes:
        """Return the reply to a request.

        Raises:
            RequestError: the request cannot be understood.
            NotReadyError: the caches are not complete, and the pod is not one that passes through.
            NotLeaderError: it is for another replica to bind.
            BindError: the pod is not bound; says why.
        """
        request = wire.decode_bind(body)
        if not request.uid:
            raise BindError("PodUID: is missing; a pod is not bound by name alone, since another may bear it by now")
        journal.about(_key(request), request.uid)
        pod = self._service.seen_pod(request.uid)
        if pod is not None and self._service.evaluator_of(pod) is None:
            self._service.let_pass(pod, "bind")
        else:
            self._service.check_ready()
        self._check_leading(request)
        journal.enter("bind")
        await self.bind(request)
        return wire.encode_bind()

    async def bind(self, request: BindRequest) -> None:
        """Bind a pod once, however often and from however many callers it is asked.

        Raises:
            BindError: the pod is not bound; says why.
        """
        running = self._running.get(request.uid)
        if running is None:
            task = asyncio.create_task(self._bind(request), name=f"bind {request.namespace}/{request.name}")
            self._running[request.uid] = (request.node, task)
            started = self._now_seconds()
            task.add_done_callback(lambda done: self._ended(request, done, self._now_seconds() - started))
        else:
            node, task = running
            if node != request.node:
                raise BindError(f"pod {_key(request)} is being bound to node {node!r}")
        await asyncio.shield(task)

    async def drain(self) -> None:
        """Wait for the binds that are running."""
        while self._running:
            await asyncio.wait([task for _, task in self._running.values()])
        self._doubts.stop()

    def _check_leading(self, request: BindRequest) -> None:
        barred = self._barred()
        if barred and not self._is_confirmed(request):
            raise NotLeaderError(f"pod {_key(request)} is not bound: {barred}")

    def _is_confirmed(self, request: BindRequest) -> bool:
        """Say whether the API server has told that the pod is on the node that is asked for."""
        held = self._service.mirror.by_uid.get(request.uid)
        return held is not None and held.key == _key(request) and held.node_name == request.node

    def _ended(self, request: BindRequest, task: asyncio.Task[str], seconds: float) -> None:
        del self._running[request.uid]
        self._unanswered.discard(request.uid)
        if task.cancelled():
            return
        subject = {"pod": _key(request), "uid": request.uid, "node": request.node, "seconds": round(seconds, 6)}
        error = task.exception()
        if error is None:
            self._observer.bound(task.result(), seconds)
            _log.debug(task.result(), extra=subject)
        else:
            self._observer.bound(type(error).__name__, seconds)
            _log.warning("bind failed", extra={**subject, "error": str(error)})
            recorder = self._service.recorder
            recorder.bind_failed(request.namespace, request.name, request.uid, request.node, str(error))

    async def _bind(self, request: BindRequest) -> str:
        """Bind a pod and return ``bound``, or ``already bound`` where nothing was left to do."""
        deadline = self._now_seconds() + self._bind_seconds
        if request.uid in self._doubts:
            await self._resolve(request, deadline)
        if self._is_placed(request):
            return "already bound"
        record, pod = await self._look_up(request, deadline)
        if self._is_placed(request):  # while it was read
            return "already bound"
        annotations = self._reserve(request, pod)
        self._service.mirror.assume(self._service.mirror.reader.placed_on(record, request.node, annotations))
        try:
            await self._post(request, annotations or None, deadline)
        except BaseException:
            if request.uid in self._unanswered:
                self._doubts.add(request)
            else:
                self._service.mirror.forget(request.uid)
            raise
        self._service.mirror.finish_binding(request.uid, self._now_seconds() + self._confirm_seconds)
        self._service.recorder.bound(request.namespace, request.name, request.uid, request.node)
        return "bound"

    async def _resolve(self, request: BindRequest, deadline: float) -> None:
        """Find out what became of an earlier bind of the pod; one that came to nothing is forgotten."""
        try:
            is_bound = await self._found_bound(request, deadline)
        except ClusterError as error:
            raise BindError(f"pod {_key(request)}: {error}; an earlier bind may have been carried out") from error
        self._doubts.dismiss(request.uid)
        if not is_bound:
            self._service.mirror.forget(request.uid)

    def _is_placed(self, request: BindRequest) -> bool:
        """Say whether the pod is known to be on the node that is asked for; on another one it must not be."""
        placed = self._service.mirror.placed(request.uid)
        if placed is not None and placed.key != _key(request):
            raise BindError(f"pod {_key(request)} is not bound: uid {request.uid!r} is that of pod {placed.key}")
        if placed is not None:
            _require_node(request, placed.node_name)
        return placed is not None

    async def _look_up(self, request: BindRequest, deadline: float) -> tuple[PodInfo, PendingPod | None]:
        """Return the pod's record, and the pod itself where it is known or needed.

        Both come from the mirror, from a request seen lately, or from the API server.
        """
        held, pod = self._service.mirror.by_uid.get(request.uid), self._service.seen_pod(request.uid)
        try:
            if pod is None and (held is None or self._service.reserves):
                pod = PendingPod(await self._get(request, deadline))
            if held is not None:
                return held, pod
            assert pod is not None  # noqa: S101 - it has just been read
            return self._service.mirror.reader.read(pod.object, request.node), pod
        except (ClusterError, QuantityError, RequestError) as error:
            raise BindError(f"pod {_key(request)} is not bound: {error}") from error

    def _reserve(self, request: BindRequest, pod: PendingPod | None) -> dict[str, str]:
        """Return what the algorithms reserve for the pod on its node, as annotations; the caller assumes it at once."""
        service = self._service
        evaluator = None if pod is None else service.evaluator_of(pod)
        if pod is None or evaluator is None or not evaluator.runner.profile.reservers:
            return {}
        row = service.mirror.table.index.get(request.node)
        node = None if row is None else service.mirror.table.infos[row]
        if node is None:
            raise BindError(f"pod {_key(request)} is not bound: node {request.node!r} is not known to the extender")
        caches = (type(each).declared_caches().values() for each in evaluator.runner.profile.reservers)
        if any(map(service.mirror.is_outdated, chain.from_iterable(caches))):
            raise BindError(f"pod {_key(request)} is not bound: what other pods have reserved is being read again")
        reserved = evaluator.runner.reserve(pod, node, self._wall_seconds())
        if isinstance(reserved, Outcome):
            raise BindError(f"pod {_key(request)} is not bound: {reserved.algorithm}: {reserved.text}")
        return reserved

    async def _post(self, request: BindRequest, annotations: Labels | None, deadline: float) -> None:
        """Ask for the binding until an answer settles it or the time is over."""
        while True:
            self._check_leading(request)
            pause, code = _RETRY_PAUSE_SECONDS, "none"
            try:
                return await self._attempt(request, annotations, deadline)
            except ApiError as error:
                pause, code, failure = error.retry_after_seconds or pause, str(error.code), str(error)
            except ApiUnreachable as error:
                failure = str(error)
            if self._now_seconds() + pause >= deadline:
                raise BindError(f"pod {_key(request)}: {failure}; gave up within the time kube-scheduler allows")
            self._observer.bind_retried(code)
            await asyncio.sleep(pause)

    async def _attempt(self, request: BindRequest, annotations: Labels | None, deadline: float) -> None:
        """Ask once, and read the pod where a conflict, a failed server or silence may hide a bind that was carried out.

        A ClusterError is one that another attempt may mend; a BindError is final.
        """
        seconds = (deadline - self._now_seconds()) / 2  # the other half is for reading the pod
        try:
            await self._client.bind(
                request.namespace, request.name, request.uid, request.node, annotations, timeout_seconds=seconds
            )
        except ApiError as error:
            if error.code == _TOO_MANY:
                raise
            if error.code == _NOT_FOUND:
                self._unanswered.discard(request.uid)
                raise BindError(f"pod {_key(request)} is gone: {error.message}") from error
            if not (_is_in_doubt(error) and await self._found_bound(request, deadline)):
                raise BindError(f"pod {_key(request)} is not bound: {error.message}") from error
        except ApiUnreachable as error:
            if not (error.maybe_done and await self._found_bound(request, deadline)):
                raise

    async def _found_bound(self, request: BindRequest, deadline: float) -> bool:
        """Read the pod: True where it is bound as asked, False where it is not bound; anything else raises.

        One that is bound counts as it was read: another replica may have bound it, with reservations of its own.
        """
        self._unanswered.add(request.uid)
        pod = await self._get(request, deadline)
        self._unanswered.discard(request.uid)
        node = (pod.spec or PodSpec()).node_name
        if node:
            _require_node(request, node)
            self._service.mirror.assume(self._service.mirror.reader.read(pod))
        return bool(node)

    async def _get(self, request: BindRequest, deadline: float) -> Pod:
        try:
            async with asyncio.timeout(deadline - self._now_seconds()):
                pod = await self._client.get_pod(request.namespace, request.name)
        except ApiError as error:
            if error.code == _NOT_FOUND:
                self._unanswered.discard(request.uid)
                raise BindError(f"pod {_key(request)} is gone: {error.message}") from error
            if error.code == _TOO_MANY or _is_in_doubt(error):
                raise
            raise BindError(f"pod {_key(request)} cannot be read: {error}") from error
        except TimeoutError:
            raise ApiUnreachable(f"pod {_key(request)} could not be read in time") from None
        uid = (pod.metadata or ObjectMeta()).uid
        if uid != request.uid:
            self._unanswered.discard(request.uid)
            raise BindError(f"pod {_key(request)} was replaced: asked for uid {request.uid!r}, found {uid!r}")
        return pod


def _is_in_doubt(error: ApiError) -> bool:
    return error.code == _CONFLICT or error.code >= 500


def _require_node(request: BindRequest, node: str) -> None:
    if node != request.node:
        raise BindError(f"pod {_key(request)} is already bound to node {node!r}, not to {request.node!r}")


def _key(request: BindRequest) -> str:
    return f"{request.namespace}/{request.name}"
