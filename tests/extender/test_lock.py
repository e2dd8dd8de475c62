"""The image is built with, and installs, exactly what its locks say, and they cover all that is needed."""

from __future__ import annotations

import re
import tomllib
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]
DECLARED = tomllib.loads((ROOT / "pyproject.toml").read_text())
PROJECT = DECLARED["project"]
DOCKERFILE = (ROOT / "Dockerfile").read_text()
MAKEFILE = (ROOT / "Makefile").read_text()
INSTALLED, BUILDING = "requirements.lock", "requirements-build.lock"
WANTED = {
    INSTALLED: [*PROJECT["dependencies"], *PROJECT["optional-dependencies"]["otel"]],
    BUILDING: DECLARED["build-system"]["requires"],
}
"""What each lock is made from."""
HASH = re.compile(r"--hash=sha256:[0-9a-f]{64}")
IMAGE = {"python_version": "3.11", "python_full_version": "3.11.0", "sys_platform": "linux", "extra": ""}


def locked(lock: str) -> dict[str, str]:
    """Versions by name; every entry is a pin followed by hashes and nothing else."""
    found: dict[str, str] = {}
    for entry in (ROOT / lock).read_text().replace("\\\n", " ").splitlines():
        pin, *hashes = entry.split()
        name, equals, version = pin.partition("==")
        assert equals, pin
        assert hashes, pin
        assert all(HASH.fullmatch(text) for text in hashes), pin
        found[canonicalize_name(name)] = version
    return found


@pytest.mark.parametrize(("lock", "text"), [(lock, text) for lock, texts in WANTED.items() for text in texts])
def test_what_the_image_needs_is_pinned_within_its_range(lock: str, text: str) -> None:
    wanted = Requirement(text)
    assert locked(lock)[canonicalize_name(wanted.name)] in wanted.specifier


@pytest.mark.parametrize(("lock", "name"), [(lock, name) for lock in WANTED for name in sorted(locked(lock))])
def test_what_a_pinned_distribution_needs_is_pinned_too(lock: str, name: str) -> None:
    version = locked(lock)[name]
    try:
        distribution = metadata.distribution(name)
    except metadata.PackageNotFoundError:
        pytest.skip(f"{name} is not installed here")
    if distribution.version != version:
        pytest.skip(f"{name} {distribution.version} is installed here, {version} is pinned")
    for wanted in map(Requirement, distribution.requires or ()):
        if wanted.marker is None or wanted.marker.evaluate(IMAGE):
            assert locked(lock)[canonicalize_name(wanted.name)] in wanted.specifier


@pytest.mark.parametrize("lock", WANTED)
def test_a_lock_names_no_place_to_fetch_from(lock: str) -> None:
    assert not re.search(r"://|index-url|find-links|trusted-host|#", (ROOT / lock).read_text())


def test_the_image_installs_the_locks_and_then_the_wheel_alone() -> None:
    installs = re.findall(r"pip .*install (?:[^&\n]|\\\n)*", DOCKERFILE)
    assert len(installs) == 3
    assert f"--require-hashes --requirement {INSTALLED}" in installs[0]
    assert f"--require-hashes --requirement {BUILDING}" in installs[1]
    assert "--no-index --no-deps" in installs[2]
    (wheel,) = re.findall(r"pip wheel .*", DOCKERFILE)
    assert {"--no-deps", "--no-build-isolation"} <= set(wheel.split())
    assert f"{INSTALLED} {BUILDING}" in next(line for line in DOCKERFILE.splitlines() if line.startswith("COPY"))


def test_what_is_overridden_inside_is_bounded_by_the_release_that_is_tried() -> None:
    (uvicorn,) = (wanted for wanted in map(Requirement, PROJECT["dependencies"]) if wanted.name == "uvicorn")
    (bound,) = (clause.version for clause in uvicorn.specifier if clause.operator == "<")
    major, minor = map(int, bound.split("."))
    assert locked(INSTALLED)["uvicorn"].startswith(f"{major}.{minor - 1}.")


def test_the_locks_are_renewed_for_the_python_and_the_extra_of_the_image() -> None:
    (command,) = re.findall(r"^LOCK = (.*)$", MAKEFILE, re.MULTILINE)
    (version,) = re.findall(r"^ARG PYTHON=python:([0-9.]+)", DOCKERFILE, re.MULTILINE)
    assert f"--python-version {version} " in command
    assert "--generate-hashes " in command
    renewals = re.findall(r"\$\(LOCK\) (.*)$", MAKEFILE, re.MULTILINE)
    assert renewals == [f"--output-file {BUILDING} -", f"--extra otel --output-file {INSTALLED} pyproject.toml"]
