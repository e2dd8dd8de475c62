"""EqualPriority: every node is as good as any other."""

import numpy as np

from extender.framework import IntArray, Nodes, PendingPod, Priority

SCORE = 1
"""What every node gets (source: EqualPriorityMap of kube-scheduler's priorities, up to 1.17)."""


class EqualPriority(Priority):
    """Gives every node the same score, for configurations that must name a priority and want none."""

    def prioritize(self, pod: PendingPod, nodes: Nodes) -> IntArray:  # noqa: ARG002 - all pods are alike
        """Answer without looking."""
        return np.full(len(nodes), SCORE, np.int64)
