"""The mirror after any stream of events is the mirror of what exists at its end, and what-if leaves no trace."""

from __future__ import annotations

from collections.abc import Generator, Iterable
from contextlib import ExitStack
from typing import Any, NamedTuple

import msgspec
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from extender.framework.cache import Cache
from extender.framework.mirror import Mirror
from extender.framework.resource import RequestedResources
from extender.model.kind import NODES, PODS
from extender.model.node import NodeInfo, read_node
from extender.model.object import Node, Pod
from extender.model.pod import PodInfo
from extender.model.table import NodeTable
from extender.testing import make_node, make_pod

NAMES = ("a", "b", "c")
KEYS = ("p", "q")

names = st.sampled_from(NAMES)
keys = st.sampled_from(KEYS)
lives = st.integers(0, 1)
cpus = st.integers(0, 2)


class NodeState(NamedTuple):
    """What is told of a node apart from its version."""

    cpu: int = 4
    unschedulable: bool = False


class PodState(NamedTuple):
    """What is told of a pod; a pod of another life is another one of the same name."""

    life: int
    node: str
    cpu: int
    nominated: str = ""


class Ledger(Cache):
    """Keeps the very records it is given, and complains when it is to give up another one."""

    def __init__(self, table: Any) -> None:
        super().__init__(table)
        self.nodes: dict[int, NodeInfo] = {}
        self.pods: dict[int, list[PodInfo]] = {}
        self.capacity = table.capacity

    def grow(self, capacity: int) -> None:
        assert capacity > self.capacity
        self.capacity = capacity

    def add_node(self, row: int, node: NodeInfo) -> None:
        assert row < self.capacity
        assert row not in self.nodes
        self.nodes[row] = node

    def remove_node(self, row: int, node: NodeInfo) -> None:
        assert self.nodes.pop(row) is node

    def add_pod(self, row: int, pod: PodInfo) -> None:
        assert row < self.capacity
        assert self.table.name(row) == pod.node_name
        self.pods.setdefault(row, []).append(pod)

    def remove_pod(self, row: int, pod: PodInfo) -> None:
        self.pods[row].remove(pod)  # records are compared by identity
        if not self.pods[row]:
            del self.pods[row]

    def dump(self) -> Any:
        rows = self.nodes.keys() | self.pods.keys()
        return {
            self.table.name(row): (
                self.nodes[row].allocatable if row in self.nodes else None,
                sorted((pod.uid, tuple(pod.shape.requests.items())) for pod in self.pods.get(row, ())),
            )
            for row in rows
        }


class Late(Ledger):
    """One that is built in steps while the mirror is told things."""


def node_object(name: str, state: NodeState, version: int) -> Node:
    found = make_node(name, cpu=state.cpu, unschedulable=state.unschedulable)
    found["metadata"]["resourceVersion"] = str(version)
    return msgspec.convert(found, Node)


def uid(key: str, life: int) -> str:
    return f"{key}-{life}"


def pod_object(key: str, state: PodState, version: int = 0) -> Pod:
    found = make_pod(key, uid=uid(key, state.life), node=state.node or None, requests={"cpu": str(state.cpu)})
    found["metadata"]["resourceVersion"] = str(version)
    found["status"]["nominatedNodeName"] = state.nominated
    return msgspec.convert(found, Pod)


def mirror_of(nodes: dict[str, NodeState], placed: Iterable[tuple[str, PodState]]) -> Mirror:
    """A mirror that was told nothing but this; pods are called as their uid, for two lives may be counted at once."""
    mirror = Mirror()
    mirror.cache(Ledger)
    mirror.cache(RequestedResources)
    for key, state in placed:
        found = pod_object(key, state)
        assert found.metadata is not None
        found.metadata.name = found.metadata.uid
        mirror.upsert_pod(mirror.reader.read(found))
    for name, node in nodes.items():
        mirror.upsert_node(read_node(node_object(name, node, 0)))
    return mirror


def dump(mirror: Mirror) -> Any:
    assert len(mirror.table) == len({info.name for info in mirror.table.infos if info is not None})
    assert not mirror.upkeep.broken, [cache.cache_error for cache in mirror.upkeep.broken.values()]
    return {type(cache).__name__: cache.dump() for cache in mirror.caches}


class MirrorMachine(RuleBasedStateMachine):
    """Tells a mirror, and keeps what is true: nodes by name, pods by name, and assumed pods by uid."""

    @initialize()
    def start(self) -> None:
        self.mirror = mirror_of({}, [])
        self.stores = {kind: self.mirror.store(kind) for kind in (NODES, PODS)}
        self.nodes: dict[str, NodeState] = {}
        self.pods: dict[str, PodState] = {}
        self.assumed: dict[str, tuple[str, PodState, float | None]] = {}
        self.version = 0
        self.building: Generator[None] | None = None

    def next_version(self) -> int:
        self.version += 1
        return self.version

    def counted(self) -> list[tuple[str, PodState]]:
        placed = [(key, state) for key, state in self.pods.items() if state.node]
        return [*placed, *((key, state) for key, state, _ in self.assumed.values())]

    # --- the watch ---

    @rule(name=names, cpu=st.integers(1, 3), unschedulable=st.booleans())
    def tell_node(self, name: str, cpu: int, unschedulable: bool) -> None:
        self.nodes[name] = NodeState(cpu, unschedulable)
        self.stores[NODES].upsert(node_object(name, self.nodes[name], self.next_version()))

    @rule(name=names)
    def tell_the_same_of_a_node(self, name: str) -> None:
        if name in self.nodes:
            version = self.next_version()
            self.stores[NODES].upsert(node_object(name, self.nodes[name], version))
            held = self.mirror.table.infos[self.mirror.table.index[name]]
            assert held is not None
            assert held.resource_version == str(version)

    @rule(name=names)
    def delete_node(self, name: str) -> None:
        self.stores[NODES].delete(node_object(name, NodeState(), 0))
        self.nodes.pop(name, None)

    @rule(key=keys, life=lives, node=names | st.just(""), cpu=cpus, nominated=names | st.just(""))
    def tell_pod(self, key: str, life: int, node: str, cpu: int, nominated: str) -> None:
        self.take_in_pod(key, PodState(life, node, cpu, "" if node else nominated))

    @rule(key=keys)
    def tell_the_same_of_a_pod(self, key: str) -> None:
        if key in self.pods:
            self.take_in_pod(key, self.pods[key])

    def take_in_pod(self, key: str, state: PodState) -> None:
        before = self.pods.get(key)
        if before is not None and before.life != state.life:
            self.assumed.pop(uid(key, before.life), None)
        if state.node:
            self.assumed.pop(uid(key, state.life), None)
        self.pods[key] = state
        self.stores[PODS].upsert(pod_object(key, state, self.next_version()))

    @rule(key=keys)
    def delete_pod(self, key: str) -> None:
        self.stores[PODS].delete(pod_object(key, PodState(0, "", 0)))
        before = self.pods.pop(key, None)
        if before is not None:
            self.assumed.pop(uid(key, before.life), None)

    @rule(kept=st.sets(names), again=st.booleans())
    def list_nodes(self, kept: set[str], again: bool) -> None:
        """A list tells of some nodes only; with ``again`` a first try broke off before its end."""
        store = self.stores[NODES]
        if again:
            store.begin()
            for name, state in self.nodes.items():
                store.upsert(node_object(name, state, self.version))
        store.begin()
        self.nodes = {name: state for name, state in self.nodes.items() if name in kept}
        for name, state in self.nodes.items():
            store.upsert(node_object(name, state, self.next_version()))
        store.finish()

    @rule(kept=st.sets(keys))
    def list_pods(self, kept: set[str]) -> None:
        self.stores[PODS].begin()
        for key in [key for key in self.pods if key in kept]:
            self.take_in_pod(key, self.pods[key])
        self.stores[PODS].finish()
        for key in [key for key in self.pods if key not in kept]:
            self.assumed.pop(uid(key, self.pods.pop(key).life), None)

    @precondition(lambda self: self.mirror.table.capacity == NodeTable().capacity)
    @rule()
    def come_and_go_in_a_crowd(self) -> None:
        """More names than the table has rows for at first."""
        for number in range(self.mirror.table.capacity + 1):
            self.stores[NODES].upsert(node_object(f"crowd-{number}", NodeState(), 0))
        self.list_nodes(set(NAMES), again=False)

    # --- binds ---

    @rule(key=keys, life=lives, node=names, cpu=cpus)
    def assume(self, key: str, life: int, node: str, cpu: int) -> None:
        state = PodState(life, node, cpu)
        self.mirror.assume(self.mirror.reader.read(pod_object(key, state)))
        known = self.pods.get(key)
        if known is None or known.life != life or not known.node:
            self.assumed[uid(key, life)] = (key, state, None)

    @rule(key=keys, life=lives)
    def fail_to_bind(self, key: str, life: int) -> None:
        self.mirror.forget(uid(key, life))
        self.assumed.pop(uid(key, life), None)

    @rule(key=keys, life=lives, deadline=st.integers(1, 3))
    def finish_binding(self, key: str, life: int, deadline: int) -> None:
        self.mirror.finish_binding(uid(key, life), deadline)
        if uid(key, life) in self.assumed:
            self.assumed[uid(key, life)] = (*self.assumed[uid(key, life)][:2], deadline)

    @rule(now=st.integers(0, 4))
    def expire(self, now: int) -> None:
        late = {name for name, (_, _, deadline) in self.assumed.items() if deadline is not None and deadline <= now}
        assert {info.uid for info in self.mirror.expire(now)} == late
        for name in late:
            del self.assumed[name]

    # --- what if ---

    @rule(data=st.data())
    def look_at_what_would_be(self, data: st.DataObject) -> None:
        nodes, rows = dict(self.nodes), dict(self.mirror.table.index)
        counted = {(key, state): self.record(key, state) for key, state in self.counted()}
        with ExitStack() as changes:
            for _ in range(data.draw(st.integers(1, 3), label="levels")):
                gone = data.draw(
                    st.sets(st.sampled_from(list(counted))) if counted else st.just(set()), label="without"
                )
                without = [counted.pop(entry) for entry in sorted(gone)]
                extra = data.draw(st.lists(st.builds(PodState, lives, names, cpus), max_size=2), label="plus")
                named = [(f"extra-{self.next_version()}", state) for state in extra]
                plus = {(key, state): self.mirror.reader.read(pod_object(key, state)) for key, state in named}
                counted |= plus
                swapped = data.draw(st.dictionaries(names, st.builds(NodeState, cpus), max_size=2), label="nodes")
                nodes |= swapped
                changes.enter_context(
                    self.mirror.what_if(
                        without=without,
                        plus=plus.values(),
                        nodes=[read_node(node_object(name, state, 0)) for name, state in swapped.items()],
                    )
                )
                assert dump(self.mirror) == dump(mirror_of(nodes, counted))
        assert self.mirror.table.index == rows

    def record(self, key: str, state: PodState) -> PodInfo:
        found = self.mirror.placed(uid(key, state.life))
        assert found is not None
        return found

    # --- a cache that is new ---

    @rule(objects=st.integers(1, 3))
    def build_a_step(self, objects: int) -> None:
        if self.building is None:
            self.building = self.mirror.build_cache(Late, objects)
        if next(self.building, self) is self:
            assert self.mirror.cache(Late).dump() == self.mirror.cache(Ledger).dump()
            self.mirror.drop_cache(Late)
            self.building = None

    @rule()
    def give_up_building(self) -> None:
        if self.building is not None:
            self.building.close()
            self.building = None

    # --- what holds after each step ---

    @invariant()
    def is_as_if_built_from_the_end_state(self) -> None:
        assert dump(self.mirror) == dump(mirror_of(self.nodes, self.counted()))

    @invariant()
    def a_cache_that_is_new_is_built_from_what_exists(self) -> None:
        fresh = Ledger(self.mirror.table)
        self.mirror.fill(fresh)
        assert fresh.dump() == self.mirror.cache(Ledger).dump()

    @invariant()
    def records_are_those_of_the_watch(self) -> None:
        found = {key.removeprefix("default/"): info for key, info in self.mirror.pods.items()}
        assert {key: (info.uid, info.node_name) for key, info in found.items()} == {
            key: (uid(key, state.life), state.node) for key, state in self.pods.items()
        }
        assert self.mirror.by_uid == {info.uid: info for info in found.values()}
        nominated = {(name, info.uid) for name, infos in self.mirror.nominated.items() for info in infos.values()}
        assert nominated == {
            (state.nominated, uid(key, state.life)) for key, state in self.pods.items() if state.nominated
        }

    @invariant()
    def assumed_pods_are_those_that_were_not_confirmed(self) -> None:
        assert {name: assumed.deadline_seconds for name, assumed in self.mirror.assumed.items()} == {
            name: deadline for name, (_, _, deadline) in self.assumed.items()
        }


TestMirror = MirrorMachine.TestCase
TestMirror.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)


def test_a_failure_while_looking_undoes_what_was_done() -> None:
    mirror = mirror_of({"a": NodeState()}, [("p", PodState(0, "a", 1))])
    before = dump(mirror)

    def broken() -> Iterable[NodeInfo]:
        yield read_node(node_object("b", NodeState(), 0))
        raise ZeroDivisionError

    with (
        pytest.raises(ZeroDivisionError),
        mirror.what_if(without=[mirror.by_uid["p-0"]], nodes=broken()),
    ):
        pytest.fail("not reached")
    assert dump(mirror) == before


def test_a_pod_that_was_replaced_by_one_of_its_name_takes_its_assumption_along() -> None:
    mirror = mirror_of({"a": NodeState()}, [])
    before = dump(mirror)
    store = mirror.store(PODS)
    store.upsert(pod_object("p", PodState(0, "", 1)))
    mirror.assume(mirror.reader.read(pod_object("p", PodState(0, "a", 1))))
    assert dump(mirror) != before
    store.upsert(pod_object("p", PodState(1, "", 1)))
    assert not mirror.assumed
    assert dump(mirror) == before


def test_a_pod_that_cannot_be_read_keeps_its_older_version(caplog: pytest.LogCaptureFixture) -> None:
    mirror = mirror_of({"a": NodeState()}, [])
    store = mirror.store(PODS)
    good = pod_object("p", PodState(0, "a", 1))
    store.upsert(good)
    before = dump(mirror)
    bad = msgspec.convert(make_pod("p", uid="p-0", node="a", requests={"cpu": "much"}), Pod)
    store.upsert(bad)
    assert dump(mirror) == before
    (record,) = caplog.records
    assert (record.message, record.__dict__["object"]) == ("object cannot be used", "default/p")
    store.begin()
    store.upsert(bad)
    store.finish()
    assert dump(mirror) == before
    store.delete(bad)
    assert "default/p" not in mirror.pods
