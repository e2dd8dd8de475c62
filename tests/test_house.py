"""The rules of the house, as tests."""

from __future__ import annotations

import ast
import importlib
import re
import sys
from pathlib import Path

import pytest

from extender.framework.loader import default_set, defined_in, in_tree_modules, module_name
from extender.testing import make_pod
from extender.testing.lab import Lab

ROOT = Path(__file__).parent.parent
ALGORITHMS = in_tree_modules()
CEILINGS = {"algorithms": 250, "extender": 400, "tests": 500, "benchmarks": 400}
WIDE_ALGORITHMS = {"pod_topology_spread.py": 350}
VAGUE_NAMES = {"utils", "util", "helpers", "helper", "common", "base", "manager", "misc"}


def sources() -> list[Path]:
    return [path for folder in CEILINGS for path in sorted((ROOT / folder).rglob("*.py"))]


def snippets(document: str, language: str) -> list[str]:
    return re.findall(rf"^ *```{language}\n(.*?)^ *```", (ROOT / document).read_text(), re.DOTALL | re.MULTILINE)


@pytest.mark.parametrize("module", ALGORITHMS)
def test_an_algorithm_has_one_class_named_after_its_file_and_a_docstring(module: str) -> None:
    found = list(defined_in(importlib.import_module(f"algorithms.{module}")))
    assert [module_name(algorithm.name) for algorithm in found] == [module]
    assert found[0].__doc__


@pytest.mark.parametrize("module", ALGORITHMS)
def test_an_algorithm_has_a_table_of_cases(module: str) -> None:
    text = (ROOT / "tests" / "algorithms" / f"test_{module}.py").read_text()
    assert "parametrize" in text


@pytest.mark.parametrize("module", ALGORITHMS)
def test_an_algorithm_has_a_row_in_the_readme(module: str) -> None:
    (algorithm,) = defined_in(importlib.import_module(f"algorithms.{module}"))
    assert f"\n| {algorithm.name} |" in (ROOT / "README.md").read_text()


def test_the_default_set_names_algorithms_that_exist() -> None:
    default = default_set()
    for name in (*default.mandatory, *default.predicates, *default.priorities):
        assert module_name(name) in ALGORITHMS


@pytest.mark.parametrize("path", sources(), ids=lambda path: str(path.relative_to(ROOT)))
def test_no_source_file_is_over_its_ceiling(path: Path) -> None:
    ceiling = WIDE_ALGORITHMS.get(path.name, CEILINGS[path.relative_to(ROOT).parts[0]])
    assert len(path.read_text().splitlines()) <= ceiling


def test_no_module_has_a_name_that_says_nothing() -> None:
    assert not [path for path in sources() if path.stem in VAGUE_NAMES]


def test_every_suppression_says_what_it_suppresses() -> None:
    bare = re.compile(r"#\s*(type:\s*ignore(?!\[)|noqa(?!:))")
    assert not [path for path in sources() if bare.search(path.read_text()) and path != Path(__file__)]


def test_the_readme_shows_code_by_line_twenty() -> None:
    head = (ROOT / "README.md").read_text().splitlines()[:20]
    assert any(line.startswith("```") for line in head)


def test_every_make_target_in_the_documents_exists() -> None:
    targets = set(re.findall(r"^([a-z0-9-]+):.*##", (ROOT / "Makefile").read_text(), re.MULTILINE))
    for document in ("README.md", "CONTRIBUTING.md"):
        named = re.findall(r"`?make ([a-z0-9-]+)", (ROOT / document).read_text())
        assert set(named) <= targets


def test_every_file_the_documents_link_to_exists() -> None:
    for document in (*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), ROOT / "examples" / "README.md"):
        for target in re.findall(r"\]\(([^)#:]+)\)", document.read_text()):
            assert (document.parent / target).exists(), f"{document.name}: {target}"


def test_the_rule_of_the_readme_works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (code,) = snippets("README.md", "python")
    (tmp_path / "spread_by_team.py").write_text(code)
    monkeypatch.syspath_prepend(str(tmp_path))
    algorithm = importlib.import_module("spread_by_team").SameTeam
    try:
        lab = Lab([_node("red-1", "red"), _node("blue-1", "blue")])
        refused = lab.filter(algorithm, make_pod("web", labels={"team": "red"}))
    finally:
        del sys.modules["spread_by_team"]
    assert {name: outcome.text for name, outcome in refused.items()} == {"blue-1": "node(s) belong to another team"}


def test_the_rule_of_the_contributing_guide_works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    code = "\n".join(line[3:] for line in snippets("CONTRIBUTING.md", "python")[0].splitlines())
    ast.parse(code)
    (tmp_path / "my_rule.py").write_text(code)
    monkeypatch.syspath_prepend(str(tmp_path))
    algorithm = importlib.import_module("my_rule").MyRule
    try:
        lab = Lab([_node("full", "red"), _node("empty", "red"), make_pod("one", node="full")])
        refused = lab.filter(algorithm, make_pod("web"), {"maxPods": 1})
    finally:
        del sys.modules["my_rule"]
    assert list(refused) == ["full"]


def _node(name: str, team: str) -> dict[str, object]:
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": {"team": team}}}
