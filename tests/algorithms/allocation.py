"""Pods and arguments for the scores of what is left of a node and of what is in use; the scores of the two by case."""

import pytest

from extender.testing.lab import Lab
from extender.testing.maker import make_node, make_pod

GPU = "example.com/gpu"


def resources(**weights):
    return {"resources": [{"name": name.replace("gpu", GPU), "weight": weight} for name, weight in weights.items()]}


BOTH = {"cpu": "1", "memory": "1Gi"}

# What the pod asks for, the arguments, the score of what is left and of what is in use.
# The node has 4 cpu, 8Gi and 2 gpus; 1 cpu, 1Gi and 1 gpu are in use.
_CASES = {
    "only named resources count": (BOTH, resources(cpu=1), 50, 50),
    "cpu and memory count alike, and it is truncated": (BOTH, {}, 62, 37),
    "resources count by weight": (BOTH, resources(cpu=1, memory=3), 68, 31),
    "a weight of 0 stands for 1": (BOTH, resources(cpu=0, memory=1), 62, 37),
    "a pod that asks for nothing counts with 100 millicores and 200 MiB": ({}, {}, 78, 20),
    "more than there is counts as all of it": ({"cpu": "9", "memory": "1Gi"}, {}, 37, 62),
    "what the node lacks is left out": ({"cpu": "1"}, resources(cpu=1, absent=9), 50, 50),
    "an extended resource that is asked for counts": ({"cpu": "1", GPU: 1}, resources(cpu=1, gpu=1), 25, 75),
    "one that is not asked for is left out": ({"cpu": "1"}, resources(cpu=1, gpu=9), 50, 50),
    "no resources are cpu and memory": ({"cpu": "1"}, {"resources": None}, 67, 32),
}

LEFT = [pytest.param(asked, args, left, id=case) for case, (asked, args, left, _) in _CASES.items()]
USED = [pytest.param(asked, args, used, id=case) for case, (asked, args, _, used) in _CASES.items()]

REFUSED = [
    pytest.param(
        resources(cpu=101), "resources[0].weight: must be <= 100, got 101", id="a weight that is too large is refused"
    ),
    pytest.param({"shape": []}, "shape: unknown key; remove it or correct its spelling", id="a shape is refused"),
]


def lab():
    load = make_pod("load", node="n", requests={**BOTH, GPU: 1})
    return Lab([make_node("n", allocatable={GPU: 2}), load])
