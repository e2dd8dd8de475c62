"""Algorithms by name: predicates, the mandatory ones among them, and priorities; and the sets of them, providers."""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import TypeVar

from extender.errors import ConfigurationError
from extender.framework.algorithm import NAME_PATTERN, Algorithm, Predicate, Priority
from extender.framework.plugin import Plugin, installed_plugins
from extender.framework.provider import Provider

A = TypeVar("A", bound=Algorithm)
T = TypeVar("T")

NAME_RULE = "must consist of letters, digits and '-', and begin and end with neither '-'"


class Registry:
    """Holds algorithm classes; one class may be both a predicate and a priority."""

    def __init__(self) -> None:
        self._predicates: dict[str, type[Predicate]] = {}
        self._priorities: dict[str, type[Priority]] = {}
        self._providers: dict[str, Provider] = {}

    @cached_property
    def plugins(self) -> Mapping[str, Sequence[Plugin]]:
        """The entry points that are installed, by name; looked for once, imported only when they are loaded."""
        return installed_plugins()

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
            ConfigurationError: the name is malformed or taken, or the class is neither, or lacks a method.
        """
        name, origin = algorithm.name, f"{algorithm.__module__}:{algorithm.__qualname__}"
        if not NAME_PATTERN.match(name):
            raise ConfigurationError(f"{origin}: name {name!r} {NAME_RULE}")
        if not issubclass(algorithm, Predicate | Priority):
            raise ConfigurationError(f"{origin}: must be a subclass of Predicate or Priority")
        if inspect.isabstract(algorithm):
            raise ConfigurationError(f"{origin}: must define {', '.join(sorted(algorithm.__abstractmethods__))}")
        if issubclass(algorithm, Predicate):
            _claim(self._predicates, name, algorithm, origin)
        if issubclass(algorithm, Priority):
            _claim(self._priorities, name, algorithm, origin)

    @property
    def providers(self) -> Mapping[str, Provider]:
        """All providers by name, in the order of registration."""
        return self._providers

    def register_provider(self, provider: Provider) -> None:
        """Add a set of algorithms.

        Raises:
            ConfigurationError: its name is malformed or taken.
        """
        name = provider.name
        if not NAME_PATTERN.match(name):
            raise ConfigurationError(f"provider: name {name!r} {NAME_RULE}")
        if self._providers.setdefault(name, provider) is not provider:
            raise ConfigurationError(f"provider {name!r}: the name is taken; give it another")

    def provider(self, name: str) -> Provider:
        """Return the provider ``name``.

        Raises:
            ConfigurationError: there is none; names the nearest one.
        """
        return _find(self._providers, name, "provider")

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


def _find(names: Mapping[str, T], name: str, what: str) -> T:
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
