"""JSON merge patch, JSON patch, and strategic merge patch as far as clients of this server use it.

Sources: RFC 7386, RFC 6902; merge keys after the ``patchMergeKey`` tags of the Kubernetes 1.36 API types.
"""

from __future__ import annotations

from typing import Any

import msgspec

from extender.cluster.apiserver.status import StatusError, bad_request

_MERGE_KEYS = {
    "conditions": ("type",),
    "addresses": ("type",),
    "containers": ("name",),
    "initContainers": ("name",),
    "ephemeralContainers": ("name",),
    "volumes": ("name",),
    "env": ("name",),
    "volumeMounts": ("mountPath",),
    "ports": ("containerPort", "port"),
    "taints": ("key",),
    "ownerReferences": ("uid",),
    "imagePullSecrets": ("name",),
    "secrets": ("name",),
    "topologySpreadConstraints": ("topologyKey",),
    "schedulingGates": ("name",),
    "hostAliases": ("ip",),
}
"""Lists that a strategic merge patch merges by the value of a member, the first that the items have."""

_MERGED_SETS = frozenset({"finalizers"})


def apply_patch(content_type: str, target: dict[str, Any], body: bytes) -> dict[str, Any]:
    """Return ``target`` as patched; raise ``StatusError`` 400 for a bad patch, 415 for an unknown kind of patch."""
    patch = decode_body(body)
    match content_type:
        case "application/merge-patch+json":
            patched = merge_patch(target, patch)
        case "application/strategic-merge-patch+json":
            patched = strategic_merge(target, patch)
        case "application/json-patch+json":
            patched = json_patch(target, patch)
        case _:
            raise StatusError(
                415,
                "the body of the request was in an unknown format - accepted media types include: "
                "application/json-patch+json, application/merge-patch+json, application/strategic-merge-patch+json",
            )
    if not isinstance(patched, dict):
        raise bad_request("the patch leaves no object")
    return patched


def decode_body(body: bytes) -> Any:
    """Return the JSON value of a request's body; raise ``StatusError`` 400 if it is none."""
    try:
        return msgspec.json.decode(body)
    except msgspec.DecodeError as error:
        raise bad_request(f"couldn't get version/kind; json parse error: {error}") from error


def merge_patch(target: Any, patch: Any) -> Any:
    """Apply a merge patch: objects are merged, null deletes, everything else replaces."""
    if not isinstance(patch, dict):
        return patch
    merged = dict(target) if isinstance(target, dict) else {}
    for name, value in patch.items():
        if value is None:
            merged.pop(name, None)
        else:
            merged[name] = merge_patch(merged.get(name), value)
    return merged


def strategic_merge(target: Any, patch: Any) -> Any:
    """Apply a strategic merge patch: as a merge patch, but lists with a known key are merged item by item.

    ``$patch: delete``, ``$patch: replace`` and ``$deleteFromPrimitiveList`` are followed; the order directives are
    not: merged lists keep their order and new items come last.
    """
    if not isinstance(patch, dict):
        return patch
    if patch.get("$patch") == "replace":
        return {name: value for name, value in patch.items() if name != "$patch"}
    merged = dict(target) if isinstance(target, dict) else {}
    for name, value in patch.items():
        directive, _, field = name.partition("/")
        if directive == "$deleteFromPrimitiveList":
            merged[field] = [item for item in merged.get(field) or [] if item not in value]
        elif name.startswith("$"):
            continue
        elif value is None:
            merged.pop(name, None)
        elif isinstance(value, list):
            merged[name] = _merge_list(name, merged.get(name) or [], value)
        else:
            merged[name] = strategic_merge(merged.get(name), value)
    return merged


def _merge_list(name: str, target: list[Any], patch: list[Any]) -> list[Any]:
    if name in _MERGED_SETS:
        return target + [item for item in patch if item not in target]
    key = next((key for key in _MERGE_KEYS.get(name, ()) if _all_have(key, target) and _all_have(key, patch)), None)
    if key is None:
        return [item for item in patch if item != {"$patch": "replace"}]
    merged = {item[key]: item for item in target}
    for item in patch:
        if item.get("$patch") == "delete":
            merged.pop(item[key], None)
        else:
            merged[item[key]] = strategic_merge(merged.get(item[key]), item)
    return list(merged.values())


def _all_have(key: str, items: list[Any]) -> bool:
    return all(isinstance(item, dict) and key in item for item in items)


def json_patch(target: Any, operations: Any) -> Any:
    """Apply the operations of a JSON patch in order; raise ``StatusError`` 422 if one cannot be."""
    document = msgspec.json.decode(msgspec.json.encode(target))
    if not isinstance(operations, list):
        raise bad_request("a JSON patch is a list of operations")
    for operation in operations:
        try:
            document = _apply_operation(document, operation)
        except (KeyError, IndexError, TypeError, ValueError, AttributeError) as error:
            raise StatusError(422, "the server rejected our request due to an error in our request") from error
    return document


def _apply_operation(document: Any, operation: dict[str, Any]) -> Any:
    steps = _steps(operation["path"])
    match operation["op"]:
        case "add":
            return _put(document, steps, operation["value"], insert=True)
        case "replace":
            _look_up(document, steps)
            return _put(document, steps, operation["value"], insert=False)
        case "remove":
            _take(document, steps)
        case "test":
            if _look_up(document, steps) != operation["value"]:
                raise ValueError(f"test of {operation['path']} failed")
        case "copy":
            return _put(document, steps, _look_up(document, _steps(operation["from"])), insert=True)
        case "move":
            return _put(document, steps, _take(document, _steps(operation["from"])), insert=True)
        case unknown:
            raise ValueError(f"unknown operation {unknown}")
    return document


def _steps(pointer: str) -> list[str]:
    return [step.replace("~1", "/").replace("~0", "~") for step in pointer.split("/")[1:]]


def _look_up(document: Any, steps: list[str]) -> Any:
    for step in steps:
        document = document[int(step)] if isinstance(document, list) else document[step]
    return document


def _put(document: Any, steps: list[str], value: Any, *, insert: bool) -> Any:
    if not steps:
        return value
    parent = _look_up(document, steps[:-1])
    last = steps[-1]
    if not isinstance(parent, list):
        parent[last] = value
    elif last == "-":
        parent.append(value)
    elif insert:
        parent.insert(int(last), value)
    else:
        parent[int(last)] = value
    return document


def _take(document: Any, steps: list[str]) -> Any:
    parent = _look_up(document, steps[:-1])
    return parent.pop(int(steps[-1])) if isinstance(parent, list) else parent.pop(steps[-1])
