"""The configuration: the promised defaults, where values come from, and findings with their paths, all at once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from extender.config import ExtenderConfiguration, load_configuration
from extender.errors import ConfigurationError

DEFAULTS = {
    "apiVersion": "scheduler-extender/v1",
    "kind": "ExtenderConfiguration",
    "profiles": [
        {
            "schedulerName": "default-scheduler",
            "provider": "DefaultProvider",
            "predicates": {"enabled": None, "disabled": []},
            "priorities": {"enabled": None, "disabled": []},
            "alwaysCheckAllPredicates": False,
        }
    ],
    "algorithmSource": {"policyFile": "", "schedulerConfigurationFile": ""},
    "unmatchedSchedulerName": "default",
    "exempt": {"namespaces": [], "priorityClassNames": []},
    "reload": {"pollSeconds": 10.0, "syncSeconds": 60.0},
    "server": {
        "host": "0.0.0.0",
        "port": 8888,
        "pathPrefixes": ["/scheduler"],
        "tls": {
            "certFile": "",
            "keyFile": "",
            "minVersion": "1.2",
            "reloadSeconds": 10.0,
            "clientCaFile": "",
            "allowedSubjects": [],
        },
        "maxConnections": 4096,
        "maxHeaderBytes": 65536,
        "headerTimeoutSeconds": 10.0,
        "maxBodyBytes": 268435456,
        "bodyTimeoutSeconds": 4.0,
        "deadlineSeconds": 4.5,
        "keepAliveSeconds": 120.0,
        "drainSeconds": 5.0,
        "graceSeconds": 20.0,
    },
    "management": {
        "host": "0.0.0.0",
        "port": 8889,
        "tls": {"certFile": "", "keyFile": "", "minVersion": "1.2", "reloadSeconds": 10.0},
        "authentication": {"enabled": False},
        "debug": False,
        "stuckSeconds": 30.0,
    },
    "clientConnection": {
        "kubeconfig": "",
        "context": "",
        "requestTimeoutSeconds": 10.0,
        "silenceSeconds": 55.0,
        "pageSize": 500,
    },
    "cache": {"assumedPodSeconds": 300.0, "staleSeconds": 110.0, "errorAfterSeconds": 0.0},
    "leaderElection": {
        "enabled": False,
        "leaseName": "kube-scheduler-extender",
        "leaseNamespace": "",
        "identity": "",
        "leaseDurationSeconds": 15,
        "renewDeadlineSeconds": 10.0,
        "retryPeriodSeconds": 2.0,
    },
    "events": {"enabled": True, "queueLength": 1000, "perSecond": 50.0, "burst": 100},
    "log": {"level": "info", "format": "json", "levels": {}, "slowRequestSeconds": 0.1},
    "tracing": {"enabled": False, "endpoint": "http://127.0.0.1:4318", "samplingRatePerMillion": 10000},
}
"""What is promised to hold where nothing is set; a change here is a change for every user."""


def load(text: str, tmp_path: Path, *settings: str, **environment: str) -> ExtenderConfiguration:
    path = tmp_path / "extender.yaml"
    path.write_text(text)
    return load_configuration(path, environment=environment, settings=settings)


def findings(tree: Any, tmp_path: Path, *settings: str, **environment: str) -> tuple[str, ...]:
    with pytest.raises(ConfigurationError) as refusal:
        load(yaml.safe_dump(tree), tmp_path, *settings, **environment)
    assert str(refusal.value) == "\n".join(refusal.value.problems)
    return refusal.value.problems


def test_the_defaults_are_those_promised(tmp_path: Path) -> None:
    assert load("{}", tmp_path).model_dump(by_alias=True) == DEFAULTS
    assert load_configuration(environment={}).model_dump(by_alias=True) == DEFAULTS


def test_limits_of_time_fit_into_what_kube_scheduler_waits() -> None:
    server = ExtenderConfiguration().server
    assert server.body_timeout_seconds < server.deadline_seconds < 5.0
    assert server.keep_alive_seconds > 90.0
    assert server.drain_seconds + server.grace_seconds < 30.0  # terminationGracePeriodSeconds


def test_the_whole_default_written_down_is_the_default(tmp_path: Path) -> None:
    assert load(yaml.safe_dump(DEFAULTS), tmp_path) == ExtenderConfiguration()


def test_what_is_read_cannot_be_changed(tmp_path: Path) -> None:
    configuration = load("{}", tmp_path)
    with pytest.raises(ValueError, match="frozen"):
        configuration.server.port = 1


# --- findings --------------------------------------------------------------------------------------------------------


def test_all_findings_come_at_once_each_with_its_path(tmp_path: Path) -> None:
    tree = {
        "apiVersion": "v2",
        "speed": 1,
        "profiles": [{"priorities": {"enabled": [{"name": "A"}, {"name": "", "weight": 0}]}}],
        "server": {"port": 70000, "pathPrefixes": ["scheduler"], "keepAliveSeconds": 60, "Port": 1},
        "log": {"level": "loud"},
        "cache": [],
        "clientConnection": {"pageSize": "many", "silenceSeconds": 0.5},
    }
    assert sorted(findings(tree, tmp_path)) == [
        "apiVersion: must be 'scheduler-extender/v1', got 'v2'",
        "cache: must be a mapping of keys to values, got []",
        "clientConnection.pageSize: must be a whole number, got 'many'",
        "clientConnection.silenceSeconds: must be >= 1, got 0.5",
        "log.level: must be 'debug', 'info', 'warning' or 'error', got 'loud'",
        "profiles[0].priorities.enabled[1].name: must not be empty, got ''",
        "profiles[0].priorities.enabled[1].weight: must be >= 1, got 0",
        "server.Port: unknown key; write port",
        "server.keepAliveSeconds: must be > 90, because kube-scheduler reuses idle connections for 90 s",
        "server.pathPrefixes[0]: must begin with '/', got 'scheduler'",
        "server.port: must be <= 65535, got 70000",
        "speed: unknown key; remove it or correct its spelling",
    ]


@pytest.mark.parametrize(
    ("tree", "finding"),
    [
        ({"profiles": []}, "profiles: must not be empty, got []"),
        (
            {"server": {"port": 9000}, "management": {"port": 9000}},
            "server.port and management.port must differ",
        ),
        (
            {"profiles": [{}, {"schedulerName": "b"}, {}]},
            "profiles[2].schedulerName: 'default-scheduler' is that of profiles[0]; give another",
        ),
        (
            {"profiles": [{"schedulerName": ""}]},
            "profiles[0].schedulerName: must not be empty, got ''",
        ),
        (
            {"algorithmSource": {"policyFile": "a", "schedulerConfigurationFile": "b"}},
            "algorithmSource: policyFile and schedulerConfigurationFile exclude each other: leave one of them empty",
        ),
        (
            {"profiles": [{}], "algorithmSource": {"policyFile": "a"}},
            "profiles and algorithmSource exclude each other: remove one of them",
        ),
        (
            {"unmatchedSchedulerName": "ignore"},
            "unmatchedSchedulerName: must be 'default' or 'passThrough', got 'ignore'",
        ),
        ({"kind": "Pod"}, "kind: must be 'ExtenderConfiguration', got 'Pod'"),
        (
            {"profiles": [{"predicates": {"enabled": [{}]}}]},
            "profiles[0].predicates.enabled[0].name: is missing",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_single_finding(tree: Any, finding: str, tmp_path: Path) -> None:
    assert findings(tree, tmp_path) == (finding,)


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("server: {port: 1", "is not YAML: "),
        ("- a\n- b\n", "must hold one ExtenderConfiguration object"),
        ("just text", "must hold one ExtenderConfiguration object"),
        ("", "is empty; write {} where nothing is to be set"),
        ("# nothing but words\n", "is empty; write {} where nothing is to be set"),
        ("a: 1\n---\nb: 2\n", "holds more than one document; leave one, and no --- after it"),
    ],
    ids=repr,
)
def test_a_file_of_another_kind_is_named(text: str, part: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError) as refusal:
        load(text, tmp_path)
    assert str(refusal.value).startswith(f"{tmp_path / 'extender.yaml'}: {part}")


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"absent\.yaml: cannot be read: No such file or directory"):
        load_configuration(tmp_path / "absent.yaml", environment={})
    (tmp_path / "binary.yaml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ConfigurationError, match=r"binary\.yaml: is not YAML"):
        load_configuration(tmp_path / "binary.yaml", environment={})


# --- precedence ------------------------------------------------------------------------------------------------------


def test_flags_win_over_the_environment_and_that_over_the_file(tmp_path: Path) -> None:
    text = "server: {port: 1, host: file, drainSeconds: 1}\nmanagement: {port: 2}\n"
    configuration = load(
        text,
        tmp_path,
        "server.port=3",
        SCHEDULER_EXTENDER_SERVER__PORT="2",
        SCHEDULER_EXTENDER_SERVER__DRAIN_SECONDS="2.5",
    )
    server = configuration.server
    assert (server.port, server.host, server.drain_seconds, configuration.management.port) == (3, "file", 2.5, 2)


def test_values_of_flags_and_environment_are_read_as_yaml(tmp_path: Path) -> None:
    configuration = load(
        "{}",
        tmp_path,
        "server.pathPrefixes=[/a, /b]",
        "profiles=[{priorities: {enabled: [{name: NodeAffinity, weight: 2}]}}]",
        SCHEDULER_EXTENDER_LOG__LEVEL="debug",
        SCHEDULER_EXTENDER_CLIENT_CONNECTION__KUBECONFIG="/etc/kube",
        OTHER_VARIABLE="ignored",
    )
    assert configuration.server.path_prefixes == ["/a", "/b"]
    assert [(one.name, one.weight) for one in configuration.profiles[0].priorities.enabled or ()] == [
        ("NodeAffinity", 2)
    ]
    assert (configuration.log.level, configuration.client_connection.kubeconfig) == ("debug", "/etc/kube")


def test_findings_in_flags_and_environment_say_where_they_are_from(tmp_path: Path) -> None:
    found = findings(
        {"server": {"port": 1}, "log": {"level": "loud"}},
        tmp_path,
        "server.port",
        "server.port.number=1",
        "server.host=[",
        SCHEDULER_EXTENDER_LOG="{",
        SCHEDULER_EXTENDER_SPEED="1",
    )
    assert found[0].startswith("SCHEDULER_EXTENDER_LOG: is not YAML: ")
    assert found[1:3] == (
        "--set server.port: must have the form path=value",
        "--set server.port.number: port is not a section",
    )
    assert found[3].startswith("--set server.host: is not YAML: ")
    assert sorted(found[4:]) == [
        "SCHEDULER_EXTENDER_SPEED: speed: unknown key; remove it or correct its spelling",
        "log.level: must be 'debug', 'info', 'warning' or 'error', got 'loud'",
    ]
