"""Packages of plug-in authors: the example, and what ``new-algorithm`` writes, installed, served and checked."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from typer.testing import CliRunner

from extender.__main__ import app
from extender.errors import ConfigurationError
from extender.testing import ExtenderCallError, RunningService, make_node, make_pod, running_service

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "plugin"
LABEL = "example.com/hardware-generation"

SKELETONS = {
    "HardwareGeneration": [],
    "FloorByColumn": ["--columns"],
    "HeightByNode": ["--per-node", "--priority"],
    "HeightByColumn": ["--columns", "--priority"],
}
"""Every form of a skeleton, by the name it is written under."""


def python(*arguments: str, site: Path, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run Python with the packages in ``site``, whatever it says about the network."""
    environment = os.environ | {"PYTHONPATH": str(site), "PIP_NO_INDEX": "1"}
    command = [sys.executable, *arguments]
    return subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=240, check=False
    )


def new_algorithm(*arguments: str) -> str:
    done = CliRunner().invoke(app, ["new-algorithm", *arguments])
    if done.exception and not isinstance(done.exception, SystemExit):
        raise done.exception
    assert done.exit_code == 0, done.output
    return done.output


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with each skeleton in a folder of its name."""
    folder = tmp_path_factory.mktemp("plugins")
    for name, options in SKELETONS.items():
        new_algorithm(name, "--directory", str(folder / name), *options)
    return folder


@pytest.fixture(scope="module")
def site(work: Path) -> Path:
    """Where the skeletons are installed; the example is one of them."""
    packages = [str(work / name) for name in SKELETONS]
    options = ["--quiet", "--no-deps", "--no-build-isolation", "--disable-pip-version-check", "--target"]
    done = python("-m", "pip", "install", *options, str(work / "site"), *packages, site=work, folder=work)
    assert done.returncode == 0, done.stderr
    return work / "site"


# --- the example -----------------------------------------------------------------------------------------------------


def test_the_example_is_what_the_command_writes_and_nothing_else(work: Path) -> None:
    written = {path.name: path.read_text() for path in (work / "HardwareGeneration").iterdir() if path.is_file()}
    found = {path.name: path.read_text() for path in EXAMPLE.iterdir() if path.is_file()}
    assert found == written
    assert len(found) == 3


@pytest.fixture(scope="module")
def service(site: Path) -> Iterator[RunningService]:
    enabled = [{"name": "*"}, {"name": "HardwareGeneration", "args": {"minimum": 2}}]
    nodes = [make_node(f"gen-{number}", labels={LABEL: str(number)}) for number in (1, 2, 3)]
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(site))
        profile = {"predicates": {"enabled": enabled}}
        with running_service(nodes=nodes, configuration={"profiles": [profile]}) as running:
            yield running
    del sys.modules["hardware_generation"]


def test_a_name_in_the_configuration_has_the_installed_plug_in_serve(service: RunningService, site: Path) -> None:
    assert sys.modules["hardware_generation"].__file__ == str(site / "hardware_generation.py")
    with service.scheduler() as scheduler:
        outcome = scheduler.filter(make_pod("plain"), service.nodes())
        assert outcome.names == ["gen-2", "gen-3"]
        picky = scheduler.filter(make_pod("picky", annotations={LABEL: "3"}), service.nodes())
        assert picky.names == ["gen-3"]
        assert picky.unresolvable == dict.fromkeys(["gen-1", "gen-2"], "node(s) didn't satisfy HardwareGeneration")


def test_the_plug_in_has_series_of_its_own(service: RunningService) -> None:
    with service.scheduler() as scheduler:
        scheduler.filter(make_pod("plain"), service.nodes())
    lines = httpx.get(f"{service.management_url}/metrics", timeout=10).text.splitlines()
    series = [line.rpartition(" ")[0] for line in lines if 'algorithm="HardwareGeneration"' in line]
    assert (
        'scheduler_extender_algorithm_duration_seconds_count{algorithm="HardwareGeneration",point="filter"}' in series
    )
    assert (
        'scheduler_extender_refused_nodes_total{algorithm="HardwareGeneration",'
        'reason="node(s) didn\'t satisfy HardwareGeneration"}' in series
    )


def test_what_the_plug_in_raises_is_told_under_its_name(service: RunningService) -> None:
    with (
        service.scheduler() as scheduler,
        pytest.raises(ExtenderCallError, match=r"HardwareGeneration: ValueError: invalid literal .* 'many'"),
    ):
        scheduler.filter(make_pod("odd", annotations={LABEL: "many"}), service.nodes())


def test_the_installed_plug_in_is_listed_with_its_distribution(site: Path, work: Path) -> None:
    done = python("-m", "extender", "algorithms", "HardwareGeneration", "--output", "json", site=site, folder=work)
    assert done.returncode == 0, done.stderr
    (entry,) = json.loads(done.stdout)
    assert {key: entry[key] for key in ("source", "origin", "path", "roles")} == {
        "source": "entry point",
        "origin": "hardware-generation 0.1.0",
        "path": "hardware_generation:HardwareGeneration",
        "roles": ["predicate"],
    }
    told = {"required": False, "unset": ""}
    assert entry["args"] == [
        {"path": "label", "type": "string", "bounds": [], "default": LABEL, **told},
        {"path": "minimum", "type": "integer", "bounds": [">= 0"], "default": 1, **told},
    ]


# --- skeletons -------------------------------------------------------------------------------------------------------

CHECKS: dict[str, list[str]] = {
    "passes its own test": ["pytest", "--quiet", "-p", "no:cacheprovider", "--override-ini", "pythonpath="],
    "has strict types": ["mypy", "--strict", "--cache-dir", "../types", "."],
    "passes the linter": ["ruff", "check", "."],
    "is formatted": ["ruff", "format", "--check", "."],
}


@pytest.mark.parametrize("check", CHECKS.values(), ids=CHECKS)
@pytest.mark.parametrize("name", SKELETONS)
def test_a_skeleton_is_sound(work: Path, site: Path, name: str, check: list[str]) -> None:
    done = python("-m", *check, site=site, folder=work / name)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("name", SKELETONS)
def test_a_skeleton_is_found_once_installed(site: Path, work: Path, name: str) -> None:
    done = python("-m", "extender", "algorithms", name, site=site, folder=work)
    assert done.returncode == 0, done.stdout
    assert ("priority" if "--priority" in SKELETONS[name] else "predicate") in done.stdout.splitlines()[1]


def test_the_command_tells_what_it_wrote_and_what_comes_next(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    lines = new_algorithm("RackLimit", "--priority").splitlines()
    assert lines[:3] == [
        f"wrote rack-limit/{name}" for name in ("pyproject.toml", "rack_limit.py", "test_rack_limit.py")
    ]
    assert "  pip install --editable '.[dev]'" in lines
    assert '    - priorities: {enabled: [{name: "*"}, {name: RackLimit}]}' in lines


def test_nothing_is_overwritten_and_nothing_half_written(tmp_path: Path) -> None:
    mine = tmp_path / "rack_limit.py"
    mine.write_text("# mine\n")
    with pytest.raises(ConfigurationError, match=r"rack_limit.py: is there already; remove it or name another"):
        new_algorithm("RackLimit", "--directory", str(tmp_path))
    assert [path.name for path in tmp_path.iterdir()] == ["rack_limit.py"]
    assert mine.read_text() == "# mine\n"


def test_a_directory_that_is_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("")
    with pytest.raises(ConfigurationError, match=r"--directory: .*taken.*: cannot be written: "):
        new_algorithm("RackLimit", "--directory", str(tmp_path / "taken"))


WRONG_NAMES: dict[str, tuple[str, str]] = {
    "a small letter first": ("rackLimit", "must be a class name such as MyRule"),
    "a dash": ("Rack-Limit", "must be a class name such as MyRule"),
    "an underscore": ("Rack_Limit", "must be a class name such as MyRule"),
    "a letter beyond ASCII": ("Räck", "must be a class name such as MyRule"),
    "a path": ("../Rack", "must be a class name such as MyRule"),
    "a keyword": ("None", "must be a class name such as MyRule"),
    "too long": ("R" * 41, "must be a class name such as MyRule"),
    "an in-tree algorithm": ("NodeName", "is taken by algorithms/node_name.py"),
    "a name of the author API": ("Refusal", "is a name of the author API"),
    "a module of Python": ("Typing", "would be module 'typing'"),
    "a package that is installed": ("Numpy", "would be module 'numpy'"),
}


@pytest.mark.parametrize(("name", "text"), WRONG_NAMES.values(), ids=WRONG_NAMES)
def test_a_name_that_would_not_do_is_refused(tmp_path: Path, name: str, text: str) -> None:
    with pytest.raises(ConfigurationError) as refusal:
        new_algorithm(name, "--directory", str(tmp_path / "new"))
    assert str(refusal.value).startswith(f"NAME: {name!r} {text}")
    assert not (tmp_path / "new").exists()


def test_a_name_that_an_installed_plug_in_has_is_refused(
    site: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(site))
    with pytest.raises(ConfigurationError, match="is taken by entry point 'FloorByColumn' of floor-by-column"):
        new_algorithm("FloorByColumn", "--directory", str(tmp_path / "new"))
