"""From the names in the configuration to algorithms that are bound to their arguments and caches."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, Literal, TypeAlias, TypeVar

from pydantic import ValidationError

from extender.config import explain
from extender.errors import FAULTS, ConfigurationError, ExtenderError
from extender.framework.algorithm import Algorithm, Args, Predicate, Priority
from extender.framework.cache import Cache
from extender.framework.eviction import DisruptionBudgets, PlacedPods
from extender.framework.loader import default_set, load, load_provider
from extender.framework.mirror import Mirror
from extender.framework.provider import Provider
from extender.framework.registry import Registry
from extender.framework.runner import Profile, Weighted
from extender.framework.treatment import FILTER, PRIORITIZE, USUAL, Treatment
from extender.model.kind import NODES, POD_DISRUPTION_BUDGETS, PODS, Kind
from extender.section import ALL, AlgorithmEntry, Predicates, Priorities, PriorityEntry, ProfileSection

Role: TypeAlias = Literal["predicate", "priority"]
_LISTS: Final[Mapping[Role, str]] = {"predicate": "predicates", "priority": "priorities"}

A = TypeVar("A", bound=Algorithm)
E = TypeVar("E", bound=AlgorithmEntry)


class ProfileBinder:
    """Binds one profile; collects every finding before it gives up."""

    def __init__(self, registry: Registry, mirror: Mirror, path: str) -> None:
        self._registry = registry
        self._mirror = mirror
        self._path = path
        self._problems: list[str] = []
        self._args: dict[str, tuple[str, Mapping[str, Any]]] = {}
        self._read: dict[type[Algorithm], Args | None] = {}
        self._treatments: dict[tuple[str, str], Treatment] = {}

    def bind(self, section: ProfileSection) -> Profile:
        """Return the profile that ``section`` describes, its caches built from what the mirror holds.

        Raises:
            ConfigurationError: all findings at once, each with its path.
        """
        provider = self._provider(section.provider)
        predicates = self._resolve_predicates(section.predicates, provider)
        priorities = self._resolve_priorities(section.priorities, provider)
        provided = {name: (f"{self._path}.provider", args) for name, args in provider.args.items()}
        self._args = provided | self._args
        bound_predicates = [predicate for cls in predicates if (predicate := self._bound(cls)) is not None]
        bound_priorities = [
            Weighted(priority, weight) for cls, weight in priorities if (priority := self._bound(cls)) is not None
        ]
        if self._problems:
            raise ConfigurationError(self._problems)
        return Profile(bound_predicates, bound_priorities, section.always_check_all_predicates, self._treatments)

    def _provider(self, name: str) -> Provider:
        try:
            return load_provider(name, self._registry)
        except ConfigurationError as error:
            self._problems += [f"{self._path}.provider: {problem}" for problem in error.problems]
            return default_set()

    def _resolve_predicates(self, section: Predicates, provider: Provider) -> list[type[Predicate]]:
        path = f"{self._path}.predicates"
        for name in provider.mandatory:
            self._load(name, path)
        provided = [AlgorithmEntry(name=name) for name in provider.predicates]
        listed = self._listed(section.enabled, section.disabled, provided, f"{path}.enabled")
        found = self._named(listed, section.disabled, f"{path}.enabled")
        mandatory = self._registry.mandatory
        self._check_disabled(section.disabled, "predicate", provider.predicates)
        for place, name in enumerate(section.disabled):
            if name in mandatory:
                self._problems.append(f"{path}.disabled[{place}]: {name} is mandatory and cannot be disabled")
        named = {name for _, name, _ in found}
        chosen = {name: predicate for name, predicate in mandatory.items() if name not in named}
        for where, name, entry in found:
            if name in self._registry.predicates:
                chosen[name] = self._registry.predicate(name)
            else:
                self._problems.append(f"{where}: {_misplaced(name, 'predicate')}")
            if entry.mode == "shadow" and name in mandatory:
                self._problems.append(f"{where}.mode: {name} is mandatory and cannot be in shadow; let it enforce")
            self._treat(FILTER, name, entry)
        return list(chosen.values())

    def _resolve_priorities(self, section: Priorities, provider: Provider) -> list[tuple[type[Priority], int]]:
        path = f"{self._path}.priorities"
        provided = [PriorityEntry(name=name, weight=weight) for name, weight in provider.priorities.items()]
        listed = self._listed(section.enabled, section.disabled, provided, f"{path}.enabled")
        chosen = []
        for where, name, entry in self._named(listed, section.disabled, f"{path}.enabled"):
            if name not in self._registry.priorities:
                self._problems.append(f"{where}: {_misplaced(name, 'priority')}")
                continue
            cls = self._registry.priority(name)
            chosen.append((cls, entry.weight or provider.priorities.get(name, cls.default_weight)))
            self._treat(PRIORITIZE, name, entry)
        self._check_disabled(section.disabled, "priority", provider.priorities)
        return chosen

    def _check_disabled(self, disabled: Sequence[str], role: Role, provided: Container[str]) -> None:
        """Look for names that stand for nothing; nothing is imported for that which is not in-tree."""
        roles: Container[str] = self._registry.predicates if role == "predicate" else self._registry.priorities
        for place, name in enumerate(disabled):
            path = f"{self._path}.{_LISTS[role]}.disabled[{place}]"
            if name == ALL or name in provided or name in self._registry.plugins:
                continue
            if ":" in name:
                called = name.rpartition(":")[2]
                self._problems.append(
                    f"{path}: {name!r} is an import path; give the algorithm's name, such as {called}"
                )
            elif self._load(name, path) is not None and name not in roles:
                self._problems.append(f"{path}: {_misplaced(name, role)}")

    def _listed(
        self, given: Sequence[E] | None, disabled: Sequence[str], provided: Sequence[E], path: str
    ) -> Iterator[tuple[int, E]]:
        """Yield the entries of a list, each with its place, and in the place of ``*`` the provider's, if not named."""
        if ALL in disabled:
            provided = []
        if given is None:
            yield from enumerate(provided)
            return
        named = {entry.name for entry in given}
        for place, entry in enumerate(given):
            if entry.name != ALL:
                yield place, entry
                continue
            self._check_all(entry, f"{path}[{place}]")
            if entry is not next(each for each in given if each.name == ALL):
                self._problems.append(f"{path}[{place}].name: '*' is enabled twice")
                continue
            treated = {key: getattr(entry, key) for key in ("mode", "on_error", "time_budget_millis")}
            yield from ((place, own.model_copy(update=treated)) for own in provided if own.name not in named)

    def _check_all(self, entry: AlgorithmEntry, path: str) -> None:
        self._problems += [
            f"{path}.{key}: '*' stands for many algorithms, and has none; give it in an entry of the one it is for"
            for key in ("args", "weight")
            if getattr(entry, key, None) is not None
        ]

    def _treat(self, point: str, name: str, entry: AlgorithmEntry) -> None:
        millis = entry.time_budget_millis
        treatment = Treatment(
            entry.mode == "shadow", entry.on_error == "ignore", None if millis is None else millis / 1000
        )
        if treatment != USUAL:
            self._treatments[point, name] = treatment

    def _named(self, entries: Iterable[tuple[int, E]], disabled: Sequence[str], path: str) -> list[tuple[str, str, E]]:
        """Load what ``entries`` name, less what is disabled; return paths, names and entries."""
        found: dict[str, tuple[str, str, E]] = {}
        for place, entry in entries:
            where = f"{path}[{place}]"
            name = self._load(entry.name, f"{where}.name")
            if name is None or name in disabled:
                continue
            if name in found:
                self._problems.append(f"{where}.name: {name} is enabled twice")
                continue
            found[name] = (where, name, entry)
            if entry.args is not None:
                self._note_args(name, f"{where}.args", entry.args)
        return list(found.values())

    def _note_args(self, name: str, path: str, args: Mapping[str, Any]) -> None:
        first, held = self._args.setdefault(name, (path, args))
        if args != held:
            self._problems.append(
                f"{path}: differ from {first}; {name} has the same in both lists, so give them in one place"
            )

    def _load(self, reference: str, path: str) -> str | None:
        try:
            return load(reference, self._registry)
        except ConfigurationError as error:
            self._problems += [f"{path}: {problem}" for problem in error.problems]
            return None

    def _bound(self, cls: type[A]) -> A | None:
        if cls not in self._read:
            self._read[cls] = self._read_args(cls)
        args = self._read[cls]
        if args is None:
            return None
        try:
            return bind(cls, args, self._mirror)
        except FAULTS as error:
            problem = f"{self._path}: {cls.name} failed to start: {_told(error)}"
            if problem not in self._problems:
                self._problems.append(problem)
            return None

    def _read_args(self, cls: type[Algorithm]) -> Args | None:
        path, given = self._args.get(cls.name, (self._path, {}))
        try:
            return cls.Arguments.model_validate(given)
        except ValidationError as error:
            self._problems += explain(error, path)
        except FAULTS as error:
            self._problems.append(f"{path}: {cls.name} failed to read its arguments: {_told(error)}")
        return None


def _misplaced(name: str, role: Role) -> str:
    other: Role = "priority" if role == "predicate" else "predicate"
    return f"{name} is a {other} and no {role}; it belongs under {_LISTS[other]}"


def _told(error: BaseException) -> str:
    return str(error) if isinstance(error, ExtenderError) else f"{type(error).__name__}: {error}"


def bind(cls: type[A], args: Args, mirror: Mirror) -> A:
    """Return an instance of an algorithm, given its arguments and the mirror's shared caches."""
    return cls(args, {cache: mirror.cache(cache) for cache in cls.declared_caches().values()})


def rebind(profile: Profile, mirror: Mirror) -> Profile:
    """Return a profile of the same algorithms with the same arguments, given the caches as they are now."""
    return Profile(
        [bind(type(each), each.args, mirror) for each in profile.predicates],
        [Weighted(bind(type(each.priority), each.priority.args, mirror), each.weight) for each in profile.priorities],
        profile.check_all,
        profile.treatments,
    )


def watched_kinds(*profiles: Profile) -> set[Kind]:
    """Return what must be watched.

    That is nodes, pods and disruption budgets, which the verbs need, and what the algorithms of the profiles declare.
    """
    kinds = (type(algorithm).declared_kinds() for profile in profiles for algorithm in profile.algorithms)
    return {NODES, PODS, POD_DISRUPTION_BUDGETS}.union(*kinds)


def used_caches(*profiles: Profile) -> set[type[Cache]]:
    """Return the caches that must be kept: those that preemption needs, and those of the profiles' algorithms."""
    caches = (type(each).declared_caches().values() for profile in profiles for each in profile.algorithms)
    return {PlacedPods, DisruptionBudgets}.union(*caches)


def readers(cache: type[Cache], *profiles: Profile) -> list[str]:
    """Return the names of the algorithms that read a cache, sorted."""
    every = (each for profile in profiles for each in profile.algorithms)
    return sorted({each.name for each in every if cache in type(each).declared_caches().values()})
