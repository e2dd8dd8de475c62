"""Leader election: who leads when, whatever happens to the connections; in virtual time, so that hours cost nothing."""

from __future__ import annotations

import asyncio
import inspect
import itertools
import random
import re
from pathlib import Path

import pytest

from extender.cluster.apiserver import ApiServer, Fault
from extender.cluster.client import Client
from extender.cluster.connection import from_url
from extender.cluster.lease import LeaderElection, own_identity, own_namespace
from extender.config import LeaderElectionSection, load_configuration
from extender.errors import ConfigurationError
from tests.extender.candidate import LATENCY_SECONDS, LEASES, Line, Scene, scene
from tests.extender.scripted import case, eventually
from tests.extender.virtual_time import now, until

# --- the reported case -----------------------------------------------------------------------------------------------

B29 = case("B29-leader-election.json")


@scene
async def test_b29_a_stalled_leader_stops_before_the_next_one_starts(scene: Scene) -> None:
    limits = {
        "lease_seconds": B29["leaseDuration"],
        "renew_seconds": B29["renewDeadline"],
        "retry_seconds": B29["retryPeriod"],
    }
    start, stall, takeover, check, shutdown = B29["steps"]
    a = scene.join("a", **limits)
    await until(start["t"] + 1)
    assert a.leading
    b = scene.join("b", **limits)
    await until(stall["t"])
    a.line.fault = "silent"
    await until(takeover["t"] + 1)
    assert b.leading
    await until(check["t"])
    assert [what for what, _ in a.log] == ["started", "stopped"]
    assert a.log[1][1] <= stall["t"] + B29["renewDeadline"]
    assert a.task.done()
    again = scene.join("a-again", **limits)
    await until(shutdown["t"])
    await b.end()
    assert scene.record()["holderIdentity"] == ""
    await asyncio.sleep(B29["retryPeriod"])
    assert again.leading


# --- the course of things --------------------------------------------------------------------------------------------


@scene
async def test_the_record_is_one_that_other_clients_understand(scene: Scene) -> None:
    first = scene.join("a")
    await until(1)
    record = scene.record()
    micro_time = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z")
    assert micro_time.fullmatch(record["renewTime"])
    assert record == {
        "holderIdentity": "a",
        "leaseDurationSeconds": 15,
        "acquireTime": record["renewTime"],
        "renewTime": record["renewTime"],
        "leaseTransitions": 0,
    }
    await until(10)
    assert scene.record()["acquireTime"] == record["acquireTime"]
    assert scene.record()["renewTime"] > record["renewTime"]
    assert scene.record()["leaseTransitions"] == 0
    await first.end()
    assert scene.record()["leaseDurationSeconds"] == 1
    scene.join("b")
    await until(20)
    assert scene.record()["holderIdentity"] == "b"
    assert scene.record()["leaseTransitions"] == 1
    assert scene.record()["acquireTime"] > record["acquireTime"]


@scene
async def test_a_leader_renews_with_one_request_at_least_every_retry_period(scene: Scene) -> None:
    leader = scene.join("a")
    await until(120)
    assert [method for _, method in leader.line.calls[:2]] == ["GET", "POST"]
    assert {method for _, method in leader.line.calls[2:]} == {"PUT"}
    times = [at for at, _ in leader.line.calls]
    assert max(later - earlier for earlier, later in itertools.pairwise(times)) <= 2 + 2 * LATENCY_SECONDS
    assert [what for what, _ in leader.log] == ["started"]


@scene
async def test_a_follower_waits_for_a_change_and_not_for_the_time_in_the_record(scene: Scene) -> None:
    scene.storage.create(
        LEASES,
        {
            "metadata": {"name": "extender", "namespace": "kube-system"},
            "spec": {"holderIdentity": "gone", "leaseDurationSeconds": 30, "renewTime": "1999-01-01T00:00:00.000000Z"},
        },
    )
    follower = scene.join("a")
    await until(30)
    assert not follower.leading
    assert follower.election.holder == "gone"
    await until(33)
    assert follower.leading


@scene
async def test_what_others_keep_in_the_lease_stays_there(scene: Scene) -> None:
    labels = {"team": "a"}
    scene.storage.create(
        LEASES,
        {
            "metadata": {"name": "extender", "namespace": "kube-system", "labels": labels},
            "spec": {"strategy": "OldestEmulationVersion", "preferredHolder": "x"},
        },
    )
    scene.join("a")
    await until(5)
    lease = scene.storage.get(LEASES, "extender", "kube-system")
    assert lease["metadata"]["labels"] == labels
    assert lease["spec"]["holderIdentity"] == "a"
    assert (lease["spec"]["strategy"], lease["spec"]["preferredHolder"]) == ("OldestEmulationVersion", "x")


@scene
async def test_a_leader_that_sees_another_holder_stops_at_once_and_for_good(scene: Scene) -> None:
    leader = scene.join("a")
    await until(5)
    lease = scene.storage.get(LEASES, "extender", "kube-system")
    scene.storage.update(LEASES, {**lease, "spec": {**lease["spec"], "holderIdentity": "operator"}})
    await until(8)
    assert [what for what, _ in leader.log] == ["started", "stopped"]
    assert leader.task.done()
    assert leader.election.holder == "operator"
    assert scene.record()["holderIdentity"] == "operator"


@scene
async def test_a_leader_whose_name_was_taken_out_does_not_put_it_back(scene: Scene) -> None:
    leader = scene.join("a")
    await until(5)
    lease = scene.storage.get(LEASES, "extender", "kube-system")
    scene.storage.update(LEASES, {**lease, "spec": {**lease["spec"], "holderIdentity": ""}})
    await until(8)
    assert leader.task.done()
    assert scene.record()["holderIdentity"] == ""


@scene
async def test_a_lease_that_was_deleted_is_created_anew(scene: Scene) -> None:
    leader = scene.join("a")
    await until(5)
    scene.storage.delete(LEASES, "extender", "kube-system")
    await until(30)
    assert leader.leading
    assert scene.record()["holderIdentity"] == "a"


@scene
async def test_a_lease_that_somebody_annotates_is_kept(scene: Scene) -> None:
    leader = scene.join("a")
    await until(5)
    lease = scene.storage.get(LEASES, "extender", "kube-system")
    lease["metadata"]["annotations"] = {"note": "hands off"}
    scene.storage.update(LEASES, lease)
    await until(30)
    assert [what for what, _ in leader.log] == ["started"]
    assert leader.election.failures == 0


# --- failures --------------------------------------------------------------------------------------------------------

FAULTS: list[str | int] = ["silent", "refused", "garbage", "lost", 500, 429, 403, 404]


@pytest.mark.parametrize("fault", FAULTS, ids=[f"while requests meet {fault}" for fault in FAULTS])
def test_leadership_ends_in_time_and_waiting_goes_on(fault: str | int) -> None:
    @scene
    async def course(scene: Scene) -> None:
        leader = scene.join("a")
        follower = scene.join("b")
        await until(20)
        leader, follower = (leader, follower) if leader.leading else (follower, leader)
        leader.line.fault = follower.line.fault = fault
        await until(20 + 10)
        assert not leader.leading
        assert [what for what, _ in leader.log] == ["started", "stopped"]
        await until(120)
        assert not follower.task.done()
        assert follower.election.failures > 10
        assert follower.election.problem
        leader.line.fault = follower.line.fault = ""
        await until(150)
        assert follower.leading
        assert follower.election.problem == ""

    course()


@scene
async def test_a_leader_outlives_a_server_that_is_away_for_less_than_the_deadline(scene: Scene) -> None:
    leader = scene.join("a")
    await until(20)
    leader.line.fault = "silent"
    await until(27)
    leader.line.fault = ""
    await until(60)
    assert [what for what, _ in leader.log] == ["started"]
    assert leader.election.failures > 0


@scene
async def test_a_write_that_is_sent_twice_is_recognised_as_our_own(scene: Scene) -> None:
    first = scene.join("a")
    await until(5)
    await first.end()
    second = scene.join("b")
    second.line.fault = "twice"
    await until(7)
    assert second.leading
    await until(60)
    assert [what for what, _ in second.log] == ["started"]
    assert second.election.failures == 0


async def test_a_put_that_the_client_repeats_on_a_broken_connection_does_not_end_the_leading() -> None:
    async with ApiServer() as server:
        client = Client(from_url(server.url))
        election = LeaderElection(client, namespace="default", name="x", identity="a", retry_seconds=0.02)
        ends: list[str] = []
        task = asyncio.create_task(election.run(lambda: None, lambda: ends.append("stopped")))
        await eventually(lambda: election.leading)
        fault = server.faults.add(Fault(method="PUT", cut="after"))
        await eventually(lambda: fault.hits)
        puts = len(server.requests)
        await eventually(lambda: len(server.requests) > puts + 5)
        assert election.leading
        assert ends == []
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await client.close()
        assert ends == ["stopped"]
        assert server.storage.get(LEASES, "x")["spec"]["holderIdentity"] == ""


@scene
async def test_a_process_that_was_frozen_while_it_took_the_lease_tries_again(scene: Scene) -> None:
    frozen_seconds = 0.0
    election = LeaderElection(
        Line(scene.storage),
        namespace="kube-system",
        name="extender",
        identity="a",
        clock=lambda: now() + frozen_seconds,
    )
    task = asyncio.create_task(election.run(lambda: None, lambda: None))
    await until(1.5 * LATENCY_SECONDS)  # the lease is being created
    frozen_seconds = 60.0
    await until(2.5 * LATENCY_SECONDS)
    assert scene.record()["holderIdentity"] == "a"
    leads = [election.leading]
    await until(3)
    assert [*leads, election.leading] == [False, True]
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


@pytest.mark.parametrize("seed", range(12), ids=lambda seed: f"course {seed}")
def test_whatever_happens_to_the_lines_no_two_lead_and_one_leads_in_the_end(seed: int) -> None:
    dice = random.Random(seed)

    @scene
    async def course(scene: Scene) -> None:
        for number in range(3):
            scene.join(f"{seed}-{number}")
        for round_ in range(60):
            candidate = dice.choice(scene.candidates)
            if candidate.task.done() or dice.random() < 0.1:
                await candidate.end()
                scene.candidates.remove(candidate)
                candidate = scene.join(f"{seed}-{round_}-again")
            candidate.line.fault = dice.choice([*FAULTS, "twice", "", "", ""])
            await asyncio.sleep(dice.uniform(0, 12))
        for candidate in scene.candidates:
            candidate.line.fault = ""
            starts = [what for what, _ in candidate.log]
            assert starts in ([], ["started"], ["started", "stopped"])
        scene.join(f"{seed}-last")
        await asyncio.sleep(40)
        assert sum(candidate.leading for candidate in scene.candidates) == 1

    course()


# --- the end ---------------------------------------------------------------------------------------------------------


@scene
async def test_a_leader_that_ends_stops_acting_before_it_gives_the_lease_up(scene: Scene) -> None:
    order: list[str] = []
    line = Line(scene.storage)
    election = LeaderElection(line, namespace="kube-system", name="extender", identity="a", clock=now)
    task = asyncio.create_task(
        election.run(
            lambda: order.append("started"), lambda: order.append(f"stopped while {scene.record()['holderIdentity']}")
        )
    )
    await until(3)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert order == ["started", "stopped while a"]
    assert scene.record()["holderIdentity"] == ""
    assert not election.leading


@scene
async def test_giving_up_takes_no_longer_than_its_limit(scene: Scene) -> None:
    leader = scene.join("a")
    await until(3)
    leader.line.fault = "silent"
    await leader.end()
    assert now() == pytest.approx(3 + 2)
    assert leader.log[-1][0] == "stopped"


@scene
async def test_a_second_cancellation_ends_giving_up(scene: Scene) -> None:
    leader = scene.join("a")
    await until(3)
    leader.line.fault = "silent"
    leader.task.cancel()
    await until(3.5)
    await leader.end()
    assert now() == pytest.approx(3.5)
    assert leader.task.cancelled()


@scene
async def test_a_lease_taken_by_a_write_without_an_answer_is_given_up_as_well(scene: Scene) -> None:
    candidate = scene.join("a")
    candidate.line.fault = "lost"
    await until(LATENCY_SECONDS / 2)
    candidate.line.fault = ""
    await until(1)
    await candidate.end()
    assert scene.record()["holderIdentity"] == ""
    other = scene.join("b")
    other.line.fault = "lost"
    await until(7)
    assert not other.leading
    other.line.fault = ""
    await other.end()
    assert scene.record()["holderIdentity"] == ""


@scene
async def test_a_follower_leaves_the_lease_of_others_alone(scene: Scene) -> None:
    leader = scene.join("a")
    await until(3)
    follower = scene.join("b")
    await until(6)
    await follower.end()
    assert scene.record()["holderIdentity"] == "a"
    assert follower.log == []
    assert leader.leading


@scene
async def test_a_callback_that_fails_ends_the_leading_all_the_same(scene: Scene) -> None:
    def fail() -> None:
        raise ValueError("of the caller")

    ends: list[str] = []
    election = LeaderElection(Line(scene.storage), namespace="kube-system", name="extender", identity="a", clock=now)
    with pytest.raises(ValueError, match="of the caller"):
        await election.run(fail, lambda: ends.append("stopped"))
    assert ends == ["stopped"]
    assert not election.leading


# --- who and where ---------------------------------------------------------------------------------------------------


def test_every_process_has_a_name_of_its_own() -> None:
    assert own_identity() != own_identity()


def test_the_namespace_is_that_of_the_service_account(tmp_path: Path) -> None:
    assert own_namespace(tmp_path) == "default"
    (tmp_path / "namespace").write_text("scheduling\n")
    assert own_namespace(tmp_path) == "scheduling"


# --- the configuration -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        pytest.param(
            ("renewDeadlineSeconds=15",), "leaseDurationSeconds must be > renewDeadlineSeconds (15)", id="renew"
        ),
        pytest.param(("retryPeriodSeconds=9",), "must be > 1.2 * retryPeriodSeconds (9)", id="retry"),
        pytest.param(("leaseDurationSeconds=0",), "leaseDurationSeconds: must be >= 1, got 0", id="no time"),
        pytest.param(("leaseName=A_b",), "leaderElection.leaseName", id="a name that no lease can have"),
    ],
)
def test_times_that_could_make_two_leaders_are_refused(settings: tuple[str, ...], problem: str) -> None:
    with pytest.raises(ConfigurationError, match=re.escape(problem)) as caught:
        load_configuration(environment={}, settings=[f"leaderElection.{setting}" for setting in settings])
    assert str(caught.value).startswith("--set leaderElection")


def test_the_defaults_of_the_class_are_those_of_the_configuration() -> None:
    section = LeaderElectionSection()
    defaults = {name: entry.default for name, entry in inspect.signature(LeaderElection).parameters.items()}
    assert defaults["lease_seconds"] == section.lease_duration_seconds
    assert defaults["renew_seconds"] == section.renew_deadline_seconds
    assert defaults["retry_seconds"] == section.retry_period_seconds
