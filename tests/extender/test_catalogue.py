"""``scheduler-extender algorithms``: every algorithm with what there is to know, and the broken with their errors."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
from typer.testing import CliRunner

from extender.__main__ import app
from extender.framework import API_OBJECT, SKIP, Args, Field, NodeAffinity, Nodes, PendingPod, Predicate, Reserver, Skip
from extender.framework.catalogue import Catalogue, Entry
from extender.framework.loader import default_set, in_tree_modules
from extender.framework.parameter import Parameter, parameters
from tests.extender.specimen import PATH


class Weight(Args):
    """Something with a weight, and perhaps others inside."""

    name: Annotated[str, Field(min_length=1, max_length=8, pattern="^[a-z]+$")]
    weight: Annotated[float, Field(gt=0, lt=1)] = 0.5
    inside: tuple[Weight, ...] = ()


class Sample(Args):
    """One field of each sort."""

    mode: Literal["near", "far"] = "near"
    weights: Annotated[tuple[Weight, ...], Field(max_length=3)] = ()
    limits: dict[str, Weight] | None = None
    counts: tuple[Annotated[int, Field(ge=1)], ...] = ()
    even: Annotated[int, Field(multiple_of=2)] | None = None
    mixed: int | str = 0
    affinity: Annotated[NodeAffinity, API_OBJECT] | None = None
    on: bool = False


class Several(Predicate, Reserver):
    """Has ``two`` roles.

    And more to say.
    """

    Arguments = Sample
    mandatory = True

    def filter(self, pod: PendingPod, nodes: Nodes) -> Skip:
        return SKIP

    def reserve(self, pod: Any, node: Any, now_seconds: float) -> None:
        return None


class Indescribable(Predicate):
    """Has arguments that no schema can tell."""

    class Arguments(Args):
        call: Any = lambda: None

    def filter(self, pod: PendingPod, nodes: Nodes) -> Skip:
        return SKIP


def run(*arguments: str) -> tuple[int, str]:
    done = CliRunner().invoke(app, ["algorithms", *arguments])
    return done.exit_code, done.stdout


def test_arguments_are_told_with_types_bounds_and_defaults() -> None:
    inner = [
        ("name", "string", ("length >= 1", "length <= 8", "like ^[a-z]+$"), True, None),
        ("weight", "number", ("> 0", "< 1"), False, 0.5),
        ("inside", "list of object", (), False, []),
    ]
    assert parameters(Sample) == [
        Parameter("mode", "near | far", (), False, "near"),
        Parameter("weights", "list of object", ("items <= 3",), False, []),
        *(Parameter(f"weights[].{name}", *rest) for name, *rest in inner),
        Parameter("limits", "map of object", (), False, None),
        *(Parameter(f"limits.*.{name}", *rest) for name, *rest in inner),
        Parameter("counts", "list of integer", ("each >= 1",), False, []),
        Parameter("even", "integer", ("a multiple of 2",), False, None),
        Parameter("mixed", "integer or string", (), False, 0),
        Parameter("affinity", "NodeAffinity", (), False, None),
        Parameter("on", "boolean", (), False, False),
    ]


def test_every_in_tree_algorithm_is_listed_and_sound() -> None:
    entries = [entry for entry in Catalogue().entries() if entry.source == "in-tree"]
    assert sorted(entry.origin for entry in entries) == [f"algorithms/{module}.py" for module in in_tree_modules()]
    assert not [entry for entry in entries if entry.error or not (entry.summary and entry.roles)]
    default = default_set()
    assert {entry.name for entry in entries if entry.default} == {*default.predicates, *default.priorities}
    weights = {entry.name: entry.weight for entry in entries if entry.default and entry.weight is not None}
    assert {name: weights[name] for name in default.priorities} == default.priorities


def test_an_algorithm_is_described_by_its_class() -> None:
    (entry,) = Catalogue().entries([f"{__name__}:Several"])
    assert entry == Entry(
        name="Several",
        source="import path",
        origin=f"{__name__}:Several",
        path=f"{__name__}:Several",
        summary="Has two roles.",
        roles=("predicate", "mandatory", "reserver"),
        parameters=tuple(parameters(Sample)),
    )


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A package of algorithms of which one module is broken, beside a distribution with a broken entry point."""
    (tmp_path / "motley").mkdir()
    (tmp_path / "motley" / "__init__.py").write_text(
        "from extender.framework import Provider\nPROVIDERS = (Provider(name='Motley'),)\n"
    )
    (tmp_path / "motley" / "broken_one.py").write_text("raise RuntimeError('no licence')")
    (tmp_path / "motley" / "graded.py").write_text(
        "from extender.framework import NodePriority\n\n\nclass Graded(NodePriority):\n    '''Grades.'''\n\n"
        "    default_weight = 7\n\n    def score(self, pod, node):\n        return 0\n"
    )
    (tmp_path / "acme-1.0.dist-info").mkdir()
    (tmp_path / "acme-1.0.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: acme\nVersion: 1.0\n")
    (tmp_path / "acme-1.0.dist-info" / "entry_points.txt").write_text(
        "[scheduler_extender.algorithms]\nAcmeRule = acme_gone:AcmeRule\nGraded = acme_gone:Graded\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    yield "motley"
    for name in [name for name in sys.modules if name.partition(".")[0] == "motley"]:
        del sys.modules[name]


def test_broken_ones_are_listed_with_their_errors_and_hide_no_others(package: str) -> None:
    gone = "entry point 'AcmeRule' of acme 1.0 (acme_gone:AcmeRule): no module named 'acme_gone'"
    clash = "the name 'Graded' is claimed by motley/graded.py and by entry point 'Graded' of acme 1.0"
    found = {(entry.name, entry.source): entry for entry in Catalogue(package).entries()}
    assert found["broken_one", "in-tree"].error == "module 'motley.broken_one' failed to load: RuntimeError: no licence"
    assert found["AcmeRule", "entry point"].error.startswith(gone)
    assert found["Graded", "in-tree"].error.startswith(clash)
    assert found["Graded", "entry point"].error.startswith(clash)
    assert len(found) == 4


def test_arguments_that_cannot_be_told_are_the_error_of_their_algorithm() -> None:
    described, other = Catalogue().entries([f"{__name__}:Indescribable", "NodeName"])
    assert described.error.startswith("cannot be described: ")
    assert not other.error


# --- the command -----------------------------------------------------------------------------------------------------


def test_the_list_has_a_line_an_algorithm() -> None:
    status, text = run()
    head, *lines = text.splitlines()
    assert head.split() == ["NAME", "WHAT", "WEIGHT", "FROM", "SUMMARY"]
    assert status == 0
    assert len(lines) >= len(in_tree_modules())
    (line,) = [line for line in lines if line.startswith("TaintToleration ")]
    assert line.split()[1:6] == ["predicate,", "mandatory,", "priority", "3", "algorithms/taint_toleration.py"]


def test_all_has_what_can_be_set_and_what_is_watched() -> None:
    status, text = run("--all")
    block = text[text.index("\nInterPodAffinity ") :].split("\n\n")[0]
    assert status == 0
    assert "  watches  namespaces, nodes, pods\n" in block
    assert "  default  runs in profiles that name nothing\n" in block
    assert "  args     hardPodAffinityWeight               integer  >= 0, <= 100  default 1\n" in block
    assert block.endswith("           ignorePreferredTermsOfExistingPods  boolean                default false")


def test_every_default_of_null_says_what_it_means() -> None:
    entries = [entry for entry in Catalogue().entries() if entry.source == "in-tree"]
    nulls = [each for entry in entries for each in entry.parameters if each.default is None and not each.required]
    assert nulls
    assert not [each.path for each in nulls if not each.unset]
    status, text = run("EBSLimits")
    assert status == 0
    assert "  default null: as many as the cloud is known to allow\n" in text


def test_json_has_everything() -> None:
    status, text = run("--output", "json")
    entries = {entry["name"]: entry for entry in json.loads(text)}
    assert status == 0
    assert entries["EBSLimits"] == {
        "name": "EBSLimits",
        "source": "in-tree",
        "origin": "algorithms/ebs_limits.py",
        "path": "algorithms.ebs_limits:EBSLimits",
        "summary": entries["EBSLimits"]["summary"],
        "roles": ["predicate"],
        "weight": None,
        "default": False,
        "watches": ["csinodes", "nodes", "persistentvolumeclaims", "persistentvolumes", "pods", "storageclasses"],
        "error": "",
        "args": [
            {
                "path": "maxVolumes",
                "type": "integer",
                "bounds": [">= 1", "<= 2147483647"],
                "required": False,
                "default": None,
                "unset": "as many as the cloud is known to allow",
            },
        ],
    }


def test_names_are_told_in_full_and_one_that_is_not_there_fails() -> None:
    status, text = run("NodeName", f"{PATH}:Bounded")
    assert status == 0
    assert "  args     most  integer  >= 1, <= 10  default 1\n" in text
    status, text = run("NodeNam")
    assert status == 1
    assert "  error: no algorithm named 'NodeNam'; did you mean 'NodeName'?" in text
