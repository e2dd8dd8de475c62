"""ServiceAffinity: the pods of a service go to nodes that have the same values of certain labels.

Source of the rules: plugins/serviceaffinity of 1.22, the last release that had it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from extender.framework import (
    SKIP,
    Args,
    IntArray,
    LabelKey,
    LabelMatcher,
    NodeInfo,
    Nodes,
    OwnerSelectors,
    PendingPod,
    PodClasses,
    PodInfo,
    Predicate,
    Priority,
    Refusal,
    Skip,
    compile_node_selector,
    count_service_pods,
    score_spread,
    select_rows,
    uses,
)

REASON: Final = "node(s) didn't match service affinity"
"""Why a node is refused; evicting the pods that decide where the service is can help."""

EVERYTHING: Final = LabelMatcher(())


class ServiceAffinityArgs(Args):
    """Arguments as in kube-scheduler's ServiceAffinityArgs: keys of node labels."""

    affinity_labels: tuple[LabelKey, ...] = ()
    """Labels of which the nodes of a service's pods must have the same values."""

    anti_affinity_labels_preference: tuple[LabelKey, ...] = ()
    """Labels of which they had better have different values."""


class ServiceAffinity(Predicate, Priority):
    """Keeps a service where its pods are already by some labels, and spreads it over the values of others."""

    Arguments = ServiceAffinityArgs
    args: ServiceAffinityArgs
    owners = uses(OwnerSelectors)
    placed = uses(PodClasses)

    def heeded(self, pod: PendingPod, others: Sequence[PodInfo]) -> list[PodInfo]:
        """Return those that have the pod's labels, where labels of nodes count."""
        alike = EVERYTHING.with_labels(pod.labels)
        return [
            other
            for other in others
            if self.args.affinity_labels
            and other.pod_class.namespace == pod.namespace
            and alike.matches(other.pod_class.labels)
        ]

    def filter(self, pod: PendingPod, nodes: Nodes) -> Skip | list[Refusal]:
        """Refuse nodes with other values than the pod's ``nodeSelector`` has, or than the node of a placed pod.

        A label that neither has is free.
        """
        labels = self.args.affinity_labels
        if not labels:
            return SKIP
        wanted = {label: value for label, value in (pod.spec.node_selector or {}).items() if label in labels}
        if len(wanted) < len(set(labels)) and self.owners.services_of(pod):
            example = self._find_example(pod, nodes)
            if example is not None:
                wanted = {label: example.labels[label] for label in labels if label in example.labels} | wanted
        if not wanted:
            return []
        matching = nodes.take(select_rows(nodes.table, compile_node_selector(None, wanted)))
        return [Refusal(~matching, REASON)]

    def _find_example(self, pod: PendingPod, nodes: Nodes) -> NodeInfo | None:
        """Return a node that has a pod with all labels of ``pod``; the first in the table where several do.

        Upstream takes the first of its snapshot. They agree where all pods of the service are under this rule.
        """
        classes = self.placed.select(EVERYTHING.with_labels(pod.labels), frozenset((pod.namespace,)))
        rows = self.placed.rows(classes)
        known = rows[nodes.table.present[rows]]
        return nodes.table.infos[int(known.min())] if len(known) else None

    def prioritize(self, pod: PendingPod, nodes: Nodes) -> Skip | IntArray:
        """Count the pods of the service on each node."""
        if not self.args.anti_affinity_labels_preference:
            return SKIP
        return count_service_pods(pod, nodes, self.owners, self.placed)

    def normalize(self, pod: PendingPod, nodes: Nodes, scores: IntArray) -> IntArray:  # noqa: ARG002
        """Score label values with fewer of these pods higher."""
        return score_spread(nodes, scores, self.args.anti_affinity_labels_preference)
