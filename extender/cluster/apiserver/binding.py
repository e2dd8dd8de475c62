"""Binding a pod to a node, with the checks of the real registry.

Source: ``pkg/registry/core/pod/storage/storage.go`` of Kubernetes 1.36, ``BindingREST``.
"""

from __future__ import annotations

from typing import Any

from extender.cluster.apiserver.default import now_text
from extender.cluster.apiserver.entry import decode_entry
from extender.cluster.apiserver.status import bad_request, conflict, invalid, wrong_uid
from extender.cluster.apiserver.storage import Storage


def bind_pod(storage: Storage, namespace: str, name: str, binding: dict[str, Any]) -> None:
    """Assign a pod to the node that a Binding names, taking over its labels and annotations.

    Raises ``StatusError``: 404 without such a pod; 409 if its uid is another one, if it is being deleted, assigned
    already or held by scheduling gates; 422 if the Binding names no node; 400 if it names another pod.
    """
    metadata = binding.get("metadata") or {}
    node = _target_node(name, metadata, binding.get("target") or {})
    pods = storage.catalogue.named("pods")
    entry = storage.find(pods, namespace, name)
    if metadata.get("uid") and metadata["uid"] != entry.uid:
        raise wrong_uid(pods, entry.key, metadata["uid"], entry.uid)
    pod = decode_entry(pods, entry)
    refusal = _refusal(pod)
    if refusal:
        raise conflict(pods, name, f"pod {name} {refusal}", "binding")
    for kind in ("labels", "annotations"):
        if metadata.get(kind):
            pod["metadata"][kind] = {**(pod["metadata"].get(kind) or {}), **metadata[kind]}
    pod["spec"] = {**(pod.get("spec") or {}), "nodeName": node}
    pod["status"] = _scheduled(pod.get("status") or {})
    storage.replace(pods, pod)


def _target_node(name: str, metadata: dict[str, Any], target: dict[str, Any]) -> str:
    if metadata.get("name") != name:
        raise bad_request("name in URL does not match name in Binding object")
    if target.get("kind") not in (None, "", "Node"):
        text = f'Unsupported value: "{target["kind"]}": supported values: "Node", "<empty>"'
        raise invalid("Binding", name, [("FieldValueNotSupported", "target.kind", text)])
    if not target.get("name"):
        raise invalid("Binding", name, [("FieldValueRequired", "target.name", "Required value")])
    return str(target["name"])


def _refusal(pod: dict[str, Any]) -> str:
    """Return why the pod cannot be bound, empty if it can."""
    spec = pod.get("spec") or {}
    if pod["metadata"].get("deletionTimestamp"):
        return "is being deleted, cannot be assigned to a host"
    if spec.get("nodeName"):
        return f'is already assigned to node "{spec["nodeName"]}"'
    if spec.get("schedulingGates"):
        return "has non-empty .spec.schedulingGates"
    return ""


def _scheduled(status: dict[str, Any]) -> dict[str, Any]:
    """Return a pod's status with the condition PodScheduled true."""
    condition = {
        "type": "PodScheduled",
        "status": "True",
        "lastProbeTime": None,
        "lastTransitionTime": now_text(),
    }
    others = [other for other in status.get("conditions") or [] if other.get("type") != "PodScheduled"]
    return {**status, "conditions": [*others, condition]}
