"""The embedded API server serves a real client, kubectl."""

import asyncio
import json
import os
import shutil

import pytest

from extender.cluster.apiserver import ApiServer

KUBECTL = shutil.which("kubectl")

pytestmark = pytest.mark.skipif(KUBECTL is None, reason="kubectl is not installed")

POD = """\
apiVersion: v1
kind: Pod
metadata: {name: web, labels: {app: web}}
spec: {containers: [{name: c, image: registry.example/web}]}
"""


@pytest.fixture
async def server():
    node = {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": "node-1"},
        "status": {"capacity": {"cpu": "4", "memory": "8Gi", "pods": "110"}},
    }
    async with ApiServer([node]) as server:
        yield server


@pytest.fixture
async def kubectl(server, tmp_path):
    environment = {"HOME": str(tmp_path), "PATH": os.environ["PATH"], "KUBECONFIG": "/dev/null"}

    async def kubectl(*arguments, text="", code=0):
        process = await asyncio.create_subprocess_exec(
            str(KUBECTL),
            "--server",
            server.url,
            "--request-timeout=10s",
            *arguments,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            env=environment,
        )
        async with asyncio.timeout(30):
            output, _ = await process.communicate(text.encode())
        assert process.returncode == code, output.decode()
        return output.decode()

    return kubectl


async def test_a_pod_is_applied_described_changed_and_deleted(server, kubectl):
    assert await kubectl("apply", "--validate=false", "-f", "-", text=POD) == "pod/web created\n"
    assert await kubectl("apply", "--validate=false", "-f", "-", text=POD) == "pod/web unchanged\n"
    assert "pod/web" in await kubectl("get", "pods,nodes", "-A")
    assert "registry.example/web" in await kubectl("describe", "pod", "web")
    await kubectl("label", "pod", "web", "tier=front")
    pod = json.loads(await kubectl("get", "pod", "web", "-o", "json"))
    assert pod["metadata"]["labels"] == {"app": "web", "tier": "front"}
    assert await kubectl("delete", "pod", "web") == 'pod "web" deleted\n'
    assert server.storage.list("pods") == []


async def test_a_node_is_described_and_tainted(server, kubectl):
    description = await kubectl("describe", "node", "node-1")
    assert "Allocatable:" in description
    await kubectl("taint", "node", "node-1", "dedicated=gpu:NoSchedule")
    await kubectl("cordon", "node-1")
    assert server.storage.get("nodes", "node-1")["spec"] == {
        "taints": [{"key": "dedicated", "value": "gpu", "effect": "NoSchedule"}],
        "unschedulable": True,
    }


async def test_refusals_are_understood(kubectl):
    await kubectl("create", "--validate=false", "-f", "-", text=POD)
    again = await kubectl("create", "--validate=false", "-f", "-", text=POD, code=1)
    assert '(AlreadyExists): error when creating "STDIN": pods "web" already exists' in again
    assert 'Error from server (NotFound): pods "nope" not found' in await kubectl("get", "pod", "nope", code=1)
    assert "the server doesn't have a resource type" in await kubectl("get", "gadgets", code=1)
