"""A cache is built in steps, and what happens between two of them is folded once."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from extender.config import ExtenderConfiguration
from extender.errors import ConfigurationError
from extender.framework.mirror import Mirror
from extender.framework.registry import Registry
from extender.framework.runner import Profile
from extender.informer import Informers
from extender.reload import Reloader
from extender.source import bind_profiles
from extender.testing import make_node, make_pod
from extender.testing.lab import Lab
from tests.extender.late import Tally
from tests.extender.listed import Listed

Json = dict[str, Any]


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Tally, "made", [])


def service(name: str, **labels: str) -> Json:
    return {"apiVersion": "v1", "kind": "Service", "metadata": {"name": name, "namespace": "default", "labels": labels}}


def rebuilt(mirror: Mirror) -> Any:
    fresh = Tally(mirror.table)
    mirror.fill(fresh)
    return fresh.dump()


# --- one event -------------------------------------------------------------------------------------------------------

OBJECTS = [
    *(make_node(name) for name in ("n1", "n2")),
    *(make_pod(name, node="n1") for name in ("a", "b")),
    make_pod("waiting"),
    *(service(name) for name in ("s1", "s2")),
]
STEPS = len(OBJECTS) + 1


def assume(lab: Lab) -> None:
    found = lab.mirror.pods["default/waiting"]
    pod = make_pod("waiting", uid=found.uid, node="n2")
    other = Lab([pod])
    lab.mirror.assume(other.mirror.pods["default/waiting"])


def look(lab: Lab) -> None:
    with lab.mirror.what_if(without=[lab.mirror.pods["default/a"]], nodes=list(lab.nodes().infos())):
        pass


EVENTS: dict[str, Callable[[Lab], None]] = {
    "a pod is deleted": lambda lab: lab.delete(make_pod("a")),
    "a pod comes": lambda lab: lab.apply(make_pod("c", node="n2")),
    "a pod changes": lambda lab: lab.apply(make_pod("a", node="n1", labels={"changed": "yes"})),
    "a pod is replaced by one elsewhere": lambda lab: lab.apply(make_pod("a", uid="another", node="n2")),
    "a pod is assumed": assume,
    "a node is deleted": lambda lab: lab.delete(make_node("n1")),
    "a node comes": lambda lab: lab.apply(make_node("n3")),
    "a node changes": lambda lab: lab.apply(make_node("n1", labels={"changed": "yes"})),
    "a service is deleted": lambda lab: lab.delete(service("s1")),
    "a service comes": lambda lab: lab.apply(service("s3")),
    "a service changes": lambda lab: lab.apply(service("s1", changed="yes")),
    "preemption is tried out": look,
    "nodes come in a crowd": lambda lab: lab.apply(*(make_node(f"crowd-{place}") for place in range(100))),
}


@pytest.mark.parametrize("at", range(STEPS))
@pytest.mark.parametrize("event", EVENTS.values(), ids=EVENTS)
def test_what_happens_between_two_steps_counts_once(event: Callable[[Lab], None], at: int) -> None:
    lab = Lab(OBJECTS)
    for step, _ in enumerate(lab.mirror.build_cache(Tally, 1)):
        assert Tally not in map(type, lab.mirror.caches)
        if step == at:
            event(lab)
    built = lab.mirror.cache(Tally)
    assert built is Tally.made[0]
    assert built.dump() == rebuilt(lab.mirror)
    lab.apply(make_pod("later", node="n1"), service("later"), make_node("later"))
    lab.delete(make_pod("b"), service("s2"), make_node("n2"))
    assert built.dump() == rebuilt(lab.mirror)


def test_one_that_exists_is_not_built_again() -> None:
    lab = Lab(OBJECTS)
    held = lab.mirror.cache(Tally)
    assert list(lab.mirror.build_cache(Tally, 1)) == []
    assert lab.mirror.cache(Tally) is held


def test_one_that_is_given_up_is_told_nothing_more() -> None:
    lab = Lab(OBJECTS)
    steps = lab.mirror.build_cache(Tally, 3)
    next(steps)
    (begun,) = Tally.made
    before = begun.dump()
    steps.close()
    lab.apply(make_pod("later", node="n1"), *(make_node(f"crowd-{place}") for place in range(100)))
    assert begun.dump() == before
    assert lab.mirror.cache(Tally).dump() == rebuilt(lab.mirror)


# --- a reload --------------------------------------------------------------------------------------------------------

PODS = 1800
LATE = {"enabled": [{"name": "tests.extender.late:Late"}]}


def configured(predicates: Json) -> ExtenderConfiguration:
    return ExtenderConfiguration.model_validate(
        {"profiles": [{"predicates": predicates, "priorities": {"enabled": []}}]}
    )


EARLY, WITH_LATE = configured({"enabled": [{"name": "NodeName"}]}), configured(LATE)


class House:
    """A reloader over a cluster of many pods; ``adopted`` are the profiles that it put in force."""

    def __init__(self) -> None:
        self.lab = Lab([make_node("n"), *(make_pod(f"p{place}", node="n") for place in range(PODS))])
        self.adopted: list[dict[str, Profile]] = []
        self.informers = Informers(Listed, ())  # type: ignore[arg-type]
        self.reloader = Reloader(
            EARLY,
            bind_profiles(Registry(), self.lab.mirror, EARLY),
            self.lab.mirror,
            self.informers,
            lambda _, profiles: self.adopted.append(profiles),
        )

    def apply(self, configuration: ExtenderConfiguration) -> asyncio.Task[None]:
        return asyncio.create_task(self.reloader.apply(lambda: configuration))

    async def begin(self, configuration: ExtenderConfiguration) -> asyncio.Task[None]:
        """Start a reload, and return when it has built a part of the new cache."""
        task = self.apply(configuration)
        async with asyncio.timeout(20):
            while not self.is_between():  # noqa: ASYNC110 - a plain question
                await asyncio.sleep(0)
        return task

    def is_between(self) -> bool:
        return bool(Tally.made) and 0 < len(Tally.made[-1].pods) < PODS

    def uses_late(self) -> bool:
        return Tally in map(type, self.lab.mirror.caches)


@pytest.fixture
async def house() -> Any:
    house = House()
    yield house
    await house.informers.stop()


async def test_events_come_between_the_steps_of_a_reload(house: House) -> None:
    task = await house.begin(WITH_LATE)
    seen = set()
    numbers: Iterator[int] = iter(range(PODS))
    while not task.done():
        if house.is_between():
            seen.add(len(Tally.made[-1].pods))
            assert not house.adopted
            number = next(numbers)
            house.lab.delete(make_pod(f"p{number}"), make_pod(f"p{PODS - 1 - number}"))
            house.lab.apply(make_pod(f"new-{number}", node="n"), service(f"s{number}"))
        await asyncio.sleep(0)
    await task
    assert len(seen) > 1
    assert (house.reloader.generation, len(house.adopted)) == (2, 1)
    held = house.lab.mirror.cache(Tally)
    assert held.dump() == rebuilt(house.lab.mirror)
    assert len(held.services) >= len(seen)


async def test_a_reload_that_comes_during_another_waits_for_it(house: House) -> None:
    first = await house.begin(WITH_LATE)
    second = house.apply(EARLY)
    await asyncio.gather(first, second)
    assert house.reloader.generation == 3
    assert [[each.name for each in profiles["default-scheduler"].predicates][-1] for profiles in house.adopted] == [
        "Late",
        "NodeName",
    ]
    assert not house.uses_late()


async def test_a_reload_that_is_broken_off_leaves_the_last_good_one(house: House) -> None:
    task = await house.begin(WITH_LATE)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    begun = Tally.made[-1].dump()
    house.lab.apply(make_pod("later", node="n"))
    assert (Tally.made[-1].dump(), house.uses_late(), house.adopted, house.reloader.generation) == (begun, False, [], 1)
    await house.apply(WITH_LATE)
    assert house.lab.mirror.cache(Tally).dump() == rebuilt(house.lab.mirror)


async def test_a_reload_that_fails_midway_leaves_the_last_good_one(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Tally, "fails_at", PODS // 2)
    task = await house.begin(WITH_LATE)
    with pytest.raises(ConfigurationError):
        await task
    problem = f"Late: cache Tally: add_pod of pod default/p{PODS // 2} raised RuntimeError: enough"
    assert (house.reloader.problem, house.uses_late(), house.adopted) == (problem, False, [])
    house.lab.apply(make_pod("later", node="n"))
    monkeypatch.setattr(Tally, "fails_at", None)
    await house.apply(WITH_LATE)
    assert (house.reloader.problem, house.reloader.generation) == ("", 2)
    assert len(house.lab.mirror.cache(Tally).pods) == PODS + 1
