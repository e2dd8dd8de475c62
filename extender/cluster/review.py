"""Whose a token is and what its owner may do, as the API server judges.

Source: ``authentication.k8s.io/v1`` TokenReview and ``authorization.k8s.io/v1`` SubjectAccessReview of Kubernetes 1.36.
"""

from __future__ import annotations

from typing import Any, Final, TypeVar

import msgspec

from extender.cluster.client import Client
from extender.errors import ApiUnreachable

Review = TypeVar("Review")

AUTHENTICATION_PATH: Final = "/apis/authentication.k8s.io/v1/tokenreviews"
AUTHORIZATION_PATH: Final = "/apis/authorization.k8s.io/v1/subjectaccessreviews"


class User(msgspec.Struct, omit_defaults=True):
    """The owner of a token."""

    username: str = ""
    uid: str | None = None
    groups: list[str] | None = None
    extra: dict[str, list[str]] | None = None


class _TokenStatus(msgspec.Struct):
    authenticated: bool = False
    user: User | None = None


class _TokenReview(msgspec.Struct):
    status: _TokenStatus = msgspec.field(default_factory=_TokenStatus)


class _AccessStatus(msgspec.Struct):
    allowed: bool = False


class _AccessReview(msgspec.Struct):
    status: _AccessStatus = msgspec.field(default_factory=_AccessStatus)


async def authenticate(client: Client, token: str, *, timeout_seconds: float = 5.0) -> User | None:
    """Return the owner of a bearer token, or None if the API server does not accept it.

    Raises ApiError when this service may not ask, and ApiUnreachable.
    """
    review = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": {"token": token}}
    status = (await _post(client, AUTHENTICATION_PATH, review, _TokenReview, timeout_seconds)).status
    return (status.user or User()) if status.authenticated else None


async def authorize(client: Client, user: User, verb: str, path: str, *, timeout_seconds: float = 5.0) -> bool:
    """Return whether ``user`` may do ``verb``, such as ``get``, to a path outside the API.

    Raises ApiError when this service may not ask, and ApiUnreachable.
    """
    spec: dict[str, Any] = {"user": user.username, "nonResourceAttributes": {"path": path, "verb": verb}}
    given = {"uid": user.uid, "groups": user.groups, "extra": user.extra}
    spec |= {name: value for name, value in given.items() if value}
    review = {"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": spec}
    return (await _post(client, AUTHORIZATION_PATH, review, _AccessReview, timeout_seconds)).status.allowed


async def _post(client: Client, path: str, review: Any, kind: type[Review], timeout_seconds: float) -> Review:
    body = msgspec.json.encode(review)
    answer = await client.request("POST", path, body=body, timeout_seconds=timeout_seconds)
    try:
        return msgspec.json.decode(answer, type=kind)
    except msgspec.DecodeError as error:
        raise ApiUnreachable(f"POST {client.connection.url}{path}: the answer is no review: {error}") from error
