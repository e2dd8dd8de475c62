"""Reviews: whose a token is, and what its owner, or the asking client itself, may do. They are answered, never kept."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from extender.cluster.apiserver.answer import Answer
from extender.cluster.apiserver.option import ServerOptions
from extender.cluster.apiserver.patch import decode_body
from extender.cluster.apiserver.resource import Resource
from extender.cluster.apiserver.status import bad_request, forbidden

_Judge = Callable[[ServerOptions, dict[str, Any]], dict[str, Any]]


def answer_review(options: ServerOptions, path: str, body: bytes) -> Answer | None:
    """Answer a review; None if the path is another one.

    Raise ``StatusError`` 400 for one that cannot be read, and 403 if ``options.forbidden`` has its creation.
    """
    if path not in _JUDGES:
        return None
    resource, judge = _JUDGES[path]
    if ("create", resource.qualified) in options.forbidden:
        raise forbidden(resource, "", f'User "{options.user}" cannot create resource "{resource.plural}"')
    review = decode_body(body)
    spec = review.get("spec") if isinstance(review, dict) else None
    if not isinstance(spec, dict):
        raise bad_request("spec: the review has none")
    reviewed = {"kind": resource.kind, "apiVersion": resource.api_version, "metadata": {}, "spec": spec}
    return Answer(201, (msgspec.json.encode({**reviewed, "status": judge(options, spec)}),))


def _judge_token(options: ServerOptions, spec: dict[str, Any]) -> dict[str, Any]:
    user = options.users.get(spec.get("token") or "")
    if user is None:
        return {"user": {}, "error": "[invalid bearer token]"}
    return {"authenticated": True, "user": {"username": user, "groups": ["system:authenticated"]}}


def _judge_access(options: ServerOptions, spec: dict[str, Any]) -> dict[str, Any]:
    """Return what ``options.forbidden`` says of a resource, and ``options.readers`` of a path outside the API."""
    path, attributes = spec.get("nonResourceAttributes"), spec.get("resourceAttributes")
    if isinstance(path, dict):
        return {
            "allowed": path.get("verb") == "get"
            and (spec.get("user", options.user), path.get("path")) in options.readers
        }
    if isinstance(attributes, dict):
        return {"allowed": (attributes.get("verb"), _qualified(attributes)) not in options.forbidden}
    raise bad_request("spec: one of resourceAttributes and nonResourceAttributes has to be given")


def _qualified(attributes: dict[str, Any]) -> str:
    """Return the resource as ``options.forbidden`` names it."""
    group, subresource = attributes.get("group"), attributes.get("subresource")
    name = f"{attributes.get('resource')}.{group}" if group else str(attributes.get("resource"))
    return f"{name}/{subresource}" if subresource else name


def _judged(kind: str, group: str, judge: _Judge) -> tuple[str, tuple[Resource, _Judge]]:
    resource = Resource(f"{kind.lower()}s", kind, group, namespaced=False, status=False)
    return f"/apis/{resource.api_version}/{resource.plural}", (resource, judge)


_JUDGES = dict(
    (
        _judged("TokenReview", "authentication.k8s.io", _judge_token),
        _judged("SubjectAccessReview", "authorization.k8s.io", _judge_access),
        _judged("SelfSubjectAccessReview", "authorization.k8s.io", _judge_access),
    )
)
