"""ServiceAntiAffinity: spreads the pods of a service over the values of node labels.

Source of the rules: the priority ServiceAntiAffinity of 1.17, which the score of plugins/serviceaffinity replaced.
"""

from __future__ import annotations

from extender.framework import (
    Args,
    IntArray,
    LabelKey,
    Nodes,
    NonEmpty,
    OwnerSelectors,
    PendingPod,
    PodClasses,
    Priority,
    count_service_pods,
    score_spread,
    uses,
)


class ServiceAntiAffinityArgs(Args):
    """What can be set."""

    labels: NonEmpty[LabelKey]
    """Keys of the node labels, such as that of the zone; they count alike."""


class ServiceAntiAffinity(Priority):
    """Prefers nodes whose label values fewer pods of the service share; a node without a label gets nothing for it."""

    Arguments = ServiceAntiAffinityArgs
    args: ServiceAntiAffinityArgs
    owners = uses(OwnerSelectors)
    placed = uses(PodClasses)

    def prioritize(self, pod: PendingPod, nodes: Nodes) -> IntArray:
        """Count the pods of the service on each node."""
        return count_service_pods(pod, nodes, self.owners, self.placed)

    def normalize(self, pod: PendingPod, nodes: Nodes, scores: IntArray) -> IntArray:  # noqa: ARG002
        """Score by how many of the pods are on nodes with another value."""
        return score_spread(nodes, scores, self.args.labels)
