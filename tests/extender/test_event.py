"""Events: what is said, how often, how fast, and what becomes of them when the API server is not well."""

from __future__ import annotations

import asyncio
import json
import logging
import re
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import pytest

from extender.cluster.apiserver import ApiServer, Fault
from extender.cluster.backoff import Backoff
from extender.cluster.bucket import TokenBucket
from extender.cluster.client import Client
from extender.cluster.connection import from_url
from extender.cluster.event import POD_BURST, SERIES_SECONDS, EventBroadcaster
from extender.errors import ApiError, ApiUnreachable
from tests.extender.scripted import eventually
from tests.extender.virtual_time import now, play, until

POD = ("default", "web-1", "uid-1")
START_NANOS = 1_796_130_000_123_456_789


class Sink:
    """An API server as events see it: ``events`` by name; ``failure`` is what the next requests meet."""

    def __init__(self) -> None:
        self.events: dict[str, dict[str, Any]] = {}
        self.calls: list[tuple[float, str]] = []
        self.failure: Exception | None = None
        self.is_silent = False
        self.loses_answers = False

    async def request(
        self,
        method: str,
        path: str,
        *,
        body: bytes | None = None,
        content_type: str = "application/json",
        timeout_seconds: float | None = 10.0,
    ) -> bytes:
        self.calls.append((now(), method))
        await asyncio.sleep(0.001)
        if self.is_silent:
            await asyncio.sleep(timeout_seconds or 0)
            raise ApiUnreachable("no answer", maybe_done=True)
        if self.failure is not None:
            raise self.failure
        content = json.loads(body or b"")
        if method == "POST":
            name = content["metadata"]["name"]
            if name in self.events:
                raise ApiError(409, "AlreadyExists", f'events "{name}" already exists')
            self.events[name] = content
        else:
            assert (method, content_type) == ("PATCH", "application/merge-patch+json")
            name = path.rpartition("/")[2]
            if name not in self.events:
                raise ApiError(404, "NotFound", f'events "{name}" not found')
            self.events[name] |= content
        if self.loses_answers:
            raise ApiUnreachable("no answer", maybe_done=True)
        return b"{}"

    def told(self) -> list[tuple[str, str, int]]:
        """Return reason, note and count of each event, in order of creation."""
        return [
            (event["reason"], event["note"], event.get("series", {}).get("count", 1)) for event in self.events.values()
        ]


class Setting:
    """A broadcaster and what it writes to."""

    def __init__(self, **options: Any) -> None:
        self.sink = Sink()
        self.broadcaster = EventBroadcaster(
            self.sink,
            instance="host_1",
            clock=now,
            wall_nanos=lambda: START_NANOS + int(now() * 1e9),
            backoff=Backoff(random_source=lambda: 1.0),
            **options,
        )

    def fail_to_bind(self, number: int, problem: str = "no room") -> None:
        self.broadcaster.bind_failed("default", f"web-{number}", f"uid-{number}", "n1", problem)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        task = asyncio.create_task(self.broadcaster.run())
        try:
            yield
            assert not task.done()
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


def scene(act: Callable[[Setting], Coroutine[Any, Any, None]] | None = None, **options: Any) -> Callable[..., Any]:
    """Make a test of a scene that is played in virtual time while the broadcaster runs."""

    def make(act: Callable[[Setting], Coroutine[Any, Any, None]]) -> Callable[[], None]:
        async def whole() -> None:
            setting = Setting(**options)
            async with setting.running():
                await act(setting)

        def test() -> None:
            play(whole)

        test.__name__, test.__doc__ = act.__name__, act.__doc__
        return test

    return make if act is None else make(act)


# --- what is said ----------------------------------------------------------------------------------------------------


@scene
async def test_an_event_is_one_that_the_api_server_takes(setting: Setting) -> None:
    setting.broadcaster.bound(*POD, "n1")
    await until(1)
    assert list(setting.sink.events.values()) == [
        {
            "apiVersion": "events.k8s.io/v1",
            "kind": "Event",
            "metadata": {"namespace": "default", "name": f"web-1.{START_NANOS // 1000:x}000"},
            "eventTime": "2026-12-01T13:00:00.123456Z",
            "type": "Normal",
            "reason": "Bound",
            "action": "Binding",
            "note": "Bound default/web-1 to n1",
            "regarding": {"apiVersion": "v1", "kind": "Pod", "namespace": "default", "name": "web-1", "uid": "uid-1"},
            "reportingController": "scheduler-extender",
            "reportingInstance": "host_1",
        }
    ]


@scene
async def test_a_refusal_tells_how_many_nodes_each_reason_has(setting: Setting) -> None:
    refusals = [(3, ("Insufficient cpu",)), (2, ("Insufficient cpu", "Too many pods")), (7, ("node(s) were cordoned",))]
    setting.broadcaster.nothing_fits(*POD, 12, refusals)
    await until(1)
    note = "0/12 nodes fit: 7 node(s) were cordoned, 5 Insufficient cpu, 2 Too many pods"
    assert setting.sink.told() == [("FailedFilter", note, 1)]
    assert next(iter(setting.sink.events.values()))["type"] == "Warning"


@scene
async def test_texts_and_names_are_cut_to_what_the_api_server_takes(setting: Setting) -> None:
    setting.broadcaster.bind_failed("default", "a" * 236 + "-" + "b" * 16, "uid", "n1", "é" * 2000)
    await until(1)
    (event,) = setting.sink.events.values()
    assert len(event["note"].encode()) <= 1024
    assert event["note"].endswith("é...")
    assert len(event["metadata"]["name"]) <= 253
    assert re.fullmatch(r"a{236}\.[0-9a-f]{16}", event["metadata"]["name"])
    assert event["regarding"]["name"] == "a" * 236 + "-" + "b" * 16


@scene
async def test_a_long_identity_is_cut(setting: Setting) -> None:
    broadcaster = EventBroadcaster(setting.sink, instance="x" * 500)
    broadcaster.bound(*POD, "n1")
    await broadcaster.flush(1)
    assert next(iter(setting.sink.events.values()))["reportingInstance"] == "x" * 128


def test_every_new_event_is_logged_and_repetitions_are_not(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "extender.cluster.event")

    @scene
    async def course(setting: Setting) -> None:
        for _ in range(3):
            setting.fail_to_bind(1)
        await until(1)

    course()
    (record,) = caplog.records
    assert record.message == "event"
    assert vars(record).items() >= {"pod": "default/web-1", "reason": "FailedBinding", "note": "no room"}.items()


# --- how often -------------------------------------------------------------------------------------------------------


@scene
async def test_repetitions_are_counted_in_one_event(setting: Setting) -> None:
    for second in range(5):
        await until(second)
        setting.broadcaster.nothing_fits(*POD, 12, [(11 - second, ("Insufficient cpu",)), (1, ("Too many pods",))])
    await until(6)
    assert [method for _, method in setting.sink.calls] == ["POST", "PATCH", "PATCH", "PATCH", "PATCH"]
    assert setting.sink.told() == [("FailedFilter", "0/12 nodes fit: 11 Insufficient cpu, 1 Too many pods", 5)]
    last = next(iter(setting.sink.events.values()))["series"]["lastObservedTime"]
    assert last == "2026-12-01T13:00:04.123456Z"


@scene
async def test_what_differs_in_reasons_node_or_pod_is_another_event(setting: Setting) -> None:
    setting.broadcaster.nothing_fits(*POD, 12, [(12, ("Insufficient cpu",))])
    setting.broadcaster.nothing_fits(*POD, 12, [(12, ("Too many pods",))])
    setting.broadcaster.nothing_fits("default", "web-1", "uid-of-another-pod", 12, [(12, ("Too many pods",))])
    setting.broadcaster.bind_failed(*POD, "n1", "no room")
    setting.broadcaster.bind_failed(*POD, "n2", "no room")
    setting.broadcaster.bind_failed(*POD, "n2", "no answer within 1.2 s")
    setting.broadcaster.bind_failed(*POD, "n2", "no answer within 3.4 s")
    await until(1)
    assert [count for _, _, count in setting.sink.told()] == [1, 1, 1, 1, 1, 2]


@scene
async def test_after_a_long_silence_a_repetition_is_an_event_of_its_own(setting: Setting) -> None:
    setting.fail_to_bind(1)
    await until(SERIES_SECONDS - 1)
    setting.fail_to_bind(1)
    await until(3 * SERIES_SECONDS)
    setting.fail_to_bind(1)
    await until(3 * SERIES_SECONDS + 1)
    assert [count for _, _, count in setting.sink.told()] == [2, 1]


@scene
async def test_an_event_that_the_api_server_has_deleted_is_created_anew(setting: Setting) -> None:
    setting.fail_to_bind(1)
    await until(1)
    setting.sink.events.clear()
    setting.fail_to_bind(1)
    await until(2)
    assert [method for _, method in setting.sink.calls] == ["POST", "PATCH", "POST"]
    assert setting.sink.told() == [("FailedBinding", "no room", 2)]


# --- how fast --------------------------------------------------------------------------------------------------------


@scene(per_second=10.0, burst=5)
async def test_writes_keep_to_the_rate_and_none_is_lost(setting: Setting) -> None:
    for number in range(50):
        setting.fail_to_bind(number)
    await until(0.09)
    assert len(setting.sink.calls) == 5
    await until(2)
    assert 20 <= len(setting.sink.calls) <= 25
    await until(6)
    assert len(setting.sink.events) == 50


@scene
async def test_one_pod_does_not_drown_the_others(setting: Setting) -> None:
    for number in range(100):
        setting.broadcaster.bind_failed(*POD, f"n{number}", "no room")
    setting.fail_to_bind(2)
    await until(10)
    assert setting.broadcaster.dropped["pod-limit"] == 100 - POD_BURST
    assert [event["regarding"]["name"] for event in setting.sink.events.values()].count("web-2") == 1


@scene
async def test_a_count_that_may_not_be_written_yet_is_written_in_the_end(setting: Setting) -> None:
    for second in range(100):
        await until(second / 10)
        setting.fail_to_bind(1)
    await until(20)
    assert len(setting.sink.calls) == POD_BURST
    await until(3 * SERIES_SECONDS)
    assert setting.sink.told() == [("FailedBinding", "no room", 100)]
    assert setting.broadcaster.dropped == dict.fromkeys(setting.broadcaster.dropped, 0)


def test_a_queue_that_is_full_drops_and_counts() -> None:
    async def act() -> None:
        setting = Setting(queue_length=10)
        for number in range(25):
            setting.fail_to_bind(number)
        assert setting.broadcaster.dropped["queue-full"] == 15
        async with setting.running():
            await until(1)
        assert len(setting.sink.events) == 10

    play(act)


def test_a_bucket_gives_its_burst_and_then_its_rate() -> None:
    time = [0.0]
    bucket = TokenBucket(2.0, 3, lambda: time[0])
    assert [bucket.take() for _ in range(4)] == [True, True, True, False]
    assert bucket.wait_seconds() == pytest.approx(0.5)
    time[0] = 0.5
    assert (bucket.take(), bucket.take()) == (True, False)
    time[0] = 100
    assert [bucket.take() for _ in range(4)] == [True, True, True, False]


# --- an API server that is not well ----------------------------------------------------------------------------------

REFUSALS = [
    ApiError(403, "Forbidden", "unable to create new content in namespace default because it is being terminated"),
    ApiError(404, "NotFound", 'namespaces "default" not found'),
    ApiError(422, "Invalid", "note: too long"),
]
DENIALS = [
    ApiError(403, "Forbidden", "events.events.k8s.io is forbidden"),
    ApiError(401, "Unauthorized", "Unauthorized"),
]


@pytest.mark.parametrize("failure", DENIALS, ids=lambda failure: str(failure.code))
def test_an_event_that_is_denied_by_a_server_that_knows_no_roles_yet_is_written_a_moment_later(
    failure: ApiError,
) -> None:
    @scene
    async def course(setting: Setting) -> None:
        setting.sink.failure = failure
        setting.fail_to_bind(1)
        await until(1)
        setting.sink.failure = None
        await until(3)
        assert [event["regarding"]["name"] for event in setting.sink.events.values()] == ["web-1"]
        assert setting.broadcaster.dropped["refused"] == 0

    course()


@pytest.mark.parametrize("failure", DENIALS, ids=lambda failure: str(failure.code))
def test_an_event_that_is_denied_again_and_again_is_dropped(failure: ApiError) -> None:
    @scene
    async def course(setting: Setting) -> None:
        setting.sink.failure = failure
        setting.fail_to_bind(1)
        await until(4)
        assert setting.broadcaster.dropped["refused"] == 1
        setting.sink.failure = None
        setting.fail_to_bind(2)
        await until(10)
        assert [event["regarding"]["name"] for event in setting.sink.events.values()] == ["web-2"]

    course()


@pytest.mark.parametrize("failure", REFUSALS, ids=lambda failure: f"{failure.code} {failure.message}")
def test_an_event_that_is_refused_is_dropped_and_the_next_is_written(failure: ApiError) -> None:
    @scene
    async def course(setting: Setting) -> None:
        setting.sink.failure = failure
        setting.fail_to_bind(1)
        await until(1)
        setting.sink.failure = None
        setting.fail_to_bind(2)
        await until(10)
        assert [event["regarding"]["name"] for event in setting.sink.events.values()] == ["web-2"]
        assert setting.broadcaster.dropped["refused"] == 1
        assert setting.broadcaster.written == {"created": 1, "updated": 0}

    course()


AWAY = [
    ApiUnreachable("no connection"),
    ApiError(429, "TooManyRequests", "slow down", retry_after_seconds=3),
    ApiError(503, "ServiceUnavailable", "starting"),
]


@pytest.mark.parametrize("failure", AWAY, ids=str)
def test_events_wait_for_an_api_server_that_is_away(failure: Exception) -> None:
    @scene
    async def course(setting: Setting) -> None:
        setting.sink.failure = failure
        for number in range(5):
            setting.fail_to_bind(number)
            setting.fail_to_bind(number)
        await until(100)
        assert len(setting.sink.calls) < 20
        setting.sink.failure = None
        await until(150)
        assert [count for _, _, count in setting.sink.told()] == [2] * 5
        assert sum(setting.broadcaster.dropped.values()) == 0

    course()


def test_a_server_that_refuses_everything_is_asked_ever_more_slowly_and_named_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.WARNING)

    @scene
    async def course(setting: Setting) -> None:
        setting.sink.failure = DENIALS[0]
        for number in range(300):
            setting.fail_to_bind(number)
            await until(number)
        assert len(setting.sink.calls) < 20

    course()
    (record,) = caplog.records
    assert "let the service account create and patch events.events.k8s.io" in vars(record)["problem"]


@scene(queue_length=10)
async def test_while_nothing_can_be_written_the_latest_are_kept_and_those_too_old_dropped(setting: Setting) -> None:
    setting.sink.is_silent = True
    for number in range(30):
        await until(number)
        setting.fail_to_bind(number)
    await until(60)
    assert setting.broadcaster.dropped["queue-full"] == 20
    await until(60 + SERIES_SECONDS)
    setting.fail_to_bind(100)
    setting.sink.is_silent = False
    await until(120 + SERIES_SECONDS)
    assert [event["regarding"]["name"] for event in setting.sink.events.values()] == ["web-100"]
    assert setting.broadcaster.dropped["stale"] > 0


@scene
async def test_an_answer_that_is_lost_does_not_make_two_events(setting: Setting) -> None:
    setting.sink.loses_answers = True
    setting.fail_to_bind(1)
    await until(0.1)
    setting.sink.loses_answers = False
    await until(5)
    assert [method for _, method in setting.sink.calls] == ["POST", "POST"]
    assert setting.sink.told() == [("FailedBinding", "no room", 1)]
    setting.fail_to_bind(1)
    await until(6)
    assert setting.sink.told() == [("FailedBinding", "no room", 2)]


@scene
async def test_a_fault_of_ours_costs_one_event(setting: Setting) -> None:
    setting.sink.failure = ValueError("unforeseen")
    setting.fail_to_bind(1)
    await until(1)
    setting.sink.failure = None
    setting.fail_to_bind(2)
    await until(5)
    assert len(setting.sink.events) == 1


# --- the end ---------------------------------------------------------------------------------------------------------


def test_what_is_left_is_written_at_the_end() -> None:
    async def act() -> None:
        setting = Setting(per_second=0.001, burst=1)
        async with setting.running():
            for number in range(20):
                setting.fail_to_bind(number)
                setting.fail_to_bind(number)
        await setting.broadcaster.flush(2)
        assert [count for _, _, count in setting.sink.told()] == [2] * 20

    play(act)


def test_the_end_waits_no_longer_than_its_limit() -> None:
    async def act() -> None:
        setting = Setting()
        setting.sink.is_silent = True
        setting.fail_to_bind(1)
        await setting.broadcaster.flush(2)
        assert now() == pytest.approx(2)

    play(act)


# --- over HTTP -------------------------------------------------------------------------------------------------------


async def test_events_are_created_and_patched_at_the_embedded_api_server() -> None:
    async with ApiServer() as server:
        client = Client(from_url(server.url))
        broadcaster = EventBroadcaster(client, instance="host_1")
        task = asyncio.create_task(broadcaster.run())
        server.faults.add(Fault(method="POST", path="/events$", status=503))
        broadcaster.nothing_fits(*POD, 1, [(1, ("Insufficient cpu",))])
        await eventually(lambda: broadcaster.written["created"])
        broadcaster.nothing_fits(*POD, 1, [(1, ("Insufficient cpu",))])
        await eventually(lambda: broadcaster.written["updated"])
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await client.close()
        (event,) = server.storage.list("events.events.k8s.io")
        assert event["series"]["count"] == 2
        assert event["note"] == "0/1 nodes fit: 1 Insufficient cpu"
