"""A cluster to measure on: nodes, running pods and pods to place, made up from a seed.

Objects here say what scheduling reads and no more; ``benchmarks.detail`` adds what else a real one carries.
"""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import Any, TypeAlias
from uuid import UUID

Json: TypeAlias = dict[str, Any]

NAMESPACES, ZONES, POOLS, IMAGES = 20, 3, 20, 200
LABEL_CLASSES = 2000
"""How many different label sets pods have."""

IMAGES_A_NODE = 30
HOSTNAME, ZONE = "kubernetes.io/hostname", "topology.kubernetes.io/zone"
INSTANCE_TYPE = "node.kubernetes.io/instance-type"

_FIRST_NODE_VERSION, _FIRST_POD_VERSION, _FIRST_WAITING_VERSION = 1_000, 100_000, 900_000
_LETTERS = "bcdfghjklmnpqrstvwxz2456789"


def big(node_count: int, pod_count: int) -> Json:
    """Return ``objects``, and ``pods`` to place on them one by one."""
    objects = [*namespaces(), *nodes(node_count), *pods(pod_count, node_count)]
    return {"objects": objects, "pods": list(pending().values())}


def namespaces() -> Iterator[Json]:
    """Return the namespaces that pods are in."""
    for place in range(NAMESPACES):
        labels = {"team": f"t{place % 5}"}
        yield {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": f"ns-{place}", "labels": labels}}


def nodes(count: int) -> Iterator[Json]:
    """Return nodes of 32 cores; every tenth is tainted, every 97th cordoned."""
    random = Random(7)
    for place in range(count):
        spec: Json = {}
        if place % 10 == 0:
            spec["taints"] = [{"key": "dedicated", "value": "gpu", "effect": "NoSchedule"}]
        if place % 97 == 0:
            spec["unschedulable"] = True
        resources = {"cpu": "32", "ephemeral-storage": "100Gi", "memory": "128Gi", "pods": "110"}
        yield {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {
                "name": node_name(place),
                "uid": _uid(random),
                "resourceVersion": str(_FIRST_NODE_VERSION + place),
                "labels": {
                    HOSTNAME: node_name(place),
                    "kubernetes.io/os": "linux",
                    INSTANCE_TYPE: random.choice(["m5.8xlarge", "c5.9xlarge"]),
                    "pool": f"pool-{place % POOLS}",
                    "topology.kubernetes.io/region": "r1",
                    ZONE: f"zone-{place % ZONES}",
                },
            },
            "spec": spec,
            "status": {
                "capacity": resources,
                "allocatable": resources,
                "images": [
                    {"names": [image_name(number)], "sizeBytes": 60_000_000 + 1_000_000 * number}
                    for number in random.sample(range(IMAGES), IMAGES_A_NODE)
                ],
            },
        }


def node_name(place: int) -> str:
    """Return the name of the node at ``place``."""
    return f"node-{place:05d}"


def image_name(number: int) -> str:
    """Return the name that pods and nodes know an image by."""
    return f"registry.example/app-{number}:v1"


def pods(count: int, node_count: int) -> Iterator[Json]:
    """Return running pods of 2,000 applications.

    Every twentieth application keeps its pods on different nodes, and another twentieth would like them in one zone.
    """
    random = Random(11)
    for place in range(count):
        app = random.randrange(LABEL_CLASSES)
        requests = {
            "cpu": random.choice(["100m", "250m", "500m"]),
            "memory": random.choice(["128Mi", "512Mi", "1Gi"]),
        }
        spec: Json = {"containers": [_container(app, requests)], "nodeName": node_name(random.randrange(node_count))}
        if app % 20 == 0:
            spec["affinity"] = {"podAntiAffinity": {_REQUIRED: [_term(HOSTNAME, app=f"app-{app}")]}}
        elif app % 20 == 1:
            term = {"weight": 10, "podAffinityTerm": _term(ZONE, app=f"app-{app}")}
            spec["affinity"] = {"podAffinity": {_PREFERRED: [term]}}
        yield _pod(_pod_name(app, random), app, _uid(random), _FIRST_POD_VERSION + place, spec, "Running")


def waiting(count: int) -> Iterator[Json]:
    """Return plain pods that are in the cluster and not placed yet."""
    random = Random(13)
    for place in range(count):
        spec = {"schedulerName": "default-scheduler", "containers": [_container(7, _PENDING_REQUESTS)]}
        yield _pod(f"waiting-{place:05d}", 7, _uid(random), _FIRST_WAITING_VERSION + place, spec, "Pending")


def pending() -> dict[str, Json]:
    """Return pods to place, each of another kind, by kind."""
    return {
        "plain": _pending("plain", 7),
        "nodeaffinity": _pending("nodeaffinity", 7, affinity={"nodeAffinity": _NODE_AFFINITY}),
        "spread": _pending("spread", 7, topologySpreadConstraints=_SPREAD_CONSTRAINTS),
        "antiaffinity": _pending(
            "antiaffinity", 20, affinity={"podAntiAffinity": {_REQUIRED: [_term(HOSTNAME, app="app-20")]}}
        ),
        "affinity": _pending(
            "affinity",
            21,
            affinity={
                "podAffinity": {
                    _REQUIRED: [_term(ZONE, app="app-21")],
                    _PREFERRED: [{"weight": 50, "podAffinityTerm": _term(HOSTNAME, tier="t1")}],
                }
            },
        ),
    }


def with_ports() -> Json:
    """Return a pod to place that asks for host ports."""
    pod = _pending("ports", 7)
    ports = [{"hostPort": 8080, "containerPort": 8080, "protocol": "TCP"}]
    pod["spec"]["containers"] = [container | {"ports": ports} for container in pod["spec"]["containers"]]
    return pod


def with_selectors() -> dict[str, Json]:
    """Return pods to place whose selectors name pods in all namespaces by a label that they lack, by kind."""

    def term(topology_key: str, *expressions: Json) -> Json:
        return {
            "topologyKey": topology_key,
            "namespaceSelector": {},
            "labelSelector": {"matchExpressions": list(expressions)},
        }

    exclusive = term(HOSTNAME, {"key": "exclusive", "operator": "Exists"})
    others = [
        {
            "weight": 1,
            "podAffinityTerm": term(HOSTNAME, {"key": "app", "operator": "NotIn", "values": [f"app-{number}"]}),
        }
        for number in range(50)
    ]
    return {
        "exclusive": _pending("exclusive", 7, affinity={"podAntiAffinity": {_REQUIRED: [exclusive]}}),
        "aloof": _pending("aloof", 7, affinity={"podAntiAffinity": {_PREFERRED: others}}),
    }


def with_own_label(pod: Json, number: int) -> Json:
    """Return a pod with one more label, as the pods of jobs have, of which no other has the value."""
    meta = pod["metadata"]
    return {**pod, "metadata": {**meta, "labels": {**meta["labels"], "controller-uid": f"own-{number}"}}}


def nominated(count: int) -> Iterator[Json]:
    """Return pods for which room is kept, each on a node of its own."""
    for place, pod in enumerate(waiting(count)):
        name = f"nominated-{place:05d}"
        yield {
            **pod,
            "metadata": {**pod["metadata"], "name": name, "uid": f"uid-{name}"},
            "spec": {**pod["spec"], "priority": 1000},
            "status": {"phase": "Pending", "nominatedNodeName": node_name(place)},
        }


_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
_PENDING_REQUESTS = {"cpu": "500m", "memory": "1Gi"}

_NODE_AFFINITY = {
    _REQUIRED: {
        "nodeSelectorTerms": [
            {"matchExpressions": [{"key": "pool", "operator": "In", "values": [f"pool-{i}" for i in range(10)]}]}
        ]
    },
    _PREFERRED: [
        {
            "weight": 10,
            "preference": {"matchExpressions": [{"key": INSTANCE_TYPE, "operator": "In", "values": ["c5.9xlarge"]}]},
        }
    ],
}

_SPREAD_CONSTRAINTS = [
    {
        "maxSkew": 50,
        "topologyKey": ZONE,
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"app": "app-7"}},
    },
    {
        "maxSkew": 1,
        "topologyKey": HOSTNAME,
        "whenUnsatisfiable": "ScheduleAnyway",
        "labelSelector": {"matchLabels": {"app": "app-7"}},
    },
]


def _pending(name: str, app: int, **spec: Any) -> Json:
    whole = {"schedulerName": "default-scheduler", "containers": [_container(app, _PENDING_REQUESTS)], **spec}
    return _pod(name, app, _uid(Random(name)), _FIRST_WAITING_VERSION - 1, whole, "Pending")


def _pod(name: str, app: int, uid: str, version: int, spec: Json, phase: str) -> Json:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": f"ns-{app % NAMESPACES}",
            "uid": uid,
            "resourceVersion": str(version),
            "labels": {"app": f"app-{app}", "tier": f"t{app % 3}"},
        },
        "spec": spec,
        "status": {"phase": phase},
    }


def _container(app: int, requests: Json) -> Json:
    return {"name": "c", "image": image_name(app % IMAGES), "resources": {"requests": dict(requests)}}


def _term(topology_key: str, **labels: str) -> Json:
    return {"labelSelector": {"matchLabels": labels}, "topologyKey": topology_key}


def _pod_name(app: int, random: Random) -> str:
    """Return a name as the controllers of a deployment make it up."""
    return f"app-{app}-{app * 2_654_435_761 % 2**32:08x}-{''.join(random.choices(_LETTERS, k=5))}"


def _uid(random: Random) -> str:
    return str(UUID(int=random.getrandbits(128), version=4))
