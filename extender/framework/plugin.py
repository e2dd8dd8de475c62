"""Algorithms that installed packages offer, by the entry points in their metadata; nothing is imported to know of them.

A package offers one with these lines in its ``pyproject.toml``; the name is that of the class::

    [project.entry-points."scheduler_extender.algorithms"]
    MyRule = "my_rule:MyRule"
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import entry_points
from typing import Final

GROUP: Final = "scheduler_extender.algorithms"
"""The group of entry points that algorithms are found in."""


@dataclass(frozen=True, order=True)
class Plugin:
    """One entry point: the name it gives, what that stands for, and the distribution that says so."""

    name: str
    path: str
    distribution: str

    @property
    def origin(self) -> str:
        """What it is called in errors."""
        return f"entry point {self.name!r} of {self.distribution} ({self.path})"


def installed_plugins() -> Mapping[str, Sequence[Plugin]]:
    """Return the entry points of the group by name; more than one where distributions claim the same name."""
    found: dict[str, list[Plugin]] = {}
    plugins = {
        Plugin(point.name, point.value, f"{point.dist.name} {point.dist.version}" if point.dist else "unknown")
        for point in entry_points(group=GROUP)
    }
    for plugin in sorted(plugins):
        found.setdefault(plugin.name, []).append(plugin)
    return found
