"""How the service follows a real API server: its lists, its watches, what is quiet, and what it has missed."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator

import pytest

from tests.e2e.control_plane import ControlPlane, control_plane
from tests.e2e.peer import KubeScheduler, Service, delivered
from tests.e2e.process import eventually
from tests.e2e.workload import (
    PODS,
    create_all,
    create_node,
    create_pod,
    delete_pod,
    expect_bound,
    expect_equal_caches,
)

pytestmark = pytest.mark.e2e

SILENCE_SECONDS, STALE_SECONDS = 8, 17
CONFIGURATION = {
    "clientConnection": {"silenceSeconds": SILENCE_SECONDS},
    "cache": {"staleSeconds": STALE_SECONDS},
}
STREAM = "sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true&watch=true&timeoutSeconds=1"


@pytest.fixture(scope="module")
def plane(request: pytest.FixtureRequest) -> Iterator[ControlPlane]:
    with control_plane(request) as plane:
        create_all(plane, create_node, [f"n{number}" for number in range(8)], cpu=64)
        yield plane


@pytest.fixture(scope="module")
def service(plane: ControlPlane) -> Service:
    service = Service(plane)
    service.start(CONFIGURATION)
    return service


def test_the_first_list_is_a_stream_where_the_api_server_has_streams_and_pages_otherwise(
    plane: ControlPlane, service: Service
) -> None:
    """A recent API server has them only with an etcd that is recent as well."""
    has_streams = "k8s.io/initial-events-end" in plane.text(f"/api/v1/nodes?{STREAM}")
    lists = service.metric("api_requests_total", verb="list", resource="nodes")
    assert lists == (0 if has_streams else 1)
    assert service.metric("informer_lists_total", resource="nodes") == 1
    assert service.metric("cache_objects", resource="nodes") == 8


def test_what_does_not_change_is_neither_taken_for_dead_nor_for_old(plane: ControlPlane, service: Service) -> None:
    """An API server sends no bookmarks of what has not changed, as long as its etcd does not report progress."""
    begun = time.monotonic()
    while time.monotonic() < begun + 1.2 * STALE_SECONDS:
        assert service.management("readyz").text == "ok", service.management("readyz?verbose").text
        assert max(service.series("cache_age_seconds")) < SILENCE_SECONDS
        time.sleep(1)  # how often it is looked at
    assert service.metric("informer_failures_total") == 0
    assert service.metric("informer_lists_total", resource="pods") == 1


def test_bookmarks_are_taken_in(plane: ControlPlane, service: Service) -> None:
    """They come shortly before the end of a watch, and only of what has changed since its beginning."""
    numbers = itertools.count()

    def is_marked() -> bool:
        create_pod(plane, f"marked-{next(numbers)}", nodeName="n0")
        return service.metric("informer_events_total", resource="pods", type="BOOKMARK") > 0

    eventually(is_marked, "a bookmark", 20)


def test_what_was_missed_while_it_did_not_run_is_made_up_for_from_a_list(plane: ControlPlane, service: Service) -> None:
    """The version that its watch would go on from is unknown to an API server that has started after it: 410."""
    for number in range(4):
        create_pod(plane, f"early-{number}", nodeName="n1")
    expect_equal_caches(service)
    version = plane.get(f"{PODS}?limit=1")["metadata"]["resourceVersion"]
    with service.program.paused():
        plane.apiserver.kill()  # or what follows would wait in a buffer
        plane.start_apiserver()
        for number in range(3):
            delete_pod(plane, f"early-{number}")
            create_pod(plane, f"late-{number}", nodeName="n2")
        plane.apiserver.kill()
        since = time.monotonic()
        plane.start_apiserver()
        again = f"{PODS}?watch=true&timeoutSeconds=1&resourceVersion={version}"
        eventually(lambda: "too old resource version" in plane.text(again), "that the version is forgotten")
    service.expect_fresh(since)
    expect_equal_caches(service)
    assert service.metric("informer_failures_total", resource="pods", reason="410") >= 1
    assert service.metric("informer_lists_total", resource="pods") >= 2


def test_a_watch_that_fell_behind_by_more_than_the_api_server_remembers_goes_on_from_a_list(
    plane: ControlPlane, service: Service
) -> None:
    """Its connection takes no more while the process is stopped; the API server gives such watchers up."""
    with service.program.paused():
        create_all(plane, annotated_pod, [f"flood-{number}" for number in range(300)])
    service.expect_fresh(time.monotonic())
    expect_equal_caches(service)
    assert service.metric("cache_objects", resource="pods") >= 300


def annotated_pod(plane: ControlPlane, name: str) -> None:
    create_pod(plane, name, nodeName="n3", annotations={"filling": "x" * 30_000})


def test_afterwards_pods_are_placed(plane: ControlPlane, service: Service) -> None:
    KubeScheduler(plane).start(delivered(service.verbs_url))
    pods = [f"afterwards-{number}" for number in range(10)]
    create_all(plane, create_pod, pods)
    expect_bound(plane, *pods)
