"""The pages below /debug of the management port: what they show, what they refuse, and what they keep to themselves."""

from __future__ import annotations

import json
import re
import threading
import time
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from extender.cluster.apiserver import Fault
from extender.config import ExtenderConfiguration
from extender.debug import comparison, page
from extender.debug.dump import HIDDEN, configuration_text, plain, without_secrets
from extender.model.object import Taint
from extender.testing import make_node, make_pod
from extender.testing.cluster import RunningService, running_service
from tests.extender.specimen import profile

PAGES = ("pprof", "pprof/profile?seconds=1", "pprof/heap", "pprof/threads", "pprof/tasks", "cache", "config")
DEBUG = {"management": {"debug": True}}
NODES = [make_node(f"n{number}") for number in range(3)]


@pytest.fixture(scope="module")
def service() -> Iterator[RunningService]:
    with running_service(nodes=NODES, configuration=DEBUG) as running:
        running.create_pod(make_pod("placed", node="n1", requests={"cpu": "1"}))
        yield running


def debug(service: RunningService, path: str) -> httpx.Response:
    return httpx.get(f"{service.management_url}/debug/{path}", timeout=30)


def asked(pod: dict[str, Any]) -> str:
    return json.dumps({"Pod": pod, "NodeNames": ["n0", "n1", "n2"]})


def test_without_leave_there_is_no_page() -> None:
    with running_service(nodes=NODES) as closed:
        for path in ("", *PAGES, "cache/compare"):
            assert debug(closed, path).status_code == 404
            assert httpx.get(f"{closed.url}/debug/{path}").status_code == 404


def test_the_port_of_the_verbs_has_none_of_the_pages(service: RunningService) -> None:
    assert httpx.get(f"{service.url}/debug/config").status_code == 404
    assert httpx.post(f"{service.management_url}/debug/config").status_code == 405


@pytest.mark.parametrize("path", ["", "/", "/pprof", "/pprof/"])
def test_the_index_names_every_page(service: RunningService, path: str) -> None:
    answer = httpx.get(f"{service.management_url}/debug{path}")
    assert answer.status_code == 200
    listed = {line.split()[0] for line in answer.text.splitlines()}
    assert listed == {f"/debug/{each.partition('?')[0]}" for each in (*PAGES, "cache/compare")}


def test_another_page_is_told_which_ones_there_are(service: RunningService) -> None:
    answer = debug(service, "pprof/nothing")
    assert answer.status_code == 404
    assert "/debug/pprof/profile" in answer.text


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("pprof/profile?seconds=0", "seconds: must be a whole number from 1 to 300, got 0"),
        ("pprof/profile?seconds=1.5", "seconds: must be a whole number from 1 to 300, got 1.5"),
        ("pprof/profile?seconds=301", "seconds: must be a whole number from 1 to 300, got 301"),
        ("pprof/profile?format=svg", "format: must be collapsed or speedscope, got svg"),
        ("pprof/heap?limit=-1", "limit: must be a whole number from 1 to 10000, got -1"),
        ("cache?maxBytes=x", "maxBytes: must be a whole number from 1024 to 1073741824, got x"),
    ],
)
def test_a_bad_query_is_told_what_is_good(service: RunningService, path: str, text: str) -> None:
    answer = debug(service, path)
    assert answer.status_code == 400
    assert answer.text == f"{text}\n"


# --- profiles and stacks ---------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def busy() -> Iterator[RunningService]:
    """A service that is kept busy by requests for a slow algorithm."""
    with running_service(nodes=NODES, configuration={**profile(["Sleepy"]), **DEBUG}) as running:
        over = threading.Event()

        def call() -> None:
            while not over.is_set():
                httpx.post(f"{running.url}/filter", content=asked(make_pod("p", annotations={"seconds": "0.05"})))

        caller = threading.Thread(target=call)
        caller.start()
        yield running
        over.set()
        caller.join()


def test_a_profile_tells_which_functions_take_the_time(busy: RunningService) -> None:
    answer = debug(busy, "pprof/profile?seconds=1")
    counts = {}
    for line in answer.text.splitlines():
        stack, _, count = line.rpartition(" ")
        counts[stack] = int(count)
    slow = {stack: count for stack, count in counts.items() if stack.endswith(":Sleepy.filter")}
    way = "verbs/filter:answer;framework/nomination:filter_with_nominated;framework/runner:Runner.filter"
    assert slow  # more than one, where a task ended while its stack was read: the outer frames are lost then
    assert all(way in stack for stack in slow)
    others = (count for stack, count in counts.items() if stack not in slow and stack != "(waiting)")
    assert sum(slow.values()) > max(others, default=0)


def test_a_profile_for_speedscope_has_its_shape(busy: RunningService) -> None:
    answer = debug(busy, "pprof/profile?seconds=1&format=speedscope").json()
    (found,) = answer["profiles"]
    frames = answer["shared"]["frames"]
    assert answer["$schema"] == "https://www.speedscope.app/file-format-schema.json"
    assert found["type"] == "sampled"
    assert len(found["samples"]) == len(found["weights"]) > 0
    assert sum(found["weights"]) == pytest.approx(found["endValue"])
    names = {frames[place]["name"] for stack in found["samples"] for place in stack}
    assert any(name.endswith(":Sleepy.filter") for name in names)


def test_one_profile_is_made_at_a_time_and_ends_with_the_service(service: RunningService) -> None:
    answers: list[httpx.Response] = []

    def make() -> None:
        while not answers or answers[-1].status_code == 429:  # the short one may have come first
            answers.append(debug(service, "pprof/profile?seconds=25"))

    first = threading.Thread(target=make)
    first.start()
    until = time.monotonic() + 10
    while (second := debug(service, "pprof/profile?seconds=1")).status_code == 200:
        assert time.monotonic() < until
    assert second.status_code == 429
    assert "another profile or comparison" in second.text
    service.runtime.stopping = True
    first.join(15)
    service.runtime.stopping = False
    assert not first.is_alive()
    assert answers[-1].status_code == 200


def test_threads_and_tasks_show_where_they_are(service: RunningService) -> None:
    threads = debug(service, "pprof/threads").text
    assert "thread management:\n" in threads
    assert "thread_report" in threads
    tasks = debug(service, "pprof/tasks").text
    informer = re.search(r"^task informer pods:\n((?:  .*\n)+)", tasks, re.MULTILINE)
    assert informer is not None
    assert [line.rpartition(" ")[2] for line in informer[1].splitlines()][:3] == [
        "Reflector.run",
        "Reflector._attempt",
        "Reflector._list_by_stream",
    ]


def test_a_stuck_loop_shows_in_the_threads_and_is_told_of_elsewhere(
    service: RunningService, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(page, "_LOOP_SECONDS", 0.2)
    released = threading.Event()

    def get_stuck() -> None:
        released.wait(20)

    stuck = threading.Thread(target=service.call, args=(get_stuck,))
    stuck.start()
    until = time.monotonic() + 10
    while (answer := debug(service, "pprof/tasks")).status_code == 200:
        assert time.monotonic() < until
    threads = debug(service, "pprof/threads").text
    released.set()
    stuck.join()
    assert answer.status_code == 503
    assert answer.text == "the event loop of the verbs gave no turn within 0.2 s: see /debug/pprof/threads\n"
    assert "in get_stuck" in threads


# --- memory ----------------------------------------------------------------------------------------------------------


def test_the_heap_tells_types_and_arrays(service: RunningService) -> None:
    text = debug(service, "pprof/heap?limit=3").text
    assert re.search(r"^resident \d+ KiB$", text, re.MULTILINE)
    assert re.search(r"^ +\d+ RequestedResources$", text, re.MULTILINE)
    assert len(re.findall(r"^ +\d+ \w+\.\S+$", text, re.MULTILINE)) == 3
    assert "PYTHONTRACEMALLOC=1" in text


def test_the_heap_tells_lines_of_code_where_allocations_are_traced(service: RunningService) -> None:
    tracemalloc.start()
    try:
        text = debug(service, "pprof/heap?limit=5").text
    finally:
        tracemalloc.stop()
    assert len(re.findall(r"^ +\d+ +\d+ \S+\.py:\d+$", text, re.MULTILINE)) == 5


# --- caches ----------------------------------------------------------------------------------------------------------


def test_a_dump_has_every_cache_and_what_the_mirror_keeps(service: RunningService) -> None:
    found = debug(service, "cache").json()
    assert set(found["caches"]) == {type(cache).__name__ for cache in service.runtime.mirror.caches}
    assert found["caches"]["RequestedResources"]["n1"]["requested"] == {"cpu": 1000}
    assert found["mirror"]["nodes"] == 3
    assert found["mirror"]["pods"] == 1
    alone = debug(service, "cache?cache=RequestedResources").json()["caches"]
    assert alone == {"RequestedResources": found["caches"]["RequestedResources"]}


def test_a_dump_tells_pods_that_are_assumed_and_nominated(service: RunningService) -> None:
    waiting = {**make_pod("waiting", priority=7), "status": {"nominatedNodeName": "n2"}}
    uid = service.create_pod(waiting)["metadata"]["uid"]
    mirror = service.runtime.mirror
    assumed = service.call(lambda: mirror.reader.placed_on(mirror.by_uid[uid], "n0"))
    service.call(mirror.assume, assumed)
    found = debug(service, "cache?cache=HostPorts").json()["mirror"]
    service.call(mirror.forget, uid)
    service.delete_pod(waiting)
    assert found["assumed"] == [{"pod": "default/waiting", "uid": uid, "node": "n0", "expiresInSeconds": None}]
    assert found["nominated"] == {"n2": [{"pod": "default/waiting", "uid": uid, "priority": 7}]}


def test_a_dump_over_the_cap_leaves_caches_out_and_says_so(service: RunningService) -> None:
    found = debug(service, "cache?maxBytes=1024").json()["caches"]
    left_out = {name for name, state in found.items() if "leftOut" in state}
    assert "CsiNodes" not in left_out
    (state,) = debug(service, "cache?maxBytes=1024&cache=ImageStates").json()["caches"].values()
    assert "leftOut" not in state
    long = make_node("n-long", images={f"registry.example/image-{number}": 1 for number in range(200)})
    service.call(service.api.storage.create, "nodes", long)
    service.until(lambda: "n-long" in service.runtime.mirror.table.index, "the node")
    (state,) = debug(service, "cache?maxBytes=1024&cache=ImageStates").json()["caches"].values()
    service.call(service.api.storage.delete, "nodes", "n-long")
    service.until(lambda: "n-long" not in service.runtime.mirror.table.index, "its end")
    assert re.fullmatch(r"\d+ bytes; ask for it alone with cache=ImageStates, or raise maxBytes", state["leftOut"])


def test_an_unknown_cache_is_told_which_ones_there_are(service: RunningService) -> None:
    answer = debug(service, "cache?cache=Nothing")
    assert answer.status_code == 404
    assert "HostPorts" in answer.text


def test_whatever_a_cache_dumps_becomes_json() -> None:
    state = {("a", 1): {"b", "a"}, 2: (Taint(key="k"), object), "s": frozenset({("x", 2), ("x", 1)})}
    found = plain(state)
    json.dumps(found)
    assert found['["a",1]'] == ["a", "b"]
    assert found["2"] == [{"key": "k", "value": None, "effect": None}, "<class 'object'>"]
    assert found["s"] == [["x", 1], ["x", 2]]


# --- comparison ------------------------------------------------------------------------------------------------------

NOTHING = {"count": 0, "objects": {}}


def test_caches_that_agree_with_the_api_server_are_said_to(service: RunningService) -> None:
    same = {"same": True, "missing": NOTHING, "extra": NOTHING, "outdated": NOTHING}
    assert debug(service, "cache/compare").json() == {"nodes": same, "pods": same}


def test_every_lasting_difference_is_told(service: RunningService, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(comparison, "_PAUSE_SECONDS", 0.05)
    mirror = service.runtime.mirror
    held, lost = mirror.pods["default/placed"], make_pod("lost", node="n2")
    uid = service.create_pod(lost)["metadata"]["uid"]
    version = mirror.pods["default/lost"].resource_version
    older = mirror.reader.read(_decoded(held.key, held.uid, "1", "n0"))
    left_over = mirror.reader.read(_decoded("default/left-over", "uid-9", "3", "n0"))
    service.call(mirror.delete_pod, "default/lost")
    service.call(mirror.upsert_pod, older)
    service.call(mirror.upsert_pod, left_over)
    found = debug(service, "cache/compare").json()
    service.call(mirror.upsert_pod, held)
    service.call(mirror.delete_pod, "default/left-over")
    service.call(service.api.storage.delete, "pods", "lost", "default")
    assert found["nodes"]["same"] is True
    pods = found["pods"]
    assert pods["same"] is False
    listed = {"uid": uid, "resource_version": version, "node": "n2"}
    assert pods["missing"] == {"count": 1, "objects": {"default/lost": {"listed": listed}}}
    extra = {"uid": "uid-9", "resource_version": "3", "node": "n0"}
    assert pods["extra"] == {"count": 1, "objects": {"default/left-over": {"held": extra}}}
    outdated = pods["outdated"]["objects"]["default/placed"]
    assert (outdated["held"]["node"], outdated["listed"]["node"]) == ("n0", "n1")


def _decoded(key: str, uid: str, version: str, node: str) -> Any:
    from extender.model.object import ObjectMeta, Pod, PodSpec  # noqa: PLC0415 - needed by one test

    namespace, _, name = key.partition("/")
    meta = ObjectMeta(name=name, namespace=namespace, uid=uid, resource_version=version)
    return Pod(metadata=meta, spec=PodSpec(node_name=node))


def test_an_api_server_that_refuses_the_list_is_told_of(service: RunningService) -> None:
    service.call(service.api.faults.add, Fault(path="/nodes$", status=500, watch=False))
    answer = debug(service, "cache/compare")
    assert answer.status_code == 502
    assert "refused on demand" in answer.text


def test_lists_are_read_to_their_last_page() -> None:
    configuration = {**DEBUG, "clientConnection": {"pageSize": 2}}
    with running_service(nodes=NODES, configuration=configuration) as paged:
        assert debug(paged, "cache/compare").json()["nodes"]["same"] is True
        lists = [one.target for one in paged.api.requests if one.target.startswith("/api/v1/nodes?limit=2")]
        assert len(lists) == 2
        assert "&continue=" in lists[1]


# --- secrets ---------------------------------------------------------------------------------------------------------

SECRET = "hunter2"


def test_what_sounds_secret_is_hidden_from_the_configuration() -> None:
    tree = {
        "password": SECRET,
        "args": {"apiKey": SECRET, "nested": [{"client_secret": SECRET, "bearerToken": SECRET}]},
        "endpoint": f"https://user:{SECRET}@collector:4318/v1",
        "tokenFile": "/var/run/token",
        "token": "",
        "labelKey": "zone",
        "secret": {"enabled": True},
    }
    found = without_secrets(tree)
    assert SECRET not in json.dumps(found)
    assert found["endpoint"] == f"https://{HIDDEN}@collector:4318/v1"
    assert found["tokenFile"] == "/var/run/token"
    assert (found["token"], found["labelKey"], found["secret"]) == ("", "zone", {"enabled": True})


def test_the_configuration_shown_is_the_one_in_force(service: RunningService) -> None:
    shown = yaml.safe_load(debug(service, "config").text)
    assert ExtenderConfiguration.model_validate(shown) == service.runtime.configuration
    assert shown["management"]["debug"] is True


def test_no_page_shows_a_credential_or_an_argument_that_sounds_secret(tmp_path: Path) -> None:
    configuration: dict[str, Any] = {**profile(["Keyed"], Keyed={"apiToken": SECRET}), **DEBUG}
    with running_service(nodes=NODES, configuration=configuration) as keyed:
        httpx.post(f"{keyed.url}/filter", content=asked(make_pod("p")), headers={"Authorization": f"Bearer {SECRET}"})
        for path in (*PAGES, "cache/compare", "pprof/profile?seconds=1&format=speedscope"):
            answer = debug(keyed, path)
            assert answer.status_code == 200
            assert SECRET not in answer.text
        assert HIDDEN in debug(keyed, "config").text
        assert SECRET not in configuration_text(keyed.runtime.configuration)
