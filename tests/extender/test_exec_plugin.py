"""Credentials that an external command prints."""

from __future__ import annotations

import asyncio
import json
import os
import ssl
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from extender.cluster.certificate import TlsContext
from extender.cluster.exec_plugin import EnvironmentVariable, ExecCommand, ExecPlugin
from extender.errors import ConfigurationError
from tests.extender.authority import Authority
from tests.extender.scripted import case

VERSION = "client.authentication.k8s.io/v1"


class Command:
    """A command on disk that prints what it is told to, and counts its runs."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.now = datetime(2026, 12, 1, tzinfo=UTC).timestamp()
        self.script("exit 3")

    def script(self, text: str) -> None:
        path = self.directory / "plugin"
        path.write_text(f"#!/bin/sh\necho run >> {self.directory}/runs\n{text}\n")
        path.chmod(0o755)

    def prints(self, status: dict[str, Any], *, stderr: str = "", version: str = VERSION) -> None:
        text = json.dumps({"apiVersion": version, "kind": "ExecCredential", "status": status})
        (self.directory / "reply").write_text(text)
        self.script(f"echo '{stderr}' >&2; cat {self.directory}/reply")

    @property
    def runs(self) -> int:
        runs = self.directory / "runs"
        return len(runs.read_text().splitlines()) if runs.exists() else 0

    def plugin(self, *, cluster: dict[str, Any] | None = None, timeout_seconds: float = 30, **spec: Any) -> ExecPlugin:
        spec = {"command": "./plugin", "api_version": VERSION} | spec
        return ExecPlugin(
            ExecCommand(**spec),
            origin="kubeconfig context c",
            directory=self.directory,
            cluster=cluster,
            timeout_seconds=timeout_seconds,
            now=lambda: self.now,
        )


@pytest.fixture
def command(tmp_path: Path) -> Command:
    return Command(tmp_path)


def reply_of(command: Command, name: str, **given: str) -> tuple[dict[str, Any], str]:
    """Return the status and the stderr of a reply of the case, with its placeholders filled in."""
    found = next(item for item in case("B28-exec-kubeconfig.json")["execReplies"] if item["id"] == name)
    expiry = datetime.fromtimestamp(command.now + 120, UTC).isoformat().replace("+00:00", "Z")
    known = given | {"expirationTimestamp": expiry}
    status = {key: known.get(key, value) if value.startswith("<") else value for key, value in found["status"].items()}
    return status, found.get("stderr", "")


async def test_b28_a_token_that_expires_is_renewed_before_it_does(command: Command) -> None:
    command.prints(reply_of(command, "token-with-expiry")[0])
    plugin = command.plugin()
    assert await plugin.header() == "Bearer t1"
    command.now += 60
    assert await plugin.header() == "Bearer t1"
    assert command.runs == 1
    command.now += 45
    await plugin.header()
    assert command.runs == 2


async def test_b28_a_token_without_expiry_is_renewed_after_a_refusal(command: Command) -> None:
    command.prints(reply_of(command, "token-without-expiry")[0])
    plugin = command.plugin()
    header = await plugin.header()
    command.now += 1e9
    assert await plugin.header() == header == "Bearer t2"
    assert command.runs == 1
    command.prints({"token": "t2b"})
    await asyncio.gather(*(plugin.renew(header) for _ in range(5)))
    assert await plugin.header() == "Bearer t2b"
    assert command.runs == 2


async def test_b28_a_certificate_is_used_and_replaced_by_the_next_one(command: Command) -> None:
    authority = Authority("clients")
    plugin = command.plugin()
    tls = TlsContext("test", issued=lambda: plugin.pair)
    contexts: list[ssl.SSLContext] = []
    for name in ("one", "two"):
        certificate, key = authority.issue(name)
        given = {"clientCertificateData": certificate.decode(), "clientKeyData": key.decode()}
        command.prints(reply_of(command, "client-certificate", **given)[0])
        assert await plugin.header() is None
        contexts += [tls.current(), tls.current()]
        command.now += 110
    assert command.runs == 2
    assert contexts[0] is contexts[1]
    assert contexts[2] is contexts[3]
    assert contexts[0] is not contexts[2]


async def test_b28_what_the_command_writes_to_stderr_does_not_matter(command: Command) -> None:
    status, stderr = reply_of(command, "plugin-writes-warnings-to-stderr")
    command.prints(status, stderr=stderr)
    assert stderr
    assert await command.plugin().header() == "Bearer t3"


async def test_many_requests_at_once_run_the_command_once(command: Command) -> None:
    command.prints({"token": "t"})
    plugin = command.plugin()
    assert await asyncio.gather(*(plugin.header() for _ in range(5))) == ["Bearer t"] * 5
    assert command.runs == 1


async def test_a_token_is_used_to_its_end_when_it_cannot_be_renewed_early(command: Command) -> None:
    command.prints(reply_of(command, "token-with-expiry")[0])
    plugin = command.plugin()
    await plugin.header()
    command.script("exit 1")
    command.now += 110
    assert await plugin.header() == "Bearer t1"
    assert await plugin.header() == "Bearer t1"
    assert command.runs == 2
    command.now += 11
    with pytest.raises(ConfigurationError, match="exit code 1"):
        await plugin.header()


async def test_a_token_that_came_expired_does_not_run_the_command_for_every_request(command: Command) -> None:
    command.prints({"token": "late", "expirationTimestamp": "2020-01-01T00:00:00Z"})
    plugin = command.plugin()
    assert [await plugin.header() for _ in range(3)] == ["Bearer late"] * 3
    assert command.runs == 1


@pytest.mark.parametrize(
    ("script", "text"),
    [
        pytest.param("echo not logged in >&2; exit 7", "exit code 7: not logged in", id="it fails with a message"),
        pytest.param("exit 1", "exit code 1: no message", id="it fails without a message"),
        pytest.param("echo hello", "did not print an ExecCredential", id="it prints something else"),
        pytest.param(
            'echo \'{"apiVersion":"client.authentication.k8s.io/v1beta1","kind":"ExecCredential"}\'',
            "printed client.authentication.k8s.io/v1beta1",
            id="it speaks another version",
        ),
        pytest.param(
            f'echo \'{{"apiVersion":"{VERSION}","kind":"ExecCredential","status":{{}}}}\'',
            "neither a token nor a certificate",
            id="it gives nothing",
        ),
        pytest.param(
            f'echo \'{{"apiVersion":"{VERSION}","kind":"ExecCredential","status":{{"clientCertificateData":"x"}}}}\'',
            "neither a token nor a certificate",
            id="it gives a certificate without a key",
        ),
    ],
)
async def test_a_command_that_fails_is_an_error_and_not_an_anonymous_request(
    command: Command, script: str, text: str
) -> None:
    command.script(script)
    with pytest.raises(ConfigurationError, match=f"kubeconfig context c: exec plug-in ./plugin: .*{text}"):
        await command.plugin().header()


async def test_a_command_that_hangs_is_killed(command: Command) -> None:
    command.script(f"echo $$ > {command.directory}/pid; exec sleep 600")
    with pytest.raises(ConfigurationError, match=r"printed nothing within 0\.3 s"):
        await command.plugin(timeout_seconds=0.3).header()
    pid = int((command.directory / "pid").read_text())
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


async def test_a_command_that_is_not_installed_is_told_with_its_hint(command: Command) -> None:
    with pytest.raises(ConfigurationError, match=r"no-such-plugin: cannot be started: .*; brew install it"):
        await command.plugin(command="no-such-plugin", install_hint="brew install it").header()


async def test_the_command_is_told_of_its_arguments_environment_and_cluster(
    command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("INHERITED", "yes")
    seen = command.directory / "seen"
    command.prints({"token": "t"})
    command.script(
        f'echo "$1 $GIVEN $INHERITED" > {seen}; echo "$KUBERNETES_EXEC_INFO" >> {seen}; cat {command.directory}/reply'
    )
    await command.plugin(
        args=["get-token"],
        env=[EnvironmentVariable("GIVEN", "too")],
        provide_cluster_info=True,
        cluster={"server": "https://api"},
    ).header()
    first, second = seen.read_text().splitlines()
    assert first == "get-token too yes"
    assert json.loads(second) == {
        "apiVersion": VERSION,
        "kind": "ExecCredential",
        "spec": {"interactive": False, "cluster": {"server": "https://api"}},
    }


@pytest.mark.parametrize(
    ("spec", "text"),
    [
        pytest.param({"api_version": "client.authentication.k8s.io/v1alpha1"}, "v1alpha1 is none of", id="old version"),
        pytest.param({"interactive_mode": "Always"}, "needs a terminal", id="needs a terminal"),
    ],
)
def test_a_section_that_a_service_cannot_serve_is_refused(command: Command, spec: dict[str, Any], text: str) -> None:
    with pytest.raises(ConfigurationError, match=text):
        command.plugin(**spec)
