"""The commands register and doctor as they are called, the latter beside a whole service on an embedded cluster."""

from __future__ import annotations

import json
import re
import shlex
import socket
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import Result
from typer.testing import CliRunner

from extender.__main__ import app, main
from extender.cluster.apiserver import Fault
from extender.testing import make_node, make_pod
from extender.testing.cluster import RunningService, running_service

ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def _no_cluster_of_the_machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("KUBECONFIG", "KUBERNETES_SERVICE_HOST", "HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture(scope="module")
def service() -> Iterator[RunningService]:
    nodes = [make_node("a"), make_node("b", cpu="1")]
    with running_service(nodes=nodes, pods=[make_pod("full", node="b", requests={"cpu": "1"})]) as running:
        yield running


def command(*words: object) -> Result:
    return CliRunner().invoke(app, [str(word) for word in words])


def kubeconfig(directory: Path, url: str) -> Path:
    file = directory / "config"
    entry = {"name": "a"}
    content = {
        "clusters": [{**entry, "cluster": {"server": url}}],
        "users": [{**entry, "user": {}}],
        "contexts": [{**entry, "context": {"cluster": "a", "user": "a"}}],
        "current-context": "a",
    }
    file.write_text(yaml.safe_dump(content))
    return file


def doctor(file: Path, *words: object) -> tuple[int, dict[str, Any]]:
    result = command("doctor", "--scheduler-config", file, "--output", "json", "--idle-seconds", 0, *words)
    return result.exit_code, json.loads(result.stdout)


@pytest.mark.parametrize("version", ["v1", "v1beta3", "v1beta2", "v1beta1", "policy"])
def test_what_register_writes_the_doctor_finds_healthy(service: RunningService, tmp_path: Path, version: str) -> None:
    file = tmp_path / "scheduler.yaml"
    result = command("register", "--url", f"{service.url}/scheduler", "--api-version", version)
    assert result.exit_code == 0
    file.write_text(result.stdout)
    code, report = doctor(file)
    assert code == 0, report
    assert report["errors"] == report["warnings"] == 0
    assert [item.rpartition("/")[2] for item in report["lookedAt"][1:]] == ["filter", "prioritize", "preempt"]
    assert not service.call(lambda: service.runtime.mirror.assumed)


def test_with_an_api_server_the_calls_are_about_its_nodes(service: RunningService, tmp_path: Path) -> None:
    file = tmp_path / "scheduler.yaml"
    file.write_text(command("register", "--url", service.url).stdout)
    code, report = doctor(file, "--kubeconfig", kubeconfig(tmp_path, service.api.url))
    assert code == 0, report
    assert report["lookedAt"][1].startswith(f"API server {service.api.url}, v1.36")
    assert not [item for item in report["findings"] if "not checked" in item["problem"]]


def test_whole_nodes_are_judged_as_well(service: RunningService, tmp_path: Path) -> None:
    file = tmp_path / "scheduler.yaml"
    text = command("register", "--url", service.url).stdout
    file.write_text(text.replace("nodeCacheCapable: true", "nodeCacheCapable: false"))
    code, report = doctor(file, "--kubeconfig", kubeconfig(tmp_path, service.api.url))
    assert code == 1
    assert [item["path"] for item in report["findings"] if item["severity"] != "note"] == [
        "extenders[0].nodeCacheCapable"
    ]


@pytest.mark.parametrize(
    ("change", "path", "problem"),
    [
        (("/scheduler\n", "/schedulr\n"), "extenders[0].filterVerb", "answers 404, so the path is wrong"),
        (("bindVerb: bind", "bindVerb: binding"), "extenders[0].bindVerb", "every pod's binding fails"),
        (("preemptVerb: preempt", ""), "extenders[0].preemptVerb", "evicts pods for nodes that filter refuses"),
        (("httpTimeout: 5s", "httpTimeout: 4.2s"), "extenders[0].httpTimeout", "is not above server.deadlineSeconds"),
    ],
    ids=["a wrong prefix", "a wrong verb for bind", "no verb for preempt", "a timeout below the deadline"],
)
def test_mistakes_about_this_service_are_found(
    service: RunningService, tmp_path: Path, change: tuple[str, str], path: str, problem: str
) -> None:
    file = tmp_path / "scheduler.yaml"
    text = command("register", "--url", f"{service.url}/scheduler").stdout
    assert change[0] in text
    file.write_text(text.replace(*change))
    code, report = doctor(file)
    assert code == 1
    (finding,) = [item for item in report["findings"] if item["path"] == path and item["severity"] != "note"]
    assert problem in finding["problem"]
    assert finding["remedy"]
    if "404" in problem:
        assert f"write urlPrefix: {service.url}/scheduler" in finding["remedy"]


def test_the_deadline_is_that_of_the_service_s_own_configuration(service: RunningService, tmp_path: Path) -> None:
    own = tmp_path / "extender.yaml"
    sections = {"server": {"deadlineSeconds": 6.5, "bodyTimeoutSeconds": 6}}
    own.write_text(yaml.safe_dump({"apiVersion": "scheduler-extender/v1", "kind": "ExtenderConfiguration", **sections}))
    file = tmp_path / "scheduler.yaml"
    file.write_text(command("register", "--url", service.url).stdout)
    code, report = doctor(file, "--config", own)
    assert code == 1
    problems = [item["problem"] for item in report["findings"] if item["path"] == "extenders[0].httpTimeout"]
    assert [text.partition(":")[0] for text in problems] == [
        "5 s is not above server.deadlineSeconds of the service, 6.5 s",
        "5 s is not above server.bodyTimeoutSeconds of the service, 6 s",
    ]


def test_a_service_that_is_not_ready_says_why(tmp_path: Path) -> None:
    file = tmp_path / "scheduler.yaml"
    away = Fault(path="^/api/v1/pods$", status=503, count=None)
    with running_service(faults=[away], synced=False) as service:
        file.write_text(command("register", "--url", service.url).stdout)
        code, report = doctor(file)
    assert code == 1
    problems = {item["path"]: item["problem"] for item in report["findings"] if item["severity"] == "error"}
    assert "not synced" in problems["extenders[0].filterVerb"]
    assert "answers 503 (kube-scheduler leaves the scores out, in silence)" in problems["extenders[0].prioritizeVerb"]


def test_text_has_the_worst_first_and_ends_in_a_summary(service: RunningService, tmp_path: Path) -> None:
    file = tmp_path / "scheduler.yaml"
    text = command("register", "--url", service.url).stdout
    file.write_text(text.replace("weight: 1", "weight: 0").replace("ignorable: false", "ignorable: true"))
    result = command("doctor", "--scheduler-config", file, "--idle-seconds", 0)
    lines = result.stdout.splitlines()
    assert result.exit_code == 1
    assert lines[0].startswith("error    extenders[0].weight: must be at least 1 with prioritizeVerb, is 0")
    assert lines[1] == "         -> set weight: 1"
    assert lines[2].startswith("warning  extenders[0].ignorable: ")
    assert lines[-1].startswith(f"{file}: 1 error, 1 warning, ")


def test_the_commands_of_the_readme_print_what_it_shows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    section = (ROOT / "README.md").read_text().partition("## Registering with kube-scheduler")[2]
    (commands, shown) = re.findall(r"```(?:sh)?\n(.*?)```", section, flags=re.DOTALL)[:2]
    monkeypatch.chdir(tmp_path)
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        port = str(closed.getsockname()[1])
        register, examine = (shlex.split(line.replace("8888", port)) for line in commands.splitlines())
        assert register[-2:] == [">", "kube-scheduler.yaml"]
        Path(register[-1]).write_text(command(*register[1:-2]).stdout)
        result = command(*examine[1:])
    lines = iter(result.stdout.splitlines())
    assert all(line in lines for line in shown.replace("8888", port).splitlines() if line != "..."), result.stdout
    assert result.exit_code == 1


# --- refusals --------------------------------------------------------------------------------------------------------


@dataclass
class Script:
    """Calls what the console script calls, which turns errors into messages and exit codes."""

    monkeypatch: pytest.MonkeyPatch
    capsys: pytest.CaptureFixture[str]

    def run(self, *words: object) -> tuple[int, str]:
        """Return the exit code and what went to stderr."""
        self.monkeypatch.setattr(sys, "argv", ["scheduler-extender", *map(str, words)])
        self.monkeypatch.chdir(ROOT)
        with pytest.raises(SystemExit) as ended:
            main()
        return int(ended.value.code or 0), self.capsys.readouterr().err


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Script:
    return Script(monkeypatch, capsys)


def test_the_script_ends_with_2_for_what_it_cannot_read() -> None:
    line = [sys.executable, "-m", "extender", "doctor", "--scheduler-config", "/no/such/file"]
    done = subprocess.run(line, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "error: /no/such/file: cannot be read: No such file or directory\n"


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["doctor"], "Missing option '--scheduler-config'"),
        (["doctor", "--scheduler-config", "/"], "error: /: cannot be read: Is a directory"),
        (
            ["doctor", "--scheduler-config", "scheduler-extender.yaml", "--kubeconfig", "/no/such/kubeconfig"],
            "error: /no/such/kubeconfig",
        ),
        (
            ["doctor", "--scheduler-config", "scheduler-extender.yaml", "--config", "scheduler-extender.yaml"],
            "error: extenders: unknown key",
        ),
        (["register", "--url", "http://h?x"], "error: --url: what follows ? or #"),
        (
            ["register", "--url", "http://h", "--add-to", "/no/such/file"],
            "error: --add-to: /no/such/file: cannot be read",
        ),
        (["register", "--url", "http://h", "--directory", "/proc/x"], "error: --directory: /proc/x: cannot be written"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_what_cannot_be_done_ends_with_2_and_a_remedy(script: Script, words: list[str], problem: str) -> None:
    code, text = script.run(*words)
    assert code == 2
    assert problem in text


# --- register --------------------------------------------------------------------------------------------------------


def test_both_documents_are_printed_one_after_the_other() -> None:
    result = command("register", "--url", "http://h", "--kubeadm")
    configuration, patch = yaml.safe_load_all(result.stdout)
    assert configuration["kind"] == "KubeSchedulerConfiguration"
    assert patch["spec"]["containers"][0]["name"] == "kube-scheduler"


def test_files_are_written_once_and_never_over_others(script: Script, tmp_path: Path) -> None:
    words = ["register", "--url", "http://h", "--kubeadm", "--directory", tmp_path / "new"]
    paths = [tmp_path / "new" / name for name in ("scheduler-extender.yaml", "kube-scheduler+strategic.yaml")]
    assert command(*words).stdout.splitlines() == [str(path) for path in paths]
    assert command(*words).exit_code == 0
    paths[0].write_text("mine")
    code, text = script.run(*words)
    assert code == 2
    assert f"{paths[0]}: is there with another content" in text
    assert paths[0].read_text() == "mine"


def test_the_service_is_added_to_an_existing_file(tmp_path: Path) -> None:
    file = tmp_path / "scheduler.yaml"
    file.write_text(command("register", "--url", "http://other", "--verb", "filter", "--kubernetes", "1.24").stdout)
    result = command("register", "--url", "http://h", "--add-to", file, "--kubeadm")
    configuration, patch = yaml.safe_load_all(result.stdout)
    assert configuration["apiVersion"].endswith("/v1beta3")
    assert [entry["urlPrefix"] for entry in configuration["extenders"]] == ["http://other", "http://h"]
    assert "--config=/etc/kubernetes/scheduler-extender.yaml" in patch["spec"]["containers"][0]["command"]


def test_a_timeout_below_the_deadline_is_warned_of() -> None:
    assert (
        "is not above server.deadlineSeconds" in command("register", "--url", "http://h", "--http-timeout", "4s").stderr
    )
    assert not command("register", "--url", "http://h").stderr
