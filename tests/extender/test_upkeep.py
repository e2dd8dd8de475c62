"""A cache that raises is set apart: the others hold what they should, and it can be built anew."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, ClassVar

import pytest

from extender import reload
from extender.config import ExtenderConfiguration
from extender.errors import AlgorithmError, CacheError, ConfigurationError
from extender.framework import Cache, NodeInfo, NodePredicate, PendingPod, uses
from extender.framework.eviction import PlacedPods
from extender.framework.mirror import Mirror
from extender.framework.preemption import Preemption
from extender.framework.profile import readers
from extender.framework.registry import Registry
from extender.framework.resource import RequestedResources
from extender.framework.runner import NoRecorder, Profile, Runner
from extender.informer import Informers
from extender.model.kind import SERVICES
from extender.reload import Reloader
from extender.source import bind_profiles
from extender.testing import check_fold_equals_rebuild, check_inverse_leaves_no_trace, make_node, make_pod
from extender.testing.lab import Lab, pending
from tests.extender.late import Tally
from tests.extender.listed import Listed

EVENTS = ("add_node", "remove_node", "add_pod", "remove_pod", "evict_pod", "restore_pod", "add", "remove", "grow")


class Fragile(Cache):
    """Raises ``error`` at the event ``at``."""

    kinds = (*Cache.kinds, SERVICES)
    at: ClassVar[str] = ""
    error: ClassVar[BaseException] = KeyError("odd")

    def __init__(self, table: Any) -> None:
        super().__init__(table)
        self._meet("constructor")

    def _meet(self, event: str) -> None:
        if event == self.at:
            raise self.error

    def dump(self) -> Any:
        return None


for _event in EVENTS:
    setattr(Fragile, _event, lambda self, *_, event=_event: self._meet(event))


class Guarded(NodePredicate):
    """Reads the cache, and refuses everything."""

    fragile = uses(Fragile)

    def fits(self, pod: PendingPod, node: NodeInfo) -> str | None:
        return "no"


@pytest.fixture(autouse=True)
def whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Fragile, "at", "")
    monkeypatch.setattr(Fragile, "error", KeyError("odd"))
    monkeypatch.setattr(Tally, "made", [])


@contextmanager
def breaking(at: str, error: BaseException | None = None) -> Iterator[None]:
    Fragile.at, Fragile.error = at, error or Fragile.error
    try:
        yield
    finally:
        Fragile.at = ""


def service(name: str, **labels: str) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "Service", "metadata": {"name": name, "namespace": "default", "labels": labels}}


def lab_of() -> Lab:
    """A cluster whose fragile cache comes before all others."""
    lab = Lab([make_node("n1"), make_node("n2"), make_pod("a", node="n1", requests={"cpu": "1"}), service("s")])
    for cache in (Fragile, Tally, RequestedResources, PlacedPods):
        lab.mirror.cache(cache)
    return lab


def states(mirror: Mirror) -> dict[str, Any]:
    return {type(cache).__name__: cache.dump() for cache in mirror.caches if type(cache) is not Fragile}


def rebuilt(mirror: Mirror) -> dict[str, Any]:
    found = {}
    for cache in (Tally, RequestedResources, PlacedPods):
        fresh = cache(mirror.table)
        mirror.fill(fresh)
        found[cache.__name__] = fresh.dump()
    return found


def happen(lab: Lab) -> None:
    """Let one of everything happen, straight in the mirror, which never raises."""
    mirror = lab.mirror
    other = Lab([*(make_node(f"crowd-{place}") for place in range(200)), make_pod("b", node="n2"), service("t")])
    with mirror.what_if(without=[mirror.pods["default/a"]], plus=list(other.mirror.pods.values())):
        pass
    for node in other.nodes().infos():
        mirror.upsert_node(node)
    mirror.delete_node("n2")
    for info in other.mirror.pods.values():
        mirror.upsert_pod(info)
    mirror.delete_pod("default/a")
    mirror.upsert_object(SERVICES, other.mirror.objects(SERVICES)["default/t"])
    mirror.delete_object(SERVICES, "default/s")


@pytest.mark.parametrize("error", [RuntimeError("event"), SystemExit(3)], ids=repr)
@pytest.mark.parametrize("event", EVENTS)
def test_the_others_hold_what_they_should_whatever_it_raises_at(event: str, error: BaseException) -> None:
    lab = lab_of()
    with breaking(event, error):
        happen(lab)
    assert list(lab.mirror.upkeep.broken) == [Fragile]
    assert lab.mirror.upkeep.failures == {"Fragile": 1}
    assert states(lab.mirror) == rebuilt(lab.mirror)


def test_it_is_told_nothing_more_and_says_what_it_raised_once(caplog: pytest.LogCaptureFixture) -> None:
    lab = lab_of()
    with breaking("add_pod"), pytest.raises(CacheError):
        lab.apply(make_pod("boom", node="n1"))
    with breaking("remove_pod"), pytest.raises(CacheError, match="add_pod"):
        lab.delete(make_pod("boom"))
    broken = lab.mirror.cache(Fragile)
    assert str(broken.cache_error) == "cache Fragile: add_pod of pod default/boom raised KeyError: 'odd'"
    assert broken.cache_error is not None
    assert isinstance(broken.cache_error.__cause__, KeyError)
    (record,) = caplog.records
    assert (record.getMessage(), record.__dict__["cache"]) == ("cache broken", "Fragile")


@pytest.mark.parametrize(
    ("event", "what", "change"),
    [
        ("add_node", "add_node of node n3", lambda lab: lab.apply(make_node("n3"))),
        ("add", "add of services default/t", lambda lab: lab.apply(service("t"))),
        ("grow", "grow of 128", lambda lab: lab.apply(*(make_node(f"c-{place}") for place in range(100)))),
    ],
    ids=["a node", "a service", "room"],
)
def test_it_is_told_what_the_event_was_about(event: str, what: str, change: Callable[[Lab], None]) -> None:
    lab = lab_of()
    with breaking(event), pytest.raises(CacheError, match=f"cache Fragile: {what} raised KeyError"):
        change(lab)


# --- who reads it ----------------------------------------------------------------------------------------------------


def test_algorithms_that_read_it_fail_with_what_it_raised() -> None:
    lab = lab_of()
    runner = Runner(Profile([Guarded(None, {Fragile: lab.mirror.cache(Fragile)})], []), NoRecorder())
    pod = pending(make_pod("p"))
    assert not runner.filter(pod, lab.nodes()).fits.any()
    with breaking("remove_pod"), pytest.raises(CacheError):
        lab.delete(make_pod("a"))
    with pytest.raises(AlgorithmError, match=r"^Guarded: cache Fragile: remove_pod of pod default/a raised KeyError"):
        runner.filter(pod, lab.nodes())


def test_preemption_does_without_nothing_that_it_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    lab = lab_of()
    preemption = Preemption(lab.mirror, Runner(Profile([], []), NoRecorder()))
    pod = pending(make_pod("p", priority=10))
    with monkeypatch.context() as patch:
        patch.setattr(PlacedPods, "add_pod", lambda *_: 1 // 0)
        with pytest.raises(CacheError):
            lab.apply(make_pod("b", node="n1"))
    with pytest.raises(CacheError, match="cache PlacedPods"):
        preemption.pick(pod, 0)


def test_the_laws_of_caches_are_not_met_by_one_that_raises() -> None:
    with breaking("add_pod"), pytest.raises(CacheError):
        check_fold_equals_rebuild(Fragile, [("apply", make_node("n")), ("apply", make_pod("a", node="n"))])
    with breaking("evict_pod"), pytest.raises(CacheError):
        check_inverse_leaves_no_trace(Fragile, lab_of())


# --- building --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("event", ["constructor", "add_node", "add_pod", "add"])
def test_a_new_one_that_raises_while_it_is_built_is_not_kept(event: str) -> None:
    lab = Lab([make_node("n1"), make_pod("a", node="n1"), service("s")])
    with breaking(event), pytest.raises(CacheError, match=f"cache Fragile: .*{event}"):
        lab.mirror.cache(Fragile)
    assert lab.mirror.upkeep.classes == set()
    with breaking("add_pod"):
        lab.apply(make_pod("b", node="n1"))
    assert lab.mirror.cache(Fragile).cache_error is None


def test_an_event_between_two_steps_can_break_it_too() -> None:
    lab = Lab([make_node("n1"), make_node("n2")])
    steps = lab.mirror.build_cache(Fragile, 1)
    next(steps)
    with breaking("add_pod"):
        lab.apply(make_pod("a", node="n1"))
    with pytest.raises(CacheError, match="add_pod of pod default/a"):
        list(steps)
    assert lab.mirror.upkeep.classes == set()


def test_a_broken_one_is_built_anew_from_what_exists_and_stays_broken_where_it_raises_again() -> None:
    lab = lab_of()
    broken = lab.mirror.cache(Fragile)
    with breaking("add_pod"):
        happen(lab)
        with pytest.raises(CacheError):
            list(lab.mirror.build_cache(Fragile, 1))
        assert lab.mirror.cache(Fragile) is broken
        assert lab.mirror.upkeep.failures == {"Fragile": 2}
    list(lab.mirror.build_cache(Fragile, 1))
    assert (lab.mirror.upkeep.broken, lab.mirror.cache(Fragile).cache_error) == ({}, None)
    assert lab.mirror.cache(Fragile) is not broken
    assert broken.cache_error is not None
    lab.mirror.drop_cache(Fragile)
    assert Fragile not in lab.mirror.upkeep.classes


def test_a_broken_one_can_be_dropped() -> None:
    lab = lab_of()
    with breaking("add_pod"):
        happen(lab)
    lab.mirror.drop_cache(Fragile)
    assert lab.mirror.cache(Fragile).cache_error is None


# --- a service that mends itself -------------------------------------------------------------------------------------

GUARDED = f"{__name__}:Guarded"


def configured(**entry: str) -> ExtenderConfiguration:
    predicates = {"enabled": [{"name": GUARDED, **entry}]}
    return ExtenderConfiguration.model_validate(
        {"profiles": [{"predicates": predicates, "priorities": {"enabled": []}}]}
    )


class House:
    """A reloader over a small cluster; ``profile`` is the one in force."""

    def __init__(self) -> None:
        self.lab = Lab([make_node("n1"), make_pod("a", node="n1")])
        configuration = configured()
        profiles = bind_profiles(Registry(), self.lab.mirror, configuration)
        self._adopt(configuration, profiles)
        self.informers = Informers(Listed, ())  # type: ignore[arg-type]
        self.reloader = Reloader(configuration, profiles, self.lab.mirror, self.informers, self._adopt)

    def _adopt(self, _: ExtenderConfiguration, profiles: dict[str, Profile]) -> None:
        (self.profile,) = profiles.values()

    def break_down(self) -> None:
        with breaking("add_pod"), pytest.raises(CacheError):
            self.lab.apply(make_pod("boom", node="n1"))

    def answer(self) -> str:
        runner = Runner(self.profile, NoRecorder())
        try:
            outcome = runner.filter(pending(make_pod("p")), self.lab.nodes()).of(0)
        except AlgorithmError as error:
            return str(error)
        return outcome.text if outcome else ""


@pytest.fixture
async def house() -> Any:
    house = House()
    yield house
    await house.informers.stop()


BROKEN = "cache Fragile: add_pod of pod default/boom raised KeyError: 'odd'"


async def test_a_broken_cache_is_told_and_built_anew_after_a_while(
    house: House, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(reload, "MEND_SECONDS", 0.01)
    monkeypatch.setattr(reload, "_LOOK_SECONDS", 0.001)
    assert (house.answer(), house.reloader.check_caches()) == ("no", ("caches", "", ""))
    house.break_down()
    assert house.answer() == f"Guarded: {BROKEN}"
    assert house.reloader.check_caches().note == f"{BROKEN}; read by Guarded"
    mending = asyncio.create_task(house.reloader.mend())
    try:
        async with asyncio.timeout(20):
            with breaking("add_pod"):
                while house.lab.mirror.upkeep.failures["Fragile"] < 4:  # noqa: ASYNC110 - a plain counter
                    await asyncio.sleep(0.001)
            assert house.answer() != "no"
            while house.answer() != "no":  # noqa: ASYNC110 - a plain question
                await asyncio.sleep(0.001)
    finally:
        mending.cancel()
        await asyncio.gather(mending, return_exceptions=True)
    assert house.reloader.check_caches().note == ""
    assert house.reloader.generation == 1
    errors = [record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR]
    assert len(errors) == 2  # of the pod that broke it, and of the first one that did so when it was built anew


async def test_a_reload_builds_a_broken_cache_anew_and_is_not_refused_where_it_stays_broken(
    house: House,
) -> None:
    house.break_down()
    with breaking("add_pod"):
        await house.reloader.apply(lambda: configured(onError="ignore"))
    assert (house.reloader.problem, house.answer()) == ("", "")
    await house.reloader.apply(configured)
    assert house.answer() == "no"


async def test_a_reload_with_a_new_cache_that_raises_is_refused_and_names_both(house: House) -> None:
    await house.reloader.apply(
        lambda: ExtenderConfiguration.model_validate({"profiles": [{"provider": "ExtensionProvider"}]})
    )
    with breaking("add_node"), pytest.raises(ConfigurationError) as refusal:
        await house.reloader.apply(configured)
    assert refusal.value.problems == ("Guarded: cache Fragile: add_node of node n1 raised KeyError: 'odd'",)
    with breaking("constructor", SystemExit(4)), pytest.raises(ConfigurationError) as refusal:
        await house.reloader.apply(configured)
    assert refusal.value.problems == (
        "profiles[0]: Guarded failed to start: cache Fragile: the constructor raised SystemExit: 4",
    )
    assert readers(Fragile, house.profile) == []
