"""No token and no key shows in a log, an error or a page of /debug, whatever goes wrong."""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
import logging
import ssl
from base64 import b64encode
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    PrivateFormat,
    load_pem_private_key,
)

from extender.cluster.apiserver import ServerOptions
from extender.cluster.client import Client
from extender.cluster.connection import Connection, from_kubeconfig
from extender.config import MutualTlsSection
from extender.errors import ApiError, ApiUnreachable, ConfigurationError, ExtenderError
from extender.telemetry import JsonFormatter, Metrics
from extender.testing import make_node, make_pod
from extender.testing.cluster import RunningService, running_service
from extender.tls import ServerTls
from tests.extender.authority import Authority
from tests.extender.scripted import ScriptedServer, reply

AUTHORITY = Authority("servers")
CERTIFICATE, KEY = AUTHORITY.issue("localhost")
OTHER_KEY = AUTHORITY.issue("localhost")[1]
TOKEN = "eyJ-the-token-9f3b7c"
PASSWORD = "hunter2-9f3b7c"
ENCRYPTED = load_pem_private_key(KEY, None).private_bytes(
    Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(PASSWORD.encode())
)
SECRETS = {
    TOKEN,
    PASSWORD,
    b64encode(f"admin:{PASSWORD}".encode()).decode(),
    b64encode(TOKEN.encode()).decode(),
    b64encode(KEY).decode(),
    *(line for key in (KEY, OTHER_KEY, ENCRYPTED) for line in key.decode().splitlines() if "-----" not in line),
}


def shown(text: str) -> set[str]:
    """The secrets in a text; long ones by any part of them."""
    return {secret for secret in SECRETS if secret in text or secret[4:40] in text}


@pytest.fixture(autouse=True)
def log() -> Iterator[io.StringIO]:
    """Everything that is logged, as it would be written, and nothing of it secret in the end."""
    written = io.StringIO()
    handler, root = logging.StreamHandler(written), logging.getLogger()
    handler.setFormatter(JsonFormatter())
    level = root.level
    root.addHandler(handler)
    root.setLevel(logging.DEBUG)
    yield written
    root.removeHandler(handler)
    root.setLevel(level)
    assert shown(written.getvalue()) == set()


def test_the_search_finds_what_it_looks_for() -> None:
    assert shown(f"Bearer {TOKEN}") == {TOKEN}
    assert KEY.decode().splitlines()[1] in shown(KEY.decode())
    assert shown("nothing") == set()


# --- certificates ----------------------------------------------------------------------------------------------------

PAIRS: dict[str, tuple[bytes, bytes]] = {
    "the key of another": (CERTIFICATE, OTHER_KEY),
    "half a key": (CERTIFICATE, KEY[:120]),
    "an encrypted key": (CERTIFICATE, ENCRYPTED),
    "a key without its frame": (CERTIFICATE, b"\n".join(KEY.splitlines()[1:-1])),
    "files swapped": (KEY, CERTIFICATE),
    "a key in the certificate": (KEY + b"-----BEGIN CERTIFICATE-----\n!\n-----END CERTIFICATE-----", KEY),
}


@pytest.mark.parametrize("name", PAIRS)
def test_certificates_that_cannot_be_used_do_not_show(tmp_path: Path, log: io.StringIO, name: str) -> None:
    files = [tmp_path / "tls.crt", tmp_path / "tls.key"]
    section = MutualTlsSection(cert_file=str(files[0]), key_file=str(files[1]))
    for file, content in zip(files, PAIRS[name], strict=True):
        file.write_bytes(content)
    with pytest.raises(ConfigurationError) as caught:
        ServerTls("server", section, Metrics())
    assert shown(_whole(caught.value)) == set()
    for file, content in zip(files, (CERTIFICATE, KEY), strict=True):
        file.write_bytes(content)
    tls = ServerTls("server", section, Metrics())
    for file, content in zip(files, PAIRS[name], strict=True):
        file.write_bytes(content)
    tls.check()
    assert "certificates not replaced" in log.getvalue()


# --- the way to the API server ---------------------------------------------------------------------------------------

USERS: dict[str, dict[str, Any]] = {
    "a token": {"token": TOKEN},
    "a token of two lines": {"token": f"{TOKEN}\n{TOKEN}"},
    "a password": {"username": "admin", "password": PASSWORD},
    "a number for a token": {"token": TOKEN, "username": 1},
    "a list for a token": {"token": [TOKEN]},
    "a key that is not base64": {"client-certificate-data": TOKEN, "client-key-data": TOKEN},
    "a key without a certificate": {"token": TOKEN, "client-key-data": b64encode(KEY).decode()},
    "a key for a certificate": {"client-certificate-data": b64encode(KEY).decode()},
    "the key of another": {
        "client-certificate-data": b64encode(CERTIFICATE).decode(),
        "client-key-data": b64encode(OTHER_KEY).decode(),
    },
    "a command that prints it and fails": {
        "exec": {
            "apiVersion": "client.authentication.k8s.io/v1",
            "command": "sh",
            "args": ["-c", f"echo {TOKEN}; exit 1"],
        }
    },
    "a command that prints nonsense": {
        "exec": {"apiVersion": "client.authentication.k8s.io/v1", "command": "sh", "args": ["-c", f"echo '{TOKEN}'"]}
    },
    "another provider": {"auth-provider": {"name": "oidc", "config": {"id-token": TOKEN}}},
}
CLUSTERS: dict[str, dict[str, Any]] = {
    "refusing": {},
    "nowhere": {"server": "http://127.0.0.1:1"},
    "of another authority": {"server": "https://127.0.0.1:1", "certificate-authority-data": b64encode(KEY).decode()},
    "with a password in its address": {"server": f"http://admin:{PASSWORD}@127.0.0.1:1"},
    "with a password in an address that is none": {"server": f"ftp://admin:{PASSWORD}@127.0.0.1"},
    "behind a proxy with a password": {"proxy-url": f"http://admin:{PASSWORD}@127.0.0.1:1"},
    "behind a proxy of another kind": {"proxy-url": f"socks5://admin:{PASSWORD}@127.0.0.1:1"},
}


@pytest.mark.parametrize("cluster", CLUSTERS)
@pytest.mark.parametrize("user", USERS)
async def test_credentials_do_not_show_when_they_are_refused(tmp_path: Path, user: str, cluster: str) -> None:
    async with ScriptedServer(reply({"message": "Unauthorized"}, 401), reply(b"nonsense", 403)) as server:
        kubeconfig = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "c",
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
            "clusters": [{"name": "c", "cluster": {"server": server.url, **CLUSTERS[cluster]}}],
            "users": [{"name": "u", "user": USERS[user]}],
        }
        file = tmp_path / "kubeconfig"
        await asyncio.to_thread(file.write_text, yaml.safe_dump(kubeconfig))
        with pytest.raises(ExtenderError) as caught:
            await _ask(from_kubeconfig(str(file)))
        assert shown(_whole(caught.value)) == set()


async def _ask(connection: Connection) -> None:
    client = Client(connection)
    try:
        await client.request("GET", "/api")
        await client.request("GET", "/api")
    finally:
        await client.close()


async def test_a_proxy_that_wants_another_password_does_not_show_it(tmp_path: Path) -> None:
    async with ScriptedServer(reply(b"", 407)) as proxy:
        url = proxy.url.replace("http://", f"http://admin:{PASSWORD}@")
        for scheme in ("http", "https"):
            kubeconfig = {
                "current-context": "c",
                "contexts": [{"name": "c", "context": {"cluster": "c"}}],
                "clusters": [{"name": "c", "cluster": {"server": f"{scheme}://127.0.0.1:1", "proxy-url": url}}],
                "users": [],
            }
            file = tmp_path / "kubeconfig"
            await asyncio.to_thread(file.write_text, yaml.safe_dump(kubeconfig))
            with pytest.raises((ApiError, ApiUnreachable)) as caught:
                await _ask(from_kubeconfig(str(file)))
            assert shown(str(caught.value)) == set()


# --- a running service -----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningService]:
    directory: Path = tmp_path_factory.mktemp("secret")
    (directory / "tls.crt").write_bytes(CERTIFICATE)
    (directory / "tls.key").write_bytes(KEY)
    files = {"certFile": str(directory / "tls.crt"), "keyFile": str(directory / "tls.key"), "reloadSeconds": 0.02}
    configuration = {
        "server": {"tls": files},
        "management": {"tls": files, "authentication": {"enabled": True}, "debug": True},
        "log": {"level": "debug"},
    }
    paths = {"/metrics", "/debug/pprof", "/debug/config"}
    options = ServerOptions(users={TOKEN: "reader"}, readers={("reader", path) for path in paths})
    with running_service(nodes=[make_node("n1")], configuration=configuration, options=options) as running:
        yield running


def test_tokens_of_callers_do_not_show(service: RunningService) -> None:
    context = ssl.create_default_context(cadata=AUTHORITY.pem.decode())
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    bearing, mistaken = ({"Authorization": f"Bearer {token}"} for token in (TOKEN, f"{TOKEN}x"))
    answers: list[httpx.Response] = []
    with httpx.Client(verify=context, timeout=20) as client:

        def get(page: str, headers: dict[str, str] = bearing, **query: int) -> str:
            answers.append(client.get(f"{service.management_url}{page}", headers=headers, params=query))
            return answers[-1].text

        pages = [line.split()[0] for line in get("/debug/pprof").splitlines() if line.startswith("/debug/")]
        assert "/debug/config" in pages
        service.call(service.api.options.readers.update, {("reader", page) for page in pages})
        for page in (*pages, "/metrics", "/readyz", "/livez", "/nothing"):
            get(page, **({"seconds": 1} if "profile" in page else {"verbose": 1}))
        for verb in ("filter", "prioritize", "bind", "preempt", "nothing"):
            for body in (b"", b"{", TOKEN.encode(), json.dumps({"Pod": make_pod("p"), "NodeNames": None}).encode()):
                answers.append(client.post(f"{service.url}/{verb}", content=body, headers=bearing))  # noqa: PERF401
        service.call(service.api.stop)
        try:
            for page in ("/debug/config", "/debug/cache/compare", "/metrics"):
                get(page)
                get(page, mistaken)
        finally:
            service.call(service.api.start)
    assert {answer.status_code for answer in answers} >= {200, 403, 404, 503}
    for answer in answers:
        assert shown(f"{answer.headers}{answer.text}") == set(), answer.url


def test_what_is_no_tls_or_no_http_does_not_show(service: RunningService, log: io.StringIO) -> None:
    plain = service.url.replace("https", "http")
    with contextlib.suppress(httpx.HTTPError):
        httpx.get(f"{plain}/filter", headers={"Authorization": f"Bearer {TOKEN}"})
    service.until(lambda: "TLS handshake failed" in log.getvalue())


def _whole(error: BaseException) -> str:
    """An error with everything it was raised from, as a traceback would show it."""
    return JsonFormatter().format(
        logging.LogRecord("", logging.ERROR, "", 0, str(error), (), (type(error), error, error.__traceback__))
    )
