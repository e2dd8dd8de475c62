"""What is written for readers: pages are linked, links lead somewhere, lines fit, and no path is left out."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from extender.app import create_app, create_management_app
from extender.cluster.connection import from_url
from extender.config import ExtenderConfiguration
from extender.runtime import Runtime

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()
PAGES = sorted(ROOT.glob("docs/*.md"))
OPERATION = (ROOT / "docs" / "operation.md").read_text()
EVEN = [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "docs/metrics.md", "docs/operation.md")]
WIDTH = 120


def prose(path: Path) -> list[str]:
    """Return the lines of a document that can be broken: neither code nor tables."""
    text = re.sub(r"^ *```.*?^ *```", "", path.read_text(), flags=re.DOTALL | re.MULTILINE)
    return [line for line in text.splitlines() if not line.lstrip().startswith("|")]


def anchors(path: Path) -> set[str]:
    headings = re.findall(r"^#+ (.*)$", path.read_text(), re.MULTILINE)
    return {re.sub(r"[^a-z0-9 -]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.name)
def test_a_page_is_linked_from_the_readme(page: Path) -> None:
    assert f"](docs/{page.name}" in README


@pytest.mark.parametrize("document", [ROOT / "README.md", *PAGES], ids=lambda path: path.name)
def test_a_link_to_a_heading_leads_to_one(document: Path) -> None:
    for target, anchor in re.findall(r"\]\(([^)#:]*)#([^)]+)\)", document.read_text()):
        assert anchor in anchors(document.parent / target if target else document), f"{target}#{anchor}"


@pytest.mark.parametrize("document", EVEN, ids=lambda path: path.name)
def test_lines_fit(document: Path) -> None:
    assert [line for line in prose(document) if len(line) > WIDTH] == []


def paths(application: Any) -> Iterator[str]:
    """Yield the paths of an application, which others may be wrapped around."""
    while not hasattr(application, "routes"):
        application = application._app
    yield from (route.path.partition("{")[0].rstrip("/") for route in application.routes)


def test_every_path_that_is_served_is_named_in_the_readme() -> None:
    configuration = ExtenderConfiguration.model_validate({"management": {"debug": True}})
    runtime = Runtime(configuration, from_url("http://127.0.0.1:1"))
    served = {*paths(create_app(runtime)), *paths(create_management_app(runtime))}
    assert {"/filter", "/openapi.json", "/metrics", "/debug"} <= served
    assert [path for path in sorted(served) if path not in README] == []


def test_whatever_kube_scheduler_does_unexpectedly_has_a_remedy() -> None:
    surprises = OPERATION.partition("\n## What kube-scheduler does")[2].partition("\n## ")[0].split("\n### ")[1:]
    titles = [surprise.partition("\n")[0] for surprise in surprises]
    told = [word for word in ("sample", "waits", "Proxy", "batching", "autoscaler") if word in " ".join(titles)]
    assert len(told) == 5
    lacking = [title for title, text in zip(titles, surprises, strict=True) if "*Remedy:*" not in text]
    assert lacking == []
