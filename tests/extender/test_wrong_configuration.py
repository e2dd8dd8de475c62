"""What an operator is told of a configuration that is wrong: the path, what is wrong with it, and the remedy."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from extender.config import ExtenderConfiguration, load_configuration
from extender.errors import ConfigurationError


def problems(text: str, folder: Path, *settings: str, environment: Mapping[str, str] | None = None) -> tuple[str, ...]:
    file = folder / "extender.yaml"
    file.write_text(text)
    with pytest.raises(ConfigurationError) as refusal:
        load_configuration(file, environment=environment or {}, settings=settings)
    return refusal.value.problems


def loaded(text: str, folder: Path, *settings: str, **environment: str) -> ExtenderConfiguration:
    file = folder / "extender.yaml"
    file.write_text(text)
    return load_configuration(file, environment=environment, settings=settings)


WRONG = {
    # of another type
    "server: {port: true}": "server.port: must be a whole number, got true",
    "server: {port: '80'}": "server.port: must be a whole number, got '80'; write it without quotes",
    "server: {port: 80.5}": "server.port: must be a whole number, got 80.5",
    "server: {drainSeconds: '5'}": "server.drainSeconds: must be a number, got '5'; write it without quotes",
    "server: {drainSeconds: soon}": "server.drainSeconds: must be a number, got 'soon'",
    "server: {host: 10}": "server.host: must be a text, got 10; put it in quotes",
    "server: {host: 2024-01-01}": "server.host: must be a text, got 2024-01-01; put it in quotes",
    "server: {pathPrefixes: /a}": "server.pathPrefixes: must be a list, got '/a'; write [/a]",
    "server: [port]": "server: must be a mapping of keys to values, got a list",
    "management: {debug: 1}": "management.debug: must be true or false, got 1",
    "events: {enabled: 'true'}": "events.enabled: must be true or false, got 'true'; write it without quotes",
    "profiles: {schedulerName: a}": "profiles: must be a list, got a mapping",
    "profiles: [{priorities: {enabled: [{name: A, weight: '1'}]}}]": (
        "profiles[0].priorities.enabled[0].weight: must be a whole number, got '1'; write it without quotes"
    ),
    "profiles: [{predicates: {enabled: [NodeName]}}]": (
        'profiles[0].predicates.enabled[0]: must be a mapping; write {name: "NodeName"}'
    ),
    "profiles: [{predicates: {enabled: [{name: A, args: [1]}]}}]": (
        "profiles[0].predicates.enabled[0].args: must be a mapping of keys to values, got a list"
    ),
    "log: {levels: {extender: null}}": ("log.levels.extender: must be 'debug', 'info', 'warning' or 'error', got null"),
    # of another form
    "server: {pathPrefixes: [a]}": "server.pathPrefixes[0]: must begin with '/', got 'a'",
    "log: {levels: {a b: debug}}": (
        "log.levels: key 'a b': must be the name of a module or package, such as extender.cluster, got 'a b'"
    ),
    "log: {levels: {5: debug}}": "log.levels: key 5: must be a text, got 5; put it in quotes",
    "tracing: {endpoint: 'otel:4318'}": (
        "tracing.endpoint: must begin with http:// or https://, and name a host, got 'otel:4318'"
    ),
    "leaderElection: {leaseName: A_b}": (
        "leaderElection.leaseName: must be a name of small letters, digits, '-' and '.', with a letter or digit at "
        "both ends, got 'A_b'"
    ),
    # out of range
    "server: {port: 70000}": "server.port: must be <= 65535, got 70000",
    "server: {graceSeconds: .nan}": "server.graceSeconds: must be <= 86400, got nan",
    # keys
    "server: {path_prefixes: [/a]}": "server.path_prefixes: unknown key; write pathPrefixes",
    "server: {maxbodybytes: 5000}": "server.maxbodybytes: unknown key; write maxBodyBytes",
    "leader_election: {enabled: true}": "leader_election: unknown key; write leaderElection",
    "server: {drainSecond: 5}": "server.drainSecond: unknown key; did you mean drainSeconds?",
    "drainSeconds: 5": "drainSeconds: unknown key; did you mean server.drainSeconds?",
    "speed: 5": "speed: unknown key; remove it or correct its spelling",
    "profiles: [{predicates: {enabled: [{nam: A, name: B}]}}]": (
        "profiles[0].predicates.enabled[0].nam: unknown key; did you mean name?"
    ),
    "on: {}": "key true: must be a text, got true; put it in quotes",
    # that do not go together
    "cache: {staleSeconds: 20}": (
        "cache.staleSeconds: must be > clientConnection.silenceSeconds (55), so that a watch that was opened anew has "
        "the time to speak, got 20"
    ),
}


@pytest.mark.parametrize(("text", "problem"), WRONG.items(), ids=WRONG)
def test_a_wrong_value_is_told_with_path_and_remedy(text: str, problem: str, tmp_path: Path) -> None:
    assert problems(text, tmp_path) == (problem,)


def test_what_does_not_go_together_is_told_beside_wrong_values_but_not_for_them(tmp_path: Path) -> None:
    same = "management: {port: 5}\nprofiles: [{}, {}]\nlog: {level: loud}\nserver: "
    level = "log.level: must be 'debug', 'info', 'warning' or 'error', got 'loud'"
    twice = "profiles[1].schedulerName: 'default-scheduler' is that of profiles[0]; give another"
    assert problems(f"{same}{{port: 5}}", tmp_path) == (
        level,
        twice,
        "server.port and management.port must differ",
    )
    # The port that counts for want of a good one is not the one that was meant.
    assert problems("management: {port: 8888}\nserver: {port: x}", tmp_path) == (
        "server.port: must be a whole number, got 'x'",
    )


def test_a_pair_is_not_missed_where_half_of_it_is_wrong(tmp_path: Path) -> None:
    assert problems("server: {tls: {certFile: 5, keyFile: /key}}", tmp_path) == (
        "server.tls.certFile: must be a text, got 5; put it in quotes",
    )


# --- keys that stand twice -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("server: {port: 1}\nlog: {}\nserver: {}\n", "server: stands in line 1 and again in line 3"),
        ("server:\n  tls:\n    certFile: a\n  tls: {}\n", "server.tls: stands in line 2 and again in line 4"),
        ("profiles:\n- provider: a\n  provider: b\n", "profiles[0].provider: stands in line 2 and again in line 3"),
        ('{"log": {}, "log": {}}', "log: stands in line 1 and again in line 1"),
    ],
    ids=["a section", "a section in one", "in a list", "in JSON"],
)
def test_a_key_that_stands_twice_is_refused_with_both_lines(text: str, place: str, tmp_path: Path) -> None:
    assert problems(text, tmp_path)[0] == f"{tmp_path / 'extender.yaml'}: {place}; keep one of them"


def test_a_key_that_stands_twice_hides_no_other_finding(tmp_path: Path) -> None:
    found = problems("speed: 1\nspeed: 2\nlog: {level: loud}", tmp_path, "log.format={a: 1, a: 2}")
    assert [problem.partition(": ")[0] for problem in found] == [
        str(tmp_path / "extender.yaml"),
        "--set log.format",
        "log.level",
        "speed",
    ]


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("server: {port: 1", "line 1, column 17: expected ',' or '}', but got '<stream end>'"),
        ("server:\n\tport: 1", "line 2, column 1: found character '\\t' that cannot start any token; indent by spaces"),
        ("a: b: c", "line 1, column 5: mapping values are not allowed here"),
        ("a: 2026-99-99", "month must be in 1..12"),
        ("a: !!python/object:os.system {}", "line 1, column 4: could not determine a constructor for the tag"),
    ],
    ids=["cut off", "a tab", "two colons", "a day that is none", "a tag"],
)
def test_what_is_no_yaml_is_told_in_one_line_with_its_place(text: str, fault: str, tmp_path: Path) -> None:
    (problem,) = problems(text, tmp_path)
    assert problem.startswith(f"{tmp_path / 'extender.yaml'}: is not YAML: {fault}")
    assert "\n" not in problem


# --- null ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    ["server:", "server:\n  tls:\n  port:", "profiles:", "profiles: [{predicates: , provider: }]", "log: {levels: }"],
)
def test_null_is_as_if_left_out(text: str, tmp_path: Path) -> None:
    assert loaded(text, tmp_path) == ExtenderConfiguration()


def test_a_section_whose_keys_are_commented_out_can_still_be_set(tmp_path: Path) -> None:
    set_over = loaded("server:\n  # port: 1\n", tmp_path, "server.port=3", SCHEDULER_EXTENDER_LOG__LEVEL="")
    assert (set_over.server.port, set_over.log.level) == (3, "info")


def test_profiles_of_null_leave_the_place_to_a_source(tmp_path: Path) -> None:
    assert loaded("profiles:\nalgorithmSource: {policyFile: /p}", tmp_path).algorithm_source.policy_file == "/p"


# --- variables and flags ---------------------------------------------------------------------------------------------


def test_a_finding_names_the_variable_or_the_flag_that_it_is_owed_to(tmp_path: Path) -> None:
    environment = {
        "SCHEDULER_EXTENDER_SERVER__PORT": "high",
        "SCHEDULER_EXTENDER_MANAGEMENT__TLS__CERT_FILE": "/cert",
        "SCHEDULER_EXTENDER_SERVER_DRAIN_SECONDS": "1",
        "SCHEDULER_EXTENDER_": "1",
    }
    settings = ("server.nope=1", "log.level=loud", "exempt.namespaces[0]=a", "=1", "profiles=[{provider: 5}]")
    assert sorted(problems("log: {format: yaml}", tmp_path, *settings, environment=environment)) == [
        "--set : names no key; write it as server.port",
        "--set exempt.namespaces[0]: a list is set as a whole, such as --set 'exempt.namespaces=[a, b]'",
        "--set log.level: must be 'debug', 'info', 'warning' or 'error', got 'loud'",
        "--set profiles[0].provider: must be a text, got 5; put it in quotes",
        "--set server.nope: unknown key; remove it or correct its spelling",
        "SCHEDULER_EXTENDER_: names no key; write it as SCHEDULER_EXTENDER_SERVER__PORT",
        "SCHEDULER_EXTENDER_MANAGEMENT__TLS__CERT_FILE: management.tls: "
        "certFile and keyFile go together: give both, or neither for plain HTTP",
        "SCHEDULER_EXTENDER_SERVER_DRAIN_SECONDS: serverDrainSeconds: unknown key; did you mean server.drainSeconds?",
        "SCHEDULER_EXTENDER_SERVER__PORT: server.port: must be a whole number, got 'high'",
        "log.format: must be 'json' or 'text', got 'yaml'",
    ]


def test_a_flag_over_a_variable_takes_the_blame_from_it(tmp_path: Path) -> None:
    environment = {"SCHEDULER_EXTENDER_SERVER__PORT": "high"}
    assert problems("{}", tmp_path, "server={port: low}", environment=environment) == (
        "--set server.port: must be a whole number, got 'low'",
    )


@pytest.mark.parametrize("name", ["PORT", "SERVICE_HOST", "SERVICE_PORT_HTTP", "PORT_8888_TCP", "PORT_8888_TCP_ADDR"])
def test_a_variable_that_kubernetes_sets_for_a_service_is_told_to_be_one(name: str, tmp_path: Path) -> None:
    (problem,) = problems("{}", tmp_path, environment={f"SCHEDULER_EXTENDER_{name}": "tcp://10.0.0.1:8888"})
    assert problem.startswith(f"SCHEDULER_EXTENDER_{name}: ")
    assert problem.endswith("set for a Service named scheduler-extender unless enableServiceLinks is false)")


def test_a_text_in_a_variable_or_flag_needs_no_quotes(tmp_path: Path) -> None:
    set_over = loaded(
        "{}", tmp_path, "server.host=10", "server.port=10", SCHEDULER_EXTENDER_LEADER_ELECTION__IDENTITY="007"
    )
    assert (set_over.server.host, set_over.server.port) == ("10", 10)
    assert set_over.leader_election.identity == "007"
