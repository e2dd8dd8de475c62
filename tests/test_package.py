"""What the package says of itself."""

from __future__ import annotations

import tomllib
from pathlib import Path

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def test_the_licence_is_there_and_is_the_one_that_is_named() -> None:
    (file,) = PROJECT["license-files"]
    assert (ROOT / file).read_text().split()[:4] == ["Apache", "License", "Version", "2.0,"]
    assert PROJECT["license"] == "Apache-2.0"
    assert f"[Apache-2.0]({file})" in (ROOT / "README.md").read_text()
