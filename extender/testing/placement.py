"""Compares a whole profile with what kube-scheduler decided: which nodes fit, their total scores, and whom to evict.

The cases are those of ``extender.testing.conformance``; here ``expect.feasible``, ``expect.total`` and
``expect.preemption`` are the truth.
"""

from __future__ import annotations

from collections.abc import Iterable

from extender.errors import ExtenderError
from extender.framework.loader import default_set
from extender.framework.outcome import Outcome
from extender.framework.preemption import Eviction, Preemption
from extender.framework.profile import ProfileBinder
from extender.framework.registry import Registry
from extender.framework.runner import NoRecorder, Runner
from extender.section import AlgorithmEntry, Predicates, Priorities, PriorityEntry, ProfileSection
from extender.testing.conformance import (
    FEASIBLE,
    PREEMPTION,
    TOTAL,
    Tally,
    Verdict,
    Verdicts,
    args_by_plugin,
    build_cluster,
    refusal,
)
from extender.testing.lab import pending
from extender.testing.reply import Json


def compare_default_profile(cases: Iterable[Json]) -> Tally:
    """Run the default algorithms together on every case and return one tally."""
    tally = Tally("default profile", named=True)
    registry = Registry()
    for case in cases:
        tally.cases += 1
        expect = case["expect"]
        trial = _Trial(case, registry)
        tally.note(case["name"], FEASIBLE, dict.fromkeys(expect["feasible"], Verdict("fits")), trial.feasible())
        scored = expect["feasible"] if expect["scoredOver"] != "all" else trial.names
        expected = {node: Verdict(str(total)) for node, total in expect["total"].items()}
        tally.note(case["name"], TOTAL, expected, trial.totals(scored))
        wanted = {node: _expected(entry) for node, entry in (expect.get("preemption") or {}).items()}
        evictions = {} if _refused_as_a_whole(expect) else trial.evictions()
        tally.note(case["name"], PREEMPTION, wanted, evictions)
    return tally


class _Trial:
    """One case, with its cluster built and the default profile bound to the case's arguments."""

    def __init__(self, case: Json, registry: Registry) -> None:
        self._lab = build_cluster(case)
        self._pod = pending(case["pod"])
        profile = ProfileBinder(registry, self._lab.mirror, "profile").bind(_section(case))
        self._runner = Runner(profile, NoRecorder())
        self._preemption = Preemption(self._lab.mirror, self._runner)
        self._nodes = self._lab.nodes()
        self.names = self._nodes.names()

    def feasible(self) -> Verdicts:
        try:
            fits = self._runner.filter(self._pod, self._nodes).fits.tolist()
        except ExtenderError as error:
            return {"*": Verdict("Error", str(error))}
        return {name: Verdict("fits") for name, fit in zip(self.names, fits, strict=True) if fit}

    def totals(self, names: list[str]) -> Verdicts:
        try:
            totals = self._runner.prioritize(self._pod, self._lab.nodes(names)).tolist()
        except ExtenderError as error:
            return {"*": Verdict("Error", str(error))}
        return {name: Verdict(str(total)) for name, total in zip(names, totals, strict=True)}

    def evictions(self) -> Verdicts:
        """Return what the default preemption would do on each node that the pod does not fit."""
        fitting = self.feasible()
        found = {}
        for name, row in zip(self.names, self._nodes.rows.tolist(), strict=True):
            if name not in fitting:
                try:
                    found[name] = _verdict(self._preemption.pick(self._pod, row))
                except ExtenderError as error:
                    found[name] = Verdict("Error", str(error))
        return found


def _section(case: Json) -> ProfileSection:
    args, default = args_by_plugin(case.get("config") or {}), default_set()
    predicates = [AlgorithmEntry(name=name, args=args.get(name)) for name in default.predicates]
    priorities = [
        PriorityEntry(name=name, weight=weight, args=args.get(name)) for name, weight in default.priorities.items()
    ]
    return ProfileSection(predicates=Predicates(enabled=predicates), priorities=Priorities(enabled=priorities))


def _refused_as_a_whole(expect: Json) -> bool:
    """Say whether a plug-in's preFilter refused the pod, so that no node was a candidate for preemption."""
    codes = (plugin.get("preFilter", {}).get("code", "Success") for plugin in expect["plugins"].values())
    return any(code not in ("Success", "Skip") for code in codes)


def _verdict(found: Eviction | Outcome) -> Verdict:
    if isinstance(found, Outcome):
        return refusal(found.code, found.reasons)
    return _evicted([info.uid for info in found.victims], found.violations)


def _expected(entry: Json) -> Verdict:
    if entry["code"] == "Success":
        return _evicted(entry.get("victims") or [], entry.get("numPDBViolations") or 0)
    return refusal(entry["code"], entry.get("reasons") or ())


def _evicted(uids: list[str], violations: int) -> Verdict:
    return Verdict(f"evict {', '.join(uids)}; {violations} violations")
