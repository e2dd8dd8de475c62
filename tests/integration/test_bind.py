"""/bind against an API server that answers, refuses, is slow, breaks off or is away."""

from __future__ import annotations

import asyncio
import itertools
import json
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from extender.cluster.apiserver import Fault, Interruption, ServerOptions
from extender.testing import SchedulerClient, make_node, make_pod
from extender.testing.cluster import RunningService, running_service
from tests.integration.bound import bind

CASES = Path(__file__).parents[1] / "data" / "cases"
BINDING = "/binding$"
SLOW = 60.0
"""Longer than anybody waits."""

PATIENT = {"clientConnection": {"silenceSeconds": 600}}
HASTY = {**PATIENT, "server": {"deadlineSeconds": 1.0, "bodyTimeoutSeconds": 1.0}}

numbers = itertools.count()


@pytest.fixture(scope="module")
def shared() -> Iterator[RunningService]:
    nodes = [make_node("n1", cpu="64"), make_node("n2", cpu="64")]
    with running_service(nodes=nodes, configuration=PATIENT, options=ServerOptions()) as service:
        yield service


@pytest.fixture
def service(shared: RunningService) -> Iterator[RunningService]:
    """A service without faults, and with none of those of the test before."""
    shared.call(shared.api.requests.clear)
    yield shared
    shared.call(shared.api.faults.clear)
    shared.api.options.forbidden.clear()


@pytest.fixture
def deaf() -> Iterator[RunningService]:
    """A service of one node with 4 CPUs that hears no more of pods from its watch."""
    brisk = {**PATIENT, "server": {"deadlineSeconds": 2.0}}
    with running_service(nodes=[make_node("n1", cpu="4")], configuration=brisk) as service:
        deafen(service)
        yield service


def deafen(service: RunningService) -> None:
    assert service.call(service.api.interrupt_watches, Interruption.HANG, "/pods") == 1


def new_pod(service: RunningService, **fields: Any) -> dict[str, Any]:
    """Create a pod of a name not used before, without waiting for the watch."""
    number = next(numbers)
    created: dict[str, Any] = service.call(service.api.storage.create, "pods", make_pod(f"web-{number}", **fields))
    return created


def spoil(service: RunningService, **fault: Any) -> Fault:
    """Have the API server spoil bindings."""
    fields = {"method": "POST", "path": BINDING, **fault}
    added: Fault = service.call(lambda: service.api.faults.add(Fault(**fields)))
    return added


def node_of(service: RunningService, pod: dict[str, Any]) -> str:
    found = service.call(service.api.storage.get, "pods", pod["metadata"]["name"], pod["metadata"]["namespace"])
    return str(found["spec"].get("nodeName", ""))


def asked(service: RunningService, method: str, pod: dict[str, Any]) -> int:
    """How often the API server was asked to bind, or to read, a pod."""
    path = f"/pods/{pod['metadata']['name']}" + ("/binding" if method == "POST" else "")
    return sum(entry.method == method and entry.target.endswith(path) for entry in list(service.api.requests))


def running_requests() -> int:
    """How many requests are being worked on, where this is called on the service's event loop."""
    return sum("run_asgi" in repr(task.get_coro()) for task in asyncio.all_tasks())


def is_assumed(service: RunningService, pod: dict[str, Any]) -> bool:
    return bool(service.call(lambda: pod["metadata"]["uid"] in service.runtime.mirror.assumed))


def refusal(service: RunningService, cpu: str = "3") -> str:
    """Why another pod of so many CPUs does not fit on n1, empty where it does."""
    pod = make_pod(f"probe-{next(numbers)}", requests={"cpu": cpu})
    with service.scheduler() as scheduler:
        return scheduler.filter(pod, [make_node("n1")]).failed.get("n1", "")


# --- success ---------------------------------------------------------------------------------------------------------


def test_a_bound_pod_is_bound_once_and_confirmed_by_the_watch(service: RunningService) -> None:
    pod = new_pod(service)
    assert bind(service, pod) == ""
    assert node_of(service, pod) == "n1"
    service.until(lambda: not service.runtime.mirror.assumed)
    assert bind(service, pod) == ""
    assert asked(service, "POST", pod) == 1


def test_the_uid_of_a_bound_pod_binds_no_pod_of_another_name(service: RunningService) -> None:
    pod = new_pod(service)
    assert bind(service, pod) == ""
    name, uid = pod["metadata"]["name"], pod["metadata"]["uid"]
    other = {"metadata": {**pod["metadata"], "name": "another"}}
    for node in ("n1", "n2"):
        refused = bind(service, other, node)
        assert refused == f"pod default/another is not bound: uid {uid!r} is that of pod default/{name}"
    assert asked(service, "POST", pod) == 1


def test_a_pod_that_nobody_told_of_is_read_first(deaf: RunningService) -> None:
    pod = new_pod(deaf, requests={"cpu": "3"})
    assert bind(deaf, pod) == ""
    assert (asked(deaf, "GET", pod), asked(deaf, "POST", pod)) == (1, 1)
    assert refusal(deaf) == "Insufficient cpu"


def test_a_pod_seen_in_a_filter_request_is_not_read_again(deaf: RunningService) -> None:
    pod = new_pod(deaf, requests={"cpu": "3"})
    with deaf.scheduler() as scheduler:
        assert scheduler.filter(pod, deaf.nodes()).names == ["n1"]
    assert bind(deaf, pod) == ""
    assert (asked(deaf, "GET", pod), asked(deaf, "POST", pod)) == (0, 1)
    assert refusal(deaf) == "Insufficient cpu"


def test_b19_binds_of_many_pods_run_side_by_side(service: RunningService) -> None:
    case = json.loads((CASES / "B19-bind-concurrency.json").read_text())
    pods = [new_pod(service) for _ in range(case["binds"])]
    gate = service.call(asyncio.Event)
    spoil(service, count=None, delay_before=gate)
    timeout = case["httpTimeoutMs"] / 1000

    def bind_one(pod: dict[str, Any]) -> bool:
        meta = pod["metadata"]
        return scheduler.bind(meta["namespace"], meta["name"], meta["uid"], "n1")

    with (
        SchedulerClient(service.url, http_timeout_seconds=timeout) as scheduler,
        ThreadPoolExecutor(len(pods)) as pool,
    ):
        binds = [pool.submit(bind_one, pod) for pod in pods]
        service.until(lambda: sum(entry.method == "POST" for entry in service.api.requests) == len(pods))
        service.call(gate.set)
        assert all(done.result() for done in binds)
    assert all(node_of(service, pod) == "n1" for pod in pods)


# --- reported cases --------------------------------------------------------------------------------------------------

B17_OUTCOME: dict[str, tuple[str, int]] = {
    "already-bound-same-node-same-uid": ("", 1),
    "already-bound-other-node": ("is already bound to node 'n2', not to 'n1'", 1),
    "timeout-then-found-bound": ("", 1),
    "timeout-then-found-unbound": ("", 2),
    "429-then-ok": ("", 2),
    "bind-fails-reservation-rolled-back": ("is not bound: the request was refused on demand", 1),
}
"""Part of the error, and how many bindings are asked for."""

B17 = json.loads((CASES / "B17-bind-idempotent.json").read_text())["cases"]


@pytest.mark.parametrize("case", B17, ids=[f"B17 {case['id'].replace('-', ' ')}" for case in B17])
def test_a_bind_is_idempotent(deaf: RunningService, case: dict[str, Any]) -> None:
    request, answers = case["request"], case["apiserver"]["bindings"]
    pod = new_pod(deaf, uid=request["PodUID"], requests={"cpu": "3"})
    node = case["apiserver"]["pod"]["spec"].get("nodeName", "")
    answer = answers[0] if isinstance(answers, list) else answers
    if answer.startswith("409"):
        deaf.call(deaf.api.storage.update, "pods", {**pod, "spec": {**pod["spec"], "nodeName": node}})
    elif answer == "read timeout":
        spoil(deaf, **({"delay_after": SLOW} if node else {"delay_before": SLOW}))
    elif answer.startswith("429"):
        spoil(deaf, status=429, headers={"Retry-After": "1"})
    else:
        spoil(deaf, status=int(answer))
    error, posts = B17_OUTCOME[case["id"]]
    assert error in (found := bind(deaf, pod, request["Node"]))
    assert bool(found) == bool(error)
    assert asked(deaf, "POST", pod) == posts
    assert is_assumed(deaf, pod) == (not error)
    assert refusal(deaf) == ("" if error else "Insufficient cpu")


B18_ERROR = {
    "recreated-with-same-name": "was replaced: asked for uid 'uid-1', found 'uid-2'",
    "being-deleted": "is being deleted, cannot be assigned to a host",
    "scheduling-gates": "has non-empty .spec.schedulingGates",
    "gone": "is gone: ",
    "uid-empty": "PodUID: is missing",
}

B18 = json.loads((CASES / "B18-bind-uid.json").read_text())["cases"]


@pytest.mark.parametrize("case", B18, ids=[f"B18 {case['id'].replace('-', ' ')}" for case in B18])
def test_a_bind_means_one_pod_and_no_other_of_its_name(deaf: RunningService, case: dict[str, Any]) -> None:
    request, live = case["request"], case["livePod"]
    if live is not None:
        pod = make_pod(live["metadata"]["name"], **live["spec"])
        deaf.call(deaf.api.storage.create, "pods", {**pod, "metadata": {**pod["metadata"], **live["metadata"]}})
    stated = make_pod(request["PodName"], requests={"cpu": "3"})
    stated["metadata"]["uid"] = request["PodUID"]
    for _ in ("as a pod of which nothing is known", "as one that was asked about"):
        assert B18_ERROR[case["id"]] in bind(deaf, stated, request["Node"])
        assert live is None or node_of(deaf, stated) == ""
        with deaf.scheduler() as scheduler:
            assert scheduler.filter(stated, deaf.nodes()).names == ["n1"]  # nothing is counted


def test_b31_a_bind_counts_until_it_fails_or_the_pod_goes() -> None:
    impatient = {"clientConnection": {"silenceSeconds": 1}}
    with running_service(nodes=[make_node("n1", cpu="4")], configuration=impatient) as service:
        first = service.create_pod(make_pod("first", requests={"cpu": "3"}))
        assert refusal(service) == ""
        deafen(service)
        assert bind(service, first) == ""
        assert refusal(service) == "Insufficient cpu"  # although the watch lags
        service.until(lambda: not service.runtime.mirror.assumed, "confirmation by the next watch")
        assert (refusal(service, "1"), refusal(service, "2")) == ("", "Insufficient cpu")  # counted once, not twice
        service.delete_pod(first)
        assert refusal(service) == ""
        spoil(service, status=500)
        third = service.create_pod(make_pod("third", requests={"cpu": "3"}))
        assert "is not bound" in bind(service, third)
        assert refusal(service) == ""


# --- the API server fails --------------------------------------------------------------------------------------------

REFUSALS: dict[str, tuple[dict[str, Any], str, int]] = {
    "forbidden": ({"status": 403}, "is not bound: the request was refused on demand", 0),
    "invalid": ({"status": 422}, "is not bound: the request was refused on demand", 0),
    "an error of the server": ({"status": 500}, "is not bound: the request was refused on demand", 1),
    "a proxy without a server": ({"status": 503, "body": b"<h1>no upstream</h1>"}, "is not bound: <h1>no upstream", 1),
    "a conflict of no known cause": ({"status": 409}, "is not bound: the request was refused on demand", 1),
    "a pod that is gone": ({"status": 404}, "is gone: the request was refused on demand", 0),
    "too many requests, for a minute": (
        {"status": 429, "headers": {"Retry-After": "60"}},
        "(TooManyRequests, 429); gave up within the time kube-scheduler allows",
        0,
    ),
}
"""What the API server does, part of the error, and how often the pod is read to make sure."""


@pytest.mark.parametrize(
    ("fault", "error", "reads"), REFUSALS.values(), ids=[f"the answer is {what}" for what in REFUSALS]
)
def test_a_refused_bind_says_why_and_gives_the_room_back(
    service: RunningService, fault: dict[str, Any], error: str, reads: int
) -> None:
    pod = new_pod(service)
    spoil(service, **fault)
    assert error in bind(service, pod)
    assert (asked(service, "POST", pod), asked(service, "GET", pod)) == (1, reads)
    assert not is_assumed(service, pod)
    assert node_of(service, pod) == ""


def test_a_service_account_without_the_right_to_bind_is_named(service: RunningService) -> None:
    service.api.options.forbidden.add(("create", "pods/binding"))
    assert 'cannot create resource "pods/binding"' in bind(service, new_pod(service))


MENDED: dict[str, tuple[dict[str, Any], int]] = {
    "is broken off before it is done": ({"cut": "before"}, 2),
    "is broken off after it is done": ({"cut": "after"}, 1),
    "is told to wait": ({"status": 429}, 2),
}
"""What happens to the first request, and how many are sent until the pod is bound."""


@pytest.mark.parametrize(("fault", "posts"), MENDED.values(), ids=[f"a request that {what}" for what in MENDED])
def test_a_bind_in_doubt_is_looked_at_and_asked_for_again(
    service: RunningService, fault: dict[str, Any], posts: int
) -> None:
    pod = new_pod(service)
    spoil(service, **fault)
    assert bind(service, pod) == ""
    assert asked(service, "POST", pod) == posts
    assert node_of(service, pod) == "n1"


@pytest.mark.parametrize("status", [429, 500, 503], ids=lambda status: f"the answer is {status}")
def test_a_pod_that_cannot_be_read_at_once_is_asked_for_again(service: RunningService, status: int) -> None:
    pod = new_pod(service)
    spoil(service, cut="after")
    spoil(service, method="GET", path=f"/{pod['metadata']['name']}$", status=status)
    assert bind(service, pod) == ""
    # The second request meets a pod that is bound already.
    assert (asked(service, "POST", pod), asked(service, "GET", pod)) == (2, 2)


def test_a_pod_that_must_not_be_read_leaves_the_outcome_open(service: RunningService) -> None:
    service.api.options.forbidden.add(("get", "pods"))
    pod = new_pod(service)
    spoil(service, cut="before")
    assert 'cannot get resource "pods"' in (error := bind(service, pod))
    assert "cannot be read" in error


def test_an_api_server_that_stays_silent_is_given_up_in_time() -> None:
    with running_service(nodes=[make_node("n1")], configuration=HASTY) as service:
        pod = service.create_pod(make_pod("web"))
        spoil(service, path="/pods/", method=None, count=None, delay_before=SLOW)
        error = bind(service, pod)
        assert "gave up within the time kube-scheduler allows" in error
        assert is_assumed(service, pod)  # it may have been carried out


def test_an_api_server_that_is_away_for_a_moment_does_no_harm() -> None:
    with running_service(nodes=[make_node("n1")]) as service, ThreadPoolExecutor(1) as pool:
        pod = service.create_pod(make_pod("web"))
        service.call(service.api.stop)
        done = pool.submit(bind, service, pod)
        service.until(lambda: pod["metadata"]["uid"] in service.runtime.mirror.assumed)
        service.call(service.api.start)
        assert done.result() == ""
        assert node_of(service, pod) == "n1"


def test_an_api_server_that_stays_away_is_named() -> None:
    with running_service(nodes=[make_node("n1")], configuration=HASTY) as service:
        pod = service.create_pod(make_pod("web"))
        service.call(service.api.stop)
        assert "no connection: " in (error := bind(service, pod))
        assert "gave up within the time kube-scheduler allows" in error


def test_nothing_is_bound_before_the_first_sync() -> None:
    forbidden = ServerOptions(forbidden={("list", "pods"), ("watch", "pods")})
    with running_service(nodes=[make_node("n1")], options=forbidden, synced=False) as service:
        assert "not ready: " in bind(service, new_pod(service))


# --- callers ---------------------------------------------------------------------------------------------------------


def test_calls_for_one_pod_at_the_same_time_share_one_binding(service: RunningService) -> None:
    pod = new_pod(service)
    gate = service.call(asyncio.Event)
    spoil(service, delay_before=gate)
    with ThreadPoolExecutor(5) as pool:
        binds = [pool.submit(bind, service, pod) for _ in range(5)]
        service.until(lambda: running_requests() == 5)
        assert "is being bound to node 'n1'" in bind(service, pod, "n2")
        service.call(gate.set)
        assert [done.result() for done in binds] == [""] * 5
    assert asked(service, "POST", pod) == 1


def test_a_failed_binding_fails_all_calls_that_share_it_and_none_after(service: RunningService) -> None:
    pod = new_pod(service)
    gate = service.call(asyncio.Event)
    spoil(service, delay_before=gate, status=403)
    with ThreadPoolExecutor(3) as pool:
        binds = [pool.submit(bind, service, pod) for _ in range(3)]
        service.until(lambda: running_requests() == 3)
        assert "is being bound to node 'n1'" in bind(service, pod, "n2")  # answered after the three were read
        service.call(gate.set)
        assert all("is not bound" in done.result() for done in binds)
    assert bind(service, pod) == ""
    assert asked(service, "POST", pod) == 2


def test_b51_a_bind_runs_on_when_its_caller_hangs_up(service: RunningService) -> None:
    pod = new_pod(service)
    gate = service.call(asyncio.Event)
    spoil(service, delay_before=gate)
    meta, target = pod["metadata"], urlsplit(service.url)
    body = json.dumps(
        {"PodName": meta["name"], "PodNamespace": meta["namespace"], "PodUID": meta["uid"], "Node": "n1"}
    ).encode()
    with socket.create_connection((target.hostname, target.port)) as caller:
        caller.sendall(b"POST /bind HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body))
        service.until(lambda: bool(asked(service, "POST", pod)))
    service.call(gate.set)
    service.until(lambda: pod["metadata"]["uid"] not in service.runtime.mirror.assumed, "confirmation by the watch")
    assert node_of(service, pod) == "n1"
    assert bind(service, pod) == ""
    assert asked(service, "POST", pod) == 1


def test_a_pod_counts_from_the_call_on(deaf: RunningService) -> None:
    pod = new_pod(deaf, requests={"cpu": "3"})
    gate = deaf.call(asyncio.Event)
    spoil(deaf, delay_before=gate, status=403)
    with ThreadPoolExecutor(1) as pool:
        done = pool.submit(bind, deaf, pod)
        deaf.until(lambda: bool(asked(deaf, "POST", pod)))
        assert refusal(deaf) == "Insufficient cpu"
        deaf.call(gate.set)
        assert "is not bound" in done.result()
    assert refusal(deaf) == ""


def test_an_assumption_that_the_watch_never_confirms_ends() -> None:
    forgetful = {**PATIENT, "cache": {"assumedPodSeconds": 0.1}}
    with running_service(nodes=[make_node("n1", cpu="4")], configuration=forgetful) as service:
        deafen(service)
        pod = new_pod(service, requests={"cpu": "3"})
        assert bind(service, pod) == ""
        service.until(lambda: not service.runtime.mirror.assumed, "the end of the assumption")
        assert refusal(service) == ""
        assert b"scheduler_extender_expired_assumed_pods_total 1.0" in service.runtime.metrics.exposition()


def test_a_pod_whose_binding_is_under_way_does_not_expire() -> None:
    forgetful = {**PATIENT, "cache": {"assumedPodSeconds": 0.001}}
    with running_service(nodes=[make_node("n1", cpu="4")], configuration=forgetful) as service:
        pod = service.create_pod(make_pod("web", requests={"cpu": "3"}))
        gate = service.call(asyncio.Event)
        spoil(service, delay_before=gate)
        with ThreadPoolExecutor(1) as pool:
            done = pool.submit(bind, service, pod)
            service.until(lambda: bool(asked(service, "POST", pod)))
            assert service.call(service.runtime.mirror.expire, float("inf")) == []
            assert refusal(service) == "Insufficient cpu"
            service.call(gate.set)
            assert done.result() == ""
