"""Reads case files: small clusters, a pod to place, and what one algorithm answers about every node.

``NAME.yaml`` has ``cases`` and ``defaults`` for what a case leaves out. A case names the algorithm (``plugin``), the
question (``ask``: ``filter`` unless it says ``score``), the ``incoming`` pod, and lists of objects, which are called
as the API calls them (``nodes``, ``persistentVolumeClaims``). ``NAME.expected.txt`` has one line a case::

    two-nodes: n1=pass; n2=FAIL UU (too small)      U: evicting pods could help; UU: it could not
    no-claim: PREFILTER UU: claim not found         the same answer for every node
    scored: n1=0; n2=100   raw [{n1 2} {n2 0}]      scores brought to 0..100, and raw ones
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal, cast

import yaml

from extender.framework.algorithm import SKIP, Algorithm, Predicate, Priority
from extender.model.kind import KINDS, Kind
from extender.testing.lab import Lab
from extender.testing.reply import Json

KIND_OF_LIST: Final = {
    "nodes": "Node",
    "pods": "Pod",
    "namespaces": "Namespace",
    "services": "Service",
    "replicationControllers": "ReplicationController",
    "replicaSets": "ReplicaSet",
    "statefulSets": "StatefulSet",
    "persistentVolumes": "PersistentVolume",
    "persistentVolumeClaims": "PersistentVolumeClaim",
    "storageClasses": "StorageClass",
    "csiNodes": "CSINode",
    "csiDrivers": "CSIDriver",
    "csiStorageCapacities": "CSIStorageCapacity",
    "podDisruptionBudgets": "PodDisruptionBudget",
}
"""The lists of objects that a case may have, and the kind of what is in them."""

INCOMING_UID: Final = "uid-incoming"
"""The uid of the pod to be placed where its case gives none; owner references in other objects rely on it."""

_OTHER_KEYS = frozenset(("id", "plugin", "ask", "incoming", "args"))
_ANSWER = re.compile(r"(pass|FAIL (UU?)(?: \((.*)\))?)")
_EVERYWHERE = re.compile(r"PREFILTER (UU?): (.*)")
_RAW = re.compile(r"\{(\S+) (-?[0-9]+)\}")


@dataclass(frozen=True)
class Answer:
    """What a predicate says of one node; every word of ``text`` is in its reasons."""

    fits: bool
    resolvable: bool = True
    text: str = ""


@dataclass(frozen=True)
class Case:
    """One case: what to ask, and the right answer by node name.

    ``answers`` is filled where ``ask`` is ``filter``, ``scores`` (0..100) where it is ``score``; ``raw`` is empty
    where the file does not tell raw scores.
    """

    id: str
    plugin: str
    ask: Literal["filter", "score"]
    incoming: Json
    objects: list[Json]
    args: Json
    answers: Mapping[str, Answer]
    scores: Mapping[str, int]
    raw: Mapping[str, int]


def read_cases(path: str | Path) -> list[Case]:
    """Return the cases in the file at ``path``, answers included.

    Raises:
        ValueError: a case has no answer, an answer no case, or something in them is not understood; names the case.
    """
    path = Path(path)
    document = yaml.safe_load(path.read_text())
    defaults = document.get("defaults") or {}
    entries = {entry["id"]: {**defaults, **entry} for entry in document["cases"]}
    lines = _expected_lines(path.with_name(f"{path.stem}.expected.txt").read_text())
    if entries.keys() != lines.keys():
        raise ValueError(f"{path}: only one of case and answer exists for {sorted(entries.keys() ^ lines.keys())}")
    return [_read_case(entry, lines[key]) for key, entry in entries.items()]


def check_case(case: Case, algorithm: type[Algorithm], kinds: Iterable[Kind] = KINDS) -> None:
    """Ask ``algorithm`` what the case asks, in a cluster that watches ``kinds``, and compare with the right answer.

    Raises:
        AssertionError: it answers otherwise.
        AlgorithmError: it raised.
    """
    lab = Lab(case.objects, kinds=kinds)
    if case.ask == "score":
        _check_scores(case, lab, algorithm)
    else:
        _check_answers(case, lab, algorithm)


def _check_answers(case: Case, lab: Lab, algorithm: type[Algorithm]) -> None:
    assert issubclass(algorithm, Predicate), f"{algorithm.name} refuses nothing"  # noqa: S101 - as all here, for tests
    verdict = lab.filter(algorithm, case.incoming, case.args)
    refused = {} if verdict is SKIP else verdict
    for node, answer in case.answers.items():
        outcome = refused.get(node)
        assert (outcome is None) == answer.fits, f"{node}: {outcome} instead of {answer}"  # noqa: S101
        if outcome is not None:
            missing = [word for word in answer.text.split() if word not in outcome.text]
            assert outcome.resolvable == answer.resolvable, f"{node}: {outcome} instead of {answer}"  # noqa: S101
            assert not missing, f"{node}: {outcome} instead of {answer}"  # noqa: S101


def _check_scores(case: Case, lab: Lab, algorithm: type[Algorithm]) -> None:
    assert issubclass(algorithm, Priority), f"{algorithm.name} scores nothing"  # noqa: S101
    scores = lab.score(algorithm, case.incoming, case.args)
    assert scores is not SKIP, f"{algorithm.name} has no opinion"  # noqa: S101
    assert scores.normalized == case.scores  # noqa: S101
    assert scores.raw == (case.raw or scores.raw)  # noqa: S101


def _expected_lines(text: str) -> dict[str, str]:
    _, _, body = text.partition("\nPer case")
    parts = (line.partition(": ") for line in body.splitlines()[1:] if line.strip())
    return {key: expected for key, _, expected in parts}


def _read_case(entry: Json, line: str) -> Case:
    key = entry["id"]
    unknown = entry.keys() - KIND_OF_LIST.keys() - _OTHER_KEYS
    if unknown:
        raise ValueError(
            f"case {key}: {sorted(unknown)} are not among {sorted(KIND_OF_LIST | dict.fromkeys(_OTHER_KEYS))}"
        )
    ask = entry.get("ask", "filter")
    nodes = [node["metadata"]["name"] for node in entry.get("nodes", ())]
    answers = _read_answers(key, line, nodes) if ask == "filter" else {}
    scores, raw = _read_scores(key, line) if ask == "score" else ({}, {})
    if set(nodes) != (answers or scores).keys():
        raise ValueError(f"case {key}: {line!r} does not tell of exactly the nodes {nodes}")
    return Case(
        id=key,
        plugin=entry["plugin"],
        ask=ask,
        incoming=_with_uid(entry["incoming"], "Pod", INCOMING_UID),
        objects=[
            _with_uid(item, kind, f"uid-{item['metadata']['name']}")
            for name, kind in KIND_OF_LIST.items()
            for item in entry.get(name, ())
        ],
        args=entry.get("args") or {},
        answers=answers,
        scores=scores,
        raw=raw,
    )


def _read_answers(key: str, line: str, nodes: list[str]) -> dict[str, Answer]:
    everywhere = _EVERYWHERE.fullmatch(line)
    if everywhere:
        return dict.fromkeys(nodes, Answer(fits=False, resolvable=everywhere[1] == "U", text=everywhere[2]))
    answers = {}
    for part in re.split(r"; (?=\S+=)", line):
        node, _, text = part.partition("=")
        found = _ANSWER.fullmatch(text)
        if not found:
            raise ValueError(f"case {key}: {part!r} is neither pass nor FAIL U nor FAIL UU")
        answers[node] = Answer(fits=found[2] is None, resolvable=found[2] != "UU", text=found[3] or "")
    return answers


def _read_scores(key: str, line: str) -> tuple[dict[str, int], dict[str, int]]:
    normalized, _, raw = line.partition("raw ")
    try:
        scores = {node: int(score) for node, score in (part.split("=") for part in normalized.strip().split("; "))}
    except ValueError:
        raise ValueError(f"case {key}: {normalized!r} is not a list of node=score") from None
    return scores, {node: int(score) for node, score in _RAW.findall(raw)}


def _with_uid(item: Mapping[str, Any], kind: str, uid: str) -> Json:
    return cast(Json, {**item, "kind": kind, "metadata": {"uid": uid, **item["metadata"]}})
