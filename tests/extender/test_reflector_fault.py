"""The reflector when connections, servers and stores fail."""

from __future__ import annotations

import asyncio
import inspect
import logging
from typing import Any

import msgspec
import pytest

from extender.cluster.backoff import Backoff
from extender.cluster.reflector import Reflector
from extender.model.kind import Kind
from extender.model.object import ObjectMeta
from tests.extender.scripted import (
    DATA,
    OPEN,
    REFUSED,
    Answer,
    bookmark,
    case,
    cut,
    error,
    event,
    eventually,
    failure,
    follow,
    listed,
    pod,
    recorded,
    reply,
    silence,
    stream,
)

FIRST = stream(event("ADDED", pod("a", "1")), bookmark("5", ends_list=True), then="silence")


class VirtualTime:
    """A clock that moves only by sleeping, and remembers when something slept."""

    def __init__(self) -> None:
        self.now = 0.0
        self.delays: list[float] = []
        self.wakes: list[float] = []

    def clock(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        self.now += seconds
        self.delays.append(seconds)
        self.wakes.append(self.now)
        await asyncio.sleep(0)


async def test_b22_a_half_open_stream_is_noticed_and_resumed() -> None:
    limit = case("B22-half-open.json")["limits"]["silenceBeforeReconnectSeconds"]
    assert inspect.signature(Reflector).parameters["silence_seconds"].default <= limit
    resumed = stream(event("ADDED", pod("x", "6")), then="silence")
    async with follow(FIRST, resumed, silence_seconds=0.3) as setting:
        await eventually(lambda: setting.reflector.synced)
        assert setting.reflector.failing is None
        await eventually(lambda: "default/x" in setting.store.items)
        assert setting.queries("resourceVersion", "sendInitialEvents")[1] == ("5", None)
        assert setting.reflector.lists == 1


async def test_the_age_tells_how_long_nothing_was_heard() -> None:
    time = VirtualTime()
    async with follow(FIRST, clock=time.clock, sleep=time.sleep) as setting:
        await eventually(lambda: setting.reflector.synced)
        time.now += 40
        assert setting.reflector.age_seconds() == 40


async def test_a_server_that_never_answers_shows_in_the_status() -> None:
    async with follow(silence, silence_seconds=0.1) as setting:
        await eventually(lambda: len(setting.server.requests) > 1)
        assert "no answer" in (setting.reflector.failing or "")
        assert setting.reflector.age_seconds() == float("inf")
        assert not setting.reflector.synced


async def test_b30_repeated_errors_are_retried_ever_more_slowly_and_shown() -> None:
    content = case("B30-watch-error-backoff.json")
    time, seen = VirtualTime(), []
    answers: dict[str, Answer] = {
        "403 Forbidden": recorded("list-forbidden.json", 403),
        "connection refused": cut,
        "504 Timeout: Too large resource version: 900, current: 850": reply(
            failure(504, "Timeout", "Too large resource version: 900, current: 850"), 504
        ),
        "ok": stream(event("ADDED", pod("b", "851")), then="silence"),
    }
    watches = [answers[text] for text in content["watchReplies"] for _ in range(2 if answers[text] is cut else 1)]
    script = [REFUSED, listed("900", pod("a", "1")), *watches[:-1], listed("850", pod("a", "1")), watches[-1]]

    async def sleep(seconds: float) -> None:
        seen.append(setting.reflector.failing)
        await time.sleep(seconds)

    async with follow(*script, clock=time.clock, sleep=sleep, backoff=Backoff(random_source=lambda: 0.0)) as setting:
        await eventually(lambda: "default/b" in setting.store.items)
        for start in time.wakes:
            a_minute = [wake for wake in time.wakes if start <= wake < start + 60]
            assert len(a_minute) <= content["maxAttemptsPerMinutePerResource"]
        assert all("cannot list resource" in text and "let the service account" in text for text in seen[:5])
        assert all("no answer" in text for text in seen[5:10])
        assert setting.queries("resourceVersion")[-3:] == [("900",), (None,), ("850",)]
        assert setting.reflector.failing is None


async def test_a_watch_that_ends_at_once_is_not_opened_in_a_hurry() -> None:
    time = VirtualTime()
    script = [stream(bookmark("5", ends_list=True)), *[stream() for _ in range(11)], OPEN]
    async with follow(*script, clock=time.clock, sleep=time.sleep, backoff=Backoff()) as setting:
        await eventually(lambda: len(setting.server.requests) == len(script))
        assert len([wake for wake in time.wakes if wake < 60]) <= 10
        assert setting.reflector.failing is None


async def test_a_watch_that_ends_after_a_healthy_life_is_opened_again_without_delay() -> None:
    time = VirtualTime()

    async def well_lived(request: Any) -> Any:
        time.now += 300
        return await stream()(request)

    brief = stream()
    script = [stream(bookmark("5", ends_list=True)), brief, brief, well_lived, well_lived, brief, OPEN]
    async with follow(
        *script, clock=time.clock, sleep=time.sleep, backoff=Backoff(base_seconds=1, random_source=lambda: 1.0)
    ) as setting:
        await eventually(lambda: len(setting.server.requests) == len(script))
        assert time.delays == [1, 2, 4, 1]


async def test_the_server_says_when_to_try_again() -> None:
    time = VirtualTime()
    busy = reply(failure(429, "TooManyRequests", "slow down"), 429, Retry_After="7")
    async with follow(busy, FIRST, clock=time.clock, sleep=time.sleep) as setting:
        await eventually(lambda: setting.reflector.synced)
        assert len(time.wakes) == 1
        assert 7 < time.wakes[0] < 8


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(stream(b'{"type":"ADDED","obj', b'ect":{"meta'), id="the stream ends within a line"),
        pytest.param(stream(b'{"type":"ADDED","object":{"meta', then="cut"), id="the connection breaks within a line"),
        pytest.param(stream(b"\x00\xff garbage\n", then="silence"), id="a line is no JSON"),
        pytest.param(stream(b'{"kind":"Status"}\n', then="silence"), id="a line is no event"),
        pytest.param(stream(b'{"type":"ADDED","object":{}}\n', then="silence"), id="an object has no metadata"),
        pytest.param(stream(error(500, "InternalError", "etcd: leader changed")), id="the server reports an error"),
        pytest.param(reply("<html>bad gateway</html>", 502), id="a proxy answers"),
        pytest.param(reply("<html>it works</html>"), id="some other server answers"),
    ],
)
async def test_a_broken_watch_is_resumed_from_the_last_version(
    answer: Answer, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    first = stream(bookmark("5", ends_list=True), event("ADDED", pod("a", "6")))
    async with follow(first, answer, stream(event("ADDED", pod("b", "7")), then="silence")) as setting:
        await eventually(lambda: "default/b" in setting.store.items)
        assert setting.queries("resourceVersion")[1:] == [("6",), ("6",)]
        assert setting.store.changes == ["ADDED a/uid-a", "ADDED b/uid-b"]
        assert setting.reflector.failing is None
        assert [record.levelname for record in caplog.records] == ["WARNING"]


async def test_an_error_after_the_list_of_a_streaming_list_is_no_refusal_of_it(
    caplog: pytest.LogCaptureFixture,
) -> None:
    first = stream(bookmark("5", ends_list=True), error(500, "InternalError", "etcd: leader changed"))
    async with follow(first, stream(error(410, "Expired", "too old")), FIRST) as setting:
        await eventually(lambda: setting.reflector.lists == 2)
        assert setting.queries("resourceVersion", "sendInitialEvents") == [(None, "true"), ("5", None), (None, "true")]
        assert [record.__dict__["problem"] for record in caplog.records] == [
            "etcd: leader changed (InternalError, 500)",
            "too old (Expired, 410)",
        ]


async def test_an_error_is_told_from_an_object_of_a_kind_without_a_status() -> None:
    class Bare(msgspec.Struct):
        metadata: ObjectMeta | None = None

    kind = Kind("priorityclasses", "PriorityClass", Bare, group="scheduling.k8s.io", namespaced=False)
    first = stream(bookmark("5", ends_list=True), (DATA / "apiserver" / "watch-expired.jsonl").read_bytes())
    async with follow(first, stream(bookmark("9", ends_list=True), then="silence"), kind=kind) as setting:
        await eventually(lambda: setting.reflector.lists == 2)
        assert setting.server.requests[0].path == "/apis/scheduling.k8s.io/v1/priorityclasses"


async def test_a_watch_that_finds_no_server_is_resumed_from_the_last_version() -> None:
    first = stream(bookmark("5", ends_list=True))
    async with follow(first, cut, cut, stream(event("ADDED", pod("b", "7")), then="silence")) as setting:
        await eventually(lambda: "default/b" in setting.store.items)
        assert {version for (version,) in setting.queries("resourceVersion")[1:]} == {"5"}


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(recorded("watch-expired.jsonl"), id="410 in the stream"),
        pytest.param(recorded("list-exact-expired.json", 410), id="410 as the answer"),
        pytest.param(stream(error(504, "Timeout", "Too large resource version: 9")), id="504 in the stream"),
        pytest.param(reply(failure(400, "BadRequest", "invalid resource version"), 400), id="400 as the answer"),
    ],
)
async def test_a_version_that_is_lost_is_never_asked_for_again(answer: Answer) -> None:
    again = stream(event("ADDED", pod("b", "8")), bookmark("9", ends_list=True), then="silence")
    async with follow(stream(event("ADDED", pod("a", "1")), bookmark("5", ends_list=True)), answer, again) as setting:
        await eventually(lambda: setting.reflector.lists == 2)
        assert setting.store.changes == ["ADDED a/uid-a", "ADDED b/uid-b", "DELETED a/uid-a"]
        assert setting.queries("resourceVersion", "sendInitialEvents") == [(None, "true"), ("5", None), (None, "true")]


async def test_a_streaming_list_that_breaks_is_begun_again() -> None:
    broken = stream(event("ADDED", pod("ghost", "1")), then="cut")
    async with follow(broken, FIRST) as setting:
        await eventually(lambda: setting.reflector.synced)
        assert set(setting.store.items) == {"default/a"}
        assert [stream for (stream,) in setting.queries("sendInitialEvents")] == ["true", "true"]


async def test_a_list_of_something_else_is_no_list() -> None:
    nonsense = listed("5", {"spec": {}})
    async with follow(REFUSED, nonsense, reply("<html>"), listed("6", pod("a", "1")), OPEN) as setting:
        await eventually(lambda: setting.reflector.synced)
        assert set(setting.store.items) == {"default/a"}


async def test_a_list_that_breaks_between_pages_is_begun_again() -> None:
    first = listed("5", pod("ghost", "1"), continue_token="t1")
    async with follow(REFUSED, first, cut, cut, listed("6", pod("a", "1")), OPEN) as setting:
        await eventually(lambda: setting.reflector.synced)
        assert set(setting.store.items) == {"default/a"}
        assert setting.reflector.lists == 1


async def test_a_store_that_fails_is_told_everything_again(caplog: pytest.LogCaptureFixture) -> None:
    first = stream(bookmark("5", ends_list=True), event("ADDED", pod("a", "6")), then="silence")
    second = stream(event("ADDED", pod("a", "6")), bookmark("7", ends_list=True), then="silence")
    async with follow(first, second) as setting:
        upsert = setting.store.upsert

        def fail_once(item: Any) -> None:
            setting.store.upsert = upsert  # type: ignore[method-assign]
            raise RuntimeError("out of rows")

        setting.store.upsert = fail_once  # type: ignore[method-assign]
        await eventually(lambda: setting.reflector.lists == 2)
        assert set(setting.store.items) == {"default/a"}
        assert [record.getMessage() for record in caplog.records] == ["store failed"]


def test_delays_double_up_to_a_cap_and_start_over_after_a_reset() -> None:
    backoff = Backoff(base_seconds=1, cap_seconds=10, random_source=lambda: 1.0)
    assert [backoff.next() for _ in range(6)] == [1, 2, 4, 8, 10, 10]
    backoff.reset()
    assert backoff.next(retry_after_seconds=3) == 4
    assert backoff.next(retry_after_seconds=1e9) == 302


@pytest.mark.parametrize("chance", [0.0, 0.5, 1.0])
def test_no_minute_of_failures_holds_more_than_ten_attempts(chance: float) -> None:
    backoff = Backoff(random_source=lambda: chance)
    attempts, now = [], 0.0
    while now < 600:
        attempts.append(now)
        now += backoff.next()
    assert max(sum(start <= at < start + 60 for at in attempts) for start in attempts) <= 10
