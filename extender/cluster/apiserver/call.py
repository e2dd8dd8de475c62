"""A request taken apart: which objects it is about and what it wants of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from extender.cluster.apiserver.patch import decode_body
from extender.cluster.apiserver.resource import Catalogue, Resource
from extender.cluster.apiserver.status import StatusError, bad_request, not_served

_VERBS = {"POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}
_NAMESPACE_SUBRESOURCES = ("status", "finalize")

_BINDINGS = "bindings"
"""Bindings are created and never kept: not a resource with objects, but another way to a pod's binding."""


@dataclass(frozen=True)
class Target:
    """What a path points at; ``namespace``, ``name`` and ``subresource`` are empty where it does not say."""

    resource: Resource
    namespace: str = ""
    name: str = ""
    subresource: str = ""

    @property
    def qualified(self) -> str:
        """The resource as rules of access name it."""
        suffix = f"/{self.subresource}" if self.subresource else ""
        return f"{self.resource.qualified}{suffix}"


@dataclass(frozen=True)
class Call:
    """One request for objects."""

    method: str
    target: Target
    query: Mapping[str, str]
    content_type: str
    body: bytes

    @property
    def verb(self) -> str:
        """The verb that rules of access know the request by."""
        if self.method != "GET":
            return _VERBS.get(self.method, self.method.lower())
        if self.target.name:
            return "get"
        return "watch" if is_watch(self.query) else "list"

    @cached_property
    def content(self) -> dict[str, Any]:
        """The body as a JSON object, empty if there is none; raises ``StatusError`` 400 or 415 for any other."""
        if not self.body:
            return {}
        if self.content_type not in ("", "application/json", "application/octet-stream"):
            raise StatusError(
                415,
                "the body of the request was in an unknown format - accepted media types include: application/json",
            )
        content = decode_body(self.body)
        if not isinstance(content, dict):
            raise bad_request("the body of the request is not an object")
        return content


def is_watch(query: Mapping[str, str]) -> bool:
    """Tell whether a list request wants to watch."""
    return query.get("watch") in ("true", "1")


def parse_target(catalogue: Catalogue, path: str) -> Target:
    """Return what a path points at; raise ``StatusError`` 404 if it points nowhere."""
    parts = path.strip("/").split("/")
    if parts[0] == "api" and len(parts) > 2:
        group, version, rest = "", parts[1], parts[2:]
    elif parts[0] == "apis" and len(parts) > 3:
        group, version, rest = parts[1], parts[2], parts[3:]
    else:
        raise not_served()
    namespace = ""
    if rest[0] == "namespaces" and len(rest) > 2 and rest[2] not in _NAMESPACE_SUBRESOURCES:
        namespace, rest = rest[1], rest[2:]
    if not group and rest == [_BINDINGS]:
        return Target(catalogue.named("pods"), namespace, subresource="binding")
    resource = catalogue.at(group, version, rest[0])
    if resource is None or len(rest) > 3 or (namespace and not resource.namespaced):
        raise not_served()
    name, subresource = [*rest[1:], "", ""][:2]
    if name and resource.namespaced and not namespace:
        raise not_served()
    return Target(resource, namespace, name, subresource)
