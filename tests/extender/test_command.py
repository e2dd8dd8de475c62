"""The console script: its version, and what ``register`` refuses to add to."""

from __future__ import annotations

from importlib.metadata import version
from pathlib import Path

import pytest
from typer.testing import CliRunner

from extender.__main__ import app
from extender.errors import ConfigurationError
from extender.registration.dialect import CONFIGURATION, GROUP


def test_the_version_is_that_of_the_package() -> None:
    result = CliRunner().invoke(app, ["--version"])
    assert (result.exit_code, result.stdout) == (0, f"scheduler-extender {version('kube-scheduler-extender')}\n")


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (None, "cannot be read: No such file or directory"),
        ("a: [", "is neither YAML nor JSON: line 1, column 5"),
        (
            f"kind: {CONFIGURATION}\napiVersion: {GROUP}/v1\nprofiles: []\nprofiles: []\n",
            "profiles: stands in line 3 and again in line 4: kube-scheduler does not start; keep one of them",
        ),
    ],
    ids=["absent", "cut off", "a key that stands twice"],
)
def test_a_file_that_kube_scheduler_cannot_read_is_not_added_to(text: str | None, problem: str, tmp_path: Path) -> None:
    file = tmp_path / "scheduler.yaml"
    if text is not None:
        file.write_text(text)
    result = CliRunner().invoke(app, ["register", "--url", "http://h", "--add-to", str(file)])
    assert isinstance(result.exception, ConfigurationError)
    assert str(result.exception).startswith("--add-to: ")
    assert problem in str(result.exception)
    assert not result.stdout


def test_a_weight_without_scores_is_refused() -> None:
    result = CliRunner().invoke(app, ["register", "--url", "http://h", "--verb", "filter", "--weight", "3"])
    assert str(result.exception).startswith("--weight: is that of scores, which are not asked for")
    assert CliRunner().invoke(app, ["register", "--url", "http://h", "--verb", "filter"]).exit_code == 0
