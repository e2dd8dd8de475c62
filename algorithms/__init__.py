"""The algorithms that come with the service: one module each, named after its algorithm in snake_case.

They are named here only as text, so that a module is imported when it is enabled and not before.
"""

MANDATORY_PREDICATES = ("SchedulingGates", "NodeUnschedulable", "TaintToleration")
"""Predicates that run in every profile, in this order."""

DEFAULT_PREDICATES = (
    "SchedulingGates",
    "NodeUnschedulable",
    "NodeName",
    "TaintToleration",
    "NodeAffinity",
    "NodePorts",
    "NodeResourcesFit",
    "VolumeRestrictions",
    "NodeVolumeLimits",
    "VolumeBinding",
    "VolumeZone",
    "PodTopologySpread",
    "InterPodAffinity",
)
"""The predicates of a profile that names none, in kube-scheduler's order."""

DEFAULT_PRIORITIES = {
    "TaintToleration": 3,
    "NodeAffinity": 2,
    "NodeResourcesFit": 1,
    "PodTopologySpread": 2,
    "InterPodAffinity": 2,
    "NodeResourcesBalancedAllocation": 1,
    "ImageLocality": 1,
}
"""The priorities of a profile that names none, with kube-scheduler's weights (source: default_plugins.go of 1.36)."""
