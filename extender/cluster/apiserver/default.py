"""What the server fills in where an object says nothing: identity, and the defaults that scheduling relies on.

Source: the defaulting of core/v1 and storage/v1 and the Priority admission plug-in of Kubernetes 1.36. No controllers
run here; a volume is therefore Available from the start rather than once a controller has seen it.
"""

from __future__ import annotations

import secrets
import uuid
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

from extender.cluster.apiserver.resource import Resource

PriorityLookup = Callable[[str], Mapping[str, Any]]
"""From a priority class's name, or an empty one for the default class, to what a pod of it gets."""

_DEFAULTS: dict[str, dict[str, Any]] = {
    "namespaces": {"status": {"phase": "Active"}},
    "persistentvolumeclaims": {"spec": {"volumeMode": "Filesystem"}, "status": {"phase": "Pending"}},
    "persistentvolumes": {
        "spec": {"volumeMode": "Filesystem", "persistentVolumeReclaimPolicy": "Retain"},
        "status": {"phase": "Available"},
    },
    "pods": {
        "spec": {
            "restartPolicy": "Always",
            "terminationGracePeriodSeconds": 30,
            "dnsPolicy": "ClusterFirst",
            "securityContext": {},
            "schedulerName": "default-scheduler",
            "enableServiceLinks": True,
        },
        "status": {"phase": "Pending"},
    },
    "storageclasses": {"reclaimPolicy": "Delete", "volumeBindingMode": "Immediate"},
}

_SUFFIX = "bcdfghjklmnpqrstvwxz2456789"
"""Letters of generated names: no vowels, so that they spell nothing."""


def now_text() -> str:
    """Return the present time as the API writes it."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def complete_object(resource: Resource, obj: dict[str, Any], priority_of: PriorityLookup) -> dict[str, Any]:
    """Return the object with what it leaves out filled in; what it says stays as it is."""
    metadata = _complete_metadata(resource, obj["metadata"])
    completed = _fill(_DEFAULTS.get(resource.plural, {}), {**obj, "metadata": metadata})
    if resource.plural == "pods":
        completed["spec"] = _complete_pod_spec(completed["spec"], priority_of)
    elif resource.plural == "nodes":
        completed["status"] = _complete_node_status(completed.get("status") or {})
    elif resource.plural == "namespaces":
        labels = {"kubernetes.io/metadata.name": metadata["name"]} | (metadata.get("labels") or {})
        completed["metadata"] = {**metadata, "labels": labels}
    return completed


def _complete_metadata(resource: Resource, given: dict[str, Any]) -> dict[str, Any]:
    metadata = {name: value for name, value in given.items() if value is not None}
    if not metadata.get("name"):
        metadata["name"] = metadata["generateName"] + "".join(secrets.choice(_SUFFIX) for _ in range(5))
    if resource.namespaced and not metadata.get("namespace"):
        metadata["namespace"] = "default"
    if "uid" not in metadata:
        metadata["uid"] = str(uuid.uuid4())
    if resource.generation:
        metadata.setdefault("generation", 1)
    if "creationTimestamp" not in metadata:
        metadata["creationTimestamp"] = now_text()
    return metadata


def _fill(defaults: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """Return ``given`` with absent and null members taken from ``defaults``, at every depth of the latter."""
    filled = dict(given)
    for name, default in defaults.items():
        value = given.get(name)
        if isinstance(default, dict):
            filled[name] = _fill(default, value or {})
        elif value is None:
            filled[name] = default
    return filled


def _complete_pod_spec(spec: dict[str, Any], priority_of: PriorityLookup) -> dict[str, Any]:
    if spec.get("priority") is None:
        spec = {**spec, **priority_of(spec.get("priorityClassName") or "")}
    on_host = bool(spec.get("hostNetwork"))
    for kind in ("initContainers", "containers"):
        if spec.get(kind):
            spec[kind] = [_complete_container(container, on_host=on_host) for container in spec[kind]]
    return spec


def _complete_container(container: dict[str, Any], *, on_host: bool) -> dict[str, Any]:
    """Requests follow limits; ports are TCP and, on the host's network, the host's own."""
    completed = dict(container)
    resources = container.get("resources") or {}
    if resources.get("limits"):
        requests = {**resources["limits"], **(resources.get("requests") or {})}
        completed["resources"] = {**resources, "requests": requests}
    if container.get("ports"):
        completed["ports"] = [_complete_port(port, on_host=on_host) for port in container["ports"]]
    return completed


def _complete_port(port: dict[str, Any], *, on_host: bool) -> dict[str, Any]:
    completed = {"protocol": "TCP", **port}
    if on_host and not port.get("hostPort") and port.get("containerPort"):
        completed["hostPort"] = port["containerPort"]
    return completed


def _complete_node_status(status: dict[str, Any]) -> dict[str, Any]:
    if status.get("allocatable") is None and status.get("capacity") is not None:
        return {**status, "allocatable": status["capacity"]}
    return status
