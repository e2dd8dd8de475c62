"""What an object must look like before the server takes it: identity and the shapes that selectors read.

The server does not know the whole schema of each kind; what it does not read it keeps as it is.
"""

from __future__ import annotations

import re
from typing import Any

from extender.cluster.apiserver.resource import Resource

_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?")

Problem = tuple[str, str, str]
"""Reason of the cause, path of the field, what is wrong with it."""


def find_problems(resource: Resource, obj: dict[str, Any]) -> list[Problem]:
    """Return everything that is wrong with an object; nothing if it can be kept."""
    metadata = obj.get("metadata")
    if not isinstance(metadata, dict):
        return [_wrong("metadata", "an object", metadata)]
    return [
        *_identity(resource, obj, metadata),
        *_strings("metadata.labels", metadata.get("labels")),
        *_strings("metadata.annotations", metadata.get("annotations")),
        *_shapes(obj),
        *(_pod_shapes(obj.get("spec")) if resource.plural == "pods" else ()),
    ]


def _identity(resource: Resource, obj: dict[str, Any], metadata: dict[str, Any]) -> list[Problem]:
    problems = [
        ("FieldValueInvalid", key, f'Invalid value: "{obj[key]}": must be "{expected}"')
        for key, expected in (("apiVersion", resource.api_version), ("kind", resource.kind))
        if obj.get(key, expected) != expected
    ]
    for key in ("name", "generateName", "namespace", "uid", "resourceVersion"):
        value = metadata.get(key)
        if value is not None and not isinstance(value, str):
            problems.append(_wrong(f"metadata.{key}", "a string", value))
    name = metadata.get("name") or metadata.get("generateName")
    if not name:
        text = "Required value: name or generateName is required"
        problems.append(("FieldValueRequired", "metadata.name", text))
    elif isinstance(name, str) and not _NAME.fullmatch(metadata.get("name") or f"{name}x"):
        text = (
            f'Invalid value: "{name}": must be lower-case letters, digits, "-" and ".", with no "-" or "." at the ends'
        )
        problems.append(("FieldValueInvalid", "metadata.name", text))
    if metadata.get("namespace") and not resource.namespaced:
        problems.append(("FieldValueForbidden", "metadata.namespace", "Forbidden: not allowed on this type"))
    version = metadata.get("resourceVersion")
    if isinstance(version, str) and version and not version.isdecimal():
        text = f'Invalid value: "{version}": must be a number in quotes'
        problems.append(("FieldValueInvalid", "metadata.resourceVersion", text))
    return problems


def _strings(path: str, value: Any) -> list[Problem]:
    if value is None:
        return []
    if not isinstance(value, dict):
        return [_wrong(path, "an object", value)]
    return [_wrong(f"{path}.{key}", "a string", item) for key, item in value.items() if not isinstance(item, str)]


def _shapes(obj: dict[str, Any]) -> list[Problem]:
    return [_wrong(path, "an object", obj[path]) for path in ("spec", "status") if not _is_object(obj.get(path))]


def _pod_shapes(spec: Any) -> list[Problem]:
    """Return what is wrong with the parts of a pod's spec that defaults and bindings read."""
    if not isinstance(spec, dict):
        return []
    problems = []
    for field in ("containers", "initContainers", "schedulingGates", "tolerations"):
        path = f"spec.{field}"
        value = spec.get(field)
        if not _is_object_list(value):
            problems.append(_wrong(path, "a list of objects", value))
        elif field.endswith("ontainers"):
            for index, container in enumerate(value or ()):
                problems.extend(_container_shapes(f"{path}[{index}]", container))
    return problems


def _container_shapes(path: str, container: dict[str, Any]) -> list[Problem]:
    resources, ports = container.get("resources"), container.get("ports")
    if not _is_object(resources):
        return [_wrong(f"{path}.resources", "an object", resources)]
    problems = [
        _wrong(f"{path}.resources.{kind}", "an object", resources[kind])
        for kind in ("requests", "limits")
        if resources and not _is_object(resources.get(kind))
    ]
    if not _is_object_list(ports):
        problems.append(_wrong(f"{path}.ports", "a list of objects", ports))
    return problems


def _is_object(value: Any) -> bool:
    return value is None or isinstance(value, dict)


def _is_object_list(value: Any) -> bool:
    return value is None or (isinstance(value, list) and all(isinstance(item, dict) for item in value))


def _wrong(path: str, expected: str, value: Any) -> Problem:
    found = "nothing" if value is None else f"{type(value).__name__} {value!r}"
    return ("FieldValueTypeInvalid", path, f"must be {expected}, got {found}")
