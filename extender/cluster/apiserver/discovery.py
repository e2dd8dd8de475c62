"""Discovery documents and health, as far as ``kubectl`` and client libraries ask for them."""

from __future__ import annotations

import platform
from typing import Any

from extender.cluster.apiserver.answer import Answer, answer_value
from extender.cluster.apiserver.resource import Catalogue, Resource

_HEALTH_PATHS = frozenset({"/healthz", "/livez", "/readyz"})
_OBJECT_VERBS = ["create", "delete", "get", "list", "patch", "update", "watch"]

PUBLIC_PATHS = _HEALTH_PATHS | {"/version"}
"""What is answered without a token."""


def answer_discovery(catalogue: Catalogue, path: str) -> Answer | None:
    """Answer a request for health, version or discovery; None if the path is another one."""
    if path in _HEALTH_PATHS:
        return Answer(200, (b"ok",), content_type="text/plain")
    document = _document(catalogue, path.strip("/"))
    return None if document is None else answer_value(document)


def _document(catalogue: Catalogue, path: str) -> dict[str, Any] | None:
    groups = sorted({(resource.group, resource.version) for resource in catalogue if resource.group})
    match path.split("/"):
        case ["version"]:
            return _version()
        case ["api"]:
            return {"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": []}
        case ["apis"]:
            names = sorted({group for group, _ in groups})
            members = [_group(name, [version for group, version in groups if group == name]) for name in names]
            return {"kind": "APIGroupList", "apiVersion": "v1", "groups": members}
        case ["apis", name]:
            versions = [version for group, version in groups if group == name]
            return {"kind": "APIGroup", "apiVersion": "v1", **_group(name, versions)} if versions else None
        case ["api", version]:
            return _resource_list(catalogue, "", version)
        case ["apis", group, version]:
            return _resource_list(catalogue, group, version)
    return None


def _version() -> dict[str, str]:
    return {
        "major": "1",
        "minor": "36",
        "gitVersion": "v1.36.0+embedded",
        "gitCommit": "",
        "gitTreeState": "",
        "buildDate": "",
        "goVersion": "",
        "compiler": platform.python_implementation().lower(),
        "platform": f"{platform.system()}/{platform.machine()}".lower(),
    }


def _group(name: str, versions: list[str]) -> dict[str, Any]:
    entries = [{"groupVersion": f"{name}/{version}", "version": version} for version in versions]
    return {"name": name, "versions": entries, "preferredVersion": entries[0]}


def _resource_list(catalogue: Catalogue, group: str, version: str) -> dict[str, Any] | None:
    served = [resource for resource in catalogue if (resource.group, resource.version) == (group, version)]
    if not served:
        return None
    resources = [entry for resource in served for entry in _entries(resource)]
    group_version = f"{group}/{version}" if group else version
    return {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": group_version, "resources": resources}


def _entries(resource: Resource) -> list[dict[str, Any]]:
    """Return the entries of a resource and of its subresources."""
    shape = {"singularName": "", "namespaced": resource.namespaced, "kind": resource.kind}
    own = {"name": resource.plural, **shape, "singularName": resource.kind.lower(), "verbs": _OBJECT_VERBS}
    if resource.short_names:
        own["shortNames"] = list(resource.short_names)
    entries = [own]
    if resource.status:
        entries.append({"name": f"{resource.plural}/status", **shape, "verbs": ["patch", "update", "get"]})
    if resource.plural == "pods" and not resource.group:
        entries.append({"name": "pods/binding", **shape, "kind": "Binding", "verbs": ["create"]})
        entries.append({"name": "bindings", **shape, "kind": "Binding", "verbs": ["create"]})
    return entries
