"""Nodes with devices and pods that ask for some, in every convention, for the tables of ComputeResource."""

from __future__ import annotations

import json
from typing import Any

from algorithms.compute_resource import ComputeResource, ComputeResourceArgs
from extender.framework import SKIP
from extender.framework.profile import bind
from extender.testing import make_node, make_pod
from extender.testing.lab import Lab, pending

NOW = 1_700_000_000.5
DEVICES, REQUEST, ALLOCATED = (
    f"scheduler-extender/{name}" for name in ("devices", "device-request", "devices-allocated")
)
POLICY = "scheduler-extender/device-policy"


def device(name: str, memory: int = 16_000, **fields: Any) -> dict[str, Any]:
    return {"id": name, "memoryMiB": memory, **fields}


def node(*devices: dict[str, Any], name: str = "n1") -> dict[str, Any]:
    return make_node(name, annotations={DEVICES: json.dumps(devices)})


def asking(policy: str = "", **request: Any) -> dict[str, Any]:
    return make_pod("new", annotations={REQUEST: json.dumps(request), **({POLICY: policy} if policy else {})})


def holding(*grants: tuple[str, int, int], name: str = "old", on: str = "n1", **fields: Any) -> dict[str, Any]:
    listed = [{"id": device, "memoryMiB": memory, "cores": cores} for device, memory, cores in grants]
    return make_pod(name, node=on, annotations={REQUEST: "{}", ALLOCATED: json.dumps(listed)}, **fields)


def share_node(memory: int = 32, count: int = 2, name: str = "n1") -> dict[str, Any]:
    return make_node(name, allocatable={"aliyun.com/gpu-mem": memory, "aliyun.com/gpu-count": count})


def share_pod(memory: int, name: str = "new", on: str | None = None, index: int | None = None) -> dict[str, Any]:
    notes = {} if index is None else {"ALIYUN_COM_GPU_MEM_IDX": str(index), "ALIYUN_COM_GPU_MEM_POD": str(memory)}
    return make_pod(name, node=on, requests={"aliyun.com/gpu-mem": memory}, annotations=notes)


def hami_node(text: str, name: str = "n1") -> dict[str, Any]:
    return make_node(name, annotations={"hami.io/node-nvidia-register": text})


TEXT = "GPU-a,10,16000,100,NVIDIA-Tesla T4,0,true:GPU-b,10,16000,100,NVIDIA-Tesla T4,1,true:"
NEWER_TEXT = "GPU-a,10,16000,100,NVIDIA-Tesla T4,0,true,0,hami-core:GPU-b,2,16000,100,NVIDIA-Tesla T4,1,true,1,mig:"
JSON = json.dumps(
    [
        {"id": "GPU-a", "count": 2, "devmem": 16000, "devcore": 100, "type": "NVIDIA A100", "health": True, "index": 1},
        {"id": "GPU-b", "count": 2, "devmem": 16000, "devcore": 100, "type": "NVIDIA A100"},
    ]
)


def hami_pod(
    name: str = "new", on: str | None = None, given: str = "", notes: Any = None, **asked: int
) -> dict[str, Any]:
    requests = {f"nvidia.com/{key.replace('_', '-')}": amount for key, amount in asked.items()}
    annotations = {**(notes or {}), **({"hami.io/vgpu-devices-allocated": given} if given else {})}
    return make_pod(name, node=on, requests=requests, annotations=annotations)


def two_containers(first: dict[str, int], second: dict[str, int]) -> dict[str, Any]:
    pod = hami_pod()
    template = pod["spec"]["containers"][0]
    pod["spec"]["containers"] = [
        {
            **template,
            "name": name,
            "resources": {"limits": {f"nvidia.com/{key}": amount for key, amount in asked.items()}},
        }
        for name, asked in (("one", first), ("two", second))
    ]
    return pod


T4, FULL, HALF = device("a", model="Tesla T4"), ("a", 16_000, 100), ("a", 8_000, 50)


def judge(objects: list[dict[str, Any]], pod: dict[str, Any], **args: Any) -> Any:
    """Return why each node is refused and whether eviction could help."""
    found = Lab(objects).filter(ComputeResource, pod, args)
    refused = {} if found is SKIP else found
    return {name: (outcome.text, outcome.resolvable) for name, outcome in refused.items()}


def reserve(lab: Lab, pod: dict[str, Any], on: str = "n1", now: float = NOW, **args: Any) -> Any:
    algorithm = bind(ComputeResource, ComputeResourceArgs.model_validate(args), lab.mirror)
    info = lab.mirror.table.infos[lab.mirror.table.index[on]]
    return algorithm.reserve(pending(pod), info, now)
