"""The service as a process of its own: how it starts, and how it stops without losing a request."""

from __future__ import annotations

import contextlib
import json
import signal
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest
import yaml

from extender.testing import make_node, make_pod
from tests.integration.served import PATIENCE_SECONDS, Process, run, until

CASE = json.loads((Path(__file__).parents[1] / "data" / "cases" / "B48-shutdown.json").read_text())
BODY = json.dumps({"Pod": make_pod("p"), "NodeNames": ["n1"]}).encode()
HEAD = b"POST /filter HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(BODY)


WRONG_IN_EVERY_WAY = """
log: {level: loud}
server: {tls: {certFile: /absent/cert, keyFile: /absent/key}}
management: {port: 8888}
profiles:
- predicates:
    enabled:
    - {name: EBSLimit}
    - {name: NodeResourcesFit, args: {nope: 1}}
    - {name: NodeName, mode: shade}
"""


@pytest.fixture
def process(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Process]:
    """A service over a cluster of one node that is ready; the test's parameter are further settings."""
    cluster = tmp_path / "cluster.yaml"
    cluster.write_text(yaml.safe_dump(make_node("n1")))
    addresses = [f"{section}.{key}" for section in ("server", "management") for key in ("host=127.0.0.1", "port=0")]
    settings = [*addresses, *getattr(request, "param", ())]
    running = Process("--cluster", str(cluster), *(f"--set={setting}" for setting in settings))
    try:
        until(lambda: running.logged("synced") or running.child.poll() is not None)
        assert running.child.poll() is None, running.lines
        yield running
    finally:
        running.close()


def connect(url: str) -> socket.socket:
    target = urlsplit(url)
    return socket.create_connection((target.hostname, target.port), timeout=PATIENCE_SECONDS)


def is_refused(url: str) -> bool:
    try:
        connect(url).close()
    except ConnectionError:
        return True
    return False


def read_answer(opened: socket.socket) -> tuple[bytes, Any]:
    """The status line and the body of the next answer."""
    stream = opened.makefile("rb")
    status, length = stream.readline(), 0
    while (line := stream.readline()) != b"\r\n":
        name, _, value = line.partition(b":")
        length = int(value) if name.lower() == b"content-length" else length
    return status.strip(), json.loads(stream.read(length))


LEISURELY = ("server.drainSeconds=1.5", "server.bodyTimeoutSeconds=30", "server.deadlineSeconds=30")


@pytest.mark.parametrize("process", [LEISURELY], indirect=True)
def test_b48_no_request_is_lost_on_sigterm(process: Process) -> None:
    serving = process.logged("serving")
    assert serving is not None
    assert str(CASE["steps"][0]["do"]).startswith("SIGTERM while 20 requests run and 40 idle")
    with contextlib.ExitStack() as stack:
        busy = [stack.enter_context(connect(serving["verbs"])) for _ in range(20)]
        idle = [stack.enter_context(connect(serving["verbs"])) for _ in range(40)]
        for opened in busy:
            opened.sendall(HEAD + BODY[:40])
        for opened in idle:
            opened.sendall(HEAD + BODY)
            assert read_answer(opened)[0] == b"HTTP/1.1 200 OK"

        process.child.send_signal(signal.SIGTERM)
        ready = until(lambda: _not_ready(f"{serving['management']}/readyz"))
        assert "[-]shutdown failed: stopping" in ready
        assert httpx.get(f"{serving['management']}/livez").text == "ok"
        for opened in (stack.enter_context(connect(serving["verbs"])), *idle[:5]):
            opened.sendall(HEAD + BODY)
            assert read_answer(opened)[1]["NodeNames"] == ["n1"]

        until(lambda: is_refused(serving["verbs"]))
        for opened in busy:
            opened.sendall(BODY[40:])
        for opened in busy:
            status, answer = read_answer(opened)
            assert (status, answer["NodeNames"]) == (b"HTTP/1.1 200 OK", ["n1"])
        assert [opened.recv(1) for opened in idle] == [b""] * len(idle)  # closed in good order
    assert process.child.wait(PATIENCE_SECONDS) == 0
    assert until(lambda: process.logged("stopped"))


@pytest.mark.parametrize("process", [LEISURELY], indirect=True)
def test_a_second_signal_ends_it_at_once(process: Process) -> None:
    serving = process.logged("serving")
    assert serving is not None
    with connect(serving["verbs"]) as busy:
        busy.sendall(HEAD + BODY[:40])
        process.child.send_signal(signal.SIGTERM)
        until(lambda: process.logged("stopping"))
        process.child.send_signal(signal.SIGINT)
        assert process.child.wait(PATIENCE_SECONDS) == 128 + signal.SIGINT
    assert process.logged("stopped") is None


@pytest.mark.parametrize("process", [("server.drainSeconds=3600",)], indirect=True)
def test_an_interrupt_from_the_keyboard_does_not_wait(process: Process) -> None:
    process.child.send_signal(signal.SIGINT)
    assert process.child.wait(PATIENCE_SECONDS) == 0


@pytest.mark.parametrize("sections", [("server",), ("management",), ("server", "management")], ids=" and ".join)
def test_ports_that_are_taken_are_named(tmp_path: Path, sections: tuple[str, ...]) -> None:
    (tmp_path / "cluster.yaml").write_text(yaml.safe_dump(make_node("n1")))
    with contextlib.ExitStack() as stack:
        taken = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in sections]
        numbers = {name: opened.getsockname()[1] for name, opened in zip(sections, taken, strict=True)}
        ports = {"server": 0, "management": 0, **numbers}
        settings = [f"--set={name}.{key}" for name, port in ports.items() for key in ("host=127.0.0.1", f"port={port}")]
        done = run("--cluster", str(tmp_path / "cluster.yaml"), *settings)
    assert done.returncode == 2
    assert [line for line in done.stderr.splitlines() if not line.startswith("{")] == [
        f"error: {name}.port: cannot listen on 127.0.0.1 port {number}: Address already in use; "
        "stop what listens there, or give another"
        for name, number in numbers.items()
    ]


def test_the_port_of_the_embedded_cluster_that_is_taken_is_named(tmp_path: Path) -> None:
    (tmp_path / "cluster.yaml").write_text(yaml.safe_dump(make_node("n1")))
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = run("--cluster", str(tmp_path / "cluster.yaml"), "--cluster-port", str(port))
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert line == (
        f"error: --cluster-port: {port}: cannot listen on 127.0.0.1: Address already in use; "
        "stop what listens there, or give another"
    )


@pytest.mark.parametrize("port", ["-5", "99999"])
def test_a_port_of_the_embedded_cluster_that_is_none_is_refused(port: str) -> None:
    done = run("--cluster", "cluster.yaml", "--cluster-port", port)
    assert done.returncode == 2
    assert "Invalid value for '--cluster-port'" in done.stderr


@pytest.mark.parametrize(
    ("options", "lines"),
    [
        (
            ("--cluster", "c.yaml", "--kubeconfig", "k", "--context", "c"),
            [
                "error: --kubeconfig: does not count with --cluster; leave one of them out",
                "error: --context: does not count with --cluster; leave one of them out",
            ],
        ),
        (("--cluster-port", "9"), ["error: --cluster-port: counts with --cluster only; leave it out"]),
    ],
    ids=["two clusters", "a port of no cluster"],
)
def test_options_that_would_count_for_nothing_are_refused(options: tuple[str, ...], lines: list[str]) -> None:
    done = run(*options)
    assert (done.returncode, done.stderr.splitlines()) == (2, lines)


def test_all_that_is_wrong_is_told_at_once_and_before_the_api_server_is_looked_for(tmp_path: Path) -> None:
    file = tmp_path / "extender.yaml"
    file.write_text(WRONG_IN_EVERY_WAY)
    done = run("--config", str(file), "--kubeconfig", "/absent/too")
    assert done.returncode == 2
    assert done.stderr.splitlines() == [
        "error: profiles[0].predicates.enabled[2].mode: must be 'enforce' or 'shadow', got 'shade'",
        "error: log.level: must be 'debug', 'info', 'warning' or 'error', got 'loud'",
        "error: server.port and management.port must differ",
        "error: profiles[0].predicates.enabled[0].name: no algorithm named 'EBSLimit'; did you mean 'EBSLimits'?",
        "error: profiles[0].predicates.enabled[1].args.nope: unknown key; remove it or correct its spelling",
        *(
            f"error: server.tls.{key}File: /absent/{key}: cannot be read: No such file or directory; "
            "mount it or correct it"
            for key in ("cert", "key")
        ),
    ]


def test_a_configuration_that_cannot_be_used_is_told_line_by_line() -> None:
    done = run("--set=server.port=-1", "--set=server.speed=1")
    assert done.returncode == 2
    assert done.stderr.splitlines() == [
        "error: --set server.port: must be >= 0, got -1",
        "error: --set server.speed: unknown key; remove it or correct its spelling",
    ]


def test_certificates_that_cannot_be_used_are_told_for_both_ports(tmp_path: Path) -> None:
    (tmp_path / "cluster.yaml").write_text(yaml.safe_dump(make_node("n1")))
    (tmp_path / "tls.crt").write_text("")
    (tmp_path / "tls.key").write_text("")
    files = [
        f"--set={port}.tls.{key}={tmp_path / name}"
        for port in ("server", "management")
        for key, name in (("certFile", "tls.crt"), ("keyFile", "tls.key"))
    ]
    done = run("--cluster", str(tmp_path / "cluster.yaml"), *files)
    assert done.returncode == 2
    errors = [line for line in done.stderr.splitlines() if line.startswith("error: ")]
    assert [line.split(": ")[1] for line in errors] == [
        "server.tls.certFile",
        "server.tls.keyFile",
        "management.tls.certFile",
        "management.tls.keyFile",
    ]
    assert "Traceback" not in done.stderr


def _not_ready(url: str) -> str:
    response = httpx.get(url)
    return response.text if response.status_code == 503 else ""
