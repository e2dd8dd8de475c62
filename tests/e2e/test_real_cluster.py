"""The service beside a real kube-scheduler and a real API server: what is promised, also when programs die.

Needs a folder with etcd, kube-apiserver and kube-scheduler: ``KUBE_ASSETS=FOLDER make e2e``. The tests share one
cluster and build on one another no further than that; names of pods are never used twice.
"""

from __future__ import annotations

import json
import re
import shutil
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from extender.framework.loader import default_set
from extender.testing import make_node, make_pod
from tests.e2e.control_plane import ACCOUNT, ROOT, ControlPlane, assets
from tests.e2e.process import eventually

pytestmark = pytest.mark.e2e

PREFIX = "scheduler_extender_"
PODS = "/api/v1/namespaces/default/pods"
REASON = "no-luck"
CONFIGURATION = {
    "profiles": [
        {
            "predicates": {
                "enabled": [{"name": name} for name in (*default_set().predicates, "tests.extender.specimen:Labelled")]
            }
        }
    ]
}
"""The default algorithms, and one that refuses nodes by their label ``refuse``."""

GENERAL, SMALL, GUARDED, REFUSED = "general", "small", "guarded", "refused"
NODES = [
    *(make_node(f"general-{number}", cpu=64, labels={"use": GENERAL}) for number in range(4)),
    make_node("small-0", cpu=1, labels={"use": SMALL}),
    make_node("guarded-0", cpu=1, labels={"use": GUARDED, "refuse": REASON}),
    make_node("refused-0", cpu=4, labels={"use": REFUSED, "refuse": REASON}),
]


@pytest.fixture(scope="module")
def plane(request: pytest.FixtureRequest) -> Iterator[ControlPlane]:
    """A cluster with nodes and the service's account, and the service."""
    programs, problem = assets()
    if programs is None:
        pytest.skip(problem)
    directory = Path(tempfile.mkdtemp(prefix="extender-e2e-"))
    failed_before = request.session.testsfailed
    reporter = request.config.pluginmanager.getplugin("terminalreporter")
    kept = f"\nthe logs of all programs are kept in {directory}"
    try:
        with ControlPlane(programs, directory) as plane:
            _furnish(plane)
            plane.start_extender(CONFIGURATION)
            yield plane
    except BaseException:
        reporter.write_line(kept)
        raise
    if request.session.testsfailed > failed_before:
        reporter.write_line(kept)
    else:
        shutil.rmtree(directory)


def _furnish(plane: ControlPlane) -> None:
    for manifest in ("namespace.yaml", "rbac.yaml"):
        plane.apply_manifest(ROOT / "manifests" / "base" / manifest)
    for node in NODES:
        del node["metadata"]["uid"]
        plane.create("/api/v1/nodes", node)
        status = {"status": node["status"]}
        plane.request(
            "PATCH", f"/api/v1/nodes/{node['metadata']['name']}/status", status, "application/merge-patch+json"
        )
    urgent = {
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": {"name": "urgent"},
        "value": 1000,
    }
    plane.create("/apis/scheduling.k8s.io/v1/priorityclasses", urgent)


def create(plane: ControlPlane, name: str, *, use: str = GENERAL, cpu: str = "100m", **spec: Any) -> None:
    """Create a pod for the nodes of one use; it goes at once when it is deleted, since there is no kubelet."""
    pod = make_pod(name, requests={"cpu": cpu}, node_selector={"use": use}, terminationGracePeriodSeconds=0, **spec)
    del pod["metadata"]["uid"], pod["status"]
    plane.create(PODS, pod)


def node_of(plane: ControlPlane, name: str) -> str:
    node: str = plane.get(f"{PODS}/{name}")["spec"].get("nodeName", "")
    return node


def names(plane: ControlPlane) -> set[str]:
    return {pod["metadata"]["name"] for pod in plane.get(PODS)["items"]}


def expect_bound(plane: ControlPlane, *pods: str) -> None:
    for name in pods:
        eventually(lambda name=name: node_of(plane, name), f"the binding of {name}")  # type: ignore[misc]


def messages(plane: ControlPlane, name: str, reason: str) -> list[str]:
    found = plane.get(f"/api/v1/namespaces/default/events?fieldSelector=involvedObject.name={name}")["items"]
    return [event["message"] for event in found if event["reason"] == reason]


def metric(plane: ControlPlane, name: str, **labels: str) -> float:
    """The sum of the series of a metric that have these labels."""
    text = plane.management("metrics").text
    samples = [sample for family in text_string_to_metric_families(text) for sample in family.samples]
    return sum(
        sample.value for sample in samples if sample.name == PREFIX + name and labels.items() <= sample.labels.items()
    )


def successes(plane: ControlPlane) -> Counter[str]:
    """How often the API server carried out a binding, by the name of the pod."""
    events = (event for event in plane.bindings() if event.get("responseStatus", {}).get("code") == 201)
    return Counter(event["objectRef"]["name"] for event in events)


@pytest.fixture
def mode(plane: ControlPlane, request: pytest.FixtureRequest) -> str:
    """What kube-scheduler sends, names of nodes or whole nodes; it is started anew where it sent the other."""
    mode: str = getattr(request, "param", "names")
    if plane.scheduler_mode != mode:
        plane.scheduler.stop()
        plane.start_scheduler(mode)
    return mode


names_mode = pytest.mark.usefixtures("mode")
both_modes = pytest.mark.parametrize("mode", ["names", "nodes"], indirect=True)


# --- placing ---------------------------------------------------------------------------------------------------------


@both_modes
def test_pods_are_placed_and_bound_by_the_service(plane: ControlPlane, mode: str) -> None:
    before = {
        verb: metric(plane, "requests_total", verb=verb, result="ok") for verb in ("filter", "prioritize", "bind")
    }
    pods = [f"{mode}-{number}" for number in range(8)]
    for name in pods:
        create(plane, name)
    expect_bound(plane, *pods)
    for verb, count in before.items():
        assert metric(plane, "requests_total", verb=verb, result="ok") >= count + len(pods), verb
    assert {name: count for name, count in successes(plane).items() if name in pods} == dict.fromkeys(pods, 1)
    eventually(lambda: messages(plane, pods[0], "Bound"), "the event of the service")


@names_mode
def test_the_reason_of_the_service_reaches_the_events_of_the_pod(plane: ControlPlane) -> None:
    create(plane, "unlucky", use=REFUSED)
    eventually(lambda: messages(plane, "unlucky", "FailedScheduling"), "the event")
    told = messages(plane, "unlucky", "FailedScheduling")[0]
    assert re.match(rf"0/{len(NODES)} nodes are available: .*\b1 {REASON}\b", told), told
    assert not node_of(plane, "unlucky")
    plane.request("DELETE", f"{PODS}/unlucky")


# --- preemption ------------------------------------------------------------------------------------------------------


@both_modes
def test_preemption_asks_the_service_and_makes_room(plane: ControlPlane, mode: str) -> None:
    before = metric(plane, "requests_total", verb="preempt", result="ok")
    victims, urgent = [f"{mode}-victim-{number}" for number in range(2)], f"{mode}-urgent"
    for name in victims:
        create(plane, name, use=SMALL, cpu="500m")
    expect_bound(plane, *victims)
    create(plane, urgent, use=SMALL, cpu="1", priorityClassName="urgent")
    expect_bound(plane, urgent)
    assert node_of(plane, urgent) == "small-0"
    assert not names(plane) & set(victims)
    assert metric(plane, "requests_total", verb="preempt", result="ok") > before
    plane.request("DELETE", f"{PODS}/{urgent}")


@both_modes
def test_no_pod_is_evicted_where_the_service_refuses_all_the_same(plane: ControlPlane, mode: str) -> None:
    before = metric(plane, "requests_total", verb="preempt", result="ok")
    resident, barred = f"{mode}-resident", f"{mode}-barred"
    create(plane, resident, use=GUARDED, cpu="1", nodeName="guarded-0")
    create(plane, barred, use=GUARDED, cpu="1", priorityClassName="urgent")
    eventually(
        lambda: metric(plane, "requests_total", verb="preempt", result="ok") > before, "a question about preemption"
    )
    eventually(lambda: messages(plane, barred, "FailedScheduling"), "the event")
    assert resident in names(plane)
    assert not node_of(plane, barred)
    for name in (resident, barred):
        plane.request("DELETE", f"{PODS}/{name}")


# --- failures --------------------------------------------------------------------------------------------------------


@names_mode
def test_while_the_api_server_is_away_the_service_answers_and_afterwards_binds(plane: ControlPlane) -> None:
    process = plane.extender.pid
    plane.apiserver.stop()
    assert plane.management("livez").text == "ok"
    assert plane.management("readyz").text == "ok"
    body = json.dumps({"Pod": make_pod("asked", requests={"cpu": "1"}), "NodeNames": ["general-0", "refused-0"]})
    reply = httpx.post(f"{plane.verbs_url}/filter", content=body, timeout=10, trust_env=False).json()
    assert (reply["NodeNames"], reply["FailedNodes"]) == (["general-0"], {"refused-0": REASON})
    eventually(lambda: "no connection" in plane.management("readyz?verbose").text, "the reason")
    plane.start_apiserver()
    pods = [f"after-apiserver-{number}" for number in range(4)]
    for name in pods:
        create(plane, name)
    expect_bound(plane, *pods)
    assert not plane.extender.has_ended()
    assert plane.extender.pid == process


@names_mode
def test_after_a_crash_of_the_api_server_pods_are_bound(plane: ControlPlane) -> None:
    pods = [f"around-crash-{number}" for number in range(10)]
    for name in pods:
        create(plane, name)
    plane.apiserver.kill()
    plane.start_apiserver()
    expect_bound(plane, *pods)


@names_mode
def test_after_a_restart_of_etcd_pods_are_bound(plane: ControlPlane) -> None:
    plane.etcd.stop()
    plane.start_etcd()
    eventually(plane.is_well, "readiness of the API server")
    pods = [f"after-etcd-{number}" for number in range(4)]
    for name in pods:
        eventually(lambda name=name: create(plane, name) or True, f"the pod {name}")  # type: ignore[misc]
    expect_bound(plane, *pods)


@names_mode
def test_a_service_that_is_killed_while_it_binds_goes_on_where_it_was(plane: ControlPlane) -> None:
    pods = [f"around-kill-{number}" for number in range(30)]
    for name in pods:
        create(plane, name)
    eventually(lambda: successes(plane).keys() & set(pods), "the first binding")
    plane.extender.kill()
    plane.restart_extender()
    expect_bound(plane, *pods)


@names_mode
def test_a_service_that_is_told_to_stop_ends_well(plane: ControlPlane) -> None:
    assert plane.extender.stop() == 0
    plane.restart_extender()
    create(plane, "after-stop")
    expect_bound(plane, "after-stop")


# --- what holds at the end -------------------------------------------------------------------------------------------


def test_no_pod_was_bound_twice_and_none_by_another(plane: ControlPlane) -> None:
    twice = {name: count for name, count in successes(plane).items() if count > 1}
    assert not twice
    assert {event["user"]["username"] for event in plane.bindings()} == {ACCOUNT}


def test_no_node_has_more_than_it_can_hold(plane: ControlPlane) -> None:
    millis: Counter[str] = Counter()
    for pod in plane.get(PODS)["items"]:
        cpu = pod["spec"]["containers"][0]["resources"]["requests"]["cpu"]
        millis[pod["spec"].get("nodeName", "")] += int(cpu[:-1]) if cpu.endswith("m") else int(cpu) * 1000
    for node in NODES:
        assert millis[node["metadata"]["name"]] <= int(node["status"]["allocatable"]["cpu"]) * 1000


def test_the_caches_agree_with_the_api_server(plane: ControlPlane) -> None:
    report = plane.management("debug/cache/compare").json()
    assert {kind: found["same"] for kind, found in report.items()} == {"nodes": True, "pods": True}, report


def test_the_rights_of_the_manifests_suffice(plane: ControlPlane) -> None:
    assert metric(plane, "api_requests_total") > 0
    assert metric(plane, "api_requests_total", code="403") == 0
    assert metric(plane, "api_requests_total", code="401") == 0
    log = plane.extender.log.read_text()
    assert "forbidden" not in log.lower()
