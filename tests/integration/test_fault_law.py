"""Whatever goes wrong on the way, the mirror ends up as what the API server holds, and so does every cache.

Objects change at random while the embedded API server misbehaves at random, with no regard to each other. Once it
behaves again, mirror and caches are what they would be, had they been built from the final state alone.
"""

from __future__ import annotations

import asyncio
import importlib
import inspect
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from random import Random
from typing import Any, Literal, TypeAlias

import msgspec
import pytest

from extender.cluster.apiserver import ApiServer, Fault, Interruption, ServerOptions, StatusError
from extender.cluster.backoff import Backoff
from extender.cluster.client import Client
from extender.cluster.connection import from_url
from extender.cluster.reflector import Reflector
from extender.framework.cache import Cache
from extender.framework.loader import in_tree_modules
from extender.framework.mirror import Mirror
from extender.model.kind import KINDS, NODES, PODS, Kind
from extender.testing import make_node, make_pod
from extender.testing.cluster import running_service

Json: TypeAlias = dict[str, Any]

DAY_SECONDS = 86_400.0
ROUNDS, STEPS = 6, 40
NODE_NAMES, POD_NAMES, SPACES = [f"n{i}" for i in range(6)], [f"p{i}" for i in range(12)], ["a", "b"]
FINISHED = ("Succeeded", "Failed")


def cache_classes() -> list[type[Cache]]:
    """Every cache that an algorithm of the tree has or may have."""
    for module in in_tree_modules():
        importlib.import_module(f"algorithms.{module}")
    found, left = [], [Cache]
    while left:
        for cls in left.pop().__subclasses__():
            left.append(cls)
            if not inspect.isabstract(cls) and cls.__module__.startswith(("extender.", "algorithms.")):
                found.append(cls)
    return sorted(found, key=lambda cls: cls.__qualname__)


def new_mirror() -> Mirror:
    mirror = Mirror()
    for cls in cache_classes():
        mirror.cache(cls)
    return mirror


def resource_of(kind: Kind) -> str:
    return f"{kind.plural}.{kind.group}" if kind.group else kind.plural


def listed(server: ApiServer, kind: Kind) -> list[Json]:
    """What a list of the kind says, in the server's own order."""
    items = server.storage.list(resource_of(kind))
    return [item for item in items if kind != PODS or (item.get("status") or {}).get("phase") not in FINISHED]


def rebuilt(server: ApiServer) -> Mirror:
    """A mirror that was told nothing but the final state."""
    mirror = new_mirror()
    for kind in KINDS:
        store = mirror.store(kind)
        store.begin()
        for item in listed(server, kind):
            store.upsert(msgspec.convert(item, kind.type))
        store.finish()
    return mirror


def held(mirror: Mirror, kind: Kind) -> dict[str, tuple[str, ...]]:
    """Keys, each with uid, resource version and, of pods, the node."""
    if kind == NODES:
        infos = [mirror.table.infos[row] for row in mirror.table.rows().tolist()]
        return {info.name: (info.uid, info.resource_version) for info in infos if info is not None}
    if kind == PODS:
        return {key: (pod.uid, pod.resource_version, pod.node_name) for key, pod in mirror.pods.items()}
    metas = {key: item.metadata for key, item in mirror.objects(kind).items()}
    return {key: (meta.uid, meta.resource_version) for key, meta in metas.items()}


def state(mirror: Mirror) -> Json:
    return {kind.plural: held(mirror, kind) for kind in KINDS}


def truth(server: ApiServer) -> Json:
    found: Json = {}
    for kind in KINDS:
        entries = found[kind.plural] = {}
        for item in listed(server, kind):
            meta = item["metadata"]
            key = f"{meta['namespace']}/{meta['name']}" if meta.get("namespace") else meta["name"]
            node = (item["spec"].get("nodeName") or "",) if kind == PODS else ()
            entries[key] = (meta["uid"], meta["resourceVersion"], *node)
    return found


def dumps(mirror: Mirror) -> Json:
    return {type(cache).__qualname__: cache.dump() for cache in mirror.caches}


class World:
    """The cluster's owners, who change it at random through the server's storage."""

    def __init__(self, random: Random, server: ApiServer) -> None:
        self.random = random
        self.server = server

    def change(self) -> None:
        """Change one object; an update of one that is not there changes nothing."""
        often = (self.put_pod, self.delete, self.put_other)
        rarely = (self.put_node, self.put_pod, self.bind, self.finish, self.nominate, self.replace_pod)
        step: Callable[[], None] = self.random.choice([*often, *often, *rarely])
        with suppress(StatusError):
            step()

    def put(self, plural: str, item: Json) -> None:
        try:
            self.server.storage.create(plural, item)
        except StatusError:
            self.server.storage.update(plural, item)

    def put_node(self) -> None:
        taints = [{"key": "k", "value": self.random.choice("xy"), "effect": "NoSchedule"}]
        node = make_node(
            self.random.choice(NODE_NAMES),
            cpu=self.random.randint(1, 8),
            labels={"topology.kubernetes.io/zone": self.random.choice("xyz")},
            taints=self.random.choice([[], taints]),
            unschedulable=self.random.random() < 0.2,
        )
        node["metadata"].pop("uid", None)
        self.put("nodes", node)

    def pod(self, name: str, space: str) -> Json:
        random = self.random
        pod = make_pod(
            name,
            namespace=space,
            labels={"app": random.choice("uvw")},
            node=random.choice([None, None, *NODE_NAMES, "unknown"]),
            requests={"cpu": f"{random.randint(1, 9)}00m"},
        )
        pod["metadata"].pop("uid", None)
        if random.random() < 0.3:
            pod["spec"]["containers"][0]["ports"] = [{"hostPort": random.choice([80, 81]), "containerPort": 80}]
        if random.random() < 0.3:
            pod["spec"]["volumes"] = [{"name": "v", "persistentVolumeClaim": {"claimName": random.choice("cd")}}]
        if random.random() < 0.3:
            term = {"labelSelector": {"matchLabels": {"app": random.choice("uvw")}}, "topologyKey": "zone"}
            required = "requiredDuringSchedulingIgnoredDuringExecution"
            pod["spec"]["affinity"] = {random.choice(["podAffinity", "podAntiAffinity"]): {required: [term]}}
        return pod

    def put_pod(self) -> None:
        self.put("pods", self.pod(self.random.choice(POD_NAMES), self.random.choice(SPACES)))

    def any_pod(self) -> Json:
        pods = self.server.storage.list("pods")
        return self.random.choice(pods) if pods else self.pod("none", "a")

    def bind(self) -> None:
        pod = self.any_pod()
        pod["spec"]["nodeName"] = pod["spec"].get("nodeName") or self.random.choice(NODE_NAMES)
        self.server.storage.update("pods", pod)

    def finish(self) -> None:
        pod = self.any_pod()
        pod["status"] = {**(pod.get("status") or {}), "phase": self.random.choice([*FINISHED, "Running"])}
        self.server.storage.update("pods", pod)

    def nominate(self) -> None:
        pod = self.any_pod()
        pod["status"] = {**(pod.get("status") or {}), "nominatedNodeName": self.random.choice(["", *NODE_NAMES])}
        self.server.storage.update("pods", pod)

    def replace_pod(self) -> None:
        """Delete a pod and create another one of the same name before anyone can look."""
        meta = self.any_pod()["metadata"]
        self.server.storage.delete("pods", meta["name"], meta["namespace"])
        self.server.storage.create("pods", self.pod(meta["name"], meta["namespace"]))

    def delete(self) -> None:
        plural = self.random.choice(["nodes", "pods", "pods", "services", "persistentvolumeclaims", "namespaces"])
        items = self.server.storage.list(plural)
        if items:
            meta = self.random.choice(items)["metadata"]
            self.server.storage.delete(plural, meta["name"], meta.get("namespace", ""))

    def put_other(self) -> None:
        random, app = self.random, {"app": self.random.choice("uvw")}
        meta = {"name": random.choice("cde"), "namespace": random.choice(SPACES)}
        others: dict[str, Json] = {
            "services": {"metadata": meta, "spec": {"selector": app}},
            "persistentvolumeclaims": {"metadata": meta, "spec": {"volumeName": random.choice(["", "v1"])}},
            "namespaces": {"metadata": {"name": random.choice(SPACES), "labels": app}},
            "replicasets.apps": {"metadata": meta, "spec": {"selector": {"matchLabels": app}}},
            "persistentvolumes": {"metadata": {"name": "v1"}, "spec": {"capacity": {"storage": "1Gi"}}},
            "poddisruptionbudgets.policy": {"metadata": meta, "spec": {"selector": {"matchLabels": app}}},
        }
        plural = random.choice(sorted(others))
        self.put(plural, others[plural])


class Mischief:
    """What goes wrong; each fault may strike any kind, its lists or its watches."""

    def __init__(self, random: Random, server: ApiServer, wall_clock: list[float]) -> None:
        self.random = random
        self.server = server
        self.wall_clock = wall_clock

    async def strike(self) -> None:
        await self.random.choice(
            [
                *(self.interrupt, self.interrupt, self.interrupt_later, self.end_at_once),
                *(self.refuse, self.garble, self.delay, self.toggle),
                *(self.compact, self.compact, self.restart, self.jump),
            ]
        )()

    def path(self) -> str:
        return self.random.choice([f"/{kind.plural}$" for kind in KINDS] + ["/pods$", "/pods$", "/nodes$", ""])

    async def interrupt(self) -> None:
        self.server.interrupt_watches(self.random.choice(list(Interruption)), self.path())

    async def interrupt_later(self) -> None:
        kind, lines = self.random.choice(list(Interruption)), self.random.randint(0, 8)
        self.server.faults.add(Fault(watch=True, path=self.path(), interruption=kind, after_lines=lines, count=2))

    async def refuse(self) -> None:
        status = self.random.choice([410, 429, 500, 503, 504])
        headers = {"Retry-After": self.random.choice(["0", "1"])} if status == 429 else {}
        watch = self.random.choice([None, True, False])
        self.server.faults.add(
            Fault(watch=watch, path=self.path(), status=status, headers=headers, count=self.random.randint(1, 2))
        )

    async def garble(self) -> None:
        body = self.random.choice([b"", b"{", b"<html>", b"[]", b"null", b'{"kind":"PodList","metadata":{},"items":[{'])
        self.server.faults.add(
            Fault(watch=self.random.choice([True, False]), path=self.path(), status=200, body=body, count=1)
        )

    async def delay(self) -> None:
        """Let changes and compaction come between the pages of a list, or between a list and its watch."""
        cut: Literal["after"] | None = self.random.choice([None, "after"])
        self.server.faults.add(Fault(watch=False, path=self.path(), delay_after=0.01, cut=cut, count=3))

    async def end_at_once(self) -> None:
        self.server.faults.add(Fault(watch=True, path=self.path(), interruption=Interruption.END, count=5))

    async def compact(self) -> None:
        self.server.storage.compact()
        self.server.interrupt_watches(self.random.choice([Interruption.CUT, Interruption.EXPIRED]), self.path())

    async def restart(self) -> None:
        """Be away for a while, in which the cluster changes, and have forgotten the history after it."""
        await self.server.stop()
        world = World(self.random, self.server)
        for _ in range(self.random.randint(0, 5)):
            world.change()
        if self.random.random() < 0.5:
            self.server.storage.compact()
        await self.server.start()

    async def toggle(self) -> None:
        self.server.options.streaming_lists = not self.server.options.streaming_lists

    async def jump(self) -> None:
        self.wall_clock[0] += self.random.choice([-1, 1]) * self.random.uniform(0, 10 * DAY_SECONDS)


@pytest.fixture
def wall_clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """By how many seconds the wall clock is off."""
    offset, true_time = [0.0], time.time
    monkeypatch.setattr(time, "time", lambda: true_time() + offset[0])
    return offset


@asynccontextmanager
async def following(server: ApiServer, mirror: Mirror) -> AsyncIterator[list[Reflector]]:
    """Follow every kind, impatiently."""
    client = Client(from_url(server.url))
    reflectors = [
        Reflector(
            kind,
            client,
            mirror.store(kind),
            page_size=3,
            silence_seconds=0.25,
            healthy_seconds=0.1,
            backoff=Backoff(base_seconds=0.005, cap_seconds=0.05),
        )
        for kind in KINDS
    ]
    tasks = [asyncio.create_task(reflector.run()) for reflector in reflectors]
    try:
        yield reflectors
        assert not [task for task in tasks if task.done()]
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await client.close()


async def settle(server: ApiServer, mirror: Mirror, reflectors: list[Reflector]) -> None:
    """Let the server behave and wait for the mirror to catch up; whoever is not done in time fails the comparison."""
    server.faults.clear()
    late = time.monotonic() + 10
    while time.monotonic() < late:
        is_well = all(reflector.synced and reflector.failing is None for reflector in reflectors)
        if is_well and state(mirror) == truth(server):
            return
        await asyncio.sleep(0.01)


@pytest.mark.parametrize("seed", range(5))
async def test_mirror_and_caches_equal_the_server_after_any_changes_and_faults(
    seed: int, wall_clock: list[float]
) -> None:
    random = Random(seed)
    options = ServerOptions(bookmark_interval_seconds=0.1, streaming_lists=bool(seed % 2))
    async with ApiServer([], options) as server:
        world, mischief = World(random, server), Mischief(random, server, wall_clock)
        for _ in range(STEPS):
            world.change()
        mirror = new_mirror()
        async with following(server, mirror) as reflectors:
            for _ in range(ROUNDS):
                for _ in range(STEPS):
                    if random.random() < 0.25:
                        await mischief.strike()
                    else:
                        world.change()
                    await asyncio.sleep(random.choice([0, 0, 0.002]))
                await settle(server, mirror, reflectors)
                assert state(mirror) == truth(server)
                assert dumps(mirror) == dumps(rebuilt(server))
                assert max(reflector.silent_seconds() for reflector in reflectors) < DAY_SECONDS / 24
            assert sum(reflector.failures.total() for reflector in reflectors) > ROUNDS
            assert sum(reflector.lists for reflector in reflectors) > len(KINDS)


@pytest.mark.parametrize("jump_seconds", [-10 * DAY_SECONDS, 10 * DAY_SECONDS], ids=["backwards", "forwards"])
def test_a_wall_clock_that_jumps_changes_nothing(jump_seconds: float, wall_clock: list[float]) -> None:
    with running_service(nodes=[make_node("n1")]) as service:
        reflectors = service.runtime.reflectors
        attempts = {reflector.kind.plural: (reflector.lists, reflector.watches) for reflector in reflectors}
        first = service.create_pod(make_pod("first"))
        info = service.runtime.mirror.by_uid[first["metadata"]["uid"]]
        held_back = Fault(watch=True, path="/pods$", count=None, interruption=Interruption.HANG)
        service.call(service.api.faults.add, held_back)
        assert service.call(service.api.interrupt_watches, Interruption.HANG, "/pods$") == 1
        with service.scheduler(http_timeout_seconds=10) as scheduler:
            meta = first["metadata"]
            scheduler.bind(meta["namespace"], meta["name"], meta["uid"], "n1")
            wall_clock[0] = jump_seconds
            ticks = service.runtime.metrics.loop_lag
            before = sample_count(ticks)
            service.until(lambda: sample_count(ticks) >= before + 2, "two looks at what has expired")
            assert service.call(lambda: info.uid in service.runtime.mirror.assumed)
            assert not service.call(lambda: [check for check in service.runtime.readiness() if check.problem])
            assert scheduler.filter(make_pod("second"), service.nodes()).names == ["n1"]
        assert attempts == {reflector.kind.plural: (reflector.lists, reflector.watches) for reflector in reflectors}


def sample_count(histogram: Any) -> float:
    (metric,) = histogram.collect()
    return next(float(sample.value) for sample in metric.samples if sample.name.endswith("_count"))
