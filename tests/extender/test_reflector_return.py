"""How soon a reflector is back when the API server is: roused by others, and at once where only a version was lost."""

from __future__ import annotations

import asyncio

import pytest

from extender.cluster.apiserver import ApiServer, Fault
from extender.cluster.backoff import Backoff
from extender.cluster.client import Client
from extender.cluster.connection import from_url
from extender.cluster.reflector import Reflector
from extender.informer import Informers
from extender.model.kind import NODES, PODS, Kind
from tests.extender.scripted import (
    OPEN,
    RecordingStore,
    bookmark,
    error,
    eventually,
    failure,
    follow,
    listed,
    reply,
    stream,
)

DOWN = reply(failure(503, "ServiceUnavailable", "away"), 503)
WELL = stream(bookmark("5", ends_list=True), then="cut")


class Rests:
    """Waits that are written down, and end when they are told to."""

    def __init__(self, *, end: bool = False) -> None:
        self.seconds: list[float] = []
        self._over = asyncio.Event()
        if end:
            self._over.set()

    async def sleep(self, seconds: float) -> None:
        self.seconds.append(seconds)
        await asyncio.sleep(0)
        await self._over.wait()


async def test_a_reflector_that_is_roused_tries_at_once_but_not_again_before_it_was_well() -> None:
    rests = Rests()
    async with follow(DOWN, sleep=rests.sleep) as setting:
        await eventually(lambda: len(rests.seconds) == 1)
        setting.reflector.rouse()
        await eventually(lambda: len(rests.seconds) == 2)
        setting.reflector.rouse()
        for _ in range(20):
            await asyncio.sleep(0)
        assert len(setting.server.requests) == 2
        assert setting.reflector.failures["503"] == 2


async def test_a_wait_that_the_server_asked_for_is_waited_out() -> None:
    rests = Rests()
    async with follow(reply(b"{}", 429, Retry_After="60"), sleep=rests.sleep) as setting:
        await eventually(lambda: len(rests.seconds) == 1)
        setting.reflector.rouse()
        for _ in range(20):
            await asyncio.sleep(0)
        assert len(setting.server.requests) == 1


@pytest.mark.parametrize("lost", [stream(error(410, "Expired", "too old")), reply(failure(410, "Expired", "x"), 410)])
async def test_a_version_that_was_lost_while_the_server_was_away_is_not_waited_for(lost: object) -> None:
    rests = Rests(end=True)
    script = (WELL, DOWN, DOWN, DOWN, DOWN, lost, OPEN)
    async with follow(*script, sleep=rests.sleep, backoff=Backoff(random_source=lambda: 1.0)) as setting:  # type: ignore[arg-type]
        await eventually(lambda: len(setting.server.requests) == len(script))
        assert rests.seconds == [0.4, 0.8, 1.6, 3.2, 6.4, 0.4]


async def test_a_server_that_loses_every_version_is_tried_less_and_less_often() -> None:
    rests = Rests(end=True)
    script = (WELL, *[answer for _ in range(4) for answer in (reply(failure(410, "Expired", "x"), 410), listed("7"))])
    async with follow(*script, sleep=rests.sleep, backoff=Backoff(random_source=lambda: 1.0)):
        await eventually(lambda: len(rests.seconds) >= 5)
        assert rests.seconds[:2] == [0.4, 0.4]
        assert rests.seconds[2:5] == sorted(rests.seconds[2:5])
        assert rests.seconds[4] > 2


async def test_reaching_the_server_is_told_after_failures_and_not_between_watches() -> None:
    told: list[str] = []
    ends = stream(bookmark("6"), then="end")
    async with follow(DOWN, WELL, ends, OPEN, sleep=Rests(end=True).sleep, reached=lambda: told.append("")) as setting:
        await eventually(lambda: setting.reflector.watches == 3)
        assert len(told) == 2


async def test_the_first_informer_that_gets_through_rouses_the_others() -> None:
    rests = Rests()
    async with ApiServer([]) as api:
        api.faults.add(Fault(path="/pods$", status=503))
        nodes_may_come = asyncio.Event()
        api.faults.add(Fault(path="/nodes$", delay_before=nodes_may_come))
        client = Client(from_url(api.url))

        def rouse() -> None:
            informers.rouse()

        def make(kind: Kind) -> Reflector:
            return Reflector(kind, client, RecordingStore(), sleep=rests.sleep, reached=rouse)

        informers = Informers(make, (PODS, NODES))
        informers.start()
        await eventually(lambda: rests.seconds)
        nodes_may_come.set()
        await eventually(lambda: all(reflector.synced for reflector in informers.reflectors))
        await informers.stop()
        await client.close()
