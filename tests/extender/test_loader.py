"""Finding algorithms, with errors that tell at which step it failed, and keeping them by name."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from extender.errors import ConfigurationError
from extender.framework import NodeInfo, NodePredicate, NodePriority, PendingPod, Predicate
from extender.framework.algorithm import Algorithm
from extender.framework.loader import in_tree_names, load, load_all, module_name
from extender.framework.registry import Registry, nearest
from tests.extender.specimen import PATH, Graded, Picky

GOOD = '''
from extender.framework import NodePredicate


class {name}(NodePredicate):
    """Fits everywhere."""

    def fits(self, pod, node):
        return None
'''


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A package of algorithms, on the import path as ``sundry``, of which one module is broken."""
    folder = tmp_path / "sundry"
    folder.mkdir()
    (folder / "__init__.py").write_text("")
    (folder / "sound_one.py").write_text(GOOD.format(name="SoundOne"))
    (folder / "sound_two.py").write_text(GOOD.format(name="SoundTwo") + "    mandatory = True\n")
    (folder / "broken_one.py").write_text("raise RuntimeError('no licence')")
    (folder / "broken_two.py").write_text(GOOD.format(name="BrokenTwo") + "raise RuntimeError('no licence')")
    (folder / "xy_limits.py").write_text(GOOD.format(name="XYLimits"))
    (folder / "wrong_syntax.py").write_text("def f(:")
    (folder / "misnamed.py").write_text(GOOD.format(name="OtherName"))
    (folder / "thing.py").write_text("class Thing: ...\nvalue = 5\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    yield folder
    for name in [name for name in sys.modules if name.partition(".")[0] == "sundry"]:
        del sys.modules[name]


@pytest.mark.parametrize(
    ("algorithm", "module"),
    [
        ("NodeResourcesFit", "node_resources_fit"),
        ("CSILimits", "csi_limits"),
        ("GPUShareV2Fit", "gpu_share_v2_fit"),
        ("Plain", "plain"),
        ("with-dash", "with_dash"),
    ],
)
def test_an_algorithm_lives_in_the_module_of_its_name(algorithm: str, module: str) -> None:
    assert module_name(algorithm) == module


def test_an_algorithm_is_found_by_its_name(package: Path) -> None:
    registry = Registry()
    assert load("SoundOne", registry, "sundry") == "SoundOne"
    assert load("SoundOne", registry, "sundry") == "SoundOne"
    assert list(registry.predicates) == ["SoundOne"]


def test_an_algorithm_is_found_by_its_import_path() -> None:
    registry = Registry()
    assert load(f"{PATH}:Picky", registry) == "Picky"
    assert registry.predicate("Picky") is Picky


def test_a_broken_module_does_no_harm_unless_it_is_enabled(package: Path) -> None:
    registry = Registry()
    load("SoundTwo", registry, "sundry")
    assert "sundry.broken_one" not in sys.modules
    failures = load_all(registry, "sundry")
    assert sorted(failures) == ["broken_one", "broken_two", "wrong_syntax"]
    assert str(failures["broken_one"]) == "module 'sundry.broken_one' failed to load: RuntimeError: no licence"
    assert sorted(registry.predicates) == ["OtherName", "SoundOne", "SoundTwo", "XYLimits"]
    assert list(registry.mandatory) == ["SoundTwo"]


FAILURES = {
    "sundry.thing:": "import path 'sundry.thing:' must have the form 'module:Class'",
    ":Thing": "import path ':Thing' must have the form 'module:Class'",
    "nowhere:Thing": "import path 'nowhere:Thing': no module named 'nowhere'; is its package installed?",
    "nowhere.at.all:Thing": "no module named 'nowhere.at.all'; is its package installed?",
    "sundry.absent:Thing": "no module named 'sundry.absent'; is its package installed?",
    "sundry.thing.deeper:Thing": "no module named 'sundry.thing.deeper'; is its package installed?",
    "sundry.thing:Absent": "import path 'sundry.thing:Absent': module 'sundry.thing' has no attribute 'Absent'",
    "sundry.thing:Thing": "import path 'sundry.thing:Thing': 'Thing' is not a subclass of Predicate or Priority",
    "sundry.thing:value": "import path 'sundry.thing:value': 'value' is not a subclass of Predicate or Priority",
    "sundry.broken_one:Thing": "module 'sundry.broken_one' failed to load: RuntimeError: no licence",
    "sundry.wrong_syntax:Thing": "module 'sundry.wrong_syntax' failed to load: SyntaxError: ",
    "BrokenOne": "module 'sundry.broken_one' failed to load: RuntimeError: no licence",
    "Misnamed": "no algorithm named 'Misnamed'",
    "SoundThree": "no algorithm named 'SoundThree'; did you mean 'Sound",
    "SOUNDONE": "no algorithm named 'SOUNDONE'; did you mean 'SoundOne'?",
    "XYLimit": "no algorithm named 'XYLimit'; did you mean 'XYLimits'?",
    "Brokne": "no algorithm named 'Brokne'; did you mean 'BrokenTwo'?",
    "zzz": "no algorithm named 'zzz'; known are BrokenTwo, SoundOne, SoundTwo, XYLimits",
}


@pytest.mark.parametrize(("reference", "text"), FAILURES.items(), ids=[repr(reference) for reference in FAILURES])
def test_an_error_tells_at_which_step_it_failed(package: Path, reference: str, text: str) -> None:
    with pytest.raises(ConfigurationError) as refusal:
        load(reference, Registry(), "sundry")
    assert text in str(refusal.value)


def test_a_failure_inside_a_module_keeps_its_cause(package: Path) -> None:
    with pytest.raises(ConfigurationError) as refusal:
        load("BrokenOne", Registry(), "sundry")
    assert isinstance(refusal.value.__cause__, RuntimeError)


# --- names -----------------------------------------------------------------------------------------------------------


class Both(NodePredicate, NodePriority):
    """A predicate and a priority under one name."""

    def fits(self, pod: PendingPod, node: NodeInfo) -> str | None:
        return None

    def score(self, pod: PendingPod, node: NodeInfo) -> int:
        return 0


class Neither(Algorithm):
    """An algorithm of no kind."""


def test_a_class_that_is_both_is_found_as_either() -> None:
    registry = Registry()
    registry.register(Both)
    assert [registry.predicate("Both"), registry.priority("Both")] == [Both, Both]


def test_a_name_is_taken_once() -> None:
    registry = Registry()
    registry.register(Picky)
    registry.register(Picky)
    double = type("Picky", (Both,), {"name": "Picky"})
    with pytest.raises(
        ConfigurationError, match=r"the name 'Picky' is taken by .*:Picky; give one of them another name"
    ):
        registry.register(double)
    assert registry.predicate("Picky") is Picky
    assert "Picky" not in registry.priorities


@pytest.mark.parametrize("name", ["", "-a", "a-", "a b", "a_b", "a/b", "ä", "a.b"], ids=repr)
def test_a_name_that_kube_scheduler_would_not_take_is_refused(name: str) -> None:
    registry = Registry()
    with pytest.raises(ConfigurationError, match="must consist of letters, digits and '-'"):
        registry.register(type("Odd", (Picky,), {"name": name}))
    assert not registry.predicates


@pytest.mark.parametrize("name", ["a", "9", "Node-Name", "x1-2y"])
def test_a_name_of_letters_digits_and_dashes_is_taken(name: str) -> None:
    registry = Registry()
    registry.register(type("Odd", (Picky,), {"name": name}))
    assert list(registry.predicates) == [name]


def test_an_algorithm_of_no_kind_is_refused() -> None:
    with pytest.raises(ConfigurationError, match=":Neither: must be a subclass of Predicate or Priority"):
        Registry().register(Neither)


def test_a_subclass_has_a_name_of_its_own() -> None:
    class Pickier(Picky):
        """More so."""

    assert (Pickier.name, Picky.name) == ("Pickier", "Picky")


def test_a_predicate_is_no_priority() -> None:
    registry = Registry()
    registry.register(Picky)
    registry.register(Graded)
    with pytest.raises(ConfigurationError, match="no priority named 'Picky'; known are Graded"):
        registry.priority("Picky")
    with pytest.raises(ConfigurationError, match="no predicate named 'Grade'; known are Picky"):
        registry.predicate("Grade")


def test_the_nearest_name_is_suggested_whatever_its_casing() -> None:
    assert nearest("nodename", ["NodeName", "NodePorts"]) == "; did you mean 'NodeName'?"
    assert nearest("zzz", ["b", "a"]) == "; known are a, b"
    assert nearest("zzz", []) == "; none are known"


def test_a_name_is_suggested_without_an_import(package: Path) -> None:
    with pytest.raises(ConfigurationError, match="did you mean 'BrokenTwo'"):
        load("BrokenTow", Registry(), "sundry")
    assert not [name for name in sys.modules if name.startswith("sundry.")]


def test_every_algorithm_that_comes_with_the_service_is_known_by_its_name() -> None:
    registry = Registry()
    load_all(registry)
    assert {*registry.predicates, *registry.priorities} == set(in_tree_names())


def test_every_algorithm_that_comes_with_the_service_loads() -> None:
    registry = Registry()
    assert load_all(registry) == {}
    assert all(issubclass(cls, Predicate) for cls in registry.predicates.values())
    assert all(cls.__doc__ for cls in (*registry.predicates.values(), *registry.priorities.values()))
