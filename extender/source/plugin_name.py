"""What the plug-ins of kube-scheduler are called here, and which of them filter and score.

Sources: pkg/scheduler/framework/plugins/registry.go of 1.18 to 1.36, and default_plugins.go of apis/config of each
version.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from extender.framework.loader import default_set
from extender.registration.dialect import Dialect
from extender.source.plugin_set import Plugin, PluginSet

ALGORITHMS: Final[Mapping[str, str]] = {
    name: name
    for name in (
        *("NodeUnschedulable", "NodeName", "TaintToleration", "NodeAffinity", "NodePorts", "NodeResourcesFit"),
        *("VolumeRestrictions", "EBSLimits", "GCEPDLimits", "NodeVolumeLimits", "AzureDiskLimits", "VolumeBinding"),
        *("VolumeZone", "PodTopologySpread", "InterPodAffinity", "NodeResourcesBalancedAllocation", "ImageLocality"),
        *("NodeResourcesLeastAllocated", "NodeResourcesMostAllocated", "RequestedToCapacityRatio", "NodeLabel"),
        *("ServiceAffinity", "SelectorSpread", "NodePreferAvoidPods"),
    )
} | {"CinderLimits": "NodeVolumeLimits", "DefaultPodTopologySpread": "SelectorSpread"}
"""Algorithms by plug-in. Cinder volumes are counted by their CSI driver; SelectorSpread had another name in 1.18."""

SCORING: Final = frozenset(
    {
        *("TaintToleration", "NodeAffinity", "NodeResourcesFit", "PodTopologySpread", "InterPodAffinity"),
        *("NodeResourcesBalancedAllocation", "ImageLocality", "NodeResourcesLeastAllocated"),
        *("NodeResourcesMostAllocated", "RequestedToCapacityRatio", "NodeLabel", "ServiceAffinity", "SelectorSpread"),
        *("DefaultPodTopologySpread", "NodePreferAvoidPods", "VolumeBinding"),
    }
)
"""Plug-ins that score; VolumeBinding only with the argument ``shape``."""

FILTERING: Final = ALGORITHMS.keys() - {
    *("NodeResourcesBalancedAllocation", "ImageLocality", "NodeResourcesLeastAllocated"),
    *("NodeResourcesMostAllocated", "RequestedToCapacityRatio", "SelectorSpread"),
    *("DefaultPodTopologySpread", "NodePreferAvoidPods"),
}
"""Plug-ins that filter."""

PASSED_OVER: Final[Mapping[str, str]] = {
    "SchedulingGates": "runs in every profile",
    "PrioritySort": "sorts kube-scheduler's queue",
    "DefaultPreemption": "is kube-scheduler's part of preemption",
    "DefaultBinder": "binds",
    "DynamicResources": "allocates devices, which kube-scheduler does before it calls",
    "NodeDeclaredFeatures": "looks at features of kubelets, which kube-scheduler does before it calls",
    "NodeResourceLimits": "was an experiment that only broke ties; removed in 1.20",
    "GangScheduling": "holds pods back until their group is there",
    "TopologyPlacementGenerator": "places groups of pods",
    "PodGroupPodsCount": "scores placements of groups of pods",
}
"""Plug-ins without a counterpart among filters and scores, and what they do instead."""

KNOWN: Final = ALGORITHMS.keys() | PASSED_OVER.keys()
"""Every plug-in that comes with kube-scheduler, or came with it."""

IN_TREE_LIMITS: Final = ("EBSLimits", "GCEPDLimits", "AzureDiskLimits")
"""Plug-ins that ran by default while volumes could be attached without a CSI driver."""

MULTI_POINT_SINCE: Final = 23
"""From this minor number on, the defaults stand in ``multiPoint``, where they stood at the points before."""


def defaults(dialect: Dialect) -> dict[str, PluginSet]:
    """Return the plug-ins that run in a version unless a profile says otherwise, by extension point."""
    filters = [name for name in default_set().predicates if name in ALGORITHMS]
    if dialect.last is not None:
        place = filters.index("NodeVolumeLimits") + 1
        filters[place:place] = IN_TREE_LIMITS
    if dialect.first < MULTI_POINT_SINCE:
        scores = [Plugin(name, weight) for name, weight in dialect.weights.items()]
        return {"filter": PluginSet([Plugin(name) for name in filters]), "score": PluginSet(scores)}
    names = [*filters, *(name for name in dialect.weights if name not in filters)]
    return {"multiPoint": PluginSet([Plugin(name, dialect.weights.get(name, 0)) for name in names])}
