"""The cluster as the service knows it: the node table, one record a pod, and the caches of the enabled algorithms.

A placed pod is counted in exactly one of two ways::

    watch: pod without node ──▶ pending ──assume──▶ assumed ──watch: same pod with a node──▶ added
                                   ▲                  │ ▲
                                   └──────forget──────┘ └─ finish_binding starts the clock, expire ends it
                                                           when the watch never confirms

Everything here is synchronous: between two calls the state is consistent, so readers need no lock. Callers apply
changes one event at a time, and ``what_if`` applies some, lets the caller look, and undoes them.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar, cast

import msgspec

from extender.framework.cache import Cache
from extender.framework.filling import Filling
from extender.framework.store import FoldingStore
from extender.framework.upkeep import Upkeep
from extender.model.kind import NODES, PODS, Kind, Store, object_key
from extender.model.node import NodeInfo, read_node
from extender.model.pod import PodInfo, PodReader
from extender.model.table import NodeTable

C = TypeVar("C", bound=Cache)


class Assumed:
    """A pod that is counted on a node before the watch says so; ``deadline_seconds`` is set once its bind ended."""

    __slots__ = ("deadline_seconds", "info")

    def __init__(self, info: PodInfo) -> None:
        self.info = info
        self.deadline_seconds: float | None = None


class Mirror:
    """Folds events into the node table and into every cache."""

    def __init__(self) -> None:
        self.table = NodeTable()
        self.pods: dict[str, PodInfo] = {}
        """Records by ``namespace/name`` as the watch told them."""
        self.by_uid: dict[str, PodInfo] = {}
        """The same records by uid."""
        self.assumed: dict[str, Assumed] = {}
        """Assumed pods by uid."""
        self.nominated: dict[str, dict[str, PodInfo]] = {}
        """Pending pods for which preemption keeps room, by node name and uid, as if they were placed there."""
        self.reader = PodReader()
        self.version = 0
        """Changes with every change that an answer could depend on."""
        self._pods_being_listed: int | None = None
        self._pods_listed: int | None = None
        self.upkeep = Upkeep(self.table)
        """The caches: those that are up to date, and those that are broken."""
        self._generations: dict[type[Cache], int] = {}
        self._objects: dict[Kind, dict[str, Any]] = {}

    # --- caches ------------------------------------------------------------------------------------------------------

    def cache(self, cache_class: type[C]) -> C:
        """Return the shared instance of ``cache_class``, built from what exists now where it is new.

        Records of pods keep only annotations that some cache declares. Where a new cache declares others and pods are
        listed already, ``pods_outdated`` is true until they have been listed again. One that is broken has a
        ``cache_error``, and is not built anew here.

        Raises:
            CacheError: a new one raised while it was built.
        """
        held = self.upkeep.held(cache_class)
        if held is None:
            for _ in self.build_cache(cache_class):
                pass
            held = self.upkeep.whole[cache_class]
        return cast(C, held)

    def build_cache(self, cache_class: type[Cache], objects_a_step: int = 100) -> Generator[None]:
        """Build a cache in steps of so many objects where it is new or broken; events may be folded between two steps.

        Nothing can read it until the last one. Closing the iterator before leaves nothing of it.

        Raises:
            CacheError: it raised; a new one is not kept, and a broken one stays broken.
        """
        if cache_class in self.upkeep.whole:
            return
        self.reader.keep(cache_class.annotations)
        self._generations.setdefault(cache_class, self.reader.generation if cache_class.annotations else 0)
        try:
            yield from self.upkeep.build(cache_class, self._replay, objects_a_step)
        finally:
            if self.upkeep.held(cache_class) is None:
                del self._generations[cache_class]

    def drop_cache(self, cache_class: type[Cache]) -> None:
        """Keep a cache up to date no longer; nothing may read it any more."""
        self.upkeep.drop(cache_class)
        del self._generations[cache_class]

    @property
    def pods_outdated(self) -> bool:
        """Whether records of pods may lack annotations that a cache reads: it came after the list they are from."""
        return any(map(self.is_outdated, self.upkeep.whole))

    def is_outdated(self, cache_class: type[Cache]) -> bool:
        """Say whether this is the case for one of the caches."""
        listed = self._pods_being_listed if self._pods_listed is None else self._pods_listed
        return listed is not None and listed < self._generations[cache_class]

    @property
    def caches(self) -> Iterable[Cache]:
        """Every cache that is kept up to date."""
        return self.upkeep.whole.values()

    def fill(self, cache: Cache) -> None:
        """Fold everything that exists now into an empty cache.

        Raises:
            CacheError: it raised.
        """
        for _ in self._replay(cache):
            if cache.cache_error is not None:
                raise cache.cache_error

    def _replay(self, told: Cache | Filling) -> Iterator[None]:
        """Fold what exists, one object a step. Each is looked up in its step, as it is then."""
        for name in list(self.table.index):
            row = self.table.index.get(name)
            node = None if row is None else self.table.infos[row]
            if row is not None and node is not None:
                self.upkeep.tell((told,), "add_node", row, node)
            yield
        for uid in [*self.by_uid, *(self.assumed.keys() - self.by_uid.keys())]:
            info = self.placed(uid)
            if info is not None:
                self.upkeep.tell((told,), "add_pod", self.table.index[info.node_name], info)
            yield
        for kind in told.kinds:
            for key in list(self._objects.get(kind, ())):
                item = self._objects.get(kind, {}).get(key)
                if item is not None:
                    self.upkeep.tell((told,), "add", kind, item)
                yield

    # --- nodes -------------------------------------------------------------------------------------------------------

    def upsert_node(self, node: NodeInfo) -> None:
        """Hold a version of a node."""
        row = self.table.index.get(node.name)
        before = None if row is None else self.table.infos[row]
        if before is not None and before.same_for_scheduling(node):
            # The caches hold this very record, so it is brought up to date in place.
            msgspec.structs.force_setattr(before, "resource_version", node.resource_version)
            return
        if before is not None:
            self._take_node(before)
        self._put_node(node)

    def delete_node(self, name: str) -> None:
        """Forget a node's object; pods that are still on it stay counted."""
        row = self.table.index.get(name)
        before = None if row is None else self.table.infos[row]
        if before is not None:
            self._take_node(before)

    def _put_node(self, node: NodeInfo) -> None:
        row = self.table.add(node)
        self.upkeep.fold("add_node", row, node)
        self.version += 1

    def _take_node(self, node: NodeInfo) -> None:
        row = self.table.index[node.name]
        self.upkeep.fold("remove_node", row, node)
        self.table.remove(row)
        self.version += 1

    # --- pods --------------------------------------------------------------------------------------------------------

    def upsert_pod(self, info: PodInfo) -> None:
        """Hold a version of a pod; one that arrives with a node confirms its assumption."""
        before = self.pods.get(info.key)
        if before is not None and before.same_for_scheduling(info):
            msgspec.structs.force_setattr(before, "resource_version", info.resource_version)
            return
        if before is not None:
            self._forget_record(before)
            if before.uid != info.uid:
                self._drop_assumed(before.uid)
        if info.node_name:
            self._drop_assumed(info.uid)
        self._record(info)
        self._count(info)

    def delete_pod(self, key: str) -> None:
        """Forget a pod, assumed or not."""
        before = self.pods.get(key)
        if before is not None:
            self._forget_record(before)
            self._drop_assumed(before.uid)

    def _record(self, info: PodInfo) -> None:
        self.pods[info.key] = info
        self.by_uid[info.uid] = info
        if info.nominated_node_name:
            placed = self.reader.placed_on(info, info.nominated_node_name)
            self.nominated.setdefault(info.nominated_node_name, {})[info.uid] = placed

    def _forget_record(self, info: PodInfo) -> None:
        del self.pods[info.key]
        self.by_uid.pop(info.uid, None)
        self._uncount(info)
        if info.nominated_node_name:
            kept = self.nominated[info.nominated_node_name]
            kept.pop(info.uid, None)
            if not kept:
                del self.nominated[info.nominated_node_name]

    def _count(self, info: PodInfo) -> None:
        if info.node_name:
            row = self.table.hold(info.node_name)
            self.upkeep.fold_pod("add_pod", row, info)
            self.version += 1

    def _uncount(self, info: PodInfo) -> None:
        if info.node_name:
            row = self.table.index[info.node_name]
            self.upkeep.fold_pod("remove_pod", row, info)
            self.table.drop(row)
            self.version += 1

    # --- other kinds -------------------------------------------------------------------------------------------------

    def upsert_object(self, kind: Kind, item: Any) -> None:
        """Hold a version of an object of any other kind."""
        objects = self._objects.setdefault(kind, {})
        key = object_key(item.metadata)
        before = objects.pop(key, None)
        if before is not None:
            self.upkeep.fold_object("remove", kind, before)
        self.upkeep.fold_object("add", kind, item)
        objects[key] = item
        self.version += 1

    def delete_object(self, kind: Kind, key: str) -> None:
        """Forget an object of any other kind."""
        before = self._objects.get(kind, {}).pop(key, None)
        if before is not None:
            self.upkeep.fold_object("remove", kind, before)
            self.version += 1

    def objects(self, kind: Kind) -> dict[str, Any]:
        """Return the objects of one of the other kinds, by key."""
        return self._objects.setdefault(kind, {})

    def forget_kind(self, kind: Kind) -> None:
        """Forget all objects of one of the other kinds: it is watched no longer."""
        for key in list(self.objects(kind)):
            self.delete_object(kind, key)
        del self._objects[kind]

    # --- assumed pods ------------------------------------------------------------------------------------------------

    def assume(self, info: PodInfo) -> None:
        """Count a pod on ``info.node_name`` before it is bound; one already counted there stays as it is."""
        held = self.by_uid.get(info.uid)
        if held is not None and held.node_name:
            return
        self._drop_assumed(info.uid)
        self.assumed[info.uid] = Assumed(info)
        self._count(info)

    def forget(self, uid: str) -> None:
        """Undo ``assume``: the bind failed."""
        self._drop_assumed(uid)

    def finish_binding(self, uid: str, deadline_seconds: float) -> None:
        """Note that the bind succeeded; the assumption ends at the deadline unless the watch confirms it before."""
        assumed = self.assumed.get(uid)
        if assumed is not None:
            assumed.deadline_seconds = deadline_seconds

    def expire(self, now_seconds: float) -> list[PodInfo]:
        """End the assumptions whose deadline has passed and return them; those still binding are left alone."""
        late = [
            assumed.info
            for assumed in self.assumed.values()
            if assumed.deadline_seconds is not None and assumed.deadline_seconds <= now_seconds
        ]
        for info in late:
            self._drop_assumed(info.uid)
        return late

    def placed(self, uid: str) -> PodInfo | None:
        """Return the record of a pod that is counted on a node, assumed or not; None for all others."""
        assumed = self.assumed.get(uid)
        if assumed is not None:
            return assumed.info
        info = self.by_uid.get(uid)
        return info if info is not None and info.node_name else None

    def _drop_assumed(self, uid: str) -> None:
        assumed = self.assumed.pop(uid, None)
        if assumed is not None:
            self._uncount(assumed.info)

    # --- what if -----------------------------------------------------------------------------------------------------

    @contextmanager
    def what_if(
        self,
        *,
        without: Iterable[PodInfo] = (),
        plus: Iterable[PodInfo] = (),
        nodes: Iterable[NodeInfo] = (),
    ) -> Iterator[None]:
        """Let the caller look at the state without some placed pods, plus some others, and with other nodes.

        Every change is undone on leaving, in reverse order.
        """
        undo: list[Callable[[], None]] = []
        try:
            for info in without:
                self._evict(info)
                undo.append(lambda info=info: self._restore(info))  # type: ignore[misc]
            for info in plus:
                self._count(info)
                undo.append(lambda info=info: self._uncount(info))  # type: ignore[misc]
            for node in nodes:
                undo.append(self._swap_node(node))  # noqa: PERF401 - what is done so far must be undone on failure
            yield
        finally:
            for step in reversed(undo):
                step()

    def _evict(self, info: PodInfo) -> None:
        row = self.table.index[info.node_name]
        self.upkeep.fold_pod("evict_pod", row, info)
        self.table.drop(row)
        self.version += 1

    def _restore(self, info: PodInfo) -> None:
        row = self.table.hold(info.node_name)
        self.upkeep.fold_pod("restore_pod", row, info)
        self.version += 1

    def _swap_node(self, node: NodeInfo) -> Callable[[], None]:
        row = self.table.index.get(node.name)
        before = None if row is None else self.table.infos[row]
        if before is not None:
            self._take_node(before)
        self._put_node(node)

        def undo() -> None:
            self._take_node(node)
            if before is not None:
                self._put_node(before)

        return undo

    # --- informers ---------------------------------------------------------------------------------------------------

    def store(self, kind: Kind) -> Store:
        """Return what an informer of ``kind`` delivers to."""
        if kind == NODES:
            names = lambda: [self.table.name(row) for row in self.table.rows().tolist()]  # noqa: E731
            return FoldingStore(names, lambda node: self.upsert_node(read_node(node)), self.delete_node)
        if kind == PODS:
            return FoldingStore(
                lambda: self.pods,
                lambda pod: self.upsert_pod(self.reader.read(pod)),
                self.delete_pod,
                begun=self._begin_pods,
                finished=self._finish_pods,
            )
        return FoldingStore(
            lambda: self.objects(kind),
            lambda item: self.upsert_object(kind, item),
            lambda key: self.delete_object(kind, key),
        )

    def _begin_pods(self) -> None:
        self._pods_being_listed = self.reader.generation

    def _finish_pods(self) -> None:
        self._pods_listed = self._pods_being_listed
