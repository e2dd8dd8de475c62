"""One request to an extender, as kube-scheduler sends it, and what came back."""

from __future__ import annotations

import json
import ssl
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Self

import httpx

from extender.doctor.target import Target

_HEADERS = {"User-Agent": "Go-http-client/1.1", "Content-Type": "application/json", "Accept-Encoding": "gzip"}
_SHOWN = 200
_LARGEST_BYTES = 64 * 1024 * 1024


@dataclass(frozen=True)
class Answer:
    """What came back; ``failure`` says in words why nothing did, and then there is no status."""

    status: int = 0
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""
    seconds: float = 0.0
    failure: str = ""
    is_late: bool = False

    @property
    def excerpt(self) -> str:
        """The beginning of the body on one line."""
        text = " ".join(self.body[: 4 * _SHOWN].decode("utf-8", "replace").split())
        return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."


class Caller:
    """Sends requests to one extender over one connection; used within ``with``."""

    def __init__(self, target: Target, context: ssl.SSLContext | None) -> None:
        self.target = target
        self._http = httpx.Client(
            verify=context or False,
            trust_env=False,
            follow_redirects=False,
            timeout=target.timeout_seconds,
            headers=_HEADERS,
        )
        self._extensions = {"sni_hostname": target.server_name} if target.is_https else {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._http.close()

    def post(self, url: str, args: Mapping[str, Any]) -> Answer:
        """POST arguments of a verb."""
        return self._send("POST", url, json.dumps(args, separators=(",", ":")).encode())

    def get(self, url: str) -> Answer:
        """GET a URL: extenders do nothing when they are asked so."""
        return self._send("GET", url, None)

    def _send(self, method: str, url: str, body: bytes | None) -> Answer:
        started = time.monotonic()
        try:
            request = self._http.build_request(method, url, content=body, extensions=self._extensions)
            request.headers["Host"] = self.target.named.netloc.rpartition("@")[2]
            response = self._http.send(request, stream=True)
            try:
                content = self._read(response, started)
            finally:
                response.close()
        except httpx.TimeoutException:
            return Answer(seconds=time.monotonic() - started, failure="no answer", is_late=True)
        except (httpx.HTTPError, httpx.InvalidURL, ValueError) as error:  # names that no host can have, too
            return Answer(seconds=time.monotonic() - started, failure=str(error) or type(error).__name__)
        return Answer(response.status_code, response.headers, content, time.monotonic() - started)

    def _read(self, response: httpx.Response, started: float) -> bytes:
        """Return the body; the time limit is for all of it."""
        content = bytearray()
        for chunk in response.iter_bytes():
            content += chunk
            if time.monotonic() - started > self.target.timeout_seconds:
                raise httpx.ReadTimeout("", request=response.request)
            if len(content) > _LARGEST_BYTES:
                break
        return bytes(content)
