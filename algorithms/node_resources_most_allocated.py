"""NodeResourcesMostAllocated: prefers fuller nodes, as kube-scheduler's plug-in of that name did.

Source of the rules: plugins/noderesources/most_allocated.go of 1.36. 1.22 was the last release that had it under this
name; NodeResourcesFit has it as a scoring strategy.
"""

from __future__ import annotations

from extender.framework import (
    IntArray,
    Nodes,
    PendingPod,
    Priority,
    RequestedResources,
    ScoredResources,
    rate_used,
    uses,
    weigh,
)


class NodeResourcesMostAllocated(Priority):
    """Scores a node by how much of each resource is in use with the pod, to pack pods."""

    Arguments = ScoredResources
    args: ScoredResources
    resources = uses(RequestedResources)

    def prioritize(self, pod: PendingPod, nodes: Nodes) -> IntArray:
        """Return the truncated mean of the percentages in use of the resources that a node has, 0 where it has none.

        Containers that ask for no cpu or memory count with defaults.
        """
        return weigh(self.resources, pod, nodes, self.args.weights, rate_used).truncate()
