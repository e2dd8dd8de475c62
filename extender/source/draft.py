"""A profile in the making, and the profile made: a section that knows where in a file each part of it stands."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from pydantic import ValidationError

from extender.config import explain
from extender.errors import ConfigurationError
from extender.section import DEFAULT_SCHEDULER, ProfileSection

_END = re.compile(r"[.:\[]|$")


@dataclass(frozen=True)
class SourcedProfile:
    """A section and its origin: the ``path`` its findings begin with, or the ``file`` that it was made of."""

    section: ProfileSection
    path: str
    file: str = ""
    places: Mapping[str, str] = field(default_factory=dict)
    """Where the parts of the section stand in the file, by their paths in the section."""

    def locate(self, problem: str) -> str:
        """Return a finding about the section as one about its origin."""
        return locate(problem, self.path, self.file, self.places) if self.file else problem


class Draft:
    """Collects what a file says of one profile; ``place`` is always where it says so."""

    def __init__(self) -> None:
        self._predicates: dict[str, str] = {}
        self._priorities: dict[str, tuple[int, str]] = {}
        self._args: dict[str, tuple[dict[str, Any], str]] = {}

    def add_predicate(self, algorithm: str, place: str = "") -> None:
        """Let a predicate run, after those that were added before, and once however often it is added."""
        self._predicates.setdefault(algorithm, place)

    def add_priority(self, algorithm: str, weight: int, place: str = "") -> None:
        """Let a priority score; of several weights the last one counts."""
        self._priorities[algorithm] = (weight, place)

    def argue(self, algorithm: str, args: Mapping[str, Any], place: str) -> None:
        """Give an algorithm arguments, in place of those of the same name that it has."""
        held, _ = self._args.get(algorithm, ({}, place))
        self._args[algorithm] = ({**held, **args}, place)

    def assume(self, algorithm: str, args: Mapping[str, Any], place: str) -> None:
        """Give an algorithm arguments where it has none."""
        if algorithm not in self._args:
            self.argue(algorithm, args, place)

    def lengthen(self, algorithm: str, arg: str, items: Iterable[str], place: str) -> None:
        """Add to a list among the arguments of an algorithm."""
        held, first = self._args.get(algorithm, ({}, place))
        self._args[algorithm] = ({**held, arg: [*held.get(arg, ()), *items]}, first)

    def finish(
        self, file: str, path: str, *, scheduler_name: str = DEFAULT_SCHEDULER, check_all: bool = False
    ) -> SourcedProfile:
        """Return the profile.

        Raises:
            ConfigurationError: a value is not possible in a profile, such as a weight that is too large.
        """
        places: dict[str, str] = {}
        predicates = [
            self._entry(f"predicates.enabled[{number}]", name, place, places)
            for number, (name, place) in enumerate(self._predicates.items())
        ]
        priorities = [
            self._entry(f"priorities.enabled[{number}]", name, place, places) | {"weight": weight}
            for number, (name, (weight, place)) in enumerate(self._priorities.items())
        ]
        tree = {
            "schedulerName": scheduler_name,
            "predicates": {"enabled": predicates},
            "priorities": {"enabled": priorities},
            "alwaysCheckAllPredicates": check_all,
        }
        try:
            section = ProfileSection.model_validate(tree)
        except ValidationError as error:
            raise ConfigurationError(locate(line, "", file, places) for line in explain(error)) from None
        return SourcedProfile(section, path, file, places)

    def _entry(self, path: str, name: str, place: str, places: dict[str, str]) -> dict[str, Any]:
        """Return an entry of the section, and note where it is from."""
        if place:
            places[path] = place
        if name not in self._args:
            return {"name": name}
        args, places[f"{path}.args"] = self._args[name]
        return {"name": name, "args": args}


def locate(problem: str, root: str, file: str, places: Mapping[str, str]) -> str:
    """Return a finding about the section at ``root`` as one about the place in ``file`` that its part is from."""
    part = problem.removeprefix(f"{root}.") if root else problem
    for path in sorted(places, key=len, reverse=True):
        if part.startswith(path) and _END.match(part, len(path)):
            return f"{file}: {places[path]}{part[len(path) :]}"
    return f"{file}: {part}"
