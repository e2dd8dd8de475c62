"""Algorithms by entry point: found by name, refused where a name is claimed twice, harmless while not enabled."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeAlias

import pytest

from extender.config import ExtenderConfiguration
from extender.errors import ConfigurationError
from extender.framework.loader import load
from extender.framework.mirror import Mirror
from extender.framework.profile import ProfileBinder
from extender.framework.registry import Registry

Install: TypeAlias = Callable[..., None]

RULE = '''
from extender.framework import NodePredicate


class {name}(NodePredicate):
    """Fits everywhere."""

    def fits(self, pod, node):
        return None
'''


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Install]:
    """Put a distribution on the import path, with entry points and, by their file names, modules."""
    modules: set[str] = set()

    def put(distribution: str, points: dict[str, str], files: dict[str, str] | None = None) -> None:
        site = tmp_path / distribution
        metadata = site / f"{distribution}-1.0.dist-info"
        metadata.mkdir(parents=True)
        (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {distribution}\nVersion: 1.0\n")
        lines = ["[scheduler_extender.algorithms]", *(f"{name} = {path}" for name, path in points.items())]
        (metadata / "entry_points.txt").write_text("\n".join(lines))
        for name, text in (files or {}).items():
            (site / name).parent.mkdir(exist_ok=True)
            (site / name).write_text(text)
            modules.add(name.partition("/")[0].removesuffix(".py"))
        monkeypatch.syspath_prepend(str(site))

    yield put
    for name in [name for name in sys.modules if name.partition(".")[0] in modules]:
        del sys.modules[name]


def failure(reference: str) -> str:
    with pytest.raises(ConfigurationError) as refusal:
        load(reference, Registry())
    return str(refusal.value)


def bind(*names: str) -> list[str]:
    enabled = [{"name": name} for name in names]
    configuration = ExtenderConfiguration.model_validate({"profiles": [{"predicates": {"enabled": enabled}}]})
    profile = ProfileBinder(Registry(), Mirror(), "profiles[0]").bind(configuration.profiles[0])
    return [predicate.name for predicate in profile.predicates]


def test_a_name_leads_to_the_class_of_its_entry_point(install: Install) -> None:
    install("acme", {"AcmeRule": "acme_rule:AcmeRule"}, {"acme_rule.py": RULE.format(name="AcmeRule")})
    registry = Registry()
    assert load("AcmeRule", registry) == "AcmeRule"
    assert registry.predicate("AcmeRule").__module__ == "acme_rule"


def test_a_class_inside_another_is_found(install: Install) -> None:
    inside = "class Rules:\n" + "\n".join(f"    {line}" for line in RULE.format(name="AcmeRule").splitlines())
    install("acme", {"AcmeRule": "acme_inner:Rules.AcmeRule"}, {"acme_inner.py": inside})
    assert load("AcmeRule", Registry()) == "AcmeRule"


def test_an_entry_point_is_not_imported_unless_it_is_enabled(install: Install) -> None:
    points = {"AcmeRule": "acme_rule:AcmeRule", "AcmeBroken": "acme_broken:AcmeBroken", "AcmeGone": "acme_gone"}
    files = {"acme_rule.py": RULE.format(name="AcmeRule"), "acme_broken.py": "raise RuntimeError('no licence')"}
    install("acme", points, files)
    assert bind("AcmeRule")[-1] == "AcmeRule"
    assert "acme_broken" not in sys.modules


FAULTS = {
    "a path without a class": ("AcmeRule", "acme_rule", " must have the form 'module:Class'"),
    "a path that is none": ("AcmeRule", "acme-rule:AcmeRule", " must have the form 'module:Class'"),
    "no such module": ("AcmeRule", "acme_gone:AcmeRule", ": no module named 'acme_gone'; is its package installed?"),
    "a module in what is no package": ("AcmeRule", "acme_rule.deep:AcmeRule", ": no module named 'acme_rule.deep'"),
    "no such attribute": ("AcmeGone", "acme_rule:AcmeGone", ": module 'acme_rule' has no attribute 'AcmeGone'"),
    "no algorithm": ("AcmeRule", "acme_rule:NodePredicate.__doc__", ": 'NodePredicate.__doc__' is not a subclass of"),
    "a failure inside": ("AcmeRule", "acme_broken:AcmeRule", ": module 'acme_broken' failed to load: RuntimeError: no"),
    "a failure in its package": (
        "AcmeRule",
        "acme_package.rule:AcmeRule",
        ": module 'acme_package' failed to load: ModuleNotFoundError: No module named 'acme_torch'",
    ),
    "an exit inside": ("AcmeRule", "acme_exit:AcmeRule", ": module 'acme_exit' failed to load: SystemExit: 3"),
    "another name": ("AcmeRules", "acme_rule:AcmeRule", ": the algorithm is called 'AcmeRule'; give its entry point"),
}
FILES = {
    "acme_rule.py": RULE.format(name="AcmeRule"),
    "acme_broken.py": "raise RuntimeError('no licence')",
    "acme_package/__init__.py": "import acme_torch",
    "acme_package/rule.py": RULE.format(name="AcmeRule"),
    "acme_exit.py": "raise SystemExit(3)",
}


@pytest.mark.parametrize(("name", "path", "text"), FAULTS.values(), ids=FAULTS)
def test_an_error_names_the_entry_point_and_the_step(install: Install, name: str, path: str, text: str) -> None:
    install("acme", {name: path}, FILES)
    assert failure(name).startswith(f"entry point {name!r} of acme 1.0 ({path}){text}")


def test_a_class_without_its_methods_is_refused(install: Install) -> None:
    text = "from extender.framework import NodePredicate\n\n\nclass AcmeRule(NodePredicate):\n    pass\n"
    install("acme", {"AcmeRule": "acme_rule:AcmeRule"}, {"acme_rule.py": text})
    assert failure("AcmeRule") == "acme_rule:AcmeRule: must define fits"


def test_a_class_that_cannot_be_made_is_a_finding(install: Install) -> None:
    text = RULE.format(name="AcmeRule") + "    def __init__(self, args, caches):\n        raise OSError('no device')\n"
    install("acme", {"AcmeRule": "acme_rule:AcmeRule"}, {"acme_rule.py": text})
    with pytest.raises(ConfigurationError, match=r"^profiles\[0\]: AcmeRule failed to start: OSError: no device$"):
        bind("AcmeRule")


# --- names that are claimed twice ------------------------------------------------------------------------------------


def test_the_name_of_an_in_tree_algorithm_is_refused_with_both_origins(install: Install) -> None:
    install("acme", {"NodeName": "acme_rule:NodeName"}, {"acme_rule.py": RULE.format(name="NodeName")})
    assert failure("NodeName") == (
        "the name 'NodeName' is claimed by algorithms/node_name.py and by entry point 'NodeName' of acme 1.0"
        " (acme_rule:NodeName); uninstall all but one of them"
    )
    assert failure("acme_rule:NodeName") == (
        "acme_rule:NodeName: the name 'NodeName' is taken by algorithms/node_name.py; give the class another"
    )


def test_a_name_that_two_distributions_claim_is_refused_with_both_origins(install: Install) -> None:
    install("acme", {"AcmeRule": "acme_rule:AcmeRule"}, {"acme_rule.py": RULE.format(name="AcmeRule")})
    install("other", {"AcmeRule": "other_rule:AcmeRule"})
    assert failure("AcmeRule") == (
        "the name 'AcmeRule' is claimed by entry point 'AcmeRule' of acme 1.0 (acme_rule:AcmeRule) and by"
        " entry point 'AcmeRule' of other 1.0 (other_rule:AcmeRule); uninstall all but one of them"
    )
    assert load("acme_rule:AcmeRule", Registry()) == "AcmeRule"


def test_a_claimed_name_does_no_harm_unless_it_is_enabled(install: Install) -> None:
    install("acme", {"NodeLabel": "acme_rule:NodeLabel"}, {"acme_rule.py": RULE.format(name="NodeLabel")})
    assert "NodeName" in bind("NodeName")


def test_names_of_entry_points_are_suggested(install: Install) -> None:
    install("acme", {"AcmeRule": "acme_rule:AcmeRule"})
    assert failure("acmerule") == "no algorithm named 'acmerule'; did you mean 'AcmeRule'?"
