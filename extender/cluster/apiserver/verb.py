"""What requests do to objects: read, create, update, patch, bind, delete.

Differences from the real server: deletion takes effect at once, also for pods on nodes, unless the request itself asks
for a grace period above zero, which then lasts until somebody deletes again with zero, as a kubelet would; finalizers
hold nothing; namespaces are neither required nor cascaded; ``dryRun`` is refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from extender.cluster.apiserver.answer import Answer, answer_entry
from extender.cluster.apiserver.binding import bind_pod
from extender.cluster.apiserver.call import Call
from extender.cluster.apiserver.entry import Entry, decode_entry
from extender.cluster.apiserver.listing import answer_list, parse_number
from extender.cluster.apiserver.patch import apply_patch
from extender.cluster.apiserver.resource import Resource
from extender.cluster.apiserver.status import (
    bad_request,
    describe,
    encode_success,
    not_allowed,
    not_served,
)
from extender.cluster.apiserver.storage import Storage

_SERVER_OWNED = ("uid", "creationTimestamp", "generation", "deletionTimestamp", "deletionGracePeriodSeconds")
"""Metadata that clients may send but not set."""


def answer_call(storage: Storage, call: Call) -> Answer:
    """Do what a request asks for and answer it; raise ``StatusError`` if it cannot be done."""
    target = call.target
    if call.query.get("dryRun"):
        raise bad_request("dryRun: this server cannot try without doing")
    if target.subresource == "binding" and target.resource.plural == "pods":
        return _bind(storage, call)
    if target.subresource and not (target.subresource == "status" and target.resource.status):
        raise not_served()
    match call.method, bool(target.name):
        case "GET", False:
            return answer_list(storage, target.resource, target.namespace, call.query)
        case "GET", True:
            return answer_entry(target.resource, storage.find(target.resource, target.namespace, target.name))
        case "POST", False:
            return _create(storage, call)
        case "PUT" | "PATCH", True:
            return _update(storage, call)
        case "DELETE", True:
            return _delete(storage, call)
        case _:
            raise not_allowed()


def _bind(storage: Storage, call: Call) -> Answer:
    if call.method != "POST":
        raise not_allowed()
    binding = call.content
    name = call.target.name or str(_metadata_of(binding).get("name") or "")
    bind_pod(storage, call.target.namespace, name, binding)
    return Answer(201, (encode_success(code=201),))


def _create(storage: Storage, call: Call) -> Answer:
    target = call.target
    content = call.content
    metadata = _metadata_of(content)
    if metadata.get("resourceVersion"):
        raise bad_request("resourceVersion should not be set on objects to be created")
    kept = {name: value for name, value in metadata.items() if name not in _SERVER_OWNED}
    placed = _placed(kept, target.namespace)
    return answer_entry(target.resource, storage.insert(target.resource, {**content, "metadata": placed}), 201)


def _update(storage: Storage, call: Call) -> Answer:
    target = call.target
    resource = target.resource
    entry = storage.find(resource, target.namespace, target.name)
    old = decode_entry(resource, entry)
    new = apply_patch(call.content_type, old, call.body) if call.method == "PATCH" else call.content
    metadata = _metadata_of(new)
    if metadata.get("name") != target.name:
        raise bad_request(
            f"the name of the object ({metadata.get('name')}) does not match the name on the URL ({target.name})"
        )
    updated = _merge_update(resource, target.subresource, old, {**new, "metadata": _placed(metadata, target.namespace)})
    return answer_entry(resource, storage.replace(resource, updated))


def _merge_update(resource: Resource, subresource: str, old: dict[str, Any], new: dict[str, Any]) -> dict[str, Any]:
    """Return the object after an update: status moves by the subresource only, and nothing else moves by it."""
    sent = {name: value for name, value in new["metadata"].items() if name not in _SERVER_OWNED}
    owned = {name: value for name, value in old["metadata"].items() if name in _SERVER_OWNED}
    # A uid that was sent is a precondition; it is checked where the object is replaced.
    owned["uid"] = new["metadata"].get("uid") or owned["uid"]
    metadata = sent | owned
    if subresource == "status":
        return {**old, "metadata": metadata, "status": new.get("status") or {}}
    updated = {**new, "metadata": metadata}
    if resource.status:
        updated.pop("status", None)
        updated |= {"status": old["status"]} if "status" in old else {}
    if resource.generation and updated.get("spec") != old.get("spec"):
        metadata["generation"] = metadata.get("generation", 0) + 1
    return updated


def _delete(storage: Storage, call: Call) -> Answer:
    target = call.target
    resource = target.resource
    options = call.content
    preconditions = options.get("preconditions") or {}
    grace_seconds = int(options.get("gracePeriodSeconds") or parse_number(call.query, "gracePeriodSeconds"))
    entry = storage.find(resource, target.namespace, target.name)
    if resource.plural == "pods" and grace_seconds > 0 and _is_on_node(resource, entry):
        storage.check_preconditions(resource, entry, preconditions)
        return answer_entry(resource, _mark_deleted(storage, resource, entry, grace_seconds))
    entry = storage.remove(resource, target.namespace, target.name, preconditions)
    return Answer(200, (encode_success({**describe(resource, entry.name), "uid": entry.uid}),))


def _is_on_node(resource: Resource, entry: Entry) -> bool:
    return bool(entry.fields[resource.selectable["spec.nodeName"]])


def _mark_deleted(storage: Storage, resource: Resource, entry: Entry, grace_seconds: int) -> Entry:
    pod = decode_entry(resource, entry)
    end = datetime.now(UTC) + timedelta(seconds=grace_seconds)
    pod["metadata"]["deletionTimestamp"] = end.strftime("%Y-%m-%dT%H:%M:%SZ")
    pod["metadata"]["deletionGracePeriodSeconds"] = grace_seconds
    return storage.replace(resource, pod)


def _metadata_of(content: Mapping[str, Any]) -> dict[str, Any]:
    metadata = content.get("metadata")
    if not isinstance(metadata, dict):
        raise bad_request("the object has no metadata")
    return metadata


def _placed(metadata: dict[str, Any], namespace: str) -> dict[str, Any]:
    """Return metadata with the namespace of the request's path; the object must not name another one."""
    if not namespace:
        return metadata
    if metadata.get("namespace") not in (None, "", namespace):
        raise bad_request("the namespace of the provided object does not match the namespace sent on the request")
    return {**metadata, "namespace": namespace}
