"""Which plug-ins a KubeSchedulerConfiguration leaves at one extension point.

Sources: mergePluginSet of apis/config/v1/default_plugins.go and expandMultiPointPlugins of framework/runtime, 1.36.
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from dataclasses import dataclass

from extender.section import ALL


@dataclass(frozen=True)
class Plugin:
    """One plug-in of a list; a weight of 0 stands for 1, and ``place`` is where the file names it."""

    name: str
    weight: int = 0
    place: str = ""


@dataclass(frozen=True)
class PluginSet:
    """What is enabled and disabled at one extension point, or by ``multiPoint`` at all of them."""

    enabled: Sequence[Plugin] = ()
    disabled: frozenset[str] = frozenset()

    def over(self, default: PluginSet) -> PluginSet:
        """Return the set that this one makes of the default: what both enable stays in its place, what is new follows.

        What is disabled leaves the default, and can be enabled again here.
        """
        own = {plugin.name: plugin for plugin in self.enabled}
        kept = [] if ALL in self.disabled else [one for one in default.enabled if one.name not in self.disabled]
        names = {one.name for one in kept}
        new = [plugin for plugin in self.enabled if plugin.name not in names]
        return PluginSet([*(own.get(one.name, one) for one in kept), *new], self.disabled)


def expand(multi_point: PluginSet, point: PluginSet, extending: Container[str]) -> list[Plugin]:
    """Return the plug-ins of an extension point, in the order they run; ``extending`` are those that have a part in it.

    What the point itself names counts: ``multiPoint`` does not bring back a plug-in that it disables, and one that it
    enables has its weight from there and runs first. Those that only the point names run last.
    """
    if ALL in point.disabled:
        return list(point.enabled)
    named = {plugin.name for plugin in point.enabled}
    brought = [one for one in multi_point.enabled if one.name in extending and one.name not in point.disabled]
    both = {one.name for one in brought} & named
    return [
        *(plugin for plugin in point.enabled if plugin.name in both),
        *(one for one in brought if one.name not in named),
        *(plugin for plugin in point.enabled if plugin.name not in both),
    ]
