"""The ports over TLS: who is let in, what callers are told, and certificates that change while requests are served."""

from __future__ import annotations

import json
import socket
import ssl
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest

from extender.testing import make_node, make_pod
from extender.testing.cluster import RunningService, running_service
from extender.testing.failure import ExtenderCallError
from extender.testing.scheduler import SchedulerClient
from tests.extender.authority import Authority
from tests.extender.secret_volume import SecretVolume
from tests.integration.served import until

CASES = Path(__file__).parents[1] / "data" / "cases"
POD = make_pod("p")
NODES = [make_node("n1"), make_node("n2")]
SERVERS, CALLERS, OTHERS = Authority("servers"), Authority("callers"), Authority("others")
KUBE_SCHEDULER = CALLERS.issue("system:kube-scheduler", dns="scheduler")

Pair = tuple[bytes, bytes]


class Served:
    """A service over TLS, and the volume its certificates are in."""

    def __init__(self, service: RunningService, volume: SecretVolume) -> None:
        self.service = service
        self.volume = volume
        self.address = (urlsplit(service.url).hostname, urlsplit(service.url).port)

    def metric(self, name: str, **labels: str) -> float:
        value = self.service.runtime.metrics.registry.get_sample_value(f"scheduler_extender_{name}", labels)
        return value or 0.0

    def count(self, port: str, reason: str) -> float:
        return self.metric("closed_connections_total", port=port, reason=reason)

    def rotate(self, *, result: str = "ok", **files: bytes) -> None:
        """Replace files and wait until the service has looked at them."""
        before = self.metric("certificate_reloads_total", port="server", result=result)
        self.volume.put(**files)
        self.service.until(
            lambda: self.metric("certificate_reloads_total", port="server", result=result) > before, "the reload"
        )

    @contextmanager
    def connection(self, context: ssl.SSLContext, **options: Any) -> Iterator[ssl.SSLSocket]:
        with (
            socket.create_connection(self.address, timeout=10) as plain,
            context.wrap_socket(plain, server_hostname="localhost", **options) as opened,
        ):
            yield opened

    def serial(self) -> str:
        """The serial number of the certificate that a new connection gets to see."""
        with self.connection(trusting(SERVERS)) as opened:
            return str((opened.getpeercert() or {})["serialNumber"])


@contextmanager
def serving_tls(
    tmp_path: Path, *, mutual: bool = False, management: bool = False, limits: dict[str, Any] | None = None, **tls: Any
) -> Iterator[Served]:
    volume = SecretVolume(tmp_path / "certificates")
    certificate, key = SERVERS.issue("localhost")
    volume.put(tls_crt=certificate, tls_key=key, ca_crt=CALLERS.pem)
    files = {"certFile": volume.path("tls.crt"), "keyFile": volume.path("tls.key"), "reloadSeconds": 0.02}
    server = {**files, **({"clientCaFile": volume.path("ca.crt")} if mutual else {}), **tls}
    sections = {"server": {"tls": server, **(limits or {})}, "management": {"tls": files}}
    if not management:
        del sections["management"]
    with running_service(nodes=NODES, configuration=sections) as service:
        yield Served(service, volume)


def trusting(authority: Authority | None, pair: Pair | None = None) -> ssl.SSLContext:
    """The context of a caller that trusts ``authority``, or everyone, and shows the certificate of ``pair``."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    if authority is None:
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    else:
        context.load_verify_locations(cadata=authority.pem.decode())
    if pair is not None:
        with tempfile.NamedTemporaryFile() as file:
            file.write(b"".join(pair))
            file.flush()
            context.load_cert_chain(file.name)
    return context


def names_left(scheduler: SchedulerClient) -> list[str]:
    return [node["metadata"]["name"] for node in scheduler.filter(POD, NODES).nodes]


def request(opened: socket.socket) -> bytes:
    """The status line of the answer to a filter request."""
    body = json.dumps({"Pod": POD, "NodeNames": ["n1"]}).encode()
    opened.sendall(b"POST /filter HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body))
    answer = b""
    while b'"Error"' not in answer:
        piece = opened.recv(65536)
        assert piece, answer
        answer += piece
    return answer.partition(b"\r\n")[0]


# --- B11: how kube-scheduler may be told to call ---------------------------------------------------------------------


class Named(ssl.SSLContext):
    """Expects the server to bear another name than that in the URL, as ``serverName`` has it."""

    server_name = ""

    def wrap_socket(self, sock: socket.socket, *args: Any, **options: Any) -> ssl.SSLSocket:
        return super().wrap_socket(sock, *args, **{**options, "server_hostname": self.server_name})


def as_configured(case: dict[str, Any]) -> ssl.SSLContext | None:
    """The context that kube-scheduler makes of an extender's settings; None verifies nothing."""
    if "ca" not in case:
        return None if case["enableHTTPS"] else ssl.create_default_context()
    context = Named(ssl.PROTOCOL_TLS_CLIENT)
    context.server_name = case.get("serverName", "127.0.0.1")
    authority = {"right": SERVERS, "wrong": OTHERS}[case["ca"]]
    context.load_verify_locations(cadata=authority.pem.decode())
    return context


B11 = {case["id"]: case for case in json.loads((CASES / "B11-tls.json").read_text())["tls"]}
B11_EXPECTED = {
    line.partition(": ")[0]: line.partition(": ")[2]
    for line in (CASES / "B11-tls.expected.txt").read_text().splitlines()
    if line.partition(": ")[0] in B11
}
DOES_NOT_START = "https-insecure-plus-ca"
PLAIN = "http-prefix-with-enableHTTPS"


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with serving_tls(tmp_path_factory.mktemp("tls")) as served:
        yield served


@pytest.mark.parametrize("name", sorted(B11.keys() - {DOES_NOT_START, PLAIN}))
def test_b11_a_call_fares_as_with_kube_scheduler(served: Served, name: str) -> None:
    with served.service.scheduler(tls=as_configured(B11[name])) as scheduler:
        if B11_EXPECTED[name] == "call succeeds":
            assert names_left(scheduler) == ["n1", "n2"]
        else:
            with pytest.raises(ExtenderCallError, match="CERTIFICATE_VERIFY_FAILED"):
                names_left(scheduler)


def test_b11_a_plain_url_reaches_a_plain_port() -> None:
    assert (B11[PLAIN]["scheme"], B11_EXPECTED[PLAIN]) == ("http", "call succeeds")
    with running_service(nodes=NODES) as service, service.scheduler() as scheduler:
        assert service.url.startswith("http://")
        assert names_left(scheduler) == ["n1", "n2"]


# --- handshakes ------------------------------------------------------------------------------------------------------


def test_a_caller_that_offers_http2_gets_http1(served: Served) -> None:
    context = trusting(SERVERS)
    context.set_alpn_protocols(["h2", "http/1.1"])
    with served.connection(context) as opened:
        assert opened.selected_alpn_protocol() == "http/1.1"
        assert request(opened) == b"HTTP/1.1 200 OK"


def test_plain_http_is_told_apart_in_the_log(served: Served, caplog: pytest.LogCaptureFixture) -> None:
    before = served.count("server", "handshake_failed")
    with pytest.raises((httpx.ReadError, httpx.RemoteProtocolError)):  # and not a timeout
        httpx.post(served.service.url.replace("https", "http") + "/filter", content=b"{}")
    served.service.until(lambda: served.count("server", "handshake_failed") == before + 1)
    record = next(record for record in caplog.records if record.message == "TLS handshake failed")
    assert vars(record)["hint"] == "plain HTTP was sent: let urlPrefix begin with https://"


def test_a_handshake_that_does_not_end_is_given_up(tmp_path: Path) -> None:
    with serving_tls(tmp_path, limits={"headerTimeoutSeconds": 0.3}) as served:
        for sent in (b"", b"\x16\x03\x01\x02"):
            with socket.create_connection(served.address, timeout=10) as opened:
                opened.sendall(sent)
                assert opened.recv(1) == b""
        assert served.serial()


def test_one_connection_too_many_is_told_so_in_private_too(tmp_path: Path) -> None:
    limits = {"maxConnections": 1}
    with serving_tls(tmp_path, limits=limits) as served, served.connection(trusting(SERVERS)) as held:
        assert request(held) == b"HTTP/1.1 200 OK"
        with served.connection(trusting(SERVERS)) as one_more:
            answer = b"".join(iter(lambda: one_more.recv(65536), b""))
        assert answer.startswith(b"HTTP/1.1 503 ")
        assert b"1 connections are open, as many as server.maxConnections allows" in answer
        assert request(held) == b"HTTP/1.1 200 OK"


@pytest.mark.parametrize(("least", "offered", "is_served"), [("1.2", "1.2", True), ("1.3", "1.2", False)])
def test_the_least_version_is_kept(tmp_path: Path, least: str, offered: str, is_served: bool) -> None:
    context = trusting(SERVERS)
    context.maximum_version = {"1.2": ssl.TLSVersion.TLSv1_2}[offered]
    with serving_tls(tmp_path, minVersion=least) as served, served.service.scheduler(tls=context) as scheduler:
        if is_served:
            assert names_left(scheduler) == ["n1", "n2"]
        else:
            with pytest.raises(ExtenderCallError, match="TLSV1_ALERT_PROTOCOL_VERSION"):
                names_left(scheduler)


# --- callers' certificates -------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A service that B49's kube-scheduler may call, and nobody else."""
    accepted = json.loads((CASES / "B49-tls-reload.json").read_text())["mtls"]["accept"]
    subjects = [name.removeprefix("CN=") for name in accepted]
    directory = tmp_path_factory.mktemp("mutual")
    with serving_tls(directory, mutual=True, allowedSubjects=[*subjects, "peer.example", "spiffe://a/peer"]) as served:
        yield served


@pytest.mark.parametrize(
    "pair",
    [
        KUBE_SCHEDULER,
        CALLERS.issue("anybody", dns="peer.example"),
        CALLERS.issue("anybody", uri="spiffe://a/peer"),
    ],
    ids=["by its common name", "by a DNS name", "by a URI"],
)
def test_b49_an_allowed_subject_is_served_every_verb(guarded: Served, pair: Pair) -> None:
    pod = guarded.service.create_pod(
        make_pod(f"bound-{len(guarded.service.call(guarded.service.api.storage.list, 'pods'))}")
    )
    with guarded.service.scheduler(tls=trusting(SERVERS, pair)) as scheduler:
        assert names_left(scheduler) == ["n1", "n2"]
        assert set(scheduler.prioritize(POD, NODES).points) == {"n1", "n2"}
        assert scheduler.preempt(POD, {}, {}) == {}
        assert scheduler.bind("default", pod["metadata"]["name"], pod["metadata"]["uid"], "n1")


def test_b49_another_subject_of_the_same_authority_is_told_as_its_verb_allows(guarded: Served) -> None:
    context = trusting(SERVERS, CALLERS.issue("someone-else", uri="spiffe://a/other"))
    text = (
        "the client certificate of someone-else, spiffe://a/other may not call; "
        "add one of its names to server.tls.allowedSubjects"
    )
    with httpx.Client(verify=context, base_url=guarded.service.url) as client:
        for verb, status in (("filter", 200), ("bind", 200), ("prioritize", 403), ("preempt", 403)):
            response = client.post(f"/{verb}", content=b"{}")
            assert (response.status_code, response.json()["Error"]) == (status, text)
    assert guarded.metric("requests_total", verb="bind", result="SubjectNotAllowed") == 1


@pytest.mark.parametrize(
    ("pair", "alert", "reason"),
    [
        (None, "CERTIFICATE_REQUIRED", "PEER_DID_NOT_RETURN_A_CERTIFICATE"),
        (OTHERS.issue("system:kube-scheduler"), "UNKNOWN_CA", "CERTIFICATE_VERIFY_FAILED"),
    ],
    ids=["no certificate", "one of another authority"],
)
def test_b49_a_caller_without_a_good_certificate_is_told_why(
    guarded: Served, caplog: pytest.LogCaptureFixture, pair: Pair | None, alert: str, reason: str
) -> None:
    with guarded.connection(trusting(SERVERS, pair)) as opened, pytest.raises(ssl.SSLError, match=alert):
        request(opened)
    record = next(record for record in caplog.records if record.message == "TLS handshake failed")
    assert vars(record)["reason"] == reason
    assert vars(record)["hint"]


def test_one_that_does_not_trust_the_service_shows_in_the_log(
    guarded: Served, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(ssl.SSLError, match="CERTIFICATE_VERIFY_FAILED"), guarded.connection(trusting(OTHERS)):
        pass
    guarded.service.until(lambda: any("check caFile" in vars(record).get("hint", "") for record in caplog.records))


def test_any_subject_will_do_where_none_is_named(tmp_path: Path) -> None:
    context = trusting(SERVERS, CALLERS.issue("anybody"))
    with serving_tls(tmp_path, mutual=True) as served, served.service.scheduler(tls=context) as scheduler:
        assert names_left(scheduler) == ["n1", "n2"]


# --- rotation --------------------------------------------------------------------------------------------------------


def test_b49_a_new_pair_is_served_without_a_restart_and_a_broken_one_never(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    steps = [
        step.get("do", step.get("check", ""))
        for step in json.loads((CASES / "B49-tls-reload.json").read_text())["steps"]
    ]
    assert "symlink swap" in steps[1]
    with serving_tls(tmp_path) as served, served.connection(trusting(SERVERS)) as old:
        first = served.serial()
        certificate, key = SERVERS.issue("localhost")
        served.rotate(tls_crt=certificate, tls_key=key)
        second = served.serial()
        assert second != first
        assert request(old) == b"HTTP/1.1 200 OK"

        broken = {
            "cannot be read": b"-----BEGIN CERTIFICATE-----\n!!!!\n-----END CERTIFICATE-----\n",
            "no certificate in PEM": certificate[: len(certificate) // 2],
            "they must be a pair": SERVERS.issue("localhost")[0],
        }
        for problem, content in broken.items():
            served.rotate(result="failed", tls_crt=content, tls_key=key)
            served.service.until(
                lambda problem=problem: any(problem in vars(r).get("problem", "") for r in caplog.records)
            )
            assert served.serial() == second
        (Path(served.volume.path("tls.key"))).unlink()
        served.service.until(lambda: any("cannot be read" in vars(r).get("problem", "") for r in caplog.records))
        assert served.serial() == second
        assert request(old) == b"HTTP/1.1 200 OK"


def test_b27_an_authority_that_is_taken_out_lets_nobody_in_any_more(tmp_path: Path) -> None:
    certificate, key = SERVERS.issue("localhost")
    with serving_tls(tmp_path, mutual=True) as served:
        caller, other = trusting(SERVERS, KUBE_SCHEDULER), trusting(SERVERS, OTHERS.issue("new"))
        with served.connection(caller) as old:
            served.rotate(tls_crt=certificate, tls_key=key, ca_crt=CALLERS.pem + OTHERS.pem)
            with served.connection(caller) as one, served.connection(other) as two:
                assert request(one) == request(two) == b"HTTP/1.1 200 OK"
            served.rotate(tls_crt=certificate, tls_key=key, ca_crt="# Főtanúsítvány\n".encode() + OTHERS.pem)
            with served.connection(other) as two, served.connection(caller) as one:
                assert request(two) == b"HTTP/1.1 200 OK"
                with pytest.raises(ssl.SSLError, match="UNKNOWN_CA"):
                    request(one)
            assert request(old) == b"HTTP/1.1 200 OK"


def test_a_session_of_before_does_not_get_around_an_authority_that_was_taken_out(tmp_path: Path) -> None:
    certificate, key = SERVERS.issue("localhost")
    context = trusting(SERVERS, KUBE_SCHEDULER)
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    with serving_tls(tmp_path, mutual=True) as served:
        with served.connection(context) as opened:
            assert request(opened) == b"HTTP/1.1 200 OK"
            session = opened.session
            opened.unwrap()
        with served.connection(context, session=session) as opened:
            assert opened.session_reused
            opened.unwrap()
        served.rotate(tls_crt=certificate, tls_key=key, ca_crt=OTHERS.pem)
        with pytest.raises(ssl.SSLError), served.connection(context, session=session):
            pass


def test_no_request_is_lost_while_certificates_change(tmp_path: Path) -> None:
    with serving_tls(tmp_path, mutual=True) as served:
        caller, stop, failures, counts = trusting(SERVERS, KUBE_SCHEDULER), threading.Event(), [], [0, 0]

        def call(keeps: bool, place: int) -> None:
            scheduler = served.service.scheduler(tls=caller)
            while not stop.is_set():
                try:
                    assert names_left(scheduler) == ["n1", "n2"]
                    counts[place] += 1
                except Exception as error:
                    failures.append(error)
                if not keeps:
                    scheduler.close()
                    scheduler = served.service.scheduler(tls=caller)
            scheduler.close()

        threads = [threading.Thread(target=call, args=(keeps, place)) for place, keeps in enumerate((True, False))]
        for thread in threads:
            thread.start()
        serials = set()
        for _ in range(5):
            done = list(counts)
            certificate, key = SERVERS.issue("localhost")
            served.rotate(tls_crt=certificate, tls_key=key, ca_crt=CALLERS.pem)
            until(lambda done=done: all(now > then + 2 for now, then in zip(counts, done, strict=True)))
            serials.add(served.metric("certificate_reloads_total", port="server", result="ok"))
        stop.set()
        for thread in threads:
            thread.join()
    assert failures == []
    assert len(serials) == 5  # each change was taken over; one that is seen half-way is taken over twice


# --- management ------------------------------------------------------------------------------------------------------


def test_management_is_served_over_tls_with_a_certificate_that_changes(tmp_path: Path) -> None:
    with serving_tls(tmp_path, management=True) as served:
        url = served.service.management_url
        assert url.startswith("https://")
        assert httpx.get(f"{url}/livez", verify=trusting(SERVERS)).text == "ok"
        with pytest.raises(httpx.ConnectError, match="CERTIFICATE_VERIFY_FAILED"):
            httpx.get(f"{url}/livez", verify=trusting(OTHERS))
        certificate, key = OTHERS.issue("localhost")
        served.rotate(tls_crt=certificate, tls_key=key)
        until(lambda: served.metric("certificate_reloads_total", port="management", result="ok") == 1)
        assert httpx.get(f"{url}/readyz", verify=trusting(OTHERS)).text == "ok"
        metrics = httpx.get(f"{url}/metrics", verify=trusting(OTHERS)).text
        file = served.volume.path("tls.crt")
        for port in ("server", "management"):
            name = f'scheduler_extender_certificate_expiry_seconds{{file="{file}",port="{port}"}} '
            (value,) = (line.removeprefix(name) for line in metrics.splitlines() if line.startswith(name))
            assert abs(float(value) - time.time() - 3600) < 120
