"""The makers build what the API would serve, from short notation."""

from typing import Any

import msgspec
import pytest

from extender.model.object import Node, Pod
from extender.testing.maker import make_node, make_pod, parse_taint, parse_toleration


def test_node_has_room_a_hostname_and_nothing_else_unless_told():
    assert make_node("a") == {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": "a", "uid": "uid-a", "labels": {"kubernetes.io/hostname": "a"}},
        "spec": {},
        "status": {
            "capacity": {"cpu": "4", "memory": "8Gi", "pods": "110"},
            "allocatable": {"cpu": "4", "memory": "8Gi", "pods": "110"},
            "conditions": [{"type": "Ready", "status": "True"}],
            "images": [],
        },
    }


def test_node_takes_every_part_a_schedule_depends_on():
    made = make_node(
        "a",
        cpu=8,
        allocatable={"example.com/gpu": 2, "memory": "1Gi"},
        labels={"zone": "z1", "kubernetes.io/hostname": "other"},
        annotations={"note": "x"},
        taints=["dedicated=gpu:NoSchedule", {"key": "k", "effect": "NoExecute"}],
        images={"nginx:1": 100},
        unschedulable=True,
        podCIDRs=["10.0.0.0/24"],
    )
    node = msgspec.convert(made, Node, strict=True)
    assert node.metadata.labels == {"zone": "z1", "kubernetes.io/hostname": "other"}
    assert node.metadata.annotations == {"note": "x"}
    assert node.status.allocatable == {"cpu": "8", "memory": "1Gi", "pods": "110", "example.com/gpu": "2"}
    assert [(taint.key, taint.value, taint.effect) for taint in node.spec.taints] == [
        ("dedicated", "gpu", "NoSchedule"),
        ("k", None, "NoExecute"),
    ]
    assert (node.status.images[0].names, node.status.images[0].size_bytes) == (["nginx:1"], 100)
    assert node.spec.unschedulable is True
    assert node.spec.pod_cidrs == ["10.0.0.0/24"]


def test_pod_is_pending_without_a_node_and_running_on_one():
    assert make_pod("p") == {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "p", "uid": "uid-p", "namespace": "default"},
        "spec": {
            "schedulerName": "default-scheduler",
            "containers": [{"name": "c", "image": "registry.example/app:v1", "resources": {}}],
        },
        "status": {"phase": "Pending"},
    }
    bound = make_pod("p", node="a")
    assert (bound["spec"]["nodeName"], bound["status"]["phase"]) == ("a", "Running")
    assert make_pod("p", node="a", phase="Failed")["status"] == {"phase": "Failed"}


def test_pod_takes_every_part_a_schedule_depends_on():
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": []}}}
    made = make_pod(
        "p",
        namespace="team",
        uid="u-1",
        requests={"cpu": "500m", "example.com/gpu": 1},
        init=[{"cpu": 2}],
        image="nginx:1",
        ports=[80, {"hostPort": 53, "protocol": "UDP"}],
        labels={"app": "web"},
        annotations={"note": "x"},
        node_selector={"zone": "z1"},
        affinity=affinity,
        tolerations=["dedicated", {"operator": "Exists"}],
        volumes=["data", {"name": "tmp", "emptyDir": {}}],
        priority=7,
        topologySpreadConstraints=[{"maxSkew": 1}],
    )
    pod = msgspec.convert(made, Pod, strict=True)
    (container,) = pod.spec.containers
    assert (pod.metadata.namespace, pod.metadata.uid, pod.metadata.labels) == ("team", "u-1", {"app": "web"})
    assert container.resources.requests == {"cpu": "500m", "example.com/gpu": "1"}
    assert [(port.host_port, port.container_port, port.protocol) for port in container.ports] == [
        (80, 80, None),
        (53, None, "UDP"),
    ]
    assert [(init.name, init.image, init.resources.requests) for init in pod.spec.init_containers] == [
        ("init-0", "nginx:1", {"cpu": "2"})
    ]
    assert pod.spec.node_selector == {"zone": "z1"}
    assert made["spec"]["affinity"] is affinity
    assert [(toleration.key, toleration.operator) for toleration in pod.spec.tolerations] == [
        ("dedicated", "Exists"),
        (None, "Exists"),
    ]
    assert [volume.name for volume in pod.spec.volumes] == ["data", "tmp"]
    assert pod.spec.volumes[0].persistent_volume_claim.claim_name == "data"
    assert pod.spec.priority == 7
    assert pod.spec.topology_spread_constraints[0].max_skew == 1


@pytest.mark.parametrize(
    ("text", "taint"),
    [
        ("k=v:NoSchedule", {"key": "k", "value": "v", "effect": "NoSchedule"}),
        ("example.com/k:NoExecute", {"key": "example.com/k", "effect": "NoExecute"}),
    ],
)
def test_taint_is_read_as_kubectl_writes_it(text: str, taint: dict[str, Any]):
    assert parse_taint(text) == taint


@pytest.mark.parametrize("text", ["k", "k=v", "k:", ":NoSchedule", ""])
def test_text_that_is_no_taint_is_refused(text: str):
    with pytest.raises(ValueError, match="is no taint: write"):
        parse_taint(text)


@pytest.mark.parametrize(
    ("text", "toleration"),
    [
        ("k=v:NoSchedule", {"key": "k", "operator": "Equal", "value": "v", "effect": "NoSchedule"}),
        ("k=:NoSchedule", {"key": "k", "operator": "Equal", "effect": "NoSchedule"}),
        ("k=v", {"key": "k", "operator": "Equal", "value": "v"}),
        ("k:NoSchedule", {"key": "k", "operator": "Exists", "effect": "NoSchedule"}),
        ("k", {"key": "k", "operator": "Exists"}),
        ("", {"operator": "Exists"}),
    ],
)
def test_toleration_is_read_from_short_text(text: str, toleration: dict[str, Any]):
    assert parse_toleration(text) == toleration
