"""Devices given out at bind time: never twice, written with the binding, given back on failure, found after restart."""

from __future__ import annotations

import asyncio
import json
import sys
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from algorithms.compute_resource import NO_FREE_DEVICE, NO_FREE_MEMORY
from extender.cluster.apiserver import ApiServer, Fault, Interruption
from extender.framework import DevicePool
from extender.testing import make_node, make_pod
from extender.testing.cluster import RunningService, running_service
from tests.integration import bound

PATIENCE_SECONDS = 30.0
DEVICES, REQUEST, ALLOCATED = (
    f"scheduler-extender/{name}" for name in ("devices", "device-request", "devices-allocated")
)
ENABLED = [{"name": "ComputeResource"}]
CONFIGURATION = {
    "clientConnection": {"silenceSeconds": 600},
    "cache": {"staleSeconds": 900},
    "profiles": [{"predicates": {"enabled": ENABLED}, "priorities": {"enabled": ENABLED}}],
}
BINDING = "/binding$"


def gpu_node(name: str, devices: int = 4, memory: int = 10_000) -> dict[str, Any]:
    listed = [{"id": f"gpu-{place}", "memoryMiB": memory} for place in range(devices)]
    return make_node(name, annotations={DEVICES: json.dumps(listed)})


def gpu_pod(name: str, **request: Any) -> dict[str, Any]:
    return make_pod(name, annotations={REQUEST: json.dumps(request)})


@pytest.fixture
def service() -> Iterator[RunningService]:
    with running_service(nodes=[gpu_node(f"n{place}") for place in range(5)], configuration=CONFIGURATION) as service:
        yield service


def create(service: RunningService, pod: dict[str, Any]) -> dict[str, Any]:
    created: dict[str, Any] = service.call(service.api.storage.create, "pods", pod)
    return created


def bind(service: RunningService, pod: dict[str, Any], node: str = "n0") -> str:
    return bound.bind(service, pod, node, seconds=PATIENCE_SECONDS)


def bind_all(service: RunningService, pods: dict[str, str], **request: Any) -> list[str]:
    """Create pods and bind all of them at once, each to the node given by its name; return the errors, in order."""
    created = [create(service, gpu_pod(name, **request)) for name in pods]
    with ThreadPoolExecutor(len(pods)) as pool:
        return list(pool.map(lambda pod: bind(service, pod, pods[pod["metadata"]["name"]]), created))


def grants(pods: list[dict[str, Any]]) -> list[tuple[str, str, int]]:
    """Node, device and memory of all that is written in the API server's bound pods."""
    return [
        (pod["spec"]["nodeName"], grant["id"], grant["memoryMiB"])
        for pod in pods
        if pod["spec"].get("nodeName")
        for grant in json.loads(pod["metadata"]["annotations"][ALLOCATED])
    ]


def written(service: RunningService) -> list[tuple[str, str, int]]:
    return grants(service.call(service.api.storage.list, "pods"))


def test_two_hundred_binds_at_once_fill_shared_devices_to_the_brim(service: RunningService) -> None:
    pods = {f"p{place}": f"n{place % 5}" for place in range(200)}
    assert bind_all(service, pods, memoryMiB=1000) == [""] * 200
    devices = Counter((node, device) for node, device, _ in written(service))
    assert devices == {(f"n{node}", f"gpu-{place}"): 10 for node in range(5) for place in range(4)}
    assert NO_FREE_MEMORY in bind(service, create(service, gpu_pod("late", memoryMiB=1000)))


def test_of_more_binds_than_there_is_room_for_so_many_succeed(service: RunningService) -> None:
    pods = {f"p{place}": "n0" for place in range(60)}
    errors = bind_all(service, pods, memoryMiB=1000)
    assert errors.count("") == 40
    assert all(NO_FREE_MEMORY in error for error in errors if error)
    assert Counter(device for _, device, _ in written(service)) == {f"gpu-{place}": 10 for place in range(4)}


def test_no_two_pods_get_the_same_whole_device(service: RunningService) -> None:
    errors = bind_all(service, {f"p{place}": "n0" for place in range(12)})
    assert errors.count("") == 4
    assert sorted(written(service)) == [("n0", f"gpu-{place}", 10_000) for place in range(4)]


def test_a_device_counts_as_given_before_the_watch_says_so(service: RunningService) -> None:
    service.call(service.api.interrupt_watches, Interruption.HANG, "/pods")
    assert bind(service, create(service, gpu_pod("first", count=4))) == ""
    assert NO_FREE_MEMORY in bind(service, create(service, gpu_pod("second", memoryMiB=1)))
    with service.scheduler() as scheduler:
        assert scheduler.filter(gpu_pod("probe"), service.nodes()).failed == {"n0": NO_FREE_DEVICE}


@pytest.mark.parametrize("status", [403, 500, 503])
def test_a_bind_that_fails_gives_the_devices_back(service: RunningService, status: int) -> None:
    service.call(lambda: service.api.faults.add(Fault(method="POST", path=BINDING, status=status)))
    assert "is not bound" in bind(service, create(service, gpu_pod("unlucky", count=4)))
    assert written(service) == []
    assert bind(service, create(service, gpu_pod("lucky", count=4))) == ""
    assert len(written(service)) == 4


def test_a_pod_that_another_replica_bound_has_what_that_one_gave_it(service: RunningService) -> None:
    service.call(service.api.interrupt_watches, Interruption.HANG, "/pods")
    pod = create(service, gpu_pod("shared"))
    given = json.dumps([{"id": "gpu-3", "memoryMiB": 10_000, "cores": 100}])
    notes = {**pod["metadata"]["annotations"], ALLOCATED: given}
    service.call(
        service.api.storage.update,
        "pods",
        {**pod, "metadata": {**pod["metadata"], "annotations": notes}, "spec": {**pod["spec"], "nodeName": "n0"}},
    )
    with service.scheduler() as scheduler:
        assert scheduler.filter(pod, service.nodes()).names
    assert bind(service, pod) == ""
    taken = service.call(lambda: service.runtime.mirror.cache(DevicePool).dump()["n0"]["taken"])
    assert list(taken) == ["gpu-3"]


def test_deleted_pods_give_their_devices_back(service: RunningService) -> None:
    pod = create(service, gpu_pod("short", count=4))
    assert bind(service, pod) == ""
    service.until(lambda: not service.runtime.mirror.assumed)
    service.delete_pod(pod)
    assert bind(service, create(service, gpu_pod("next", count=4))) == ""


def test_a_pod_without_devices_is_bound_without_annotations(service: RunningService) -> None:
    pod = create(service, make_pod("plain"))
    assert bind(service, pod) == ""
    bound = service.call(service.api.storage.get, "pods", "plain", "default")
    assert "annotations" not in bound["metadata"]


# --- a process that dies ---------------------------------------------------------------------------------------------


class Process:
    """The service as a process of its own."""

    def __init__(self, process: asyncio.subprocess.Process, url: str, http: httpx.AsyncClient) -> None:
        self.process = process
        self._url = url
        self._http = http

    async def bind(self, pod: dict[str, Any]) -> str:
        meta = pod["metadata"]
        names = {"PodNamespace": meta["namespace"], "PodName": meta["name"], "PodUID": meta["uid"], "Node": "n0"}
        return str((await self._http.post(f"{self._url}/bind", json=names)).json()["Error"])


@asynccontextmanager
async def serving(api: ApiServer, folder: Path) -> AsyncIterator[Process]:
    """Run the service against ``api``, and end it hard on leaving."""
    cluster = {"name": "c", "cluster": {"server": api.url}}
    context = {"name": "c", "context": {"cluster": "c", "user": "u"}}
    content = {"clusters": [cluster], "contexts": [context], "users": [{"name": "u"}], "current-context": "c"}
    (folder / "kubeconfig").write_text(yaml.safe_dump({"apiVersion": "v1", "kind": "Config", **content}))
    (folder / "extender.yaml").write_text(
        yaml.safe_dump({"apiVersion": "scheduler-extender/v1", "kind": "ExtenderConfiguration", **CONFIGURATION})
    )
    loopback = ("server.host=127.0.0.1", "server.port=0", "management.host=127.0.0.1", "management.port=0")
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "extender", "serve", "--kubeconfig", str(folder / "kubeconfig")),
        *("--config", str(folder / "extender.yaml"), *(f"--set={setting}" for setting in loopback)),
        stderr=asyncio.subprocess.PIPE,
    )
    assert process.stderr is not None
    try:
        async with asyncio.timeout(PATIENCE_SECONDS), httpx.AsyncClient(timeout=PATIENCE_SECONDS) as http:
            async for line in process.stderr:
                fields = json.loads(line) if line.startswith(b"{") else {}
                if fields.get("message") == "serving":
                    break
            drained = asyncio.create_task(process.stderr.read())
            while (await http.get(f"{fields['management']}/readyz")).status_code != 200:  # noqa: ASYNC110 - of a process
                await asyncio.sleep(0.02)
            yield Process(process, fields["verbs"], http)
    finally:
        process.kill()
        await process.wait()
    await drained


async def test_a_killed_process_finds_its_reservations_again(tmp_path: Path) -> None:
    async with ApiServer([{"kind": "Node", "apiVersion": "v1", **gpu_node("n0")}]) as api:
        pods = [api.storage.create("pods", gpu_pod(f"p{place}")) for place in range(8)]
        async with serving(api, tmp_path) as first:
            assert await asyncio.gather(*map(first.bind, pods[:3])) == [""] * 3
        assert first.process.returncode == -9
        async with serving(api, tmp_path) as second:
            errors = await asyncio.gather(*map(second.bind, pods[3:]))
        assert errors.count("") == 1
        assert all(NO_FREE_DEVICE in error for error in errors if error)
        assert sorted(grants(api.storage.list("pods"))) == [("n0", f"gpu-{place}", 10_000) for place in range(4)]
