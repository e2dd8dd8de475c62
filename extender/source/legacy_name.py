"""What the predicates and priorities of a Policy are called here, for every name that kube-scheduler 1.0 to 1.22 took.

Sources: plugin/pkg/scheduler/algorithmprovider/defaults of 1.0 to 1.9, pkg/scheduler/algorithmprovider/defaults of 1.10
to 1.17, and pkg/scheduler/framework/plugins/legacy_registry.go of 1.18 to 1.22.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final


@dataclass(frozen=True)
class Counterpart:
    """The algorithms that do what a name stood for, and why these."""

    algorithms: tuple[str, ...]
    reason: str
    moved: bool = False
    """Whether that is not the same under another name, so that it is worth a line in the log."""
    args: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Arguments by algorithm that make it do what it did under the name, where the file gives none."""


_RENAMED: Final = "the same under another name"
_SAME: Final = "the same"
_CONDITION: Final = "nodes with this condition have a taint instead since 1.12"
_NO_DEFAULTS: Final = {"PodTopologySpread": {"defaultingType": "List"}}
_SPREADING: Final = {"shape": [{"utilization": 0, "score": 10}, {"utilization": 100, "score": 0}]}


def _renamed(*algorithms: str) -> Counterpart:
    return Counterpart(algorithms, _RENAMED)


PREDICATES: Final[Mapping[str, Counterpart]] = {
    "CheckNodeCondition": Counterpart(
        ("NodeUnschedulable", "TaintToleration"),
        "nodes that are not ready or have no network have a taint instead since 1.12",
        moved=True,
    ),
    "CheckNodeUnschedulable": _renamed("NodeUnschedulable"),
    "GeneralPredicates": Counterpart(
        ("NodeResourcesFit", "NodeName", "NodePorts", "NodeAffinity"), "a name for these four together"
    ),
    "HostName": _renamed("NodeName"),
    "PodFitsHostPorts": _renamed("NodePorts"),
    "PodFitsPorts": Counterpart(("NodePorts",), "the name of PodFitsHostPorts in 1.0"),
    "MatchNodeSelector": _renamed("NodeAffinity"),
    "PodFitsResources": _renamed("NodeResourcesFit"),
    "NoDiskConflict": _renamed("VolumeRestrictions"),
    "PodToleratesNodeTaints": _renamed("TaintToleration"),
    "PodToleratesNodeNoExecuteTaints": Counterpart(
        ("TaintToleration",), "it looks at the effect NoExecute as well as at NoSchedule", moved=True
    ),
    "CheckNodeLabelPresence": _renamed("NodeLabel"),
    "CheckServiceAffinity": _renamed("ServiceAffinity"),
    "MaxEBSVolumeCount": _renamed("EBSLimits"),
    "MaxGCEPDVolumeCount": _renamed("GCEPDLimits"),
    "MaxCSIVolumeCountPred": _renamed("NodeVolumeLimits"),
    "MaxAzureDiskVolumeCount": _renamed("AzureDiskLimits"),
    "MaxCinderVolumeCount": Counterpart(
        ("NodeVolumeLimits",), "Cinder volumes are attached, and counted, by their CSI driver since 1.21", moved=True
    ),
    "CheckVolumeBinding": _renamed("VolumeBinding"),
    "NoVolumeNodeConflict": Counterpart(("VolumeBinding",), "a part of CheckVolumeBinding since 1.10"),
    "NoVolumeZoneConflict": _renamed("VolumeZone"),
    "CheckNodeMemoryPressure": Counterpart(("TaintToleration",), _CONDITION, moved=True),
    "CheckNodePIDPressure": Counterpart(("TaintToleration",), _CONDITION, moved=True),
    "CheckNodeDiskPressure": Counterpart(("TaintToleration",), _CONDITION, moved=True),
    "EvenPodsSpread": Counterpart(
        ("PodTopologySpread",), "the same, without constraints for pods that have none", args=_NO_DEFAULTS
    ),
    "MatchInterPodAffinity": _renamed("InterPodAffinity"),
}
"""In the order in which they run, whatever their order in a file (source: predicateOrdering)."""

PRIORITIES: Final[Mapping[str, Counterpart]] = {
    "EqualPriority": Counterpart(("EqualPriority",), _SAME),
    "LeastRequestedPriority": _renamed("NodeResourcesLeastAllocated"),
    "MostRequestedPriority": _renamed("NodeResourcesMostAllocated"),
    "BalancedResourceAllocation": _renamed("NodeResourcesBalancedAllocation"),
    "RequestedToCapacityRatioPriority": Counterpart(
        ("RequestedToCapacityRatio",),
        "the same under another name; without arguments an empty node is best",
        args={"RequestedToCapacityRatio": _SPREADING},
    ),
    "RequestedToCapacityRatio": Counterpart(
        ("RequestedToCapacityRatio",), _SAME, args={"RequestedToCapacityRatio": _SPREADING}
    ),
    "SelectorSpreadPriority": _renamed("SelectorSpread"),
    "ServiceSpreadingPriority": Counterpart(
        ("SelectorSpread",), "replaced by SelectorSpreadPriority, which counts controllers as well, in 1.1", moved=True
    ),
    "InterPodAffinityPriority": _renamed("InterPodAffinity"),
    "NodeAffinityPriority": _renamed("NodeAffinity"),
    "TaintTolerationPriority": _renamed("TaintToleration"),
    "ImageLocalityPriority": _renamed("ImageLocality"),
    "NodePreferAvoidPodsPriority": _renamed("NodePreferAvoidPods"),
    "EvenPodsSpreadPriority": Counterpart(
        ("PodTopologySpread",), "the same, without constraints for pods that have none", args=_NO_DEFAULTS
    ),
    "ResourceLimitsPriority": Counterpart((), "an experiment that only broke ties; removed in 1.20", moved=True),
    "NodeLabel": Counterpart(("NodeLabel",), _SAME),
    "ServiceAffinity": Counterpart(("ServiceAffinity",), _SAME),
}

MISNAMED: Final[Mapping[str, str]] = {
    "PodFitsHost": "HostName",
    "PodMatchNodeSelector": "MatchNodeSelector",
    "MaxCSIVolumeCount": "MaxCSIVolumeCountPred",
}
"""What the documentation of 1.18 to 1.22 calls predicates that kube-scheduler takes under another name only."""
