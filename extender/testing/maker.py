"""Builders of nodes and pods as plain JSON, with defaults that fit each other.

::

    make_node("a", cpu="8", labels={"zone": "z1"}, taints=["dedicated=gpu:NoSchedule"])
    make_pod("p", requests={"cpu": "500m"}, tolerations=["dedicated"], node_selector={"zone": "z1"})

Both return dictionaries in the API's own spelling, free to be changed; what has no parameter is passed on as it stands
under its API name (``topologySpreadConstraints=[...]``). Taints are written as kubectl writes them, tolerations alike:

=====================  ==============================================
``key=value:Effect``   the key with that value, and that effect
``key:Effect``         the key with any value, and that effect
``key=value``, ``key`` a toleration only: any effect
(empty)                a toleration only: everything
=====================  ==============================================
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, TypeAlias

from extender.testing.reply import Json

Quantities: TypeAlias = Mapping[str, str | int]
"""Resource names to quantities: ``{"cpu": "500m", "example.com/gpu": 1}``."""


def make_node(
    name: str,
    *,
    cpu: str | int = "4",
    memory: str | int = "8Gi",
    pods: str | int = 110,
    allocatable: Quantities | None = None,
    labels: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
    taints: Iterable[str | Json] = (),
    images: Mapping[str, int] | None = None,
    unschedulable: bool = False,
    **spec: Any,
) -> Json:
    """Return a ready node that is labelled with its hostname.

    ``allocatable`` adds to cpu, memory and pods, or replaces them; ``images`` maps names to sizes in bytes; ``spec``
    are further fields of the node's spec.
    """
    resources = _resources({"cpu": cpu, "memory": memory, "pods": pods, **(allocatable or {})})
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": _metadata(
            name, labels={"kubernetes.io/hostname": name, **(labels or {})}, annotations=annotations or {}
        ),
        "spec": _present(
            taints=[parse_taint(taint) if isinstance(taint, str) else taint for taint in taints],
            unschedulable=unschedulable,
        )
        | spec,
        "status": {
            "capacity": resources,
            "allocatable": dict(resources),
            "conditions": [{"type": "Ready", "status": "True"}],
            "images": [{"names": [image], "sizeBytes": size} for image, size in (images or {}).items()],
        },
    }


def make_pod(
    name: str,
    *,
    namespace: str = "default",
    uid: str | None = None,
    node: str | None = None,
    requests: Quantities | None = None,
    init: Iterable[Quantities] = (),
    image: str = "registry.example/app:v1",
    ports: Iterable[int | Json] = (),
    labels: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
    node_selector: Mapping[str, str] | None = None,
    affinity: Json | None = None,
    tolerations: Iterable[str | Json] = (),
    volumes: Iterable[str | Json] = (),
    priority: int | None = None,
    phase: str | None = None,
    **spec: Any,
) -> Json:
    """Return a pod of one container; it is Running when it has a ``node``, else Pending.

    ``uid`` is ``uid-`` and the name unless given; ``requests`` are the container's, ``init`` has those of one init
    container each. A number among ``ports`` is a TCP host port, a text among ``volumes`` the name of a persistent
    volume claim. ``spec`` are further fields of the pod's spec; they win over the parameters.
    """
    container = _container("c", image, requests)
    open_ports = [{"hostPort": port, "containerPort": port} if isinstance(port, int) else port for port in ports]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": _metadata(
            name, namespace=namespace, uid=uid, labels=dict(labels or {}), annotations=annotations or {}
        ),
        "spec": _present(
            nodeName=node,
            schedulerName="default-scheduler",
            containers=[container | _present(ports=open_ports)],
            initContainers=[_container(f"init-{place}", image, asked) for place, asked in enumerate(init)],
            nodeSelector=dict(node_selector or {}),
            affinity=affinity,
            tolerations=[parse_toleration(text) if isinstance(text, str) else text for text in tolerations],
            volumes=[_claim(volume) if isinstance(volume, str) else volume for volume in volumes],
            priority=priority,
        )
        | spec,
        "status": {"phase": phase or ("Running" if node else "Pending")},
    }


def parse_taint(text: str) -> Json:
    """Return the taint that kubectl writes as ``key=value:Effect`` or ``key:Effect``; ``ValueError`` for others."""
    label, _, effect = text.rpartition(":")
    key, _, value = label.partition("=")
    if not key or not effect:
        raise ValueError(f"{text!r} is no taint: write key=value:Effect or key:Effect")
    return _present(key=key, value=value) | {"effect": effect}


def parse_toleration(text: str) -> Json:
    """Return the toleration of ``key=value:Effect``, with value and effect left out, or all, for any."""
    label, _, effect = text.partition(":")
    key, equals, value = label.partition("=")
    operator = "Equal" if equals else "Exists"
    return {"operator": operator} | _present(key=key, value=value, effect=effect)


def _metadata(name: str, *, uid: str | None = None, **fields: Any) -> Json:
    return {"name": name, "uid": uid or f"uid-{name}"} | _present(**fields)


def _container(name: str, image: str, requests: Quantities | None) -> Json:
    return {"name": name, "image": image, "resources": _present(requests=_resources(requests or {}))}


def _claim(name: str) -> Json:
    return {"name": name, "persistentVolumeClaim": {"claimName": name}}


def _resources(quantities: Quantities) -> Json:
    return {resource: str(quantity) for resource, quantity in quantities.items()}


def _present(**fields: Any) -> Json:
    """Return the fields that differ from what the API takes for a field that is absent."""
    return {name: value for name, value in fields.items() if value}
