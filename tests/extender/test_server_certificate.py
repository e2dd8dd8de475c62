"""Certificates of the service's own ports: what is checked at the start, and what is told of them."""

from __future__ import annotations

import logging
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    PrivateFormat,
    load_pem_private_key,
)

from extender.config import MutualTlsSection, load_configuration
from extender.errors import ConfigurationError
from extender.telemetry import Metrics
from extender.tls import ServerTls
from tests.extender.authority import Authority

AUTHORITY = Authority("servers")
CERTIFICATE, KEY = AUTHORITY.issue("localhost")
OTHER_KEY = AUTHORITY.issue("localhost")[1]
NOT_BASE64 = b"-----BEGIN CERTIFICATE-----\n!\n-----END CERTIFICATE-----\n"
NOT_DER = b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"


def encrypted(key: bytes, form: PrivateFormat) -> bytes:
    return load_pem_private_key(key, None).private_bytes(Encoding.PEM, form, BestAvailableEncryption(b"secret"))


def write(directory: Path, **contents: bytes | None) -> MutualTlsSection:
    """The section that names files of these contents; None is a file that is not there."""
    paths = {key: directory / f"{key}.pem" for key in contents}
    for key, content in contents.items():
        if content is not None:
            paths[key].write_bytes(content)
    return MutualTlsSection.model_validate({key: str(path) for key, path in paths.items()})


GOOD: dict[str, bytes | None] = {"certFile": CERTIFICATE, "keyFile": KEY, "clientCaFile": AUTHORITY.pem}

UNUSABLE: list[tuple[str, dict[str, bytes | None], list[str]]] = [
    ("a missing file", {"keyFile": None}, ["keyFile: {}: cannot be read: No such file or directory; mount it"]),
    (
        "several at once",
        {"certFile": None, "clientCaFile": None},
        ["certFile: {}: cannot be read", "clientCaFile: {}: cannot be read"],
    ),
    ("an empty certificate", {"certFile": b""}, ["certFile: {}: holds no certificate in PEM; give one that begins"]),
    ("a key for a certificate", {"certFile": KEY}, ["certFile: {}: holds no certificate in PEM"]),
    ("a certificate that is no base64", {"certFile": NOT_BASE64}, ["certFile: {}: holds a certificate that cannot"]),
    ("an authority that is no DER", {"clientCaFile": NOT_DER}, ["clientCaFile: {}: holds a certificate that cannot"]),
    (
        "a certificate for a key",
        {"keyFile": CERTIFICATE},
        ["keyFile: {}: holds no private key in PEM; give the key of"],
    ),
    (
        "an encrypted key",
        {"keyFile": encrypted(KEY, PrivateFormat.PKCS8)},
        ["keyFile: {}: is encrypted; give the key without a passphrase"],
    ),
    (
        "a key encrypted the old way",
        {"keyFile": encrypted(KEY, PrivateFormat.TraditionalOpenSSL)},
        ["keyFile: {}: is encrypted; give the key without a passphrase"],
    ),
    (
        "the key of another certificate",
        {"keyFile": OTHER_KEY},
        ["certFile: {}: cannot be used with keyFile {keyFile}: KEY_VALUES_MISMATCH; they must be a pair"],
    ),
    ("half a key", {"keyFile": KEY[: len(KEY) // 2]}, ["certFile: {}: cannot be used with keyFile {keyFile}: "]),
]


@pytest.mark.parametrize(("contents", "problems"), [case[1:] for case in UNUSABLE], ids=[case[0] for case in UNUSABLE])
def test_what_cannot_be_used_is_told_with_its_path_and_what_to_do(
    tmp_path: Path, contents: dict[str, bytes | None], problems: list[str]
) -> None:
    section = write(tmp_path, **{**GOOD, **contents})
    with pytest.raises(ConfigurationError) as caught:
        ServerTls("server", section, Metrics())
    assert len(caught.value.problems) == len(problems)
    for problem, expected in zip(caught.value.problems, problems, strict=True):
        key, _, _ = expected.partition(":")
        file = str(tmp_path / f"{key}.pem")
        assert problem.startswith(f"server.tls.{expected.format(file, keyFile=section.key_file)}")


SETTINGS: list[tuple[str, str, str]] = [
    ("server.tls.certFile=/x", "server.tls", "certFile and keyFile go together: give both, or neither for plain HTTP"),
    ("management.tls.keyFile=/x", "management.tls", "certFile and keyFile go together: give both, or neither"),
    ("server.tls.clientCaFile=/x", "server.tls", "clientCaFile needs certFile and keyFile"),
    ("server.tls.allowedSubjects=[a]", "server.tls", "allowedSubjects needs clientCaFile: without it nobody shows"),
    ("server.tls.minVersion=1.1", "server.tls.minVersion", "must be '1.2' or '1.3', got '1.1'"),
    ("management.tls.clientCaFile=/x", "management.tls.clientCaFile", "unknown key"),
    ("management.authentication.enabled=true", "management", "authentication needs tls.certFile and tls.keyFile, or"),
    ("server.maxHeaderBytes=10", "server.maxHeaderBytes", "must be >= 1024, got 10"),
    ("server.maxConnections=0", "server.maxConnections", "must be >= 1, got 0"),
]


@pytest.mark.parametrize(("setting", "path", "text"), SETTINGS, ids=[case[0] for case in SETTINGS])
def test_settings_that_do_not_fit_together_are_refused(setting: str, path: str, text: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        load_configuration(environment={}, settings=[setting])
    (problem,) = caught.value.problems
    assert problem.startswith(f"--set {path}: {text}")


@pytest.mark.parametrize("value", ["1.3", '"1.3"'], ids=["a number", "a text"])
def test_a_version_may_be_written_as_a_number(value: str) -> None:
    environment = {"SCHEDULER_EXTENDER_SERVER__TLS__MIN_VERSION": value}
    assert load_configuration(environment=environment).server.tls.min_version == "1.3"


def ending(when: datetime) -> bytes:
    return AUTHORITY.issue("localhost", ends=when)[0]


SOON, LATER, FAR = (datetime(year, 5, 6, 7, 8, 9, tzinfo=UTC) for year in (2041, 2048, 2071))


@pytest.mark.parametrize(
    ("certificates", "first"),
    [([LATER], LATER), ([FAR], FAR), ([LATER, SOON, FAR], SOON)],
    ids=["one", "one after 2050", "the first of several"],
)
def test_the_expiry_of_each_file_is_a_metric(tmp_path: Path, certificates: list[datetime], first: datetime) -> None:
    leaf, key = AUTHORITY.issue("localhost", ends=certificates[0])
    contents: dict[str, bytes | None] = {
        "certFile": b"\n".join((leaf, *map(ending, certificates[1:]))),
        "keyFile": key,
        "clientCaFile": AUTHORITY.pem,
    }
    section, metrics = write(tmp_path, **contents), Metrics()
    ServerTls("server", section, metrics)
    expected = {section.cert_file: first, section.client_ca_file: _end(AUTHORITY.pem)}
    for file, when in expected.items():
        labels = {"port": "server", "file": file}
        value = metrics.registry.get_sample_value("scheduler_extender_certificate_expiry_seconds", labels)
        assert value == when.timestamp()


def _end(pem: bytes) -> datetime:
    return x509.load_pem_x509_certificate(pem).not_valid_after_utc


def test_an_expired_certificate_is_used_with_a_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    certificate, key = AUTHORITY.issue("localhost", ends=datetime.now(UTC) - timedelta(minutes=1))
    section = write(tmp_path, certFile=certificate, keyFile=key)
    ServerTls("server", section, Metrics())
    (record,) = (record for record in caplog.records if record.message == "certificate has expired")
    assert vars(record)["file"] == section.cert_file


def test_the_same_problem_is_logged_once_and_counted_each_time(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    section, metrics = write(tmp_path, **GOOD), Metrics()
    tls = ServerTls("server", section, metrics)
    caplog.set_level(logging.INFO)

    def counted(result: str) -> Any:
        labels = {"port": "server", "result": result}
        return metrics.registry.get_sample_value("scheduler_extender_certificate_reloads_total", labels)

    tls.check()
    assert counted("ok") is counted("failed") is None
    Path(section.key_file).write_bytes(OTHER_KEY)
    for _ in range(3):
        tls.check()
    assert counted("failed") == 3
    assert [record.message for record in caplog.records] == ["certificates not replaced"]
    Path(section.key_file).write_bytes(KEY)
    tls.check()
    Path(section.key_file).write_bytes(OTHER_KEY)
    tls.check()
    assert [record.message for record in caplog.records] == ["certificates not replaced"] * 2
