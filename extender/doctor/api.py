"""Reads of the API server that the checks need, over the connection the service would use."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any

import httpx
import msgspec

from extender.cluster.client import Client
from extender.cluster.connection import Connection
from extender.errors import ApiError, ApiUnreachable, ClusterError
from extender.testing.reply import Json

_PAGE = 500
_MOST_PAGES = 40
"""Twenty thousand objects: enough to see what a cluster is like, and little enough not to weigh on its API server."""
_TIMEOUT_SECONDS = 10.0


@dataclass(frozen=True)
class Greeting:
    """What the API server says of itself; ``skew_seconds`` is how far its clock is ahead of this one."""

    version: str
    skew_seconds: float | None


class Api:
    """One API server, for as long as ``async with`` lasts; every method raises ClusterError, saying what to look at."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self._client = Client(connection)

    async def __aenter__(self) -> Api:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._client.close()

    async def greet(self) -> Greeting:
        """Return version and clock; both come with one answer, whose headers the service's own client leaves out."""
        connection = self.connection
        # The client's message is the better one, so it goes first.
        await self._client.request("GET", "/version", timeout_seconds=_TIMEOUT_SECONDS)
        authorization = await connection.credential.header()
        extensions = {"sni_hostname": connection.server_name} if connection.server_name else {}
        try:
            async with httpx.AsyncClient(
                verify=connection.tls.current() if connection.tls else True,
                proxy=connection.proxy,
                trust_env=False,
                timeout=_TIMEOUT_SECONDS,
            ) as http:
                started = time.time()
                response = await http.get(
                    f"{connection.url}/version",
                    headers={"Authorization": authorization} if authorization else {},
                    extensions=extensions,
                )
                passed = time.time() - started
            version = str(response.json()["gitVersion"])
        except (httpx.HTTPError, ValueError, KeyError, TypeError) as error:
            raise ApiUnreachable(f"GET {connection.url}/version: no usable answer: {error!r}") from error
        return Greeting(version, _skew_seconds(response.headers.get("Date"), started + passed / 2))

    async def get(self, path: str, params: Mapping[str, str] | None = None) -> Json:
        """Return an object or a list."""
        body = await self._client.request("GET", path, params=params, timeout_seconds=_TIMEOUT_SECONDS)
        return self._decoded(body, path)

    async def post(self, path: str, body: Json) -> Json:
        """Create an object, such as a review, and return what it became."""
        content = msgspec.json.encode(body)
        answer = await self._client.request("POST", path, body=content, timeout_seconds=_TIMEOUT_SECONDS)
        return self._decoded(answer, path)

    async def pages(self, path: str, params: Mapping[str, str] | None = None) -> AsyncIterator[Json]:
        """Yield a list page by page, as many as are looked at; the last one says if there are more."""
        query = {"limit": str(_PAGE), **(params or {})}
        for _ in range(_MOST_PAGES):
            page = await self.get(path, query)
            yield page
            token = (page.get("metadata") or {}).get("continue")
            if not token:
                return
            query["continue"] = str(token)

    async def find(self, path: str, params: Mapping[str, str] | None = None) -> list[Json]:
        """Return the objects of a list that is short by its selectors."""
        return [item async for page in self.pages(path, params) for item in page.get("items") or ()]

    def _decoded(self, body: bytes, path: str) -> Json:
        try:
            value: Any = msgspec.json.decode(body)
        except msgspec.DecodeError as error:
            raise ApiUnreachable(f"GET {self.connection.url}{path}: the answer is no JSON: {error}") from error
        if not isinstance(value, dict):
            raise ApiUnreachable(f"GET {self.connection.url}{path}: the answer is no object")
        return value


def refusal(error: ClusterError) -> str:
    """Return why a check could not be made, in short."""
    if isinstance(error, ApiError) and error.code == 403:
        return f"not allowed to whoever runs the doctor: {error.message}"
    return str(error)


def _skew_seconds(date: str | None, local: float) -> float | None:
    """Return how far ``date``, whole seconds rounded down, is ahead of ``local``, in seconds since 1970."""
    try:
        moment = parsedate_to_datetime(date) if date else None
    except ValueError:
        return None
    if moment is None:
        return None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return moment.timestamp() + 0.5 - local if moment > datetime.fromtimestamp(0, UTC) else None
