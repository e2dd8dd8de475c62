"""From the names in the configuration to algorithms that are bound to their arguments and caches."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from pydantic import ValidationError

from extender.config import AlgorithmEntry, Predicates, Priorities, PriorityEntry, ProfileSection, explain
from extender.errors import ConfigurationError
from extender.framework.algorithm import Algorithm, Args, Predicate, Priority
from extender.framework.loader import default_set, load
from extender.framework.mirror import Mirror
from extender.framework.registry import Registry
from extender.framework.runner import Profile, Weighted
from extender.model.kind import NODES, POD_DISRUPTION_BUDGETS, PODS, Kind

A = TypeVar("A", bound=Algorithm)
E = TypeVar("E", bound=AlgorithmEntry)


class ProfileBinder:
    """Binds one profile; collects every finding before it gives up."""

    def __init__(self, registry: Registry, mirror: Mirror, path: str) -> None:
        self._registry = registry
        self._mirror = mirror
        self._path = path
        self._problems: list[str] = []
        self._args: dict[str, tuple[str, AlgorithmEntry]] = {}

    def bind(self, section: ProfileSection) -> Profile:
        """Return the profile that ``section`` describes, its caches built from what the mirror holds.

        Raises:
            ConfigurationError: all findings at once, each with its path.
        """
        predicates = self._resolve_predicates(section.predicates)
        priorities = self._resolve_priorities(section.priorities)
        bound_predicates = [predicate for cls in predicates if (predicate := self._bound(cls)) is not None]
        bound_priorities = [
            Weighted(priority, weight) for cls, weight in priorities if (priority := self._bound(cls)) is not None
        ]
        if self._problems:
            raise ConfigurationError(self._problems)
        return Profile(bound_predicates, bound_priorities)

    def _resolve_predicates(self, section: Predicates) -> list[type[Predicate]]:
        default = default_set()
        path = f"{self._path}.predicates"
        for name in default.mandatory:
            self._load(name, path)
        entries: Sequence[AlgorithmEntry] = section.enabled or []
        if section.enabled is None:
            entries = [AlgorithmEntry(name=name) for name in default.predicates]
        found = self._named(entries, section.disabled, f"{path}.enabled")
        mandatory = self._registry.mandatory
        for place, name in enumerate(section.disabled):
            if name in mandatory:
                self._problems.append(f"{path}.disabled[{place}]: {name} is mandatory and cannot be disabled")
        named = {name for _, name, _ in found}
        chosen = {name: predicate for name, predicate in mandatory.items() if name not in named}
        for where, name, _ in found:
            try:
                chosen[name] = self._registry.predicate(name)
            except ConfigurationError as error:
                self._problems.append(f"{where}: {error}")
        return list(chosen.values())

    def _resolve_priorities(self, section: Priorities) -> list[tuple[type[Priority], int]]:
        default = default_set()
        path = f"{self._path}.priorities"
        entries: Sequence[PriorityEntry] = section.enabled or []
        if section.enabled is None:
            entries = [PriorityEntry(name=name, weight=weight) for name, weight in default.priorities.items()]
        chosen = []
        for where, name, entry in self._named(entries, section.disabled, f"{path}.enabled"):
            try:
                cls = self._registry.priority(name)
            except ConfigurationError as error:
                self._problems.append(f"{where}: {error}")
                continue
            chosen.append((cls, entry.weight or default.priorities.get(name, cls.default_weight)))
        return chosen

    def _named(self, entries: Sequence[E], disabled: Sequence[str], path: str) -> list[tuple[str, str, E]]:
        """Load what ``entries`` name, less what is disabled; return paths, names and entries."""
        found: dict[str, tuple[str, str, E]] = {}
        for place, entry in enumerate(entries):
            where = f"{path}[{place}]"
            name = self._load(entry.name, f"{where}.name")
            if name is None or name in disabled:
                continue
            if name in found:
                self._problems.append(f"{where}.name: {name} is enabled twice")
                continue
            found[name] = (where, name, entry)
            if entry.args is not None:
                self._args[name] = (f"{where}.args", entry)
        return list(found.values())

    def _load(self, reference: str, path: str) -> str | None:
        try:
            return load(reference, self._registry)
        except ConfigurationError as error:
            self._problems += [f"{path}: {problem}" for problem in error.problems]
            return None

    def _bound(self, cls: type[A]) -> A | None:
        path, entry = self._args.get(cls.name, ("", None))
        try:
            args: Args = cls.Arguments.model_validate((entry and entry.args) or {})
        except ValidationError as error:
            self._problems += explain(error, path)
            return None
        return bind(cls, args, self._mirror)


def bind(cls: type[A], args: Args, mirror: Mirror) -> A:
    """Return an instance of an algorithm, given its arguments and the mirror's shared caches."""
    return cls(args, {cache: mirror.cache(cache) for cache in cls.declared_caches().values()})


def watched_kinds(profile: Profile) -> set[Kind]:
    """Return what must be watched.

    That is nodes, pods and disruption budgets, which the verbs need, and what the profile's algorithms declare.
    """
    algorithms: list[Algorithm] = [*profile.predicates, *(weighted.priority for weighted in profile.priorities)]
    return {NODES, PODS, POD_DISRUPTION_BUDGETS}.union(*(type(algorithm).declared_kinds() for algorithm in algorithms))
