"""Where the API server is found: URLs, kubeconfigs and service accounts."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import pytest
import yaml

from extender.cluster import connection
from extender.cluster.client import Client
from extender.cluster.connection import connect, from_kubeconfig, from_url, in_cluster
from extender.cluster.exec_plugin import ExecPlugin
from extender.errors import ConfigurationError
from tests.extender.authority import Authority
from tests.extender.scripted import ScriptedServer, reply

EXEC = {"apiVersion": "client.authentication.k8s.io/v1", "command": "aws"}


def write(path: Path, *, user: dict[str, Any] | None = None, name: str = "c", **cluster: Any) -> str:
    """Write a kubeconfig with one context, cluster and user, all of that name, and return its path."""
    content = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": name,
        "contexts": [{"name": name, "context": {"cluster": name, "user": name}}],
        "clusters": [{"name": name, "cluster": {"server": "https://127.0.0.1:6443"} | cluster}],
        "users": [{"name": name, "user": user or {}}],
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(yaml.safe_dump(content))
    return str(path)


async def test_a_kubeconfig_with_inline_data_is_enough_to_be_let_in(tmp_path: Path) -> None:
    servers, clients = Authority("servers"), Authority("clients")
    certificate, key = clients.issue("me")
    async with ScriptedServer(reply(b"ok"), tls=servers.server_context(clients=clients)) as server:
        path = write(
            tmp_path / "config",
            server=server.url + "/",
            **{"certificate-authority-data": base64.b64encode(servers.pem).decode()},
            user={
                "client-certificate-data": base64.b64encode(certificate).decode(),
                "client-key-data": base64.b64encode(key).decode(),
                "token": "t1\n",
            },
        )
        client = Client(from_kubeconfig(path))
        assert await client.request("GET", "/x") == b"ok"
        assert server.requests[0].headers["Authorization"] == "Bearer t1"
        await client.close()


async def test_paths_in_a_kubeconfig_are_relative_to_its_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    authority = Authority("servers")
    user = {"tokenFile": "secrets/token", "token": "inline"}
    write(tmp_path / "deep" / "config", user=user, **{"certificate-authority": "pki/ca.crt"})
    (tmp_path / "deep" / "pki").mkdir()
    (tmp_path / "deep" / "pki" / "ca.crt").write_bytes(authority.pem)
    (tmp_path / "deep" / "secrets").mkdir()
    (tmp_path / "deep" / "secrets" / "token").write_text("from-file\n")
    monkeypatch.chdir(tmp_path)
    found = from_kubeconfig("deep/config")
    monkeypatch.chdir("/")
    assert await found.credential.header() == "Bearer from-file"
    assert found.tls is not None
    assert found.tls.current().get_ca_certs()


async def test_of_several_kubeconfigs_the_first_that_says_something_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = write(tmp_path / "one", name="one", server="https://one", user={"token": "t-one"})
    two = write(tmp_path / "two", name="two", server="https://two", user={"token": "t-two"})
    (tmp_path / "three").write_text(
        yaml.safe_dump({"contexts": [{"name": "three", "context": {"cluster": "one", "user": "two"}}]})
    )
    paths = f"{one}:{tmp_path}/missing:{two}:{tmp_path}/three"
    for context, url, token in (
        (None, "https://one", "t-one"),
        ("two", "https://two", "t-two"),
        ("three", "https://one", "t-two"),
    ):
        found = connect(context=context, environ={"KUBECONFIG": paths})
        assert (found.url, await found.credential.header()) == (url, f"Bearer {token}")


async def test_a_user_name_and_a_password_are_sent(tmp_path: Path) -> None:
    found = from_kubeconfig(write(tmp_path / "config", user={"username": "u", "password": "p"}))
    assert await found.credential.header() == "Basic dTpw"


async def test_requests_are_made_in_the_name_of_whom_a_kubeconfig_names(tmp_path: Path) -> None:
    extra = {"acme.com/Reason": ["on call", "drill"]}
    told = {"token": "t", "as": "jane", "as-uid": "u-1", "as-groups": ["dev", "ops"], "as-user-extra": extra}
    async with ScriptedServer(reply(b"{}")) as server:
        client = Client(from_kubeconfig(write(tmp_path / "config", user=told, server=server.url)))
        await client.request("GET", "/version")
        await client.close()
    sent = [(name.lower(), value) for name, value in server.requests[0].headers.items()]
    sent = [header for header in sent if header[0].startswith("impersonate-")]
    assert sent == [
        ("impersonate-user", "jane"),
        ("impersonate-uid", "u-1"),
        ("impersonate-group", "dev"),
        ("impersonate-group", "ops"),
        ("impersonate-extra-acme.com%2freason", "on call"),
        ("impersonate-extra-acme.com%2freason", "drill"),
    ]


def test_what_a_cluster_says_of_tls_and_proxy_is_kept(tmp_path: Path) -> None:
    told = {"tls-server-name": "api.internal", "proxy-url": "http://proxy:3128", "insecure-skip-tls-verify": True}
    found = from_kubeconfig(write(tmp_path / "config", **told))
    assert (found.server_name, found.proxy) == ("api.internal", "http://proxy:3128")
    assert found.tls is not None
    assert not found.tls.current().check_hostname


async def test_an_exec_section_runs_relative_to_its_file_and_hears_of_the_cluster(tmp_path: Path) -> None:
    plugin = tmp_path / "plugin"
    reply_text = '{"apiVersion":"client.authentication.k8s.io/v1","kind":"ExecCredential","status":{"token":"t"}}'
    plugin.write_text(f"#!/bin/sh\necho \"$KUBERNETES_EXEC_INFO\" > {tmp_path}/seen\necho '{reply_text}'\n")
    plugin.chmod(0o755)
    extension = {"name": "client.authentication.k8s.io/exec", "extension": {"audience": "a"}}
    path = write(
        tmp_path / "config",
        server="http://127.0.0.1:1",
        extensions=[extension],
        user={"exec": EXEC | {"command": "./plugin", "provideClusterInfo": True, "interactiveMode": "IfAvailable"}},
    )
    found = from_kubeconfig(path)
    assert isinstance(found.credential, ExecPlugin)
    assert await found.credential.header() == "Bearer t"
    seen = (tmp_path / "seen").read_text()
    assert '"server":"http://127.0.0.1:1"' in seen
    assert '"config":{"audience":"a"}' in seen


async def test_a_token_counts_before_an_exec_section(tmp_path: Path) -> None:
    found = from_kubeconfig(write(tmp_path / "config", user={"token": "t", "exec": EXEC}))
    assert await found.credential.header() == "Bearer t"


@pytest.mark.parametrize(
    ("told", "text"),
    [
        pytest.param(
            {"user": {"auth-provider": {"name": "oidc"}}},
            "auth-provider oidc is not supported; use an exec",
            id="auth-provider",
        ),
        pytest.param(
            {"user": {"password": 1234, "username": "u"}},
            "user c: Expected `str | null`, got `int`",
            id="a number for a text",
        ),
        pytest.param(
            {"user": {"exec": {"command": "x"}}}, "missing required field `apiVersion`", id="exec without version"
        ),
        pytest.param({"user": {"token": "two words"}}, "token is empty or holds characters", id="a token that is none"),
        pytest.param(
            {"user": {"client-certificate-data": "%%%"}}, "client-certificate-data is not base64", id="bad data"
        ),
        pytest.param(
            {"certificate-authority": "missing.crt"}, "missing.crt.*; check authority", id="no such authority"
        ),
        pytest.param({"server": "api:6443"}, "server: 'api:6443' is no URL of HTTP", id="server without scheme"),
        pytest.param({"user": {"as-groups": ["ops"]}}, "as-groups and as-user-extra need as", id="a group of nobody"),
        pytest.param({"server": ""}, "cluster c has no server", id="no server"),
        pytest.param(
            {"proxy-url": "socks5://x:1"}, "proxy-url: 'socks5://x:1' is no URL of HTTP", id="a proxy of another kind"
        ),
        pytest.param(
            {"server": "https://me:secret@h:1"},
            r"server: 'https://\*\*\*@h:1' holds a user; name",
            id="a user in a URL",
        ),
    ],
)
def test_what_cannot_be_honoured_is_an_error_that_names_the_file(
    tmp_path: Path, told: dict[str, Any], text: str
) -> None:
    path = write(tmp_path / "config", **told)
    with pytest.raises(ConfigurationError, match=f"{path}.*{text}"):
        from_kubeconfig(path)


@pytest.mark.parametrize(
    ("content", "context", "text"),
    [
        pytest.param(None, None, "no such file", id="no file"),
        pytest.param("", None, "file is empty", id="an empty file"),
        pytest.param("a: [", None, "not a kubeconfig", id="no YAML"),
        pytest.param("- a\n- b\n", None, "not a kubeconfig", id="a list"),
        pytest.param("contexts: [{}]", None, "not a kubeconfig|no current-context", id="a context without a name"),
        pytest.param("kind: Config", None, "no current-context; name a context", id="no current context"),
        pytest.param("kind: Config", "prod", "no context named 'prod'; there is none", id="no such context"),
        pytest.param(
            "contexts: [{name: prod, context: {cluster: x}}]", "prod", "no cluster named 'x'", id="no such cluster"
        ),
        pytest.param(
            "contexts: [{name: prod, context: {cluster: x, user: y}}]\nclusters: [{name: x, cluster: {server: 'http://h'}}]",
            "prod",
            "no user named 'y'; there is none",
            id="no such user",
        ),
    ],
)
def test_a_kubeconfig_that_cannot_be_used_says_why(
    tmp_path: Path, content: str | None, context: str | None, text: str
) -> None:
    path = tmp_path / "config"
    if content is not None:
        path.write_text(content)
    with pytest.raises(ConfigurationError, match=f"{path}: .*({text})"):
        from_kubeconfig(str(path), context)


def service_account(directory: Path) -> Path:
    (directory / "token").write_text("sa-token\n")
    (directory / "ca.crt").write_bytes(Authority("cluster").pem)
    return directory


@pytest.mark.parametrize(
    ("host", "url"),
    [("10.96.0.1", "https://10.96.0.1:443"), ("fd00::1", "https://[fd00::1]:443"), ("api", "https://api:443")],
)
async def test_a_pod_uses_its_service_account(tmp_path: Path, host: str, url: str) -> None:
    environ = {"KUBERNETES_SERVICE_HOST": host, "KUBERNETES_SERVICE_PORT": "443"}
    found = in_cluster(directory=service_account(tmp_path), environ=environ)
    assert found.url == url
    assert await found.credential.header() == "Bearer sa-token"
    assert found.tls is not None
    assert len(found.tls.current().get_ca_certs()) == 1


def test_a_pod_without_a_service_account_is_told_so(tmp_path: Path) -> None:
    environ = {"KUBERNETES_SERVICE_HOST": "10.96.0.1", "KUBERNETES_SERVICE_PORT": "443"}
    with pytest.raises(ConfigurationError, match=f"{tmp_path}/token, {tmp_path}/ca.crt: not there; set automount"):
        in_cluster(directory=tmp_path, environ=environ)
    with pytest.raises(ConfigurationError, match="this is no pod"):
        in_cluster(directory=tmp_path, environ={})


async def test_a_url_needs_no_file() -> None:
    found = connect(url="http://127.0.0.1:8001/", environ={"KUBECONFIG": "/nowhere"})
    assert (found.url, found.tls, await found.credential.header()) == (
        "http://127.0.0.1:8001",
        None,
        None,
    )
    assert from_url("https://api.example.com").tls is not None
    with pytest.raises(
        ConfigurationError, match=r"'127\.0\.0\.1:8001' is no URL of HTTP; write it as https://HOST:PORT"
    ):
        from_url("127.0.0.1:8001")


def test_the_default_kubeconfig_is_used_where_there_is_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    with pytest.raises(ConfigurationError, match=r"no API server: .*\.kube/config; name a kubeconfig or a URL"):
        connect(environ={})
    write(tmp_path / ".kube" / "config", server="http://default")
    assert connect(environ={}).url == "http://default"
    other = write(tmp_path / "other", server="http://other")
    assert connect(environ={"KUBECONFIG": other, "KUBERNETES_SERVICE_HOST": "10.96.0.1"}).url == "http://other"
    assert connect(kubeconfig=other, environ={"KUBECONFIG": "/nowhere"}).url == "http://other"


def test_a_pod_comes_before_the_default_kubeconfig(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    write(tmp_path / ".kube" / "config", server="http://default")
    monkeypatch.setattr(connection, "in_cluster", lambda **_: from_url("http://pod"))
    assert connect(environ={"KUBERNETES_SERVICE_HOST": "10.96.0.1"}).url == "http://pod"
    assert connect(context="c", environ={"KUBERNETES_SERVICE_HOST": "10.96.0.1"}).url == "http://default"
