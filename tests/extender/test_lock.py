"""The image installs exactly what ``requirements.lock`` says, and that covers all it needs."""

from __future__ import annotations

import re
import tomllib
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
DOCKERFILE = (ROOT / "Dockerfile").read_text()
LOCK = (ROOT / "requirements.lock").read_text()
HASH = re.compile(r"--hash=sha256:[0-9a-f]{64}")
IMAGE = {"python_version": "3.11", "python_full_version": "3.11.0", "sys_platform": "linux", "extra": ""}


def locked() -> dict[str, str]:
    """Versions by name; every entry is a pin followed by hashes and nothing else."""
    found: dict[str, str] = {}
    for entry in LOCK.replace("\\\n", " ").splitlines():
        pin, *hashes = entry.split()
        name, equals, version = pin.partition("==")
        assert equals, pin
        assert hashes, pin
        assert all(HASH.fullmatch(text) for text in hashes), pin
        found[canonicalize_name(name)] = version
    return found


@pytest.mark.parametrize("text", [*PROJECT["dependencies"], *PROJECT["optional-dependencies"]["otel"]])
def test_a_dependency_of_the_image_is_pinned_within_its_range(text: str) -> None:
    wanted = Requirement(text)
    assert locked()[canonicalize_name(wanted.name)] in wanted.specifier


@pytest.mark.parametrize("name", sorted(locked()))
def test_what_a_pinned_distribution_needs_is_pinned_too(name: str) -> None:
    version = locked()[name]
    try:
        distribution = metadata.distribution(name)
    except metadata.PackageNotFoundError:
        pytest.skip(f"{name} is not installed here")
    if distribution.version != version:
        pytest.skip(f"{name} {distribution.version} is installed here, {version} is pinned")
    for wanted in map(Requirement, distribution.requires or ()):
        if wanted.marker is None or wanted.marker.evaluate(IMAGE):
            assert locked()[canonicalize_name(wanted.name)] in wanted.specifier


def test_the_lock_names_no_place_to_fetch_from() -> None:
    assert not re.search(r"://|index-url|find-links|trusted-host|#", LOCK)


def test_the_image_installs_the_lock_and_then_the_wheel_alone() -> None:
    installs = re.findall(r"pip .*install (?:[^&\n]|\\\n)*", DOCKERFILE)
    assert len(installs) == 2
    assert "--require-hashes --requirement requirements.lock" in installs[0]
    assert "--no-deps" in installs[1]
    assert "requirements.lock" in next(line for line in DOCKERFILE.splitlines() if line.startswith("COPY"))


def test_the_lock_is_renewed_for_the_python_and_the_extra_of_the_image() -> None:
    (command,) = re.findall(r"^\t(.*uv pip compile .*)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    (version,) = set(re.findall(r"^FROM python:([0-9.]+)", DOCKERFILE, re.MULTILINE))
    assert f"--python-version {version} " in command
    assert "--extra otel " in command
    assert "--generate-hashes " in command
    assert "--output-file requirements.lock " in command
