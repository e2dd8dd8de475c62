"""What authors of plug-ins rely on stays as it is, unless it is renewed deliberately, and the guide tells all of it."""

from __future__ import annotations

import difflib
import importlib
import os
import re
import subprocess
import sys
from pathlib import Path
from types import FunctionType

import pytest

from tests.author_api import FROZEN, GUIDE, PACKAGES, ROOT, frozen, guide

RENEW = """
The author API is not what {file} says. If you did not mean to change it, undo that: plug-ins of others import it.
If you did, keep what they use working (a new parameter has a default, an old name stays), note it in CHANGELOG.md, and
renew the file with `make freeze-api`. What differs:

"""

BLOCKS = re.findall(r"^```python\n# (\w+\.py)\n(.*?)^```", GUIDE.read_text(), re.DOTALL | re.MULTILINE)


def test_names_signatures_and_attributes_are_as_they_were_frozen() -> None:
    before, now = FROZEN.read_text().splitlines(), frozen().splitlines()
    difference = "\n".join(difflib.unified_diff(before, now, "frozen", "now", lineterm="", n=2))
    assert before == now, RENEW.format(file=FROZEN.relative_to(ROOT)) + difference


@pytest.mark.parametrize("package", PACKAGES)
def test_every_name_is_in_the_guide(package: str) -> None:
    text = GUIDE.read_text()
    missing = [name for name in importlib.import_module(package).__all__ if not re.search(rf"\b{name}\b", text)]
    assert not missing, f"not in {GUIDE.relative_to(ROOT)}; `make freeze-api` adds them to its reference"


def test_the_reference_of_the_guide_says_what_the_source_says() -> None:
    text = GUIDE.read_text()
    assert text == guide(text), f"the reference in {GUIDE.relative_to(ROOT)} is old: `make freeze-api` renews it"


@pytest.mark.parametrize("package", PACKAGES)
def test_every_class_and_function_says_what_it_is(package: str) -> None:
    module = importlib.import_module(package)
    told = {name: getattr(module, name) for name in module.__all__}
    assert not [name for name, value in told.items() if isinstance(value, type | FunctionType) and not value.__doc__]


@pytest.fixture(scope="module")
def examples(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the examples of the guide as files."""
    folder = tmp_path_factory.mktemp("guide")
    for name, text in BLOCKS:
        (folder / name).write_text(text)
    (folder / "pyproject.toml").write_text("[tool.pytest.ini_options]\npythonpath = ['.']\n")
    return folder


CHECKS = {
    "pass their tests": ["pytest", "--quiet", "-p", "no:cacheprovider", "."],
    "have strict types": ["mypy", "--strict", "."],
}


@pytest.mark.parametrize("check", CHECKS.values(), ids=CHECKS)
def test_the_examples_of_the_guide(examples: Path, check: list[str]) -> None:
    assert len(BLOCKS) == len(dict(BLOCKS)) >= 7
    done = subprocess.run(
        [sys.executable, "-m", *check],
        cwd=examples,
        capture_output=True,
        text=True,
        timeout=240,
        env=os.environ,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_each_python_example_has_a_file_name_and_so_is_run() -> None:
    assert len(re.findall(r"^```python$", GUIDE.read_text(), re.MULTILINE)) == len(BLOCKS)
