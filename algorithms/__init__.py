"""The algorithms that come with the service: one module each, named after its algorithm in snake_case.

They are named here only as text, so that a module is imported when it is enabled and not before.
"""

from dataclasses import replace

from extender.framework import Provider

DEFAULT = Provider(
    name="DefaultProvider",
    mandatory=("SchedulingGates", "NodeUnschedulable", "TaintToleration"),
    predicates=(
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
    ),
    priorities={
        "TaintToleration": 3,
        "NodeAffinity": 2,
        "NodeResourcesFit": 1,
        "PodTopologySpread": 2,
        "InterPodAffinity": 2,
        "NodeResourcesBalancedAllocation": 1,
        "ImageLocality": 1,
    },
)
"""What kube-scheduler runs, in its order and with its weights (source: default_plugins.go of 1.36)."""

CLUSTER_AUTOSCALER = replace(
    DEFAULT,
    name="ClusterAutoscalerProvider",
    args={"NodeResourcesFit": {"scoringStrategy": {"type": "MostAllocated"}}},
)
"""The same, but it fills nodes up, so that others become empty and can be removed (source: 1.22 and before)."""

EXTENSION = Provider(name="ExtensionProvider", mandatory=DEFAULT.mandatory)
"""Nothing that kube-scheduler does itself: for a service that adds rules of the house to it, and names just those.

Mandatory predicates run all the same. They refuse nothing more: kube-scheduler calls after its own filters, which they
repeat.
"""

PROVIDERS = (DEFAULT, CLUSTER_AUTOSCALER, EXTENSION)
"""Sets of algorithms that a profile can begin with; the first where it names none."""
