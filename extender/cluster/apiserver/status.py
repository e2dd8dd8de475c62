"""Failures as an API server words them: a Status object with code, reason, message and details.

Texts follow ``apimachinery/pkg/api/errors`` and ``apiserver/pkg/storage`` of Kubernetes 1.36.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from extender.cluster.apiserver.resource import Resource

_REASONS = {
    400: "BadRequest",
    401: "Unauthorized",
    403: "Forbidden",
    404: "NotFound",
    405: "MethodNotAllowed",
    409: "Conflict",
    410: "Expired",
    413: "RequestEntityTooLarge",
    415: "UnsupportedMediaType",
    422: "Invalid",
    429: "TooManyRequests",
    500: "InternalError",
    503: "ServiceUnavailable",
    504: "Timeout",
}


class StatusError(Exception):
    """A request that is answered with a Failure Status; ``reason`` follows from ``code`` unless it is given."""

    def __init__(
        self,
        code: int,
        message: str,
        *,
        reason: str = "",
        details: Mapping[str, Any] | None = None,
        metadata: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.reason = reason or _REASONS.get(code, "")
        self.details = dict(details or {})
        self.metadata = dict(metadata or {})

    @property
    def headers(self) -> dict[str, str]:
        """The headers that go with the answer."""
        seconds = self.details.get("retryAfterSeconds")
        return {"Retry-After": str(seconds)} if seconds else {}

    def encode(self) -> bytes:
        """Return the Status as JSON."""
        status: dict[str, Any] = {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": self.metadata,
            "status": "Failure",
            "message": self.message,
        }
        if self.reason:
            status["reason"] = self.reason
        if self.details:
            status["details"] = self.details
        status["code"] = self.code
        return msgspec.json.encode(status)


def encode_success(details: Mapping[str, Any] | None = None, code: int | None = None) -> bytes:
    """Return a Success Status as JSON."""
    status: dict[str, Any] = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"}
    if details:
        status["details"] = details
    if code:
        status["code"] = code
    return msgspec.json.encode(status)


def describe(resource: Resource, name: str = "", subresource: str = "") -> dict[str, Any]:
    """Return the details that name an object or a resource."""
    details = {"name": name} if name else {}
    if resource.group:
        details["group"] = resource.group
    details["kind"] = f"{resource.plural}/{subresource}" if subresource else resource.plural
    return details


def not_found(resource: Resource, name: str) -> StatusError:
    """There is no object of that name."""
    return StatusError(404, f'{resource.qualified} "{name}" not found', details=describe(resource, name))


def not_served() -> StatusError:
    """The path leads nowhere."""
    return StatusError(404, "the server could not find the requested resource")


def not_allowed() -> StatusError:
    """The path does not know the method."""
    return StatusError(405, "the server does not allow this method on the requested resource")


def already_exists(resource: Resource, name: str) -> StatusError:
    """The name is taken."""
    message = f'{resource.qualified} "{name}" already exists'
    return StatusError(409, message, reason="AlreadyExists", details=describe(resource, name))


def conflict(resource: Resource, name: str, why: str, subresource: str = "") -> StatusError:
    """The object is not in the state that the request needs."""
    qualified = f"{resource.qualified}/{subresource}" if subresource else resource.qualified
    message = f'Operation cannot be fulfilled on {qualified} "{name}": {why}'
    return StatusError(409, message, details=describe(resource, name, subresource))


def stale(resource: Resource, name: str) -> StatusError:
    """The object was changed since the client read it."""
    why = "the object has been modified; please apply your changes to the latest version and try again"
    return conflict(resource, name, why)


def wrong_uid(resource: Resource, key: str, wanted: str, found: str) -> StatusError:
    """The object of that name is another one than the client means."""
    why = (
        f"StorageError: invalid object, Code: 4, Key: /registry/{resource.plural}/{key}, ResourceVersion: 0, "
        f"AdditionalErrorMsg: Precondition failed: UID in precondition: {wanted}, UID in object meta: {found}"
    )
    return conflict(resource, key.rpartition("/")[2], why)


def invalid(kind: str, name: str, problems: Sequence[tuple[str, str, str]], group: str = "") -> StatusError:
    """The object breaks rules; each problem is a cause's reason, its field and what is wrong with it."""
    texts = [f"{path}: {text}" for _, path, text in problems]
    joined = texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]"
    details: dict[str, Any] = {"name": name} if name else {}
    if group:
        details["group"] = group
    details["kind"] = kind
    details["causes"] = [{"reason": cause, "message": text, "field": path} for cause, path, text in problems]
    qualified = f"{kind}.{group}" if group else kind
    return StatusError(422, f'{qualified} "{name}" is invalid: {joined}', details=details)


def bad_request(message: str) -> StatusError:
    """The request cannot be understood."""
    return StatusError(400, message)


def forbidden(resource: Resource, name: str, why: str) -> StatusError:
    """The request is understood and refused."""
    subject = f'{resource.qualified} "{name}"' if name else resource.qualified
    return StatusError(403, f"{subject} is forbidden: {why}", details=describe(resource, name))


def expired(message: str, metadata: Mapping[str, Any] | None = None) -> StatusError:
    """The resource version is no longer known."""
    return StatusError(410, message, metadata=metadata)


def too_large_version(wanted: int, current: int) -> StatusError:
    """The resource version was not reached yet."""
    details = {
        "causes": [{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}],
        "retryAfterSeconds": 1,
    }
    return StatusError(504, f"Timeout: Too large resource version: {wanted}, current: {current}", details=details)
