"""The port of the verbs over real sockets: status codes, limits, connections, and requests that fail or take long."""

from __future__ import annotations

import http.client
import json
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest

from extender.app import NormalizedPath
from extender.cluster.apiserver import ServerOptions
from extender.config import ServerSection
from extender.server import Serving
from extender.testing import make_node, make_pod
from extender.testing.cluster import RunningService, running_service
from tests.extender.specimen import profile

CASES = Path(__file__).parents[1] / "data" / "cases"
VERBS = ("filter", "prioritize", "bind", "preempt")
POD = make_pod("p")

SPECIMENS = profile(["Broken", "Sleepy", "Labelled"], ["BrokenPriority", "SleepyPriority", "Graded"])
LIMITS = {"maxBodyBytes": 4096, "bodyTimeoutSeconds": 0.3, "deadlineSeconds": 0.3}


@pytest.fixture(scope="module")
def service() -> Iterator[RunningService]:
    """A service with narrow limits and algorithms that fail, or dawdle, for pods that ask for it."""
    with running_service(nodes=[make_node("n1")], configuration={**SPECIMENS, "server": LIMITS}) as running:
        yield running


@pytest.fixture
def connection(service: RunningService) -> Iterator[http.client.HTTPConnection]:
    target = urlsplit(service.url)
    opened = http.client.HTTPConnection(str(target.hostname), target.port, timeout=10)
    yield opened
    opened.close()


def asked(pod: dict[str, Any] = POD) -> dict[str, Any]:
    """A body that is good for filter, prioritize and preempt."""
    return {"Pod": pod, "NodeNames": ["n1"], "NodeNameToMetaVictims": {"n1": {"Pods": [{"UID": "v"}]}}}


def post(service: RunningService, path: str, body: Any) -> httpx.Response:
    return httpx.post(f"{service.url}{path}", content=body if isinstance(body, bytes) else json.dumps(body), timeout=10)


def open_socket(service: RunningService) -> socket.socket:
    target = urlsplit(service.url)
    return socket.create_connection((target.hostname, target.port), timeout=10)


def read_all(opened: socket.socket) -> bytes:
    """Everything up to the end that the server puts to the connection."""
    return b"".join(iter(lambda: opened.recv(65536), b""))


def is_well(service: RunningService) -> bool:
    return bool(post(service, "/filter", asked()).json()["NodeNames"] == ["n1"])


# --- paths and methods -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE", "PATCH", "OPTIONS"])
@pytest.mark.parametrize("verb", VERBS)
def test_another_method_is_told_which_one_to_use(service: RunningService, verb: str, method: str) -> None:
    response = httpx.request(method, f"{service.url}/{verb}")
    assert response.status_code == 405
    assert response.headers["Allow"] == "POST"
    assert response.json() == {"Error": f"/{verb} takes POST, got {method}"}


@pytest.mark.parametrize(
    "path", ["/", "/filters", "/Filter", "/scheduler", "/api/filter", "/filter/x", "/%2e%2e/filter"]
)
def test_another_path_is_told_which_ones_there_are(service: RunningService, path: str) -> None:
    response = post(service, path, asked())
    assert response.status_code == 404
    assert "the verbs are /filter, /bind, /prioritize, /preempt: check urlPrefix" in response.json()["Error"]


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize(
    "form", ["/{}", "//{}", "/{}/", "///{}//", "/scheduler/{}", "/scheduler//{}/", "/{}?timeout=5s"]
)
def test_every_spelling_of_a_path_is_served_without_a_redirect(service: RunningService, form: str, verb: str) -> None:
    response = post(service, form.format(verb), asked())
    assert response.status_code == 200
    assert "Location" not in response.headers


@pytest.mark.parametrize(
    ("prefixes", "path", "folded"),
    [
        ([], "/scheduler/filter", "/scheduler/filter"),
        (["/a", "/a/b"], "/a/b/filter", "/filter"),
        (["/a/"], "//a//filter", "/filter"),
        (["/a"], "/ab/filter", "/ab/filter"),
        (["/"], "/filter", "/filter"),
        (["/a"], "/a", "/a"),
    ],
)
def test_the_longest_configured_prefix_is_taken_off(prefixes: list[str], path: str, folded: str) -> None:
    async def app(*_: object) -> None: ...

    assert NormalizedPath(app, prefixes, {}).fold(path) == folded


# --- framing ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["/filter", "/prioritize", "/bind", "/preempt", "/nothing"])
@pytest.mark.parametrize("body", [b"{}", json.dumps(asked()).encode(), b"x" * 5000], ids=["empty", "good", "too long"])
def test_every_answer_has_its_length_and_is_json(
    connection: http.client.HTTPConnection, path: str, body: bytes
) -> None:
    connection.request("POST", path, body)
    response = connection.getresponse()
    content = response.read()
    assert response.headers["Content-Length"] == str(len(content))
    assert response.headers["Content-Type"] == "application/json"
    assert "Transfer-Encoding" not in response.headers
    json.loads(content)


def test_one_connection_serves_many_requests_failures_included(connection: http.client.HTTPConnection) -> None:
    ports = set()
    for path, body in (("/filter", b"{"), ("/nothing", b"{}"), ("/filter", b"x" * 5000), ("/prioritize", b"{}")) * 3:
        connection.request("POST", path, body)
        assert connection.getresponse().read()
        ports.add(connection.sock.getsockname()[1])
    assert len(ports) == 1


def test_b47_connections_outlive_those_that_go_keeps_idle(service: RunningService) -> None:
    longest = max(json.loads((CASES / "B47-keepalive.json").read_text())["idleBeforeReuseSeconds"])
    assert ServerSection().keep_alive_seconds == 120
    ports = Serving(service.runtime)
    assert ports._server.config.timeout_keep_alive == 120 > 90 > longest


@pytest.mark.parametrize(("verb", "status"), [("filter", 200), ("bind", 200), ("prioritize", 413), ("preempt", 413)])
@pytest.mark.parametrize("chunked", [False, True], ids=["with Content-Length", "in chunks"])
def test_a_body_over_the_cap_is_refused(
    connection: http.client.HTTPConnection, verb: str, status: int, chunked: bool
) -> None:
    body = b" " * 5000
    connection.request(
        "POST", f"/{verb}", iter([body[:3000], body[3000:]]) if chunked else body, encode_chunked=chunked
    )
    response = connection.getresponse()
    assert response.status == status
    text = json.loads(response.read())["Error"]
    assert text.startswith("the body has 5000 bytes, over the cap of 4096; ")
    assert "raise server.maxBodyBytes" in text


def test_a_body_in_chunks_is_read_like_any_other(connection: http.client.HTTPConnection) -> None:
    body = json.dumps(asked()).encode()
    pieces = (body[place : place + 7] for place in range(0, len(body), 7))
    connection.request("POST", "/filter", pieces, encode_chunked=True)
    assert json.loads(connection.getresponse().read())["NodeNames"] == ["n1"]


@pytest.mark.parametrize(("verb", "status"), [("filter", b"200 OK"), ("prioritize", b"408 Request Timeout")])
def test_a_body_that_does_not_arrive_is_given_up(service: RunningService, verb: str, status: bytes) -> None:
    with open_socket(service) as opened:
        opened.sendall(b'POST /%b HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{"Pod":' % verb.encode())
        answer = read_all(opened)  # up to the end: the connection cannot be used any more
    head, _, content = answer.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 " + status)
    assert json.loads(content)["Error"].startswith("the body did not arrive within 0.3 s, only 7 bytes of it; ")
    assert is_well(service)


def test_a_caller_that_hangs_up_within_its_body_does_no_harm(service: RunningService) -> None:
    for _ in range(5):
        with open_socket(service) as opened:
            opened.sendall(b'POST /filter HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{"Pod":')
    service.until(lambda: _counted(service, "filter", "ClientDisconnect") == 5)
    assert is_well(service)


def test_headers_are_read_up_to_64_kilobytes(service: RunningService) -> None:
    for length, status in ((60_000, 200), (66_000, 431)):
        response = httpx.post(f"{service.url}/filter", json=asked(), headers={"X-Long": "x" * length})
        assert response.status_code == status
    assert is_well(service)


@pytest.mark.parametrize(
    "text", [b"hello\r\n\r\n", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"], ids=["text", "TLS"]
)
def test_what_is_no_http_is_refused(service: RunningService, text: bytes) -> None:
    with open_socket(service) as opened:
        opened.sendall(text)
        assert read_all(opened).startswith(b"HTTP/1.1 400 ")
    assert is_well(service)


# --- failures --------------------------------------------------------------------------------------------------------

BROKEN = make_pod("broken", annotations={"break": "yes"})
SLOW = make_pod("slow", annotations={"seconds": "0.4"})

REFUSED = (("filter", 200), ("prioritize", 400), ("preempt", 400))
WRONG_TYPE = "Expected `array | null`, got `int` - at `Pod.spec.tolerations`; send Pod as kube-scheduler encodes it"

NO_QUANTITY = (
    "'q' is not a quantity: write a number, without blanks, followed by nothing, by one of n u m k M G T P E Ki Mi Gi"
    " Ti Pi Ei, or by an exponent such as e3"
)
AMOUNTS = [
    ({"containers": [{}, {"resources": {field: {resource: amount}}}]}, f"Pod.spec.containers[1].resources.{place}")
    for field, resource, amount, place in (
        ("requests", "cpu", "q", f"requests['cpu']: {NO_QUANTITY}"),
        ("requests", "memory", "-1", "requests['memory']: must be 0 or more, got -1"),
        ("limits", "example.com/x", -0.5, "limits['example.com/x']: must be 0 or more, got -0.5"),
    )
] + [
    (
        {"initContainers": [{"resources": {"requests": {"cpu": "-1m"}}}]},
        "Pod.spec.initContainers[0].resources.requests['cpu']: must be 0 or more, got -1m",
    ),
    ({"overhead": {"cpu": "q"}}, f"Pod.spec.overhead['cpu']: {NO_QUANTITY}"),
    (
        {"resources": {"requests": {"memory": "-1Gi"}}},
        "Pod.spec.resources.requests['memory']: must be 0 or more, got -1Gi",
    ),
]
"""What a pod asks for that the API server would refuse, and how that is told."""

PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
WEIGHTS = [
    (
        {"affinity": {affinity: {PREFERRED: [{"weight": 0}, {"weight": -5}]}}},
        f"Pod.spec.affinity.{affinity}.{PREFERRED}[1].weight: must be 1 to 100, got -5",
    )
    for affinity in ("nodeAffinity", "podAffinity", "podAntiAffinity")
]

FAILURES: list[tuple[str, dict[str, Any], int, str]] = [
    ("filter", BROKEN, 200, "Broken: ZeroDivisionError: division by zero nodes"),
    ("prioritize", BROKEN, 500, "BrokenPriority: ZeroDivisionError: division by zero nodes"),
    ("filter", SLOW, 200, "gave up before Labelled: the time kube-scheduler allows has passed"),
    ("prioritize", SLOW, 504, "gave up before Graded: the time kube-scheduler allows has passed"),
    *((verb, {}, status, "Pod.spec: is missing; send the whole Pod object") for verb, status in REFUSED),
    *((verb, {"spec": {"tolerations": 5}}, status, WRONG_TYPE) for verb, status in REFUSED),
    *((verb, {"spec": spec}, status, text) for spec, text in AMOUNTS + WEIGHTS for verb, status in REFUSED),
]


@pytest.mark.parametrize(("verb", "pod", "status", "text"), FAILURES, ids=[f"{f[0]}: {f[3]}" for f in FAILURES])
def test_a_failure_is_told_and_the_next_request_served(
    service: RunningService, verb: str, pod: dict[str, Any], status: int, text: str
) -> None:
    response = post(service, f"/{verb}", asked(pod))
    assert (response.status_code, response.json()["Error"]) == (status, text)
    assert is_well(service)


@pytest.mark.parametrize(("pod", "status"), [(BROKEN, 500), (SLOW, 504)], ids=["an algorithm raises", "time passes"])
def test_a_failure_of_preempt_is_a_status(service: RunningService, pod: dict[str, Any], status: int) -> None:
    victim = service.create_pod(make_pod("victim", node="n1"))
    body = {"Pod": pod, "NodeNameToMetaVictims": {"n1": {"Pods": [{"UID": victim["metadata"]["uid"]}]}}}
    response = post(service, "/preempt", body)
    assert response.status_code == status
    assert response.json()["Error"]
    service.delete_pod(victim)
    assert is_well(service)


@pytest.mark.parametrize(("verb", "status"), [("filter", 200), ("prioritize", 500), ("preempt", 500)])
def test_a_fault_of_the_service_itself_leads_to_its_log(
    service: RunningService, monkeypatch: pytest.MonkeyPatch, verb: str, status: int
) -> None:
    monkeypatch.setattr(service.runtime.service, "check_ready", lambda: 1 / 0)
    response = post(service, f"/{verb}", asked())
    assert response.status_code == status
    assert response.json()["Error"] == "internal error: ZeroDivisionError; the log of the extender says more"
    monkeypatch.undo()
    assert is_well(service)


def test_b51_work_for_a_caller_that_has_hung_up_is_abandoned(service: RunningService) -> None:
    body = json.dumps(asked(SLOW)).encode()
    before = _counted(service, "filter", "DeadlineExceeded")
    with open_socket(service) as opened:
        opened.sendall(b"POST /filter HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body))
    service.until(lambda: _counted(service, "filter", "DeadlineExceeded") == before + 1)
    assert is_well(service)


def test_nothing_is_answered_before_the_first_sync() -> None:
    options = ServerOptions(forbidden={("list", "pods"), ("watch", "pods")})
    with running_service(nodes=[make_node("n1")], options=options, synced=False) as service:
        service.until(lambda: "forbidden" in service.runtime.missing())
        reply = post(service, "/filter", asked()).json()
        assert reply["Error"].startswith("not ready: pods are not synced (pods: ")
        assert (reply["NodeNames"], reply["Nodes"]) == (None, None)
        assert (
            post(service, "/bind", dict.fromkeys(("PodName", "PodNamespace", "PodUID", "Node"), "x")).status_code == 200
        )
        for verb in ("prioritize", "preempt"):
            response = post(service, f"/{verb}", asked())
            assert response.status_code == 503
            assert response.json()["Error"].startswith("not ready: pods are not synced")
        options.forbidden.clear()
        service.until(lambda: not service.runtime.missing(), "the sync that was forbidden before")
        assert is_well(service)


# --- size ------------------------------------------------------------------------------------------------------------


def test_b50_probes_are_answered_while_huge_bodies_are() -> None:
    case = json.loads((CASES / "B50-large-body.json").read_text())
    count = case["generator"]["nodes"] // 4
    filler = "x" * case["generator"]["bytesPerNode"]
    nodes = [make_node(f"n{number}", annotations={"filler": filler}) for number in range(count)]
    body = json.dumps({"Pod": POD, "Nodes": {"items": nodes}}).encode()
    callers = case["concurrent"][0]["n"]
    with running_service() as service, ThreadPoolExecutor(callers) as pool:
        requests = [pool.submit(post, service, "/filter", body) for _ in range(callers)]
        probes = 0
        while not all(request.done() for request in requests):
            assert httpx.get(f"{service.management_url}/livez").text == "ok"
            probes += 1
        assert probes > callers
        for request in requests:
            assert len(request.result().json()["Nodes"]["items"]) == count


def _counted(service: RunningService, verb: str, result: str) -> float:
    sample = service.runtime.metrics.registry.get_sample_value
    return sample("scheduler_extender_requests_total", {"verb": verb, "result": result}) or 0.0
