"""Compares algorithms with what kube-scheduler's own plug-ins decided, case by case.

A file of cases has one JSON object a line: a small cluster (``objects``), the ``pod`` to place, sometimes a
KubeSchedulerConfiguration (``config``), and under ``expect.plugins`` what each plug-in made of the nodes. Filters are
asked about all nodes; scores about those in ``expect.feasible``, or all where ``expect.scoredOver`` says so.
"""

from __future__ import annotations

import gzip
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, TypeAlias

import msgspec
from pydantic import ValidationError

from extender.errors import ConfigurationError, ExtenderError
from extender.framework.algorithm import SKIP, Algorithm, Predicate, Priority
from extender.testing.lab import Lab
from extender.testing.reply import Json

FILTER: Final = "filter"
SCORE: Final = "score"
NORMALIZED: Final = "normalized"
FEASIBLE: Final = "feasible"
TOTAL: Final = "total"
PREEMPTION: Final = "preemption"
ASPECTS: Final = (FILTER, SCORE, NORMALIZED, FEASIBLE, TOTAL, PREEMPTION)
"""What can be compared: the first three of one algorithm, the others of a whole profile."""


@dataclass(frozen=True)
class Verdict:
    """What became of one node; ``detail`` is for people and does not count when two are compared."""

    text: str
    detail: str = field(default="", compare=False)

    def __str__(self) -> str:
        return f"{self.text} ({self.detail})" if self.detail else self.text


Verdicts: TypeAlias = Mapping[str, Verdict]
"""Verdicts by node name; a node that passed a filter has none."""

EVERY_NODE: Final = "*"
SKIPPED: Final[Verdicts] = {EVERY_NODE: Verdict("Skip")}
"""The algorithm has no opinion on the pod."""


@dataclass(frozen=True)
class Disagreement:
    """One thing decided otherwise than expected; ``node`` is ``*`` where it holds for the pod as a whole."""

    case: str
    aspect: str
    node: str
    expected: Verdict | None
    got: Verdict | None


@dataclass
class Tally:
    """How far an algorithm or a profile agrees; ``agreeing`` counts cases by aspect and names just those that apply."""

    name: str
    cases: int = 0
    agreeing: Counter[str] = field(default_factory=Counter)
    disagreements: list[Disagreement] = field(default_factory=list)
    named: bool = False
    """Whether any case has something to say of the algorithm."""

    def note(self, case: str, aspect: str, expected: Verdicts, got: Verdicts) -> None:
        """Count one aspect of one case."""
        found = [
            Disagreement(case, aspect, node, expected.get(node), got.get(node))
            for node in sorted(expected.keys() | got.keys())
            if expected.get(node) != got.get(node)
        ]
        self.agreeing[aspect] += not found
        self.disagreements += found


class _Status(msgspec.Struct):
    code: str
    reasons: list[str] | None = None


class _Decision(msgspec.Struct, rename="camel"):
    """What a plug-in made of the nodes, as far as it is looked at."""

    pre_filter: _Status | None = None
    filter: dict[str, _Status] | None = None
    pre_score: _Status | None = None
    score: dict[str, int] | None = None
    normalized: dict[str, int] | None = None


class _Preemption(msgspec.Struct, rename={"violations": "numPDBViolations"}):
    code: str
    reasons: list[str] | None = None
    victims: list[str] | None = None
    violations: int | None = None


class _Expectation(msgspec.Struct, rename="camel"):
    plugins: dict[str, _Decision]
    feasible: list[str]
    scored_over: str
    total: dict[str, int]
    preemption: dict[str, _Preemption] | None = None


class _Case(msgspec.Struct):
    """The shape of a case; what is in objects is looked at when its cluster is built."""

    name: str
    objects: list[dict[str, Any]]
    pod: dict[str, Any]
    expect: _Expectation
    config: dict[str, Any] | None = None


def read_cases(path: Path) -> Iterator[Json]:
    """Yield the cases in a ``.jsonl`` or ``.jsonl.gz`` file.

    Raises:
        ConfigurationError: the file cannot be read, or a line is not a case; names the line.
    """
    for number, line in _lines(path):
        if not line.strip():
            continue
        try:
            case = _read_case(line)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise ConfigurationError(f"{path}: line {number}: is not a case in JSON: {error}") from error
        yield case


def _lines(path: Path) -> Iterator[tuple[int, bytes]]:
    """Yield the lines of a file with their numbers, from 1."""
    number = 0
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as lines:
            for line in lines:
                number += 1
                yield number, line
    except (OSError, EOFError, zlib.error) as error:  # the last two, and a kind of the first, are gzip's
        text = getattr(error, "strerror", None) or error
        raise ConfigurationError(f"{path}: line {number + 1}: cannot be read: {text}") from error


def _read_case(line: bytes) -> Json:
    case: Json = msgspec.json.decode(line)
    msgspec.convert(case, _Case)
    return case


def compare(cases: Iterable[Json], algorithms: Sequence[type[Algorithm]]) -> list[Tally]:
    """Ask every algorithm about every case and return one tally each; a case's cluster is built once for all.

    Raises:
        ConfigurationError: the cluster of a case cannot be built; names the case.
    """
    tallies = [Tally(algorithm.name) for algorithm in algorithms]
    for case in cases:
        trial = _Trial(case)
        for algorithm, tally in zip(algorithms, tallies, strict=True):
            trial.run(algorithm, tally)
    return tallies


class _Trial:
    """One case, with its cluster built."""

    def __init__(self, case: Json) -> None:
        self._name: str = case["name"]
        self._pod: Json = case["pod"]
        self._expect: Json = case["expect"]
        self._args = args_by_plugin(case.get("config") or {})
        self._lab = build_cluster(case)
        self._nodes = self._lab.nodes().names()
        self._scored: list[str] = self._nodes if self._expect["scoredOver"] == "all" else self._expect["feasible"]

    def run(self, algorithm: type[Algorithm], tally: Tally) -> None:
        entry: Json | None = self._expect["plugins"].get(algorithm.name)
        tally.cases += 1
        tally.named |= entry is not None
        if issubclass(algorithm, Predicate):
            got = self._filter(algorithm)
            if got is SKIPPED and "preFilter" not in (entry or {}):
                got = {}  # a plug-in without a preFilter has no way to skip: it passes every node
            tally.note(self._name, FILTER, self._expected_refusals(entry or {}), got)
        if issubclass(algorithm, Priority):
            raw, normalized = self._score(algorithm)
            tally.note(self._name, SCORE, self._expected_scores(entry or {}, SCORE), raw)
            tally.note(self._name, NORMALIZED, self._expected_scores(entry or {}, NORMALIZED), normalized)

    def _expected_refusals(self, entry: Json) -> Verdicts:
        before = entry.get("preFilter") or {"code": "Success"}
        if before["code"] == "Skip":
            return SKIPPED
        if before["code"] != "Success":
            return dict.fromkeys(self._nodes, refusal(before["code"], before.get("reasons") or ()))
        refused = entry.get("filter") or {}
        return {node: refusal(status["code"], status.get("reasons") or ()) for node, status in refused.items()}

    def _expected_scores(self, entry: Json, aspect: str) -> Verdicts:
        code = (entry.get("preScore") or {}).get("code", "Success")
        if code not in ("Success", "Skip"):
            return dict.fromkeys(self._scored, refusal(code, ()))
        scores = entry.get(aspect, entry.get(SCORE))
        return SKIPPED if scores is None else _numbers(scores)

    def _filter(self, algorithm: type[Predicate]) -> Verdicts:
        try:
            refused = self._lab.filter(algorithm, self._pod, self._args.get(algorithm.name))
        except (ExtenderError, ValidationError) as error:
            return dict.fromkeys(self._nodes, Verdict("Error", str(error)))
        if refused is SKIP:
            return SKIPPED
        return {node: refusal(outcome.code, outcome.reasons) for node, outcome in refused.items()}

    def _score(self, algorithm: type[Priority]) -> tuple[Verdicts, Verdicts]:
        try:
            scores = self._lab.score(algorithm, self._pod, self._args.get(algorithm.name), self._scored)
        except (ExtenderError, ValidationError) as error:
            failed = dict.fromkeys(self._scored, Verdict("Error", str(error)))
            return failed, failed
        if scores is SKIP:
            return SKIPPED, SKIPPED
        return _numbers(scores.raw), _numbers(scores.normalized)


def build_cluster(case: Json) -> Lab:
    """Return a lab that holds the objects of a case.

    Raises:
        ConfigurationError: they cannot be used; names the case.
    """
    try:
        return Lab(case["objects"])
    except Exception as error:
        problem = f"{type(error).__name__}: {error}"
        raise ConfigurationError(f"case {case['name']}: its objects cannot be used: {problem}") from error


def args_by_plugin(configuration: Json) -> dict[str, Json]:
    """Return the arguments in the first profile of a KubeSchedulerConfiguration, as algorithms take them."""
    profiles = configuration.get("profiles") or [{}]
    return {
        entry["name"]: {k: value for k, value in (entry.get("args") or {}).items() if k not in ("apiVersion", "kind")}
        for entry in profiles[0].get("pluginConfig") or ()
    }


def refusal(code: str, reasons: Iterable[str]) -> Verdict:
    """Return a refusal; reasons count as a set, and those of an error, being free text, not at all."""
    text = ", ".join(sorted(set(reasons)))
    return Verdict(code, text) if code == "Error" or not text else Verdict(f"{code}: {text}")


def _numbers(scores: Mapping[str, Any]) -> Verdicts:
    return {node: Verdict(str(score)) for node, score in scores.items()}
