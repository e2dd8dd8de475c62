"""Candidates for a lease over an API server in the same process, in virtual time, with lines that can be spoiled."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine
from typing import Any

from extender.cluster.apiserver import StatusError, Storage
from extender.cluster.apiserver.call import Call, parse_target
from extender.cluster.apiserver.verb import answer_call
from extender.cluster.lease import LeaderElection
from extender.errors import ApiError, ApiUnreachable
from tests.extender.virtual_time import now, play

LEASES = "leases"
LATENCY_SECONDS = 0.01


class Line:
    """One candidate's line to the API server, which is spoiled by setting ``fault``.

    ``silent`` and ``refused`` reach nobody; with ``lost`` the request is carried out and the answer does not come;
    with ``twice`` a PUT is carried out twice, and the second answer is what the candidate gets; a number is the status
    of the answer; ``garbage`` is a page of a proxy.
    """

    def __init__(self, storage: Storage) -> None:
        self.storage = storage
        self.fault: str | int = ""
        self.calls: list[tuple[float, str]] = []

    async def request(
        self, method: str, path: str, *, body: bytes | None = None, timeout_seconds: float | None = 10.0
    ) -> bytes:
        fault = self.fault
        self.calls.append((now(), method))
        await asyncio.sleep(LATENCY_SECONDS)
        if fault == "silent":
            await asyncio.Event().wait()
        if fault == "refused":
            raise ApiUnreachable("no connection")
        if fault == "garbage":
            return b"<html>"
        if isinstance(fault, int):
            raise ApiError(fault, "", "refused on demand")
        answer = self._carry_out(method, path, body)
        if fault == "twice" and method == "PUT":
            answer = self._carry_out(method, path, body)
        if fault == "lost":
            await asyncio.Event().wait()
        return answer

    def _carry_out(self, method: str, path: str, body: bytes | None) -> bytes:
        call = Call(method, parse_target(self.storage.catalogue, path), {}, "application/json", body or b"")
        try:
            return b"".join(answer_call(self.storage, call).pieces)
        except StatusError as error:
            raise ApiError(error.code, error.reason, error.message) from error


class Candidate:
    """A replica that takes part in the election; ``log`` has when it started and stopped to act."""

    def __init__(self, storage: Storage, identity: str, **options: Any) -> None:
        self.line = Line(storage)
        self.log: list[tuple[str, float]] = []
        named = {"namespace": "kube-system", "name": "extender", "identity": identity, **options}
        chance = random.Random(identity).random
        self.election = LeaderElection(self.line, clock=now, random_source=chance, **named)
        self.task = asyncio.create_task(
            self.election.run(
                lambda: self.log.append(("started", now())),
                lambda: self.log.append(("stopped", now())),
            )
        )

    @property
    def leading(self) -> bool:
        return self.election.leading

    async def end(self) -> None:
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)


class Scene:
    """An API server and its candidates; ``most`` is how many led at the same time, at any time."""

    def __init__(self) -> None:
        self.storage = Storage()
        self.candidates: list[Candidate] = []
        self.most = 0
        self._watcher = asyncio.create_task(self._count())

    def join(self, identity: str, **options: Any) -> Candidate:
        self.candidates.append(Candidate(self.storage, identity, **options))
        return self.candidates[-1]

    def record(self) -> dict[str, Any]:
        spec: dict[str, Any] = self.storage.get(LEASES, "extender", "kube-system")["spec"]
        return spec

    async def _count(self) -> None:
        while True:
            self.most = max(self.most, sum(candidate.leading for candidate in self.candidates))
            await asyncio.sleep(0.1)

    async def end(self) -> None:
        for candidate in self.candidates:
            await candidate.end()
        self._watcher.cancel()


def scene(act: Callable[[Scene], Coroutine[Any, Any, None]]) -> Callable[[], None]:
    """Make a test of a scene that is played in virtual time; no two candidates may ever lead together."""

    async def whole() -> None:
        played = Scene()
        try:
            await act(played)
        finally:
            await played.end()
        assert played.most <= 1

    def test() -> None:
        play(whole)

    test.__name__, test.__doc__ = act.__name__, act.__doc__
    return test
