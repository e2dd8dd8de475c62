"""What the doctor says of certificates, over real TLS."""

from __future__ import annotations

import base64
import json
import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from extender.doctor.report import Report
from extender.registration.finding import Severity
from extender.testing import CannedServer, Reply
from tests.extender.authority import Authority
from tests.extender.examined import GOOD, KEPT, configuration, examine, found, wrong

CASES = Path(__file__).parents[1] / "data" / "cases"
BY_ID = {case["id"]: case for case in json.loads((CASES / "B11-tls.json").read_text())["tls"]}
OUTCOMES = dict(
    line.split(": ", 1)
    for line in (CASES / "B11-tls.expected.txt").read_text().partition("Per case:\n")[2].splitlines()
)
EXPECTED: dict[str, tuple[str, str, str] | None] = {
    "https-enableHTTPS-no-ca": (
        "warning",
        "enableHTTPS",
        "without a certificate authority enableHTTPS means exactly that",
    ),
    "https-enableHTTPS-off-no-tlsConfig": ("error", "enableHTTPS", "signed by an unknown authority"),
    "https-right-ca": None,
    "https-wrong-ca": ("error", "tlsConfig.caFile", "signed by an unknown authority"),
    "https-right-ca-wrong-serverName": (
        "error",
        "tlsConfig.serverName",
        "is valid for example.com, 127.0.0.1, not for",
    ),
    "https-serverName-only": ("warning", "enableHTTPS", "serverName counts for nothing"),
    "https-insecure-plus-ca": ("error", "tlsConfig.insecure", "kube-scheduler does not start"),
    "http-prefix-with-enableHTTPS": ("warning", "urlPrefix", "calls are not encrypted"),
    "https-ca-but-enableHTTPS-off": None,
    "client-cert-without-key": ("warning", "tlsConfig.keyFile", "the client certificate is not presented at all"),
}
"""What the doctor finds: severity, key, text."""

SERVERS, CLIENTS, OTHERS = Authority("servers"), Authority("clients"), Authority("others")


def save(directory: Path, name: str, content: bytes) -> str:
    file = directory / name
    file.write_bytes(content)
    return str(file)


def served(certificate: tuple[bytes, bytes], directory: Path, clients: Authority | None = None) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(save(directory, "served.pem", b"".join(certificate)))
    if clients is not None:
        context.load_verify_locations(cadata=clients.pem.decode())
        context.verify_mode = ssl.CERT_REQUIRED
    return context


def examine_tls(directory: Path, context: ssl.SSLContext | None, url: str = "", **fields: Any) -> Report:
    with CannedServer(Reply(KEPT), tls=context) as server:
        entry = {**GOOD, "prioritizeVerb": "", "preemptVerb": "", "urlPrefix": url or server.url, **fields}
        # The name stands in the certificate, the address is where the server is.
        return examine(directory, configuration(entry), extender_urls=[server.url], idle_seconds=0.05)


def trusting(directory: Path, authority: Authority = SERVERS, **keys: str) -> dict[str, Any]:
    return {"enableHTTPS": True, "tlsConfig": {"caFile": save(directory, "ca.crt", authority.pem), **keys}}


def test_every_case_has_an_expectation() -> None:
    assert BY_ID.keys() == OUTCOMES.keys() == EXPECTED.keys()


@pytest.mark.parametrize("case", [pytest.param(case, id=f"B11 {case.replace('-', ' ')}") for case in EXPECTED])
def test_settings_are_judged_by_what_kube_scheduler_makes_of_them(tmp_path: Path, case: str) -> None:
    given, expected = BY_ID[case], EXPECTED[case]
    tls: dict[str, Any] = {key: given[key] for key in ("serverName", "insecure") if key in given}
    if "ca" in given:
        tls["caFile"] = save(tmp_path, "ca.crt", {"right": SERVERS, "wrong": OTHERS}[given["ca"]].pem)
    if given.get("certOnly"):
        tls["certFile"] = save(tmp_path, "client.crt", CLIENTS.issue("scheduler")[0])
    context = served(SERVERS.issue("example.com"), tmp_path) if given["scheme"] == "https" else None
    report = examine_tls(tmp_path, context, enableHTTPS=given["enableHTTPS"], tlsConfig=tls)
    answered = any(item.endswith("/filter") for item in report.looked_at)
    assert answered == (OUTCOMES[case] == "call succeeds"), report.as_text()
    if expected is None:
        assert not wrong(report)
    else:
        severity, key, text = expected
        # Over plain HTTP, and without a key, there may be more to say.
        assert found(report, f"extenders[0].{key}", text).severity == severity
        assert (wrong(report)[0].severity is Severity.ERROR) == (severity == "error")


def test_the_names_of_a_certificate_are_told_and_server_name_mends_it(tmp_path: Path) -> None:
    certificate = SERVERS.issue("extender.ns.svc", is_local=False, dns="other.name")
    report = examine_tls(tmp_path, served(certificate, tmp_path), "https://extender.ns.svc:1", **trusting(tmp_path))
    finding = found(report, "extenders[0].tlsConfig.serverName", "is valid for other.name, not for extender.ns.svc")
    assert finding.remedy.startswith("set serverName to one of them")
    report = examine_tls(
        tmp_path,
        served(certificate, tmp_path),
        "https://extender.ns.svc:1",
        **trusting(tmp_path, serverName="other.name"),
    )
    assert not [finding for finding in wrong(report) if "tlsConfig" in finding.path]
    assert any(item.endswith("/filter") for item in report.looked_at)


@pytest.mark.parametrize(
    ("left", "severity", "path", "problem"),
    [
        (timedelta(minutes=-1), "error", "urlPrefix", "the certificate, or one above it, has expired"),
        (timedelta(minutes=5), "warning", "tlsConfig.caFile", "the certificate of the extender expires "),
    ],
    ids=["expired", "expiring soon"],
)
def test_the_end_of_a_certificate_is_told(
    tmp_path: Path, left: timedelta, severity: str, path: str, problem: str
) -> None:
    certificate = SERVERS.issue("example.com", ends=datetime.now(UTC) + left)
    report = examine_tls(tmp_path, served(certificate, tmp_path), **trusting(tmp_path))
    assert found(report, f"extenders[0].{path}", problem).severity == severity


def test_a_client_certificate_that_is_asked_for_has_to_be_presented(tmp_path: Path) -> None:
    context = served(SERVERS.issue("example.com"), tmp_path, CLIENTS)
    report = examine_tls(tmp_path, context, **trusting(tmp_path))
    finding = found(report, "extenders[0].tlsConfig.certFile", "asks for a client certificate, and none is presented")
    assert finding.severity is Severity.ERROR
    certificate, key = CLIENTS.issue("scheduler")
    pair = {"certFile": save(tmp_path, "a.crt", certificate), "keyFile": save(tmp_path, "a.key", key)}
    assert not wrong(examine_tls(tmp_path, context, **trusting(tmp_path, **pair)))


def test_a_client_certificate_of_another_authority_is_refused(tmp_path: Path) -> None:
    context = served(SERVERS.issue("example.com"), tmp_path, CLIENTS)
    certificate, key = OTHERS.issue("scheduler")
    pair = {"certFile": save(tmp_path, "a.crt", certificate), "keyFile": save(tmp_path, "a.key", key)}
    report = examine_tls(tmp_path, context, **trusting(tmp_path, **pair))
    assert found(report, "extenders[0].tlsConfig.certFile", "the extender refuses the client certificate").remedy


def test_a_port_that_does_not_speak_tls_is_told(tmp_path: Path) -> None:
    with CannedServer(Reply(KEPT)) as server:
        url = server.url.replace("http:", "https:")
        report = examine_tls(tmp_path, None, url, **trusting(tmp_path))
    finding = found(report, "extenders[0].urlPrefix", "the port does not speak TLS")
    assert finding.remedy == f"write {server.url}"


def test_a_port_that_speaks_tls_only_is_told(tmp_path: Path) -> None:
    context = served(SERVERS.issue("example.com"), tmp_path)
    report = examine_tls(tmp_path, context, "http://127.0.0.1:1")
    finding = found(report, "extenders[0].filterVerb", "no answer")
    assert "or write https://127.0.0.1:1 if it speaks TLS" in finding.remedy


@pytest.mark.parametrize(
    ("keys", "severity", "path", "problem"),
    [
        ({"caFile": "/no/such/ca.crt"}, "warning", "caFile", "/no/such/ca.crt: cannot be read on this machine"),
        ({"caFile": "{tmp}/key.pem"}, "error", "caFile", "holds no certificate"),
        (
            {"caFile": "{tmp}/ca.pem", "certFile": "{tmp}/ca.pem", "keyFile": "{tmp}/key.pem"},
            "error",
            "certFile",
            "and its key do not go together",
        ),
        (
            {"caFile": "{tmp}/ca.pem", "certFile": "{tmp}/none", "keyFile": "{tmp}/key.pem"},
            "warning",
            "certFile",
            "cannot be read on this machine",
        ),
    ],
    ids=["no authority", "a key for an authority", "a pair that does not match", "no certificate"],
)
def test_files_that_cannot_be_used_are_told(
    tmp_path: Path, keys: dict[str, str], severity: str, path: str, problem: str
) -> None:
    save(tmp_path, "ca.pem", SERVERS.pem)
    save(tmp_path, "key.pem", SERVERS.issue("x")[1])
    tls = {key: value.format(tmp=tmp_path) for key, value in keys.items()}
    report = examine_tls(tmp_path, served(SERVERS.issue("example.com"), tmp_path), enableHTTPS=True, tlsConfig=tls)
    assert found(report, f"extenders[0].tlsConfig.{path}", problem).severity == severity


def test_certificates_in_the_file_itself_are_used(tmp_path: Path) -> None:
    certificate, key = CLIENTS.issue("scheduler")
    data = {"caData": SERVERS.pem, "certData": certificate, "keyData": key}
    tls = {name: base64.b64encode(value).decode() for name, value in data.items()}
    context = served(SERVERS.issue("example.com"), tmp_path, CLIENTS)
    assert not wrong(examine_tls(tmp_path, context, enableHTTPS=True, tlsConfig=tls))
