"""TLS towards the API server, with certificates that change."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    PrivateFormat,
    load_pem_private_key,
)

from extender.cluster.certificate import Pair, TlsContext
from extender.cluster.client import Client
from extender.cluster.connection import Connection
from extender.cluster.credential import FixedHeader
from extender.errors import ApiUnreachable, ConfigurationError
from tests.extender.authority import Authority
from tests.extender.scripted import Clock, ScriptedServer, case, reply


@asynccontextmanager
async def client_of(url: str, tls: TlsContext, server_name: str | None = None) -> AsyncIterator[Client]:
    client = Client(Connection(url, "a test", FixedHeader(), tls, server_name))
    try:
        yield client
    finally:
        await client.close()


def swap(directory: Path, content: bytes) -> None:
    """Replace ``ca.crt`` as the kubelet does, by pointing ``..data`` at another directory."""
    version = directory / f"..version-{len(list(directory.iterdir()))}"
    version.mkdir()
    (version / "ca.crt").write_bytes(content)
    (directory / "..new").symlink_to(version)
    os.replace(directory / "..new", directory / "..data")
    if not (directory / "ca.crt").is_symlink():
        (directory / "ca.crt").symlink_to("..data/ca.crt")


async def test_b27_a_rotated_authority_is_trusted_without_a_restart(tmp_path: Path) -> None:
    authorities = {"CA1": Authority("CA1"), "CA2": Authority("CA2")}
    clock, server_by, reached = Clock(), "CA1", []
    tls = TlsContext("a test", authority=tmp_path / "ca.crt", clock=clock)
    for step in case("B27-ca-rotation.json")["steps"]:
        clock.now = step["t"]
        if "caFile" in step:
            swap(tmp_path, b"".join(authorities[name].pem for name in authorities if name in step["caFile"]))
        server_by = step.get("serverCert", server_by).removeprefix("signed by ")
        context = authorities[server_by].server_context()
        async with ScriptedServer(reply(b"ok"), tls=context) as server, client_of(server.url, tls) as client:
            assert await client.request("GET", "/") == b"ok"
            reached.append(clock.now)
    assert reached == [0, 60, 120, 121]


async def test_a_file_that_cannot_be_used_leaves_the_last_good_one_in_place(tmp_path: Path) -> None:
    authority, clock = Authority("CA1"), Clock()
    swap(tmp_path, authority.pem)
    tls = TlsContext("a test", authority=tmp_path / "ca.crt", clock=clock)
    good = tls.current()
    for content in (b"", b"not a certificate", b"\xff"):
        clock.now += 60
        swap(tmp_path, content)
        assert tls.current() is good
    clock.now += 60
    swap(tmp_path, authority.pem)
    assert tls.current() is good
    clock.now += 60
    swap(tmp_path, authority.pem + Authority("CA2").pem)
    assert tls.current() is not good


async def test_a_half_finished_rotation_of_a_pair_is_waited_out(tmp_path: Path) -> None:
    authority, clock = Authority("clients"), Clock()
    certificate, key = tmp_path / "tls.crt", tmp_path / "tls.key"
    pairs = [authority.issue("one"), authority.issue("two")]
    certificate.write_bytes(pairs[0][0])
    key.write_bytes(pairs[0][1])
    tls = TlsContext("a test", certificate=certificate, key=key, clock=clock)
    first = tls.current()
    certificate.write_bytes(pairs[1][0])
    clock.now += 60
    assert tls.current() is first
    key.write_bytes(pairs[1][1])
    clock.now += 60
    assert tls.current() is not first


async def test_a_client_certificate_is_shown_to_the_server() -> None:
    servers, clients = Authority("servers"), Authority("clients")
    certificate, key = clients.issue("me")
    async with ScriptedServer(reply(b"ok"), tls=servers.server_context(clients=clients)) as server:
        tls = TlsContext("a test", authority=servers.pem, certificate=certificate, key=key)
        async with client_of(server.url, tls) as client:
            assert await client.request("GET", "/") == b"ok"
        async with client_of(server.url, TlsContext("a test", authority=servers.pem)) as client:
            with pytest.raises(ApiUnreachable):
                await client.request("GET", "/")


async def test_an_unknown_authority_is_told_with_what_to_check() -> None:
    async with ScriptedServer(reply(), tls=Authority("theirs").server_context()) as server:
        async with client_of(server.url, TlsContext("a test", authority=Authority("ours").pem)) as client:
            with pytest.raises(
                ApiUnreachable, match=r"TLS failed: .*check the certificate authority of a test"
            ) as caught:
                await client.request("POST", "/")
            assert not caught.value.maybe_done
        assert server.requests == []


async def test_verification_can_be_switched_off() -> None:
    tls, context = TlsContext("a test", verify=False), Authority("theirs").server_context()
    async with ScriptedServer(reply(b"ok"), tls=context) as server, client_of(server.url, tls) as client:
        assert await client.request("GET", "/") == b"ok"


async def test_the_server_is_recognised_by_another_name() -> None:
    authority = Authority("CA1")
    async with ScriptedServer(reply(b"ok"), tls=authority.server_context("api.internal", is_local=False)) as server:
        tls = TlsContext("a test", authority=authority.pem)
        async with client_of(server.url, tls, "api.internal") as client:
            assert await client.request("GET", "/") == b"ok"
        async with client_of(server.url, tls) as client:
            with pytest.raises(ApiUnreachable, match="TLS failed"):
                await client.request("GET", "/")


def encrypted(key: bytes) -> bytes:
    plain = load_pem_private_key(key, None)
    return plain.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"secret"))


def test_certificates_that_cannot_be_used_from_the_start_are_a_configuration_error(tmp_path: Path) -> None:
    certificate, key = Authority("clients").issue("me")
    for tls in (
        TlsContext("kubeconfig x", authority=tmp_path / "missing.crt"),
        TlsContext("kubeconfig x", authority=b"not a certificate"),
        TlsContext("kubeconfig x", certificate=certificate),
        TlsContext("kubeconfig x", certificate=certificate, key=encrypted(key)),
    ):
        with pytest.raises(ConfigurationError, match="kubeconfig x: the certificates cannot be used"):
            tls.current()


def test_no_key_is_left_behind_on_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    certificate, key = Authority("clients").issue("me")
    TlsContext("a test", issued=lambda: Pair(certificate, key), check_seconds=0).current()
    assert list(tmp_path.iterdir()) == []
