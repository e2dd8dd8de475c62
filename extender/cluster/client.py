"""Requests to the API server over one pool of connections; failures are this service's own exceptions."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from importlib.metadata import version
from time import perf_counter
from urllib.parse import quote

import aiohttp
import msgspec
from yarl import URL

from extender.cluster.action import action_of
from extender.cluster.connection import Connection
from extender.cluster.status import api_error
from extender.errors import ApiError, ApiUnreachable, ConfigurationError
from extender.model.object import Labels, Pod

USER_AGENT = f"scheduler-extender/{version('kube-scheduler-extender')}"

READ_BUFFER_BYTES = 2 * 1024 * 1024
"""Bytes taken in before the server is made to wait; an event can be larger than a megabyte."""

KEEP_ALIVE_SECONDS = 60.0
"""How long an idle connection is kept; below the 90 s after which kube-apiserver closes it."""

Observe = Callable[[str, str, str, float], None]

_POD_DECODER = msgspec.json.Decoder(Pod)


class BindingMetadata(msgspec.Struct, omit_defaults=True):
    """Which pod is bound; the server refuses if a pod of that name has another UID by now."""

    namespace: str
    name: str
    uid: str
    annotations: Labels | None = None


class BindingTarget(msgspec.Struct):
    """The node a pod is bound to."""

    name: str
    kind: str = "Node"
    apiVersion: str = "v1"  # noqa: N815 - the wire's own name


class Binding(msgspec.Struct):
    """A ``v1`` Binding; its annotations are written to the pod together with the node."""

    metadata: BindingMetadata
    target: BindingTarget
    kind: str = "Binding"
    apiVersion: str = "v1"  # noqa: N815 - the wire's own name


class Client:
    """A client of one API server; it must be closed, and be used on one event loop only.

    Every method raises ApiError when the server answers with a failure, and ApiUnreachable when it does not answer,
    whose ``maybe_done`` says that the request may have been carried out. Requests are never held back: binds run as
    concurrently as they are asked for.
    """

    def __init__(
        self,
        connection: Connection,
        *,
        connect_seconds: float = 5.0,
        observe: Observe = lambda *_: None,
    ) -> None:
        """``observe`` is told verb, resource, status code and seconds of each request; the code is none without one."""
        self.connection = connection
        self._observe = observe
        self._connect_seconds = connect_seconds
        self._opened: aiohttp.ClientSession | None = None

    async def close(self) -> None:
        """Close all connections; requests under way fail."""
        if self._opened is not None:
            await self._opened.close()

    async def request(
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, str] | None = None,
        body: bytes | None = None,
        content_type: str = "application/json",
        timeout_seconds: float | None = 10.0,
        silence_seconds: float | None = None,
    ) -> bytes:
        """Send one request and return the body of the answer.

        ``timeout_seconds`` is for the whole exchange, ``silence_seconds`` for the time between two pieces of it.
        """
        timeout = self._timeout(timeout_seconds, silence_seconds)
        with self._explained(method, path):
            response = await self._send(
                method, path, timeout=timeout, params=params, body=body, content_type=content_type
            )
            async with response:
                content = await response.read()
        if response.status >= 300:
            raise self._refusal(response, content)
        return content

    @asynccontextmanager
    async def stream(
        self, path: str, *, params: Mapping[str, str], silence_seconds: float
    ) -> AsyncGenerator[AsyncIterator[list[bytes]], None]:
        """Open a watch; the value entered with yields the lines that came, as many at a time as have come.

        A stream that is silent for ``silence_seconds`` is dead: connections can be lost without a sign.
        """
        timeout = self._timeout(None, silence_seconds)
        with self._explained("GET", path):
            response = await self._send("GET", path, timeout=timeout, params=params)
        async with response:
            if response.status >= 300:
                with self._explained("GET", path):
                    content = await response.read()
                raise self._refusal(response, content)
            yield self._lines(path, response)

    async def bind(
        self,
        namespace: str,
        name: str,
        uid: str,
        node: str,
        annotations: Labels | None = None,
        *,
        timeout_seconds: float = 10.0,
    ) -> None:
        """Bind the pod with that UID to ``node`` and annotate it, in one write."""
        binding = Binding(BindingMetadata(namespace, name, uid, annotations), BindingTarget(node))
        path = f"{_pod_path(namespace, name)}/binding"
        await self.request("POST", path, body=msgspec.json.encode(binding), timeout_seconds=timeout_seconds)

    async def get_pod(self, namespace: str, name: str) -> Pod:
        """Return a pod as it is now."""
        path = _pod_path(namespace, name)
        body = await self.request("GET", path)
        try:
            return _POD_DECODER.decode(body)
        except msgspec.DecodeError as error:
            raise ApiUnreachable(f"GET {self.connection.url}{path}: the answer is no pod: {error}") from error

    async def _send(
        self,
        method: str,
        path: str,
        *,
        timeout: aiohttp.ClientTimeout,  # noqa: ASYNC109 - limits of the library, not a deadline
        params: Mapping[str, str] | None = None,
        body: bytes | None = None,
        content_type: str | None = None,
    ) -> aiohttp.ClientResponse:
        """Send a request, a second time with a fresh credential if the first one was refused."""
        connection = self.connection
        url = URL(connection.url + path, encoded=True)
        headers = {"Content-Type": content_type} if body is not None and content_type else {}
        may_renew = connection.credential.is_renewable
        while True:
            authorization = await connection.credential.header()
            if authorization is not None:
                headers["Authorization"] = authorization
            started, code = perf_counter(), "none"
            try:
                response = await self._session.request(
                    method,
                    url,
                    params=params,
                    data=body,
                    headers=headers,
                    timeout=timeout,
                    allow_redirects=False,
                    ssl=connection.tls.current() if connection.tls is not None else True,
                    server_hostname=connection.server_name,
                    proxy=connection.proxy,
                )
                code = str(response.status)
            finally:
                verb, resource = action_of(method, path, watch=params is not None and "watch" in params)
                self._observe(verb, resource, code, perf_counter() - started)
            if response.status != 401 or not may_renew:
                return response
            may_renew = False
            response.release()
            await connection.credential.renew(authorization)

    async def _lines(self, path: str, response: aiohttp.ClientResponse) -> AsyncIterator[list[bytes]]:
        """Yield complete lines; a last one without an end is yielded too, for its reader to judge."""
        rest = b""
        while True:
            with self._explained("GET", path):
                chunk = await response.content.readany()
            if not chunk:
                break
            lines = (rest + chunk).split(b"\n")
            rest = lines.pop()
            if lines:
                yield lines
        if rest:
            yield [rest]

    @property
    def _session(self) -> aiohttp.ClientSession:
        """The session, opened at first use because it belongs to the event loop that runs then."""
        if self._opened is None:
            self._opened = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=KEEP_ALIVE_SECONDS),
                # Packing costs both ends more than the network between them.
                headers=[
                    *(("User-Agent", USER_AGENT), ("Accept", "application/json"), ("Accept-Encoding", "identity")),
                    *self.connection.impersonation,
                ],
                cookie_jar=aiohttp.DummyCookieJar(),
                read_bufsize=READ_BUFFER_BYTES,
            )
        return self._opened

    def _timeout(self, total_seconds: float | None, silence_seconds: float | None) -> aiohttp.ClientTimeout:
        return aiohttp.ClientTimeout(total=total_seconds, sock_connect=self._connect_seconds, sock_read=silence_seconds)

    def _refusal(self, response: aiohttp.ClientResponse, content: bytes) -> ApiError:
        """Return the exception for an answer that is no success."""
        error = api_error(response.status, content, response.headers.get("Retry-After"))
        if error.code != 401:
            return error
        return ApiError(401, error.reason, f"{error.message}: check the credentials of {self.connection.origin}")

    @contextmanager
    def _explained(self, method: str, path: str) -> Iterator[None]:
        """Turn what the library raises into ApiUnreachable, with a text that says what to look at."""
        target = f"{method} {self.connection.url}{path}"
        try:
            yield
        except ConfigurationError as error:
            raise ApiUnreachable(f"{target}: not sent for lack of credentials: {error}") from error
        except aiohttp.ClientSSLError as error:
            raise ApiUnreachable(
                f"{target}: TLS failed: {error}; check the certificate authority of {self.connection.origin}"
            ) from error
        except aiohttp.ClientHttpProxyError as error:
            # Its text, and so its traceback, holds the URL of the proxy, which may hold a password.
            raise ApiUnreachable(
                f"{target}: the proxy answered {error.status} {error.message}; "
                f"check proxy-url in {self.connection.origin}"
            ) from None
        except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError) as error:
            raise ApiUnreachable(
                f"{target}: no connection: {_text(error)}; check the address in {self.connection.origin}, "
                "network policies and the proxy"
            ) from error
        except (aiohttp.ClientError, OSError) as error:  # TimeoutError is an OSError
            raise ApiUnreachable(f"{target}: no answer: {_text(error)}", maybe_done=True) from error


def _pod_path(namespace: str, name: str) -> str:
    """Return the path of a pod; names come from requests, so whatever has a meaning in a path is quoted."""
    return f"/api/v1/namespaces/{quote(namespace, safe='')}/pods/{quote(name, safe='')}"


def _text(error: BaseException) -> str:
    """Return the text of an exception; a deadline has none of its own."""
    return str(error) or ("deadline exceeded" if isinstance(error, TimeoutError) else type(error).__name__)
