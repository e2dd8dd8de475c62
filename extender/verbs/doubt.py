"""Bindings whose outcome is not known: the room they may have taken stays taken until the API server tells.

A server that hangs may carry out what it was sent long after everybody has given up waiting. Giving the room back at
once would let another pod have the same device, or the same memory, before the watch says that it is taken.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Protocol

from extender.errors import ApiError, ClusterError
from extender.framework.mirror import Mirror
from extender.model.object import ObjectMeta, Pod, PodSpec
from extender.wire import BindRequest

_log = logging.getLogger(__name__)

_PAUSE_SECONDS = 1.0
_NOT_FOUND = 404


class PodReader(Protocol):
    """What is asked of the API server's client."""

    async def get_pod(self, namespace: str, name: str) -> Pod:
        """Read a pod; raises ApiError or ApiUnreachable."""


class Doubts:
    """The pods that are assumed and may be bound or not, by uid, each looked after by a task."""

    def __init__(
        self, mirror: Mirror, client: PodReader, *, now_seconds: Callable[[], float], confirm_seconds: float
    ) -> None:
        self._mirror = mirror
        self._client = client
        self._now_seconds = now_seconds
        self._confirm_seconds = confirm_seconds
        self._tasks: dict[str, asyncio.Task[None]] = {}

    def __contains__(self, uid: str) -> bool:
        return uid in self._tasks

    def add(self, request: BindRequest) -> None:
        """Find out what became of a binding, and keep the pod assumed or forget it accordingly.

        Where that cannot be found out, the assumption ends as one ends that the watch does not confirm.
        """
        self._mirror.finish_binding(request.uid, self._now_seconds() + self._confirm_seconds)
        task = asyncio.create_task(self._settle(request), name=f"doubt {request.namespace}/{request.name}")
        self._tasks[request.uid] = task
        task.add_done_callback(lambda done: self._ended(request.uid, done))

    def dismiss(self, uid: str) -> None:
        """Look after a pod no longer: somebody else has found out."""
        task = self._tasks.pop(uid, None)
        if task is not None:
            task.cancel()

    def stop(self) -> None:
        """Look after none any more."""
        for uid in list(self._tasks):
            self.dismiss(uid)

    def _ended(self, uid: str, task: asyncio.Task[None]) -> None:
        if self._tasks.get(uid) is task:
            del self._tasks[uid]

    async def _settle(self, request: BindRequest) -> None:
        """Read the pod until it is on a node or gone, or is on none twice: what hangs may be done between two answers.

        The watch ends it too, when it tells that the pod is on a node.
        """
        subject = {"pod": f"{request.namespace}/{request.name}", "uid": request.uid, "node": request.node}
        _log.warning("bind in doubt", extra=subject)
        found_unbound = False
        while True:
            await asyncio.sleep(_PAUSE_SECONDS)
            if request.uid not in self._mirror.assumed:
                break
            pod = await self._read(request)
            if pod is None:
                continue
            if (pod.metadata or ObjectMeta()).uid == request.uid:
                if (pod.spec or PodSpec()).node_name:
                    self._mirror.assume(self._mirror.reader.read(pod))
                    self._mirror.finish_binding(request.uid, self._now_seconds() + self._confirm_seconds)
                    break
                if not found_unbound:
                    found_unbound = True
                    continue
            self._mirror.forget(request.uid)
            break
        _log.info("bind settled", extra={**subject, "bound": self._mirror.placed(request.uid) is not None})

    async def _read(self, request: BindRequest) -> Pod | None:
        """Return the pod, one without a uid where there is none, or None where nobody can tell."""
        try:
            return await self._client.get_pod(request.namespace, request.name)
        except ApiError as error:
            return Pod() if error.code == _NOT_FOUND else None
        except ClusterError:
            return None
