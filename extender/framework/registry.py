"""Algorithms by name: predicates, the mandatory ones among them, and priorities."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from typing import TypeVar

from extender.errors import ConfigurationError
from extender.framework.algorithm import NAME_PATTERN, Algorithm, Predicate, Priority

A = TypeVar("A", bound=Algorithm)


class Registry:
    """Holds algorithm classes; one class may be both a predicate and a priority."""

    def __init__(self) -> None:
        self._predicates: dict[str, type[Predicate]] = {}
        self._priorities: dict[str, type[Priority]] = {}

    @property
    def predicates(self) -> Mapping[str, type[Predicate]]:
        """All predicates by name, in the order of registration."""
        return self._predicates

    @property
    def mandatory(self) -> Mapping[str, type[Predicate]]:
        """The predicates that always run, first, in the order of registration."""
        return {name: cls for name, cls in self._predicates.items() if cls.mandatory}

    @property
    def priorities(self) -> Mapping[str, type[Priority]]:
        """All priorities by name, in the order of registration."""
        return self._priorities

    def register(self, algorithm: type[Algorithm]) -> None:
        """Add a predicate, a priority, or a class that is both.

        Raises:
            ConfigurationError: the name is malformed or taken, or the class is neither.
        """
        name, origin = algorithm.name, f"{algorithm.__module__}:{algorithm.__qualname__}"
        if not NAME_PATTERN.match(name):
            raise ConfigurationError(
                f"{origin}: name {name!r} must consist of letters, digits and '-', and begin and end with neither '-'"
            )
        if not issubclass(algorithm, Predicate | Priority):
            raise ConfigurationError(f"{origin}: must be a subclass of Predicate or Priority")
        if issubclass(algorithm, Predicate):
            _claim(self._predicates, name, algorithm, origin)
        if issubclass(algorithm, Priority):
            _claim(self._priorities, name, algorithm, origin)

    def predicate(self, name: str) -> type[Predicate]:
        """Return the predicate ``name``.

        Raises:
            ConfigurationError: there is none; names the nearest one.
        """
        return _find(self._predicates, name, "predicate")

    def priority(self, name: str) -> type[Priority]:
        """Return the priority ``name``.

        Raises:
            ConfigurationError: there is none; names the nearest one.
        """
        return _find(self._priorities, name, "priority")


def _claim(names: dict[str, type[A]], name: str, algorithm: type[A], origin: str) -> None:
    holder = names.get(name)
    if holder is algorithm:
        return
    if holder is not None:
        taken = f"{holder.__module__}:{holder.__qualname__}"
        raise ConfigurationError(f"{origin}: the name {name!r} is taken by {taken}; give one of them another name")
    names[name] = algorithm


def _find(names: dict[str, type[A]], name: str, what: str) -> type[A]:
    try:
        return names[name]
    except KeyError:
        raise ConfigurationError(f"no {what} named {name!r}{nearest(name, names)}") from None


def nearest(name: str, known: Iterable[str]) -> str:
    """Return ``; did you mean ...?`` with the nearest known name, else the list of them."""
    names = sorted(known)
    by_folded = {candidate.casefold(): candidate for candidate in names}
    close = difflib.get_close_matches(name.casefold(), by_folded, n=1)
    if close:
        return f"; did you mean {by_folded[close[0]]!r}?"
    return f"; known are {', '.join(names)}" if names else "; none are known"
