"""A service as a process of its own takes over what its configuration file changes to, and outlives what is wrong."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from extender.testing import make_node, make_pod
from tests.extender.specimen import PATH
from tests.integration.served import Process, until

LOOPBACK = {"host": "127.0.0.1", "port": 0}
SOON, ON_REQUEST = {"pollSeconds": 0.05}, {"pollSeconds": 0}
POLICY = {"apiVersion": "v1", "kind": "Policy", "predicates": [{"name": "HostName"}], "priorities": []}


def picky(*names: str, reload: Any = SOON, **more: Any) -> str:
    """A file whose one profile refuses the named nodes."""
    entry = {"name": f"{PATH}:Picky", "args": {"names": list(names)}}
    profile = {"predicates": {"enabled": [entry]}, "priorities": {"enabled": []}}
    return text({"profiles": [profile], "reload": reload, **more})


def text(configuration: dict[str, Any]) -> str:
    return yaml.safe_dump({"server": LOOPBACK, "management": LOOPBACK, **configuration})


class Service:
    """A process that follows ``file``."""

    def __init__(self, directory: Path, file: Path) -> None:
        cluster = directory / "cluster.yaml"
        cluster.write_text(yaml.safe_dump_all([make_node("a"), make_node("b"), make_node("c")]))
        self.process = Process("--cluster", str(cluster), "--config", str(file))
        until(lambda: self.process.logged("synced") or self.process.child.poll() is not None)
        assert self.process.child.poll() is None, self.process.lines
        serving = self.process.logged("serving")
        assert serving is not None
        self.verbs, self.management = serving["verbs"], serving["management"]

    def kept(self, **spec: Any) -> list[str]:
        body = {"Pod": make_pod("p", **spec), "NodeNames": ["a", "b", "c"]}
        reply = httpx.post(f"{self.verbs}/filter", content=json.dumps(body), timeout=10).json()
        assert reply["Error"] == ""
        names: list[str] = reply["NodeNames"]
        return names

    def hang_up(self) -> None:
        self.process.child.send_signal(signal.SIGHUP)

    def metric(self, sample: str) -> float:
        lines = httpx.get(f"{self.management}/metrics").text.splitlines()
        return next(float(line.split()[1]) for line in lines if line.split()[0] == f"scheduler_extender_{sample}")

    def told(self) -> str:
        answer = httpx.get(f"{self.management}/readyz?verbose")
        assert answer.status_code == 200
        return next(line for line in answer.text.splitlines() if line.startswith("[+]configuration"))


Start = Callable[[Path], Service]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    running: list[Service] = []

    def begin(file: Path) -> Service:
        running.append(Service(tmp_path, file))
        return running[-1]

    yield begin
    for service in running:
        service.process.close()


def test_a_changed_file_is_taken_over_and_a_broken_one_is_not(tmp_path: Path, start: Start) -> None:
    file = tmp_path / "extender.yaml"
    file.write_text(picky("a"))
    service = start(file)
    assert service.kept() == ["b", "c"]

    file.write_text(picky("b"))
    until(lambda: service.kept() == ["a", "c"])
    assert service.metric("configuration_generation") == 2

    file.write_text(picky("c", server=LOOPBACK | {"port": -1, "speed": 1}))
    until(lambda: service.metric("configuration_last_reload_successful") == 0)
    assert service.kept() == ["a", "c"]
    assert "server.port: must be >= 0, got -1; and 1 more" in service.told()
    refused = service.process.logged("configuration not replaced")
    assert refused is not None
    assert (refused["level"], refused["generation"]) == ("error", 2)
    assert refused["problems"] == [
        "server.port: must be >= 0, got -1",
        "server.speed: unknown key; remove it or correct its spelling",
    ]

    file.unlink()
    until(lambda: "cannot be read" in service.told())
    assert service.kept() == ["a", "c"]

    file.write_text(picky("c"))
    until(lambda: service.kept() == ["a", "b"])
    assert service.metric("configuration_last_reload_successful") == 1
    assert service.metric("configuration_generation") == 3
    assert service.told() == "[+]configuration ok"


def test_a_file_that_a_kubelet_swaps_by_a_link_is_taken_over(tmp_path: Path, start: Start) -> None:
    def publish(version: str, content: str) -> None:
        """Do as the kubelet does with the volume of a ConfigMap."""
        (tmp_path / version).mkdir()
        (tmp_path / version / "extender.yaml").write_text(content)
        (tmp_path / "..data_tmp").symlink_to(version)
        (tmp_path / "..data_tmp").replace(tmp_path / "..data")

    publish("..first", picky("a"))
    (tmp_path / "extender.yaml").symlink_to("..data/extender.yaml")
    service = start(tmp_path / "extender.yaml")
    assert service.kept() == ["b", "c"]
    publish("..second", picky("b"))
    until(lambda: service.kept() == ["a", "c"])


def test_sighup_has_the_file_loaded_and_the_process_live(tmp_path: Path, start: Start) -> None:
    file = tmp_path / "extender.yaml"
    file.write_text(picky("a", reload=ON_REQUEST))
    service = start(file)
    service.hang_up()
    until(lambda: service.metric("configuration_generation") == 2)  # changed or not
    assert service.kept() == ["b", "c"]
    file.write_text(picky("b", reload=ON_REQUEST))
    service.hang_up()
    until(lambda: service.kept() == ["a", "c"])
    file.write_text("profiles: [")
    service.hang_up()
    until(lambda: service.metric('configuration_reloads_total{result="failed"}') == 1)
    assert service.kept() == ["a", "c"]
    assert service.process.child.poll() is None
    service.process.child.send_signal(signal.SIGTERM)
    service.process.child.send_signal(signal.SIGHUP)
    until(lambda: service.process.logged("stopping"))


def test_a_file_that_the_configuration_names_is_followed_as_well(tmp_path: Path, start: Start) -> None:
    file, policy = tmp_path / "extender.yaml", tmp_path / "policy.json"
    policy.write_text(json.dumps(POLICY))
    file.write_text(text({"algorithmSource": {"policyFile": str(policy)}, "reload": SOON}))
    service = start(file)
    assert service.kept(nodeName="c") == ["c"]
    policy.write_text(json.dumps(POLICY | {"predicates": []}))
    until(lambda: service.kept(nodeName="c") == ["a", "b", "c"])
    policy.write_text("{")
    until(lambda: str(policy) in service.told())
    assert service.kept(nodeName="c") == ["a", "b", "c"]
    file.write_text(picky("a"))
    until(lambda: service.kept() == ["b", "c"])
