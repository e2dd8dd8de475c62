"""Objects that nobody expects: whatever they are, caches end up as if built from what is held, and requests pass."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from extender.cluster.watch import UNREADABLE, WatchDecoder
from extender.config import ExtenderConfiguration
from extender.errors import ExtenderError
from extender.framework.mirror import Mirror
from extender.framework.registry import Registry
from extender.framework.runner import NoRecorder, Runner
from extender.model.kind import KINDS, NODES, PODS, Kind
from extender.source import bind_profiles
from extender.testing import make_node, make_pod
from extender.verbs import filter as filter_verb
from extender.verbs import preempt as preempt_verb
from extender.verbs import prioritize as prioritize_verb
from extender.verbs.service import Service
from tests.extender.odd import HUGE, NODE_NAMES, objects
from tests.integration.test_fault_law import cache_classes

DECODERS = {kind: WatchDecoder(kind) for kind in KINDS}
ODD = {kind: objects(kind.type) for kind in KINDS}
VERBS = {"filter": filter_verb, "prioritize": prioritize_verb, "preempt": preempt_verb}

often = settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))


def new_mirror() -> Mirror:
    mirror = Mirror()
    for cls in cache_classes():
        mirror.cache(cls)
    return mirror


def tell(mirror: Mirror, kind: Kind, verb: str, item: Any) -> None:
    """Deliver an event as an informer does: one that cannot be read is left out."""
    event = DECODERS[kind].event(json.dumps({"type": verb, "object": item}).encode())
    store = mirror.store(kind)
    if event.type == UNREADABLE:
        if verb == "DELETED":
            store.delete(event.object.item)
    elif verb == "DELETED":
        store.delete(event.object)
    else:
        store.upsert(event.object)


def dumps(mirror: Mirror) -> Any:
    return {type(cache).__qualname__: cache.dump() for cache in mirror.caches}


def check_caches(mirror: Mirror) -> None:
    assert not mirror.upkeep.broken
    for cache in mirror.caches:
        rebuilt = type(cache)(mirror.table)
        mirror.fill(rebuilt)
        assert cache.dump() == rebuilt.dump()


@st.composite
def events(draw: st.DrawFn) -> list[tuple[Kind, str, Any]]:
    told = []
    for _ in range(draw(st.integers(1, 12))):
        kind = draw(st.sampled_from([NODES, PODS, NODES, PODS, *KINDS]))
        told.append((kind, draw(st.sampled_from(["ADDED", "MODIFIED", "ADDED", "DELETED"])), draw(ODD[kind])))
    return told


@given(events())
@often
def test_whatever_the_watch_tells_the_caches_are_those_of_what_is_held(told: list[tuple[Kind, str, Any]]) -> None:
    mirror = new_mirror()
    for kind, verb, item in told:
        tell(mirror, kind, verb, item)
    check_caches(mirror)
    for name in NODE_NAMES:
        tell(mirror, NODES, "DELETED", {"metadata": {"name": name}})
    check_caches(mirror)


class Asked:
    """A service with all algorithms of the default set and some nodes and pods, asked again and again."""

    def __init__(self) -> None:
        self.mirror = Mirror()
        profiles = bind_profiles(Registry(), self.mirror, ExtenderConfiguration())
        self.service = Service(self.mirror, Runner(next(iter(profiles.values())), NoRecorder()))
        for name in NODE_NAMES[:2]:
            node = make_node(name, labels={"a": "b", "zone": name}, images={"image": 2**33})
            tell(self.mirror, NODES, "ADDED", {**node, "metadata": {**node["metadata"], "resourceVersion": "1"}})
        tell(self.mirror, PODS, "ADDED", make_pod("placed", uid="u1", node="n1", requests={"cpu": "1"}))
        self.before = dumps(self.mirror)

    def check(self, verb: str, body: Any) -> None:
        """Have a request answered or refused as the caller's fault; nothing of it may stay."""
        status, text = 200, b"{}"
        try:
            text = VERBS[verb].answer(self.service, json.dumps(body).encode())
        except ExtenderError as error:
            status = error.status
        assert status in (200, 400)
        json.loads(text)
        check_caches(self.mirror)
        assert dumps(self.mirror) == self.before


@pytest.fixture(scope="module")
def asked() -> Asked:
    return Asked()


@given(st.sampled_from(["filter", "prioritize"]), ODD[PODS], st.lists(ODD[NODES], max_size=4))
@often
def test_whatever_nodes_a_request_brings_nothing_of_them_stays(
    asked: Asked, verb: str, pod: Any, nodes: list[Any]
) -> None:
    asked.check(verb, {"Pod": pod, "Nodes": {"items": nodes}})
    asked.check(verb, {"Pod": make_pod("p", requests={"cpu": "1"}), "Nodes": {"items": nodes}})


@given(st.sampled_from(list(VERBS)), ODD[PODS])
@often
def test_whatever_pod_is_asked_about_it_is_answered_or_refused(asked: Asked, verb: str, pod: Any) -> None:
    victims = {"n1": {"Pods": [{"UID": "u1"}], "NumPDBViolations": 0}}
    asked.check(verb, {"Pod": pod, "NodeNames": ["n1", "n2"], "NodeNameToMetaVictims": victims})


@pytest.mark.parametrize("number", [HUGE, -HUGE, 2**63 - 1, -(2**63), 10**400], ids=str)
def test_an_image_of_any_size_harms_nothing(asked: Asked, number: int) -> None:
    node = make_node("n1", images={"image": number})
    for verb in ("filter", "prioritize"):
        asked.check(verb, {"Pod": make_pod("p", image="image"), "Nodes": {"items": [node, make_node("n2")]}})
