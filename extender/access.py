"""Who may read the management port: bearers of tokens that the API server accepts and gives leave to.

As at kube-scheduler's own secure port: TokenReview, then SubjectAccessReview for the path; probes are open to everyone;
verdicts hold for ten seconds; and while the API server cannot be asked, nobody is let in whom it has not judged.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from time import monotonic
from typing import Final, TypeAlias

from starlette.datastructures import Headers
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from extender.cluster.client import Client
from extender.cluster.review import authenticate, authorize
from extender.errors import ApiError, ClusterError

_log = logging.getLogger(__name__)

OPEN_PATHS: Final = frozenset({"/livez", "/readyz", "/healthz"})
"""What everyone may read, as ``--authorization-always-allow-paths`` of kube-scheduler has it."""

_VERDICT_SECONDS: Final = 10.0
_MOST_VERDICTS: Final = 1024
_REVIEW_SECONDS: Final = 5.0

_Key: TypeAlias = tuple[bytes, str, str]


@dataclass(frozen=True)
class Denial:
    """Why a request is not answered."""

    status: int
    text: str


_NO_TOKEN: Final = Denial(401, "a bearer token is needed, such as that of a service account")
_BAD_TOKEN: Final = Denial(401, "the API server does not accept the token")
_NO_VERDICT: Final = Denial(503, "the API server cannot be asked whose the token is: the log of the extender says why")


class AccessReviewer:
    """Has the API server judge requests; callable from any event loop.

    The client belongs to ``loop``, where its calls are made. Tokens are not kept: verdicts go by their digest.
    """

    def __init__(
        self, client: Client, loop: asyncio.AbstractEventLoop, *, clock: Callable[[], float] = monotonic
    ) -> None:
        self._client = client
        self._loop = loop
        self._clock = clock
        self._verdicts: OrderedDict[_Key, tuple[float, Denial | None]] = OrderedDict()

    async def review(self, authorization: str, verb: str, path: str) -> Denial | None:
        """Return why whoever sent the header ``authorization`` may not do ``verb`` to ``path``, or None."""
        scheme, _, token = authorization.strip().partition(" ")
        token = token.strip()
        if scheme.lower() != "bearer" or not token:
            return _NO_TOKEN
        key = (hashlib.sha256(token.encode("utf-8", "surrogateescape")).digest(), verb, path)
        known = self._verdicts.get(key)
        if known is not None and self._clock() < known[0]:
            return known[1]
        try:
            async with asyncio.timeout(_REVIEW_SECONDS):
                question = asyncio.run_coroutine_threadsafe(self._ask(token, verb, path), self._loop)
                verdict = await asyncio.wrap_future(question)
        except (ClusterError, TimeoutError) as error:
            may_not_ask = isinstance(error, ApiError) and error.code == 403
            hint = "grant this service what manifests/authentication does" if may_not_ask else ""
            problem = str(error) or "deadline exceeded"
            _log.warning("access not reviewed", extra={"path": path, "problem": problem, "hint": hint})
            return _NO_VERDICT
        self._verdicts[key] = (self._clock() + _VERDICT_SECONDS, verdict)
        self._verdicts.move_to_end(key)
        if len(self._verdicts) > _MOST_VERDICTS:
            self._verdicts.popitem(last=False)
        return verdict

    async def _ask(self, token: str, verb: str, path: str) -> Denial | None:
        user = await authenticate(self._client, token)
        if user is None:
            return _BAD_TOKEN
        if await authorize(self._client, user, verb, path):
            return None
        return Denial(403, f'user "{user.username}" may not {verb} path "{path}": grant it as a nonResourceURL')


class Guard:
    """Lets requests through to ``app`` that the reviewer allows, and those for open paths."""

    def __init__(self, app: ASGIApp, reviewer: AccessReviewer) -> None:
        self._app = app
        self._reviewer = reviewer

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or tell why not."""
        denial = None
        if scope["type"] == "http" and scope["path"] not in OPEN_PATHS:
            authorization = Headers(scope=scope).get("authorization", "")
            method = "GET" if scope["method"] == "HEAD" else scope["method"]  # less than what may be had anyway
            denial = await self._reviewer.review(authorization, method.lower(), scope["path"])
        if denial is None:
            await self._app(scope, receive, send)
            return
        headers = {"WWW-Authenticate": "Bearer"} if denial.status == 401 else {}
        await PlainTextResponse(f"{denial.text}\n", denial.status, headers)(scope, receive, send)
