"""Reservers: what they may return, what records keep of annotations, and when nothing may be reserved."""

from __future__ import annotations

import json
from collections.abc import Callable
from time import monotonic
from typing import Any, ClassVar

import msgspec
import pytest

from extender.errors import AlgorithmError, ApiError, BindError
from extender.framework import Cache, NodeInfo, PendingPod, PodInfo, Predicate, Priority, Refusal, Reserver, uses
from extender.framework.mirror import Mirror
from extender.framework.profile import bind
from extender.framework.runner import NoRecorder, Outcome, Profile, Runner, Weighted
from extender.model.kind import PODS
from extender.model.node import read_node
from extender.model.object import Labels, Node, Pod
from extender.model.pod import NO_ANNOTATIONS, PodReader
from extender.testing import make_node, make_pod
from extender.testing.lab import pending
from extender.verbs.bind import Binder
from extender.verbs.service import Service


class Seats(Cache):
    """Which seats are taken, by node name."""

    annotations: ClassVar[tuple[str, ...]] = ("example/seat", "seat-*")

    def __init__(self, table: Any) -> None:
        super().__init__(table)
        self.taken: dict[str, set[str]] = {}

    def add_pod(self, row: int, pod: PodInfo) -> None:
        """Take the pod's seat."""
        self.taken.setdefault(pod.node_name, set()).add(pod.annotations.get("example/seat", ""))

    def remove_pod(self, row: int, pod: PodInfo) -> None:
        """Give it back."""
        self.taken[pod.node_name].discard(pod.annotations.get("example/seat", ""))

    def dump(self) -> Any:
        """Return the seats."""
        return self.taken


class Usher(Predicate, Priority, Reserver):
    """Gives each pod one of two seats of a node."""

    seats = uses(Seats)

    def filter(self, pod: Any, nodes: Any) -> Any:
        """Refuse nothing."""
        return []

    def prioritize(self, pod: Any, nodes: Any) -> Any:
        """Have no opinion."""
        raise NotImplementedError

    def reserve(self, pod: PendingPod, node: NodeInfo, now_seconds: float) -> Any:
        """Give the first free seat."""
        free = sorted({"1", "2"} - self.seats.taken.get(node.name, set()))
        if not free:
            return Refusal(None, "node(s) had no seat")
        return {"example/seat": free[0], "example/since": str(now_seconds)}


class Returning(Predicate, Reserver):
    """Returns, or raises, whatever a test wants."""

    result: Any = None

    def filter(self, pod: Any, nodes: Any) -> Any:
        """Refuse nothing."""
        return []

    def reserve(self, pod: PendingPod, node: NodeInfo, now_seconds: float) -> Any:
        """Return it."""
        if isinstance(self.result, Exception):
            raise self.result
        return self.result


NODE = read_node(msgspec.convert(make_node("n1"), Node))


def pod_object(name: str, node: str | None = None, **annotations: str) -> Pod:
    return msgspec.convert(make_pod(name, node=node, annotations=annotations), Pod)


# --- records ---------------------------------------------------------------------------------------------------------

KEPT: dict[str, tuple[list[str], dict[str, str]]] = {
    "nothing that nobody declares": ([], {}),
    "a name": (["example/seat"], {"example/seat": "1"}),
    "not what merely begins alike": (["example/sea"], {}),
    "a prefix": (["example/*"], {"example/seat": "1", "example/since": "0"}),
    "a name and a prefix": (["other", "example/si*"], {"example/since": "0", "other": "x"}),
}


@pytest.mark.parametrize(("patterns", "expected"), KEPT.values(), ids=KEPT)
def test_records_keep_the_annotations_that_are_declared(patterns: list[str], expected: dict[str, str]) -> None:
    reader = PodReader()
    reader.keep(patterns)
    pod = pod_object("p", None, **{"example/seat": "1", "example/since": "0", "other": "x"})
    assert reader.read(pod).annotations == expected
    placed = reader.placed_on(reader.read(pod_object("p", None, other="y")), "n1", pod.metadata.annotations)  # type: ignore[union-attr]
    assert {**placed.annotations} == expected
    assert reader.read(pod_object("q")).annotations is NO_ANNOTATIONS


def test_a_change_of_a_kept_annotation_matters_and_of_another_does_not() -> None:
    reader = PodReader()
    reader.keep(["seat"])
    one = reader.read(pod_object("p", "n1", seat="1", mood="good"))
    assert one.same_for_scheduling(reader.read(pod_object("p", "n1", seat="1", mood="bad")))
    assert not one.same_for_scheduling(reader.read(pod_object("p", "n1", seat="2", mood="good")))


def test_pods_are_outdated_until_listed_again_for_a_cache_that_came_later() -> None:
    mirror = Mirror()
    store = mirror.store(PODS)

    def list_pods(during: Callable[[], Any] = lambda: None) -> None:
        store.begin()
        store.upsert(pod_object("p", "n1", **{"example/seat": "1"}))
        during()
        store.finish()

    assert not mirror.pods_outdated
    list_pods()
    assert not mirror.pods_outdated
    seats = mirror.cache(Seats)
    assert (mirror.pods_outdated, seats.dump()) == (True, {"n1": {""}})
    list_pods()
    assert (mirror.pods_outdated, seats.dump()) == (False, {"n1": {"1"}})
    list_pods(during=lambda: mirror.cache(Later))
    assert mirror.pods_outdated
    list_pods()
    assert not mirror.pods_outdated


# --- what reservers return -------------------------------------------------------------------------------------------


def reserve(*results: Any) -> Any:
    reservers = []
    for place, result in enumerate(results):
        reservers.append(type(f"R{place}", (Returning,), {"result": result, "__doc__": "One."})({}, {}))
    return Runner(Profile(reservers, []), NoRecorder()).reserve(pending(make_pod("p")), NODE, 0.0)


def test_annotations_of_all_reservers_travel_together() -> None:
    assert reserve({"a": "1"}, None, {}, {"b": "2"}) == {"a": "1", "b": "2"}


def test_one_that_cannot_reserve_ends_it() -> None:
    outcome = reserve({"a": "1"}, Refusal(None, "node(s) were full"))
    assert isinstance(outcome, Outcome)
    assert (outcome.text, outcome.algorithm) == ("node(s) were full", "R1")


FAULTS = {
    "the same annotation twice": (({"a": "1"}, {"a": "1"}), "R1: annotation 'a' is set by another algorithm as well"),
    "no mapping": ((["a"],), r"R0: a reserver must return annotations of text, got \['a'\]"),
    "no text": (({"a": 1},), "R0: a reserver must return annotations of text, got {'a': 1}"),
    "an exception": ((ZeroDivisionError("by zero"),), "R0: ZeroDivisionError: by zero"),
}


@pytest.mark.parametrize(("results", "message"), FAULTS.values(), ids=FAULTS)
def test_a_fault_of_a_reserver_names_it(results: tuple[Any, ...], message: str) -> None:
    with pytest.raises(AlgorithmError, match=message):
        reserve(*results)


def test_an_algorithm_that_is_predicate_and_priority_reserves_once() -> None:
    mirror = Mirror()
    usher = bind(Usher, Usher.Arguments(), mirror)
    profile = Profile([usher], [Weighted(bind(Usher, Usher.Arguments(), mirror), 1)])
    assert len(profile.reservers) == 1


# --- binding ---------------------------------------------------------------------------------------------------------


class Later(Cache):
    """Reads an annotation that no other cache does."""

    annotations = ("later",)

    def dump(self) -> Any:
        return None


class Api:
    """Binds what it is asked to, unless it has an error to answer with."""

    def __init__(self) -> None:
        self.written: dict[str, Labels | None] = {}
        self.error: ApiError | None = None

    async def bind(
        self, namespace: str, name: str, uid: str, node: str, annotations: Labels | None, *, timeout_seconds: float
    ) -> None:
        """Note the annotations."""
        if self.error is not None:
            raise self.error
        self.written[name] = annotations

    async def get_pod(self, namespace: str, name: str) -> Pod:
        """Return a pod that nobody bound."""
        return pod_object(name)


def list_no_pods(mirror: Mirror) -> None:
    store = mirror.store(PODS)
    store.begin()
    store.finish()


class House:
    """A binder over one node with an usher."""

    def __init__(self, before: Callable[[Mirror], None] = lambda _: None) -> None:
        self.mirror = Mirror()
        before(self.mirror)
        self.api = Api()
        usher = bind(Usher, Usher.Arguments(), self.mirror)
        self.mirror.upsert_node(NODE)
        service = Service(self.mirror, Runner(Profile([usher], []), NoRecorder()))
        clocks = {"now_seconds": monotonic, "wall_seconds": lambda: 5.0}
        self.binder = Binder(service, self.api, bind_seconds=1.0, confirm_seconds=9.0, **clocks)

    async def bind(self, name: str, node: str = "n1") -> None:
        names = {"PodNamespace": "default", "PodName": name, "PodUID": f"uid-{name}", "Node": node}
        await self.binder.answer(json.dumps(names).encode())

    @property
    def taken(self) -> set[str]:
        return self.mirror.cache(Seats).taken.get("n1", set())


async def test_a_reservation_counts_at_once_and_is_written_with_the_binding() -> None:
    house = House()
    await house.bind("p")
    await house.bind("q")
    assert house.api.written == {
        "p": {"example/seat": "1", "example/since": "5.0"},
        "q": {"example/seat": "2", "example/since": "5.0"},
    }
    with pytest.raises(BindError, match=r"pod default/r is not bound: Usher: node\(s\) had no seat"):
        await house.bind("r")
    assert (house.taken, set(house.mirror.assumed)) == ({"1", "2"}, {"uid-p", "uid-q"})


async def test_a_reservation_is_given_back_when_the_binding_fails() -> None:
    house = House()
    house.api.error = ApiError(422, "Invalid", "no")
    with pytest.raises(BindError, match="is not bound: no"):
        await house.bind("p")
    assert house.taken == set()


async def test_nothing_is_reserved_on_a_node_that_is_not_known() -> None:
    with pytest.raises(BindError, match="node 'n2' is not known to the extender"):
        await House().bind("p", "n2")


async def test_nothing_is_reserved_while_reservations_are_being_read_again() -> None:
    house = House(before=list_no_pods)
    with pytest.raises(BindError, match="what other pods have reserved is being read again"):
        await house.bind("p")
    assert house.taken == set()
    list_no_pods(house.mirror)
    await house.bind("p")
    assert house.taken == {"1"}


def test_pods_are_outdated_for_a_cache_that_comes_during_the_first_list() -> None:
    mirror = Mirror()
    store = mirror.store(PODS)
    store.begin()
    mirror.cache(Seats)
    assert mirror.pods_outdated
    store.finish()
    assert mirror.pods_outdated
    list_no_pods(mirror)
    assert not mirror.pods_outdated


async def test_reservations_go_on_while_pods_are_read_again_for_a_cache_that_they_do_not_read() -> None:
    house = House()
    list_no_pods(house.mirror)
    house.mirror.cache(Later)
    assert house.mirror.pods_outdated
    await house.bind("p")
    assert house.taken == {"1"}
    house.mirror.drop_cache(Later)
    assert not house.mirror.pods_outdated
