"""Replicas of the service as processes of their own: one binds, and another takes over when that one is gone."""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from extender.cluster.apiserver import ApiServer, Fault
from extender.cluster.client import Client
from extender.cluster.connection import from_url
from extender.testing import make_node, make_pod

PATIENCE_SECONDS = 30.0
LEASE_SECONDS = 2
SETTINGS = {
    "server.host": "127.0.0.1",
    "server.port": 0,
    "server.drainSeconds": 0,
    "management.host": "127.0.0.1",
    "management.port": 0,
    "leaderElection.enabled": "true",
    "leaderElection.leaseName": "extender",
    "leaderElection.leaseNamespace": "default",
    "leaderElection.leaseDurationSeconds": LEASE_SECONDS,
    "leaderElection.renewDeadlineSeconds": 1.3,
    "leaderElection.retryPeriodSeconds": 0.3,
}


async def until(condition: Callable[[], Awaitable[Any]], what: str) -> None:
    late = asyncio.get_running_loop().time() + PATIENCE_SECONDS
    while not await condition():
        assert asyncio.get_running_loop().time() < late, f"{what} did not come about in time"
        await asyncio.sleep(0.02)


class Replica:
    """One process; ``lines`` are the fields of its log."""

    def __init__(self, identity: str, process: asyncio.subprocess.Process) -> None:
        self.identity = identity
        self.process = process
        self.lines: list[dict[str, Any]] = []
        self.reader = asyncio.create_task(self._read())
        self.http = httpx.AsyncClient(timeout=10)
        self.url = self.management_url = ""

    async def _read(self) -> None:
        assert self.process.stderr is not None
        async for line in self.process.stderr:
            if line.startswith(b"{"):
                self.lines.append(json.loads(line))

    async def serves(self) -> bool:
        for line in self.lines:
            if line["message"] == "serving":
                self.url, self.management_url = line["verbs"], line["management"]
        return bool(self.url)

    async def checks(self) -> str:
        """Return what the readiness probe says of each check."""
        return (await self.http.get(f"{self.management_url}/readyz?verbose")).text

    async def is_ready(self) -> bool:
        return (await self.http.get(f"{self.management_url}/readyz")).status_code == 200

    async def leads(self) -> str:
        metrics = (await self.http.get(f"{self.management_url}/metrics")).text
        return next(line for line in metrics.splitlines() if line.startswith("scheduler_extender_leader ")).split()[1]

    async def post(self, verb: str, content: dict[str, Any]) -> Any:
        return (await self.http.post(f"{self.url}/{verb}", json=content)).json()

    async def bind(self, pod: dict[str, Any]) -> str:
        meta = pod["metadata"]
        names = {"PodNamespace": meta["namespace"], "PodName": meta["name"], "PodUID": meta["uid"], "Node": "n1"}
        return str((await self.post("bind", names))["Error"])

    async def ends(self) -> int:
        async with asyncio.timeout(PATIENCE_SECONDS):
            return await self.process.wait()

    async def close(self) -> None:
        if self.process.returncode is None:
            self.process.kill()
        await self.process.wait()
        await self.reader
        await self.http.aclose()


class Cluster:
    """An API server, the replicas that use it, and every ``(holder, record)`` the lease has had."""

    def __init__(self, server: ApiServer, kubeconfig: Path) -> None:
        self.server = server
        self.replicas: list[Replica] = []
        self.records: list[dict[str, Any]] = []
        self._kubeconfig = kubeconfig

    async def start(self, identity: str) -> Replica:
        settings = {**SETTINGS, "leaderElection.identity": identity}
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "extender", "serve", "--kubeconfig", str(self._kubeconfig)),
            *(f"--set={path}={value}" for path, value in settings.items()),
            stderr=asyncio.subprocess.PIPE,
        )
        replica = Replica(identity, process)
        self.replicas.append(replica)
        await until(replica.serves, f"the start of {identity}")
        return replica

    async def pair(self) -> tuple[Replica, Replica]:
        """Return a replica that leads and one that follows."""
        first = await self.start("first")
        await until(first.is_ready, "the first leader")
        second = await self.start("second")

        async def only_waits() -> bool:
            checks = await second.checks()
            return checks.count("[-]") == 1 and "[-]leader failed: not leader (holder first)" in checks

        await until(only_waits, "a follower that only waits for the lease")
        return first, second

    def new_pod(self, name: str) -> dict[str, Any]:
        return self.server.storage.create("pods", make_pod(name))

    def node_of(self, pod: dict[str, Any]) -> str:
        return str(self.server.storage.get("pods", pod["metadata"]["name"])["spec"].get("nodeName", ""))

    def holders(self) -> list[str]:
        """Return who held the lease, one after the other."""
        holders = [record["holderIdentity"] for record in self.records]
        return [holder for place, holder in enumerate(holders) if not place or holders[place - 1] != holder]

    async def follow_lease(self, client: Client) -> None:
        path, params = "/apis/coordination.k8s.io/v1/leases", {"watch": "true"}
        async with client.stream(path, params=params, silence_seconds=PATIENCE_SECONDS) as batches:
            async for lines in batches:
                self.records += [json.loads(line)["object"]["spec"] for line in lines]


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[Cluster]:
    async with ApiServer([{"apiVersion": "v1", "kind": "Node", **make_node("n1", cpu="64")}]) as server:
        kubeconfig = tmp_path / "kubeconfig"
        kubeconfig.write_text(
            yaml.safe_dump(
                {
                    "current-context": "test",
                    "contexts": [{"name": "test", "context": {"cluster": "test"}}],
                    "clusters": [{"name": "test", "cluster": {"server": server.url}}],
                }
            )
        )
        async with following(Cluster(server, kubeconfig)) as running:
            yield running


@asynccontextmanager
async def following(cluster: Cluster) -> AsyncIterator[Cluster]:
    client = Client(from_url(cluster.server.url))
    follower = asyncio.create_task(cluster.follow_lease(client))
    try:
        yield cluster
    finally:
        for replica in cluster.replicas:
            await replica.close()
        follower.cancel()
        await asyncio.gather(follower, return_exceptions=True)
        await client.close()


def moment(text: str) -> datetime:
    return datetime.fromisoformat(text)


async def test_when_the_leader_is_killed_the_other_one_binds_once_the_lease_has_run_out(cluster: Cluster) -> None:
    first, second = await cluster.pair()
    pod = cluster.new_pod("one")
    assert (await first.leads(), await second.leads()) == ("1.0", "0.0")

    # A follower answers whatever binds nothing.
    request = {"Pod": pod, "NodeNames": ["n1"]}
    assert (await second.post("filter", request))["NodeNames"] == ["n1"]
    assert [entry["Host"] for entry in await second.post("prioritize", request)] == ["n1"]
    assert await second.bind(pod) == "pod default/one is not bound: not leader (holder first)"
    assert cluster.node_of(pod) == ""
    assert await first.bind(pod) == ""

    async def is_known_to_be_bound() -> bool:
        return await second.bind(pod) == ""

    await until(is_known_to_be_bound, "the follower's word that nothing is left to do")

    first.process.kill()
    await until(second.is_ready, "the next leader")
    assert await second.leads() == "1.0"
    assert await second.bind(cluster.new_pod("two")) == ""
    assert cluster.holders() == ["first", "second"]
    last = [record for record in cluster.records if record["holderIdentity"] == "first"][-1]
    took = moment(cluster.records[-1]["acquireTime"]) - moment(last["renewTime"])
    assert took >= timedelta(seconds=LEASE_SECONDS)
    assert cluster.records[-1]["leaseTransitions"] == 1


async def test_a_leader_that_is_told_to_stop_hands_over(cluster: Cluster) -> None:
    first, second = await cluster.pair()
    first.process.send_signal(signal.SIGTERM)
    assert await first.ends() == 0
    await until(second.is_ready, "the next leader")
    assert await second.bind(cluster.new_pod("one")) == ""
    assert cluster.holders() == ["first", "", "second"]


async def test_a_leader_that_was_frozen_finds_itself_replaced_and_ends(cluster: Cluster) -> None:
    first, second = await cluster.pair()
    first.process.send_signal(signal.SIGSTOP)
    await until(second.is_ready, "the next leader")
    pod = cluster.new_pod("one")
    late = asyncio.create_task(first.bind(pod))
    await asyncio.sleep(0)
    first.process.send_signal(signal.SIGCONT)
    assert await first.ends() == 2
    with contextlib.suppress(httpx.TransportError):  # of a process that ended before it read the request
        assert "is not bound: not leader" in await late
    assert cluster.node_of(pod) == ""
    assert await second.is_ready()
    assert cluster.holders() == ["first", "second"]


async def test_a_leader_that_cannot_renew_ends_to_be_started_anew(cluster: Cluster) -> None:
    only = await cluster.start("only")
    await until(only.is_ready, "the leader")
    fault = cluster.server.faults.add(Fault(path="/leases", count=None, delay_before=PATIENCE_SECONDS, watch=False))
    assert await only.ends() == 2
    messages = [line["message"] for line in only.lines]
    assert [message for message in messages if message in ("leading", "lease lost", "stopping", "stopped")] == [
        *("leading", "lease lost", "stopping", "stopped")
    ]
    cluster.server.faults.remove(fault)
    again = await cluster.start("again")
    await until(again.is_ready, "the leader that was started anew")
    assert await again.bind(cluster.new_pod("one")) == ""
