"""Leader election: of several replicas the one that holds a Lease acts, and the others wait for it.

::

    follow ──free, given up, or unchanged for as long as it lasts──▶ write our name ──▶ lead ──┐
      ▲                                                                                ▲ renew │
      └── held by another: look again                                                  └───────┤
                                          not renewed in time, or another holds it ◀───────────┘

Nobody's wall clock decides anything. A holder counts from the moment before it sent its last successful write, and
stops ``renew_seconds`` later; a follower counts from the moment after it saw the record change, and waits for as long
as the record lasts, which is longer. So the old holder has stopped before the next one begins, as long as both clocks
run at about the same speed. Times in the record are for people to read.

Facts: client-go ``tools/leaderelection`` of 1.36. It goes on trying after it has seen another holder; here that is the
end.
"""

from __future__ import annotations

import asyncio
import logging
import math
import random
import socket
import time
import uuid
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import quote

import msgspec

from extender.cluster.connection import SERVICE_ACCOUNT
from extender.errors import ApiError, ApiUnreachable, ClusterError

_log = logging.getLogger(__name__)

RELEASE_SECONDS = 2.0
"""How long giving the lease up may take when the process ends; otherwise it runs out by itself."""

_NEVER = -math.inf
_RELEASED_SECONDS = 1
"""How long a lease lasts that nobody holds: the server refuses 0."""


class Sender(Protocol):
    """What is asked of the API server's client."""

    async def request(
        self, method: str, path: str, *, body: bytes | None = None, timeout_seconds: float | None = 10.0
    ) -> bytes:
        """Send one request and return the body of the answer; raises ApiError or ApiUnreachable."""


class _Lease(msgspec.Struct):
    """A Lease as it was read: what others keep in it is written back."""

    metadata: dict[str, Any]
    spec: dict[str, Any] | None = None

    @property
    def holder(self) -> str:
        """Who holds it, empty for nobody."""
        return str((self.spec or {}).get("holderIdentity") or "")

    @property
    def renew_time(self) -> str:
        """When it was renewed by the clock of its holder: a mark of one write, and nothing to count with."""
        return str((self.spec or {}).get("renewTime") or "")


_DECODER = msgspec.json.Decoder(_Lease)


class LeaderElection:
    """One replica's part in an election; ``run`` takes part until the lease is lost.

    ``holder`` is who was last seen to hold the lease, empty for nobody, and ``problem`` why the last attempt failed,
    empty where it did not. ``transitions`` counts the changes of holder that were seen, ``failures`` the attempts that
    failed. ``clock`` is monotonic; the waits and time limits are those of the event loop.
    """

    def __init__(
        self,
        client: Sender,
        *,
        namespace: str,
        name: str,
        identity: str,
        lease_seconds: int = 15,
        renew_seconds: float = 10.0,
        retry_seconds: float = 2.0,
        clock: Callable[[], float] = time.monotonic,
        random_source: Callable[[], float] = random.random,
    ) -> None:
        """``lease_seconds`` must be above ``renew_seconds``, and that above 1.2 times ``retry_seconds``."""
        self.identity = identity
        self.holder = ""
        self.problem = "not started"
        self.transitions = 0
        self.failures = 0
        self._client = client
        self._namespace = namespace
        self._name = name
        self._lease_seconds = lease_seconds
        self._renew_seconds = renew_seconds
        self._retry_seconds = retry_seconds
        self._clock = clock
        self._random = random_source
        self._until = _NEVER
        """When to stop unless the lease is renewed before, on ``clock``."""
        self._written: _Lease | None = None
        """What was written last, as long as nobody is known to have written since."""
        self._seen: dict[str, Any] | None = None
        self._expires = _NEVER
        """When the lease of another holder runs out unless the record changes before, on ``clock``."""
        self._is_in_doubt = False
        """Whether the record may bear our name: a write without an answer may have been carried out."""

    @property
    def leading(self) -> bool:
        """Whether this replica may act now; turns false on its own when a renewal is overdue."""
        return self._clock() < self._until

    async def run(self, on_started: Callable[[], None], on_stopped: Callable[[], None]) -> None:
        """Wait for the lease, hold it, and return once it is lost; a failing API server does not end the waiting.

        ``on_stopped`` is called exactly once for a call of ``on_started``, whatever ends the leading. Cancelled, the
        lease is given up, so that the next holder need not wait: what it guards must have ended before.
        """
        try:
            await self._follow()
            _log.info("leading", extra={"lease": self._key, "identity": self.identity})
            try:
                on_started()
                await self._lead()
                _log.error("lease lost", extra={"lease": self._key, "holder": self.holder, "problem": self.problem})
            finally:
                self._until = _NEVER
                on_stopped()
        except asyncio.CancelledError:
            await self._release()
            raise

    async def _follow(self) -> None:
        """Try until the lease is held."""
        while True:
            await self._try()
            if self.leading:
                return
            self._until = _NEVER
            await self._pause(self._expires)

    async def _lead(self) -> None:
        """Renew until a renewal is overdue or another holder was seen."""
        while self.leading:
            await self._pause(self._until)
            if self.leading:
                await self._try()

    async def _pause(self, end: float) -> None:
        """Wait for a time that is uneven by chance and never longer than the retry period, or until ``end``."""
        seconds = self._retry_seconds * (0.5 + 0.5 * self._random())
        left_seconds = end - self._clock()
        await asyncio.sleep(min(seconds, left_seconds) if left_seconds > 0 else seconds)

    # --- one attempt -------------------------------------------------------------------------------------------------

    async def _try(self) -> None:
        """Take or renew the lease if it is ours to take; a failure is logged and shown, never raised."""
        try:
            await self._attempt()
        except Exception as error:
            self.failures += 1
            self._take_note(error)
        else:
            self.problem = ""

    def _take_note(self, error: Exception) -> None:
        """Log a failure, once as long as it stays the same, and show it in ``problem``."""
        problem = f"lease {self._key}: {error}"
        if isinstance(error, ApiError) and error.code == 403:
            problem += "; let the service account get, create and update leases.coordination.k8s.io there"
        level = logging.DEBUG if problem == self.problem else logging.WARNING
        unexpected = not isinstance(error, (ClusterError, msgspec.DecodeError))
        _log.log(level, "lease not reached", extra={"problem": problem, "leading": self.leading}, exc_info=unexpected)
        self.problem = problem

    async def _attempt(self) -> None:
        """Write over what was written last; where that is outdated, or nothing was written, look first."""
        if self._written is not None and await self._write(self._written):
            return
        lease = await self._read()
        if self._may_take(lease):
            await self._write(lease)

    def _may_take(self, lease: _Lease | None) -> bool:
        """Take in what was read, and return whether the lease is ours, free, or has run out."""
        if lease is None:
            return True
        holder = lease.holder
        if lease.spec != self._seen:
            lasts_seconds = (lease.spec or {}).get("leaseDurationSeconds") or self._lease_seconds
            self._seen, self._expires = lease.spec, self._clock() + lasts_seconds
        self._note_holder(holder)
        if holder == self.identity:
            return True
        self._is_in_doubt = False
        if self._until > _NEVER:
            # Somebody may have acted since our last write: taking it again would hide that from the caller.
            self._until = _NEVER
            return False
        return not holder or self._clock() >= self._expires

    def _note_holder(self, holder: str) -> None:
        if holder != self.holder:
            self.transitions += 1
            self.holder = holder
            _log.info("lease holder changed", extra={"lease": self._key, "holder": holder})

    def _claim(self, lease: _Lease | None) -> dict[str, Any]:
        """Return the record with our name in it."""
        now, old = _now(), (lease.spec if lease else None) or {}
        is_ours = lease is not None and lease.holder == self.identity
        return {
            **old,
            "holderIdentity": self.identity,
            "leaseDurationSeconds": self._lease_seconds,
            "acquireTime": (old.get("acquireTime") if is_ours else None) or now,
            "renewTime": now,
            "leaseTransitions": (old.get("leaseTransitions") or 0) + (0 if is_ours or lease is None else 1),
        }

    async def _write(self, lease: _Lease | None) -> bool:
        """Write our name over ``lease``, or create one; return whether nobody else had written before.

        A conflict may be the echo of our own write, because a PUT is sent again when its connection breaks: the record
        tells.
        """
        start, claim = self._clock(), self._claim(lease)
        self._written, self._is_in_doubt = None, True
        answer = await self._replace(lease, claim)
        written = await self._read() if answer is None else _DECODER.decode(answer)
        if written is None or (written.holder, written.renew_time) != (self.identity, claim["renewTime"]):
            return False
        self._written = written
        self._note_holder(self.identity)
        self._until = start + self._renew_seconds
        return True

    # --- giving up ---------------------------------------------------------------------------------------------------

    async def _release(self) -> None:
        """Take our name out of the record, if it is there, within ``RELEASE_SECONDS``."""
        if not self._is_in_doubt:
            return
        try:
            async with asyncio.timeout(RELEASE_SECONDS):
                while (lease := await self._read()) is not None and lease.holder == self.identity:
                    now = _now()
                    free = {"holderIdentity": "", "leaseDurationSeconds": _RELEASED_SECONDS}
                    spec = {**(lease.spec or {}), **free, "acquireTime": now, "renewTime": now}
                    if await self._replace(lease, spec) is not None:
                        self._note_holder("")
                        break
        except Exception as error:
            _log.warning("lease not given up: it has to run out", extra={"lease": self._key, "problem": str(error)})
        self._is_in_doubt = False

    # --- requests ----------------------------------------------------------------------------------------------------

    async def _read(self) -> _Lease | None:
        try:
            return _DECODER.decode(await self._request("GET", self._path))
        except ApiError as error:
            if error.code == 404:
                return None
            raise

    async def _replace(self, lease: _Lease | None, spec: dict[str, Any]) -> bytes | None:
        """Write ``spec`` over ``lease``, or as a new one; return the answer, or None where it is another by now."""
        metadata = {"namespace": self._namespace, "name": self._name} if lease is None else lease.metadata
        content = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata, "spec": spec}
        method, path = ("POST", self._path.rpartition("/")[0]) if lease is None else ("PUT", self._path)
        try:
            return await self._request(method, path, msgspec.json.encode(content))
        except ApiError as error:
            if error.code == 409 or (error.code == 404 and lease is not None):
                return None
            raise

    async def _request(self, method: str, path: str, body: bytes | None = None) -> bytes:
        """Send a request that may take half of the renewal deadline, and while leading never outlives it.

        Half, as kube-scheduler has it: one lost answer leaves time for another attempt.
        """
        seconds = self._renew_seconds / 2
        if self._until > _NEVER:
            seconds = min(seconds, self._until - self._clock())
            if seconds <= 0:
                raise ApiUnreachable(f"{method} {path}: not sent, the renewal is overdue")
        try:
            # Also over what comes before the request, such as a plug-in that fetches credentials.
            async with asyncio.timeout(seconds):
                return await self._client.request(method, path, body=body, timeout_seconds=None)
        except TimeoutError:
            raise ApiUnreachable(f"{method} {path}: no answer within {seconds:.3g} s", maybe_done=True) from None

    @property
    def _path(self) -> str:
        namespace, name = quote(self._namespace, safe=""), quote(self._name, safe="")
        return f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases/{name}"

    @property
    def _key(self) -> str:
        return f"{self._namespace}/{self._name}"


def own_identity() -> str:
    """Return a name that no other process has, and that says where this one runs."""
    return f"{socket.gethostname()}_{uuid.uuid4()}"


def own_namespace(directory: Path = SERVICE_ACCOUNT) -> str:
    """Return the namespace of this pod's service account, or ``default`` where this is no pod."""
    try:
        return (directory / "namespace").read_text().strip() or "default"
    except OSError:
        return "default"


def _now() -> str:
    """Return the present time as the API writes microseconds: six digits, also where they are zeros."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
