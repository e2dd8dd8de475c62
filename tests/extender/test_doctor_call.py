"""What the doctor says of extenders that it calls over real connections."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from extender.errors import ConfigurationError
from extender.registration.finding import Severity
from extender.testing import CannedServer, Reply
from tests.extender.authority import Authority
from tests.extender.examined import GOOD, KEPT, SCORED, configuration, examine, found, wrong

CASES = Path(__file__).parents[1] / "data" / "cases"

ONLY = {
    "filter": GOOD | {"prioritizeVerb": "", "preemptVerb": ""},
    "prioritize": GOOD | {"filterVerb": "", "preemptVerb": ""},
    "preempt": GOOD | {"filterVerb": "", "prioritizeVerb": ""},
}
"""Extenders that serve one verb."""

NODES = ("scheduler-extender-doctor-1", "scheduler-extender-doctor-2")


def reply(value: Any) -> Reply:
    return Reply(value if isinstance(value, bytes) else json.dumps(value).encode())


@contextmanager
def closed_port() -> Iterator[str]:
    """Yield a URL at which nobody listens, as long as nobody else takes the port."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield f"http://127.0.0.1:{taken.getsockname()[1]}"


def only(verb: str, server: str, **fields: Any) -> dict[str, Any]:
    return configuration({**ONLY[verb], "urlPrefix": server, **fields})


def test_an_extender_that_answers_well_has_no_findings_and_is_never_asked_to_bind(tmp_path: Path) -> None:
    replies = (Reply(KEPT), Reply(SCORED), Reply(b'{"NodeNameToMetaVictims":{}}'))
    with CannedServer(*replies) as server:
        report = examine(tmp_path, configuration({**GOOD, "bindVerb": "bind", "urlPrefix": server.url + "/x/"}))
        requests = {request.target: json.loads(request.body) for request in server.received}
    assert not wrong(report), report.as_text()
    assert report.is_healthy
    assert list(requests) == ["/x/filter", "/x/prioritize", "/x/preempt"]
    assert requests["/x/filter"]["NodeNames"] == list(NODES)
    assert requests["/x/filter"]["Nodes"] is None
    assert requests["/x/preempt"]["NodeNameToMetaVictims"] == {}
    assert report.looked_at[1:] == [f"{server.url}/x/{verb}" for verb in ("filter", "prioritize", "preempt")]


def test_the_probe_names_the_resource_that_the_extender_manages(tmp_path: Path) -> None:
    with CannedServer(Reply(KEPT)) as server:
        examine(tmp_path, only("filter", server.url, managedResources=[{"name": "example.com/gpu"}]))
        (request,) = server.received
    (container,) = json.loads(request.body)["Pod"]["spec"]["containers"]
    assert container["resources"]["limits"] == {"example.com/gpu": "1"}


# --- B10 -------------------------------------------------------------------------------------------------------------

SCENARIOS = {
    scenario["id"]: scenario for scenario in json.loads((CASES / "B10-unreachable.json").read_text())["scenarios"]
}
CONSEQUENCES = {
    "filter-down": ("error", "urlPrefix", "no pod is scheduled"),
    "filter-down-ignorable": ("error", "urlPrefix", "goes on without this extender"),
    "filter-error-string-ignorable": ("warning", "filterVerb", "which ignorable: true makes count as consent"),
    "prioritize-timeout": ("error", "prioritizeVerb", "its scores are left out, in silence"),
    "bind-timeout-ignorable": ("warning", "ignorable", "the default binder binds the pod"),
    "preempt-error": ("error", "preemptVerb", "answers 500, and kube-scheduler throws the text away"),
    "preempt-error-ignorable": ("error", "preemptVerb", "answers 500, and kube-scheduler throws the text away"),
}
ELSEWHERE = {
    "bind-timeout": "a bind that is not ignorable fails as it should, and is never tried here",
    "own-pod": "needs a cluster: test_doctor_cluster",
    "order": "test_the_order_of_calls_is_told",
}


def answer_of(event: str) -> Reply:
    if event.startswith("200 "):
        return Reply(event.removeprefix("200 ").encode())
    return Reply(b"database away", status=500) if event == "500" else Reply(stall=True)


def test_every_scenario_is_known() -> None:
    assert SCENARIOS.keys() == CONSEQUENCES.keys() | ELSEWHERE.keys()


@pytest.mark.parametrize("case", [pytest.param(case, id=f"B10 {case.replace('-', ' ')}") for case in CONSEQUENCES])
def test_the_consequence_of_a_failure_is_told(tmp_path: Path, case: str) -> None:
    scenario = SCENARIOS[case]
    severity, key, text = CONSEQUENCES[case]
    verb, ignorable = scenario["verb"], scenario["ignorable"]
    with closed_port() as closed, CannedServer(answer_of(scenario["event"])) as server:
        url = closed if scenario["event"] == "connection refused" else server.url
        entry = {"urlPrefix": url, "ignorable": ignorable, "httpTimeout": "200ms"}
        fields = ONLY.get(verb, {**ONLY["filter"], "filterVerb": "", "bindVerb": "bind"})
        report = examine(tmp_path, configuration({**fields, **entry}))
    finding = found(report, f"extenders[0].{key}", text)
    assert finding.severity == severity
    assert not report.is_healthy


def test_the_order_of_calls_is_told(tmp_path: Path) -> None:
    ignorable = [text.endswith("true") for text in SCENARIOS["order"]["config"]]
    assert ignorable == [True, False]
    with CannedServer(Reply(KEPT)) as server:
        entries = [{**ONLY["filter"], "urlPrefix": server.url, "ignorable": value} for value in ignorable]
        report = examine(tmp_path, configuration(*entries))
    assert found(report, "extenders[0].ignorable", "it is called after extenders[1]").severity is Severity.NOTE


@pytest.mark.parametrize(
    ("url", "problem"),
    [
        ("http://no-such-host.invalid:8888", "the name no-such-host.invalid does not resolve"),
        ("http://255.255.255.255:1", "no connection"),
    ],
    ids=["a name that does not resolve", "an address without a route"],
)
def test_an_address_that_leads_nowhere_is_an_error(tmp_path: Path, url: str, problem: str) -> None:
    assert found(examine(tmp_path, only("filter", url)), "extenders[0].urlPrefix", problem).severity is Severity.ERROR


@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        (Reply(hang_up=True), "no answer: Server disconnected without sending a response."),
        (Reply(stall=True), "no answer within 0."),
        (Reply(KEPT, pace_seconds=0.05), "no answer within"),
        (Reply(b"no gzip", headers={"Content-Encoding": "gzip"}), "no answer: Error -3 while decompressing"),
    ],
    ids=["hanging up", "never answering", "answering too slowly", "answering rubbish"],
)
def test_no_answer_is_an_error(tmp_path: Path, answer: Reply, problem: str) -> None:
    with CannedServer(answer) as server:
        report = examine(tmp_path, only("filter", server.url, httpTimeout="300ms"))
    assert found(report, "extenders[0].filterVerb", problem).severity is Severity.ERROR


# --- B13 and statuses ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "case",
    [
        pytest.param(case, id=f"B13 {case['id'].replace('-', ' ')}")
        for case in json.loads((CASES / "B13-url-joining.json").read_text())["replies"]
    ],
)
def test_urls_are_joined_as_kube_scheduler_joins_them(tmp_path: Path, case: dict[str, Any]) -> None:
    expected = (CASES / "B13-url-joining.expected.txt").read_text().partition("Per case:\n")[2].splitlines()
    line = expected[[text.partition(":")[0] for text in expected].index(case["id"]) + 1 :][:1]
    seen = line[0].removeprefix("path seen: ") if line and line[0].startswith("path seen") else "/filter"
    with CannedServer(Reply(KEPT)) as server:
        report = examine(tmp_path, only("filter", server.url + case["urlSuffix"]))
        assert server.received[0].target.partition("?")[0] == seen
    if "?" in case["urlSuffix"]:
        assert found(report, "extenders[0].urlPrefix", "what follows ? takes the verb along").severity is Severity.ERROR
    else:
        assert not wrong(report)


@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        (Reply(b"no such page", status=404), "answers 404, so the path is wrong: no such page"),
        (Reply(status=405), "answers 405, so the path is wrong"),
        (Reply(status=403), "answers 403: kube-scheduler can present a certificate only"),
        (Reply(b"boom " * 100, status=500), "throws the text away: boom boom"),
        (Reply(status=204), "answers 204, and kube-scheduler throws the text away"),
        (
            Reply(status=307, headers={"Location": "/filter/"}),
            "answers 307 and leads to /filter/: each call is made twice",
        ),
        (Reply(status=301, headers={"Location": "/x"}), "answers 301 and leads to /x: the second request is a GET"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_status_other_than_200_is_an_error(tmp_path: Path, answer: Reply, problem: str) -> None:
    with CannedServer(answer) as server:
        report = examine(tmp_path, only("filter", server.url))
    assert found(report, "extenders[0].filterVerb", problem).severity is Severity.ERROR


def test_the_place_where_a_verb_is_served_instead_is_found(tmp_path: Path) -> None:
    with CannedServer(Reply(status=404), Reply(status=404), Reply(KEPT)) as server:
        report = examine(tmp_path, only("filter", f"{server.url}/schedulr"))
        tried = [request.target for request in server.received]
    assert tried == ["/schedulr/filter", "/scheduler/filter", "/filter"]
    finding = found(report, "extenders[0].filterVerb", "answers 404")
    assert finding.remedy.startswith(
        f"{server.url}/filter answers: write urlPrefix: {server.url} and filterVerb: filter"
    )


# --- replies ---------------------------------------------------------------------------------------------------------

FIRST, SECOND = NODES
REASON = "no room"


@pytest.mark.parametrize(
    ("answer", "severity", "problem"),
    [
        ({"Error": "cache not synced"}, "error", "the call fails: cache not synced"),
        ({"NodeNames": [FIRST, SECOND, "other"]}, "error", 'claims a filtered node "other"'),
        (b"{", "error", "kube-scheduler cannot read the reply, and the call fails"),
        ([], "error", "kube-scheduler cannot read the reply, and the call fails"),
        ({"NodeNames": [FIRST]}, "warning", f"neither keeps {SECOND} nor refuses with a reason"),
        ({"NodeNames": None}, "warning", f"neither keeps {FIRST}, {SECOND} nor refuses"),
        ({"NodeNames": [FIRST, SECOND, FIRST]}, "warning", f"names {FIRST} more than once"),
        (
            {"NodeNames": [FIRST], "FailedNodes": {SECOND: f"{SECOND} is full"}},
            "warning",
            f"the reason '{SECOND} is full' names its node",
        ),
        (
            {"NodeNames": [FIRST, SECOND], "FailedNode": {}},
            "warning",
            "keys that kube-scheduler does not read: FailedNode",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_filter_replies_are_judged(tmp_path: Path, answer: Any, severity: str, problem: str) -> None:
    with CannedServer(reply(answer)) as server:
        report = examine(tmp_path, only("filter", server.url))
    assert found(report, "extenders[0].filterVerb", problem).severity == severity
    assert len(wrong(report)) == 1


@pytest.mark.parametrize(
    "answer",
    [
        {"NodeNames": [], "FailedNodes": {FIRST: REASON}, "FailedAndUnresolvableNodes": {SECOND: REASON}},
        {"nodenames": [SECOND, FIRST], "error": ""},
    ],
    ids=["all refused with reasons", "keys in lower case"],
)
def test_good_filter_replies_pass(tmp_path: Path, answer: Any) -> None:
    with CannedServer(reply(answer)) as server:
        assert not wrong(examine(tmp_path, only("filter", server.url)))


def test_whole_nodes_in_reply_to_names_are_a_warning(tmp_path: Path) -> None:
    items = [{"metadata": {"name": name}} for name in NODES]
    with CannedServer(reply({"Nodes": {"items": items}})) as server:
        report = examine(tmp_path, only("filter", server.url))
    assert found(report, "extenders[0].filterVerb", "answers whole nodes although").severity is Severity.WARNING


def test_nodes_that_do_not_come_back_whole_are_a_warning(tmp_path: Path) -> None:
    with CannedServer(reply({"Nodes": {"items": [{"metadata": {"name": name}} for name in NODES]}})) as server:
        report = examine(tmp_path, only("filter", server.url, nodeCacheCapable=False))
        items = json.loads(server.received[0].body)["Nodes"]["items"]
    found(report, "extenders[0].filterVerb", f"does not send {FIRST}, {SECOND} back unchanged")
    with CannedServer(reply({"Nodes": {"items": [{**item, "more": {}} for item in items]}})) as server:
        report = examine(tmp_path, only("filter", server.url, nodeCacheCapable=False))
    assert [finding.path for finding in wrong(report)] == ["extenders[0].nodeCacheCapable"]


@pytest.mark.parametrize(
    ("answer", "severity", "problem"),
    [
        ([{"Host": FIRST, "Score": 5.5}, {"Host": SECOND, "Score": 1}], "error", "drops all its scores, in silence"),
        ([{"Host": FIRST, "Score": "5"}, {"Host": SECOND, "Score": 1}], "error", "drops all its scores, in silence"),
        ([{"Host": FIRST, "Score": -1}, {"Host": SECOND, "Score": 11}], "warning", f"0 to 10: {FIRST} -1, {SECOND} 11"),
        ([{"Host": FIRST, "Score": 1}], "warning", f"gives no score to {SECOND}"),
        (None, "warning", f"gives no score to {FIRST}, {SECOND}"),
        (
            [{"Host": name, "Score": 1} for name in (*NODES, "other")],
            "warning",
            "scores other, which it was not asked about: ignored",
        ),
        ([{"Host": name, "Score": 1} for name in (*NODES, FIRST)], "warning", f"scores {FIRST} more than once"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_prioritize_replies_are_judged(tmp_path: Path, answer: Any, severity: str, problem: str) -> None:
    with CannedServer(reply(answer)) as server:
        report = examine(tmp_path, only("prioritize", server.url))
    assert found(report, "extenders[0].prioritizeVerb", problem).severity == severity
    assert len(wrong(report)) == 1


@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        ({"NodeNameToMetaVictims": {"n1": None}}, "names what it was not asked about"),
        ({"NodeNameToMetaVictims": []}, "kube-scheduler cannot read the reply"),
        ({"NodeNameToVictims": {}}, "keys that kube-scheduler does not read: NodeNameToVictims"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_preempt_replies_are_judged(tmp_path: Path, answer: Any, problem: str) -> None:
    with CannedServer(reply(answer)) as server:
        report = examine(tmp_path, only("preempt", server.url))
    found(report, "extenders[0].preemptVerb", problem)


# --- connections -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("headers", "problem"),
    [
        ({"Connection": "close"}, "closes the connection after each call"),
        ({"Keep-Alive": "timeout=5, max=100"}, "closes idle connections after 5 s, as its Keep-Alive header says"),
        ({"Keep-Alive": "timeout=120"}, ""),
    ],
    ids=["closed at once", "announced to be short", "announced to be long"],
)
def test_headers_that_end_connections_are_a_warning(tmp_path: Path, headers: dict[str, str], problem: str) -> None:
    with CannedServer(Reply(KEPT, headers=headers)) as server:
        report = examine(tmp_path, only("filter", server.url))
    assert [problem in finding.problem for finding in wrong(report)] == [True] * bool(problem)


class Impatient:
    """A server that answers every request with ``KEPT`` and closes connections that were idle for a while."""

    def __init__(self, idle_seconds: float) -> None:
        self._idle_seconds = idle_seconds
        self._socket = socket.create_server(("127.0.0.1", 0))
        self._threads: list[threading.Thread] = []
        self.url = f"http://127.0.0.1:{self._socket.getsockname()[1]}"

    def __enter__(self) -> Impatient:
        self._start(self._accept)
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        for thread in self._threads:
            thread.join()

    def _start(self, work: Any, *args: Any) -> None:
        thread = threading.Thread(target=work, args=args)
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._socket.accept()
            except OSError:
                return
            self._start(self._serve, connection)

    def _serve(self, connection: socket.socket) -> None:
        with connection:
            connection.settimeout(self._idle_seconds)
            data = b""
            while True:
                try:
                    chunk = connection.recv(65536)
                except (TimeoutError, ConnectionError):
                    return
                if not chunk:
                    return
                data += chunk
                if data.endswith((b"}", b"\r\n\r\n")):
                    data = b""
                    connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(KEPT), KEPT))


@pytest.mark.parametrize(("idle_seconds", "is_found"), [(0.3, True), (60.0, False)], ids=["too short", "long enough"])
def test_a_connection_that_is_closed_while_idle_is_a_warning(
    tmp_path: Path, idle_seconds: float, is_found: bool
) -> None:
    with Impatient(idle_seconds) as server:
        report = examine(tmp_path, only("filter", server.url), idle_seconds=2.0 if is_found else 0.2)
    assert ["closes idle connections after 0." in finding.problem for finding in wrong(report)] == [True] * is_found


# --- another address -------------------------------------------------------------------------------------------------


def test_calls_go_to_another_address_under_the_path_and_the_host_of_the_file(tmp_path: Path) -> None:
    tree = only("filter", "http://extender.invalid:1234/scheduler")
    with CannedServer(Reply(KEPT)) as server:
        report = examine(tmp_path, tree, extender_urls=[server.url])
        (request,) = server.received
    assert not wrong(report)
    assert request.target == "/scheduler/filter"
    assert "Host: extender.invalid:1234" in request.head


@pytest.mark.parametrize(
    ("urls", "problem"),
    [
        (["http://a", "http://b"], "--extender-url: is given 2 times, but the file has 1 extenders"),
        (["http://a/scheduler"], "the path is that of urlPrefix"),
        (["a:80"], "is no address"),
    ],
    ids=["more than extenders", "with a path", "without a scheme"],
)
def test_an_address_that_cannot_be_used_is_refused(tmp_path: Path, urls: list[str], problem: str) -> None:
    with pytest.raises(ConfigurationError) as raised:
        examine(tmp_path, only("filter", "http://h"), extender_urls=urls)
    assert problem in str(raised.value)


# --- B15 -------------------------------------------------------------------------------------------------------------


def test_when_a_refused_pod_is_tried_again_is_told(tmp_path: Path) -> None:
    timeline = json.loads((CASES / "B15-requeue.json").read_text())["timeline"]
    assert "no Kubernetes object changes" in timeline[1]["event"]
    with CannedServer(Reply(KEPT)) as server:
        report = examine(tmp_path, only("filter", server.url))
    finding = found(report, "extenders[0].filterVerb", "is tried again when anything in the cluster changes")
    assert finding.severity is Severity.NOTE
    assert "otherwise after five minutes" in finding.problem
    assert "an annotation of a node" in finding.remedy


# --- oddities --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "url",
    [
        "http://exämple.invalid",
        f"http://{'x' * 70}.invalid",
        "http://[::1",
        "http://h:port",
        "https://.x",
        "http://h\tx/",
        "http://",
        "ftp://h",
        "http://127.0.0.1:1/ä b%zz",
    ],
)
def test_an_odd_url_is_an_error_and_not_the_end(tmp_path: Path, url: str) -> None:
    report = examine(tmp_path, only("filter", url, enableHTTPS=True, tlsConfig={"serverName": "."}))
    assert "extenders[0].urlPrefix" in [finding.path for finding in wrong(report)]


@pytest.mark.parametrize("name", [".x", "ä..b", "x" * 300])
def test_an_odd_server_name_is_an_error_and_not_the_end(tmp_path: Path, name: str) -> None:
    with CannedServer(Reply(KEPT), tls=Authority("servers").server_context()) as server:
        report = examine(tmp_path, only("filter", server.url, tlsConfig={"serverName": name}))
    assert wrong(report)[0].severity is Severity.ERROR
