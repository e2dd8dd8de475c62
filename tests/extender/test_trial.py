"""A configuration tried on nothing: algorithms, certificates and sources are looked at beside other findings."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path

import pytest

from extender.errors import ConfigurationError
from extender.reload import ConfigurationSource
from tests.extender.authority import Authority

Refused = Callable[[str], tuple[str, ...]]

LEVEL = "log.level: must be 'debug', 'info', 'warning' or 'error', got 'loud'"
NO_ALGORITHM = "no algorithm named 'NodeNam'; did you mean 'NodeName'?"


@pytest.fixture
def refused(tmp_path: Path) -> Refused:
    """The findings about a configuration."""

    def load(text: str) -> tuple[str, ...]:
        file = tmp_path / "extender.yaml"
        file.write_text(text)
        with pytest.raises(ConfigurationError) as refusal:
            ConfigurationSource(file, environment={}).load()
        return refusal.value.problems

    return load


@pytest.mark.parametrize(
    ("beside", "path"),
    [
        ("{predicates: {enabled: [{name: NodeNam}]}}", "predicates.enabled[0].name"),
        (
            "{predicates: {enabled: [{name: A, weight: 5}, {name: NodeNam, mode: shadow}]}}",
            "predicates.enabled[1].name",
        ),
        ("{schedulerName: 5, priorities: {enabled: [{name: NodeNam}]}}", "priorities.enabled[0].name"),
    ],
    ids=["in another section", "in the same list", "in the same profile"],
)
def test_algorithms_are_looked_for_beside_another_finding(refused: Refused, beside: str, path: str) -> None:
    found = refused(f"log: {{level: loud}}\nprofiles: [{beside}]")
    assert LEVEL in found
    assert f"profiles[0].{path}: {NO_ALGORITHM}" in found


def test_what_was_left_out_gives_rise_to_nothing_of_its_own(refused: Refused) -> None:
    text = "profiles: [{predicates: {enabled: [{name: NodeLabel, args: 5}, {nam: x}]}, provider: 7}]"
    assert [problem.partition(": ")[0] for problem in refused(text)] == [
        "profiles[0].provider",
        "profiles[0].predicates.enabled[0].args",
        "profiles[0].predicates.enabled[1].name",
        "profiles[0].predicates.enabled[1].nam",
    ]


def test_certificates_are_read_beside_another_finding(refused: Refused, tmp_path: Path) -> None:
    cert, key = Authority("ca").issue("a")
    (tmp_path / "cert").write_bytes(cert)
    (tmp_path / "key").write_bytes(key)
    (tmp_path / "other").write_bytes(Authority("ca").issue("b")[1])
    pair = f"certFile: {tmp_path / 'cert'}, keyFile: {tmp_path / 'key'}"
    odd = f"certFile: {tmp_path / 'cert'}, keyFile: {tmp_path / 'other'}"
    text = f"log: {{level: loud}}\nserver: {{tls: {{{pair}, minVersion: 9}}}}\nmanagement: {{tls: {{{odd}}}}}"
    assert [problem.partition(": ")[0] for problem in refused(text)] == [
        "server.tls.minVersion",
        "log.level",
        "management.tls.certFile",
    ]


def test_a_source_is_read_beside_another_finding(refused: Refused, tmp_path: Path) -> None:
    policy = tmp_path / "policy.yaml"
    policy.write_text("{kind: Policy, apiVersion: v1, predicates: [{name: NodeNam}]}")
    found = refused(f"log: {{level: loud}}\nalgorithmSource: {{policyFile: {policy}}}")
    assert found[0] == LEVEL
    assert found[1].startswith(f"{policy}: predicates[0].name: no predicate named 'NodeNam'")


def test_a_trial_tells_the_log_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    policy, file = tmp_path / "policy.yaml", tmp_path / "extender.yaml"
    policy.write_text("{kind: Policy, apiVersion: v1, predicates: [{name: CheckNodeCondition}]}")
    file.write_text(f"algorithmSource: {{policyFile: {policy}}}")
    ConfigurationSource(file, environment={}).load()
    assert not [record for record in caplog.records if record.name.startswith("extender.")]
