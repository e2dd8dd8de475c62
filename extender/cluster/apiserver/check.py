"""What an object must look like before the server takes it: identity and the shapes that selectors read.

The server does not know the whole schema of each kind; what it does not read it keeps as it is.
"""

from __future__ import annotations

import re
from typing import Any

from extender.cluster.apiserver.resource import Resource

_NAME = re.compile(r"[a-z0-9]([-a-z0-9.:]*[a-z0-9])?|[a-z0-9]", re.IGNORECASE)

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
        text = f'Invalid value: "{name}": must be letters, digits, "-" and ".", with a letter or digit at both ends'
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
    problems = [
        _wrong(path, "an object", obj[path])
        for path in ("spec", "status")
        if not isinstance(obj.get(path), dict | None)
    ]
    for path in ("containers", "initContainers", "tolerations", "schedulingGates"):
        spec = obj.get("spec")
        value = spec.get(path) if isinstance(spec, dict) else None
        if not isinstance(value, list | None):
            problems.append(_wrong(f"spec.{path}", "a list", value))
        elif value and not all(isinstance(item, dict) for item in value):
            problems.append(_wrong(f"spec.{path}", "a list of objects", value))
    return problems


def _wrong(path: str, expected: str, value: Any) -> Problem:
    found = "nothing" if value is None else f"{type(value).__name__} {value!r}"
    return ("FieldValueTypeInvalid", path, f"must be {expected}, got {found}")
