"""Nodes and pods of a real cluster, and what must hold of them whatever has failed."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from extender.testing import make_node, make_pod
from tests.e2e.control_plane import ACCOUNT, ControlPlane, Json
from tests.e2e.peer import Service
from tests.e2e.process import eventually

PODS = "/api/v1/namespaces/default/pods"
DEVICES, REQUEST, ALLOCATED = (
    f"scheduler-extender/{name}" for name in ("devices", "device-request", "devices-allocated")
)
_AT_ONCE = 8


def create_node(plane: ControlPlane, name: str, **facts: Any) -> None:
    """Create a node that is ready."""
    node = make_node(name, **facts)
    del node["metadata"]["uid"]
    plane.create("/api/v1/nodes", node)


def create_pod(plane: ControlPlane, name: str, *, cpu: str = "100m", **facts: Any) -> None:
    """Create a pod; it goes at once when it is deleted, since there is no kubelet."""
    pod = make_pod(name, requests={"cpu": cpu}, terminationGracePeriodSeconds=0, **facts)
    del pod["metadata"]["uid"], pod["status"]
    plane.create(PODS, pod)


def create_all(plane: ControlPlane, create: Any, names: Iterable[str], **facts: Any) -> None:
    """Create many objects, some at a time."""
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        list(pool.map(lambda name: create(plane, name, **facts), names))


def gpu_node(plane: ControlPlane, name: str, *, devices: int = 4, memory: int = 10_000, **facts: Any) -> None:
    """Create a node with devices to be shared."""
    listed = [{"id": f"gpu-{place}", "memoryMiB": memory} for place in range(devices)]
    create_node(plane, name, annotations={DEVICES: json.dumps(listed)}, **facts)


def gpu_pod(plane: ControlPlane, name: str, *, memory: int = 1000, **facts: Any) -> None:
    """Create a pod that needs a part of a device."""
    create_pod(plane, name, annotations={REQUEST: json.dumps({"memoryMiB": memory})}, **facts)


def delete_pod(plane: ControlPlane, name: str) -> None:
    """Delete a pod."""
    plane.request("DELETE", f"{PODS}/{name}")


def node_of(plane: ControlPlane, name: str) -> str:
    """Return the node that a pod is bound to, or nothing."""
    node: str = plane.get(f"{PODS}/{name}")["spec"].get("nodeName", "")
    return node


def pods_of(plane: ControlPlane) -> list[Json]:
    """Return all pods."""
    found: list[Json] = plane.get(PODS)["items"]
    return found


def unbound(plane: ControlPlane, wanted: Iterable[str]) -> set[str]:
    """Return those of the named pods that are not there or on no node."""
    bound = {pod["metadata"]["name"] for pod in pods_of(plane) if pod["spec"].get("nodeName")}
    return set(wanted) - bound


def expect_bound(plane: ControlPlane, *pods: str, seconds: float = 90.0) -> None:
    """Wait until all of these pods are on a node."""
    eventually(lambda: not unbound(plane, pods), f"the binding of {len(pods)} pods, {pods[0]} the first", seconds)


def messages(plane: ControlPlane, name: str, reason: str) -> list[str]:
    """Return what the events of a pod say that have a reason."""
    found = plane.get(f"/api/v1/namespaces/default/events?fieldSelector=involvedObject.name={name}")["items"]
    return [event["message"] for event in found if event["reason"] == reason]


def successes(plane: ControlPlane) -> Counter[str]:
    """How often the API server carried out a binding, by the name of the pod."""
    events = (event for event in plane.bindings() if event.get("responseStatus", {}).get("code") == 201)
    return Counter(event["objectRef"]["name"] for event in events)


# --- what holds at the end -------------------------------------------------------------------------------------------


def expect_bound_once_and_by_the_service(plane: ControlPlane) -> None:
    """Nobody else binds, and no binding is carried out twice."""
    assert {name: count for name, count in successes(plane).items() if count > 1} == {}
    assert {event["user"]["username"] for event in plane.bindings()} == {ACCOUNT}


def expect_room(plane: ControlPlane) -> None:
    """No node has more than it can hold."""
    millis: Counter[str] = Counter()
    for pod in pods_of(plane):
        cpu = pod["spec"]["containers"][0]["resources"]["requests"]["cpu"]
        millis[pod["spec"].get("nodeName", "")] += int(cpu[:-1]) if cpu.endswith("m") else int(cpu) * 1000
    for node in plane.get("/api/v1/nodes")["items"]:
        name = node["metadata"]["name"]
        assert millis[name] <= int(node["status"]["allocatable"]["cpu"]) * 1000, name


def expect_no_device_twice(plane: ControlPlane) -> int:
    """No device gives more memory than it has, and every pod that needs one is written to have it; return how many."""
    taken: Counter[tuple[str, str]] = Counter()
    held = [pod for pod in pods_of(plane) if pod["spec"].get("nodeName") and REQUEST in pod["metadata"]["annotations"]]
    for pod in held:
        assert ALLOCATED in pod["metadata"]["annotations"], pod["metadata"]["name"]
        for grant in json.loads(pod["metadata"]["annotations"][ALLOCATED]):
            taken[pod["spec"]["nodeName"], grant["id"]] += grant["memoryMiB"]
    size = {
        (node["metadata"]["name"], device["id"]): device["memoryMiB"]
        for node in plane.get("/api/v1/nodes")["items"]
        for device in json.loads(node["metadata"].get("annotations", {}).get(DEVICES, "[]"))
    }
    assert {device: memory for device, memory in taken.items() if memory > size[device]} == {}
    return len(held)


def expect_equal_caches(service: Service, seconds: float = 60.0) -> None:
    """What the service holds becomes what the API server holds, and nothing is assumed any more."""
    eventually(
        lambda: all(found["same"] for found in service.management("debug/cache/compare").json().values()),
        "equality of the caches",
        seconds,
    )
    eventually(lambda: service.metric("assumed_pods") == 0, "the end of all assumptions", seconds)
