"""The tree of a configuration: a file, and over it what environment variables and flags set.

It knows which of them a finding is owed to, and can do without the parts that findings are about.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from extender.yaml_text import read_yaml

Location: TypeAlias = tuple[int | str, ...]
"""Where in a tree: keys, and places in lists."""

ENVIRONMENT_PREFIX: Final = "SCHEDULER_EXTENDER_"
"""What the names of variables begin with."""

FLAG: Final = "--set"
"""The origin of what flags set."""

_OF_A_SERVICE: Final = re.compile(r"SERVICE_(HOST|PORT(_[A-Z0-9_]+)?)|PORT(_[0-9]+_(TCP|UDP|SCTP)(_[A-Z]+)?)?")


@dataclass(frozen=True)
class _Override:
    origin: str
    text: str


class LayeredTree:
    """Holds the values in ``tree``; ``problems`` tell of those that cannot be set."""

    def __init__(self, tree: dict[str, Any]) -> None:
        self.tree = tree
        self.problems: list[str] = []
        self._found: dict[Location, _Override] = {}
        self._added: set[Location] = set()
        self._left_out: list[Location] = []

    def put(self, origin: str, keys: list[str], text: str) -> None:
        """Set the value at ``keys`` to what ``text`` is as YAML."""
        place = f"{FLAG} {'.'.join(keys)}" if origin == FLAG else origin
        if "" in keys:
            example = "server.port" if origin == FLAG else f"{ENVIRONMENT_PREFIX}SERVER__PORT"
            self.problems.append(f"{place}: names no key; write it as {example}")
            return
        if any("[" in key for key in keys):
            self.problems.append(f"{place}: a list is set as a whole, such as {FLAG} 'exempt.namespaces=[a, b]'")
            return
        try:
            value = _value(text)
        except ValueError as error:
            self.problems.append(f"{place}: {error}")
            return
        branch = self.tree
        for depth, key in enumerate(keys[:-1], 1):
            if branch.get(key) is None:
                branch[key] = {}
                self._added.add(tuple(keys[:depth]))
            branch = branch[key]
            if not isinstance(branch, dict):
                self.problems.append(f"{place}: {key} is not a section")
                return
        branch[keys[-1]] = value
        whole: Location = tuple(keys)
        self._found = {at: held for at, held in self._found.items() if at[: len(whole)] != whole}
        self._found[whole] = _Override(origin, text)

    def blame(self, location: Location, finding: str) -> str:
        """Return a finding about ``location`` with the variables or the flag that it is owed to, if any."""
        origins = self._origins(location)
        if origins == [FLAG]:
            return f"{FLAG} {finding}"
        return f"{', '.join(origins)}: {finding}" if origins else finding

    def cause(self, location: Location) -> str:
        """Return where the variable of an unknown key may come from, if not from whoever configured the service."""
        for origin in self._origins(location):
            if origin.startswith(ENVIRONMENT_PREFIX) and _OF_A_SERVICE.fullmatch(origin, len(ENVIRONMENT_PREFIX)):
                return " (in a pod it is set for a Service named scheduler-extender unless enableServiceLinks is false)"
        return ""

    def take_as_text(self, location: Location) -> bool:
        """Let a value be the text that was given, not what YAML makes of it; says whether that is something else."""
        held = self._found.get(location)
        if held is None:
            return False
        branch: Any = self.tree
        for key in location[:-1]:
            branch = branch[key]
        changed = branch[location[-1]] != held.text
        branch[location[-1]] = held.text
        return bool(changed)

    def leave_out(self, locations: Iterable[Location]) -> None:
        """Take out what stands at ``locations``, or around them.

        An item of a list goes with the whole list, so that those after it keep their places. So do arguments: an
        algorithm that is left without them would give rise to findings of its own.
        """
        gone: list[Location] = []
        for location in locations:
            if not any(location[: len(place)] == place for place in gone):
                gone.append(_take_out(self.tree, location))
        self._left_out += gone

    def is_whole(self, *locations: Location) -> bool:
        """Say whether nothing was left out at ``locations``, in them or around them."""
        return not any(_overlap(location, gone) for location in locations for gone in self._left_out)

    def _origins(self, location: Location) -> list[str]:
        """Return what set the value at ``location``; or all below it, where the file has nothing there."""
        for length in range(len(location), 0, -1):
            if location[:length] in self._found:
                return [self._found[location[:length]].origin]
        if location not in self._added:
            return []
        below = (held.origin for at, held in self._found.items() if at[: len(location)] == location)
        return list(dict.fromkeys(below))


def _value(text: str) -> Any:
    try:
        content = read_yaml(text)
    except ValueError as error:
        raise ValueError(f"is not YAML: {error}; put quotes around a text") from error
    for repeated in content.repetitions:
        raise ValueError(f"{repeated.path} stands in it twice; keep one of them")
    return content.tree


def _take_out(tree: dict[str, Any], location: Location) -> Location:
    """Take out what stands at a place, or the nearest around it that can go, and return where that was."""
    branches: list[Any] = [tree]
    for key in location:
        branch = branches[-1]
        if key not in (branch if isinstance(branch, dict) else range(len(branch)) if isinstance(branch, list) else ()):
            break
        branches.append(branch[key])
    depth = len(branches) - 1
    while depth and (isinstance(branches[depth - 1], list) or location[depth - 1] == "args"):
        depth -= 1
    if depth:
        del branches[depth - 1][location[depth - 1]]
    else:
        tree.clear()
    return location[:depth]


def _overlap(one: Location, other: Location) -> bool:
    """Say whether one place is the other, or in it."""
    shared = min(len(one), len(other))
    return one[:shared] == other[:shared]
