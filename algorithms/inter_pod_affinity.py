"""InterPodAffinity: pods are drawn to, or kept from, the topology domains where certain other pods are."""

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Final

import numpy as np

from extender.framework import (
    MAX_NODE_SCORE,
    SKIP,
    AffinityTerm,
    Args,
    BoolArray,
    Carried,
    Field,
    IntArray,
    NamespaceLabels,
    Nodes,
    PendingPod,
    PlacedTerms,
    PodClasses,
    PodInfo,
    Predicate,
    Priority,
    Refusal,
    Selection,
    SelectorError,
    Skip,
    TermIndex,
    compile_affinity,
    uses,
)

AFFINITY_REASON: Final = "node(s) didn't match pod affinity rules"
"""Why a node is refused where the pods that the pod wants to be near to are not (source: plugins/interpodaffinity of
1.36, as are all reasons here)."""

ANTI_AFFINITY_REASON: Final = "node(s) didn't match pod anti-affinity rules"
"""Why a node is refused where there are pods that the pod wants to be far from."""

EXISTING_ANTI_AFFINITY_REASON: Final = "node(s) didn't satisfy existing pods anti-affinity rules"
"""Why a node is refused where there are pods that want to be far from the pod."""

UNREADABLE_REASON: Final = "parsing pod: "
"""Begins why all nodes are refused where a term of the pod cannot be read."""


class Domains:
    """Counts pods by the topology domain that they are in: the value that their node has for a label."""

    def __init__(self, nodes: Nodes) -> None:
        self._nodes = nodes
        self._rows: dict[tuple[str, int], list[IntArray]] = {}
        self._counts: dict[tuple[str, int], IntArray] = {}

    def add(self, topology_key: str, rows: IntArray, weight: int = 1) -> None:
        """Count a pod on each of ``rows``, shape (pods,), as ``weight``; before ``sums`` is asked for."""
        self._rows.setdefault((topology_key, weight), []).append(rows)

    def add_selected(self, topology_key: str, pods: PodClasses, selection: Selection, weight: int = 1) -> None:
        """Count each pod of a selection as ``weight``; before ``sums`` is asked for."""
        column = self._nodes.table.label(topology_key)
        counts = pods.sums(selection, column.codes, len(column.values))
        held = self._counts.get((topology_key, weight))
        self._counts[topology_key, weight] = counts if held is None else held + counts

    @cached_property
    def sums(self) -> dict[str, IntArray]:
        """The sum of weights in each candidate's domain, shape (candidates,), by topology key.

        Keys are missing where no pod is in any domain of theirs. A node without the label is in none.
        """
        for (key, weight), groups in self._rows.items():
            column = self._nodes.table.label(key)
            counts = np.bincount(column.codes[np.concatenate(groups)], minlength=len(column.values))
            self._counts[key, weight] = self._counts.get((key, weight), 0) + counts
        sums: dict[str, IntArray] = {}
        for (key, weight), counts in self._counts.items():
            counts[0] = 0
            if counts.any():
                codes = self._nodes.take(self._nodes.table.label(key).codes)
                sums[key] = sums.get(key, 0) + weight * counts[codes]
        return sums

    @property
    def near(self) -> BoolArray:
        """Which candidates share a domain with a pod; shape (candidates,)."""
        near: BoolArray = np.zeros(len(self._nodes), np.bool_)
        for column in self.sums.values():
            near |= column > 0
        return near


class InterPodAffinityArgs(Args):
    """Arguments as in kube-scheduler's InterPodAffinityArgs."""

    hard_pod_affinity_weight: int = Field(default=1, ge=0, le=100)
    """What a placed pod adds to the score by a required affinity term that is about the pod; 0 to 100."""

    ignore_preferred_terms_of_existing_pods: bool = False
    """Whether placed pods' terms are left out of the score of a pod that has no preferred terms itself."""


class InterPodAffinity(Predicate, Priority):
    """Holds to the affinity and anti-affinity between the pod and the placed pods, in both directions.

    Pods that are being deleted count. A placed pod meets required affinity only if all terms are about it.
    """

    Arguments = InterPodAffinityArgs
    args: InterPodAffinityArgs

    pods = uses(PodClasses)
    placed = uses(PlacedTerms)
    namespaces = uses(NamespaceLabels)

    def heeded(self, pod: PendingPod, others: Sequence[PodInfo]) -> list[PodInfo]:
        """Return those that a required term of the pod is about, and those with required anti-affinity about it."""
        terms = pod.affinity_terms.required_affinity + pod.affinity_terms.required_anti_affinity
        about = {
            kind: any(
                term.matches(kind.namespace, self.namespaces.labels(kind.namespace), kind.labels) for term in terms
            )
            for kind in {other.pod_class for other in others if terms}
        }
        repelled = {
            (shape, namespace): any(
                term.matches(pod.namespace, self._labels(pod), pod.labels)
                for term in compile_affinity(None, shape.anti_affinity, namespace).required_anti_affinity
            )
            for shape, namespace in {
                (other.shape, other.pod_class.namespace) for other in others if other.shape.anti_affinity is not None
            }
        }
        return [
            other
            for other in others
            if about.get(other.pod_class) or repelled.get((other.shape, other.pod_class.namespace))
        ]

    def filter(self, pod: PendingPod, nodes: Nodes) -> Skip | list[Refusal]:
        """Check the pod's affinity, its anti-affinity, then that of placed pods; a node has the first reason only."""
        terms = pod.affinity_terms
        if terms.faults:
            return [Refusal(None, UNREADABLE_REASON + "; ".join(terms.faults), resolvable=False)]
        existing = self._existing_anti_affinity(pod, nodes)
        if not (existing.sums or terms.required_affinity or terms.required_anti_affinity):
            return SKIP
        left: BoolArray = np.ones(len(nodes), np.bool_)
        refusals = []
        for refused, reason, resolvable in (
            (self._too_far(pod, nodes), AFFINITY_REASON, False),
            (self._anti_affinity(pod, nodes).near, ANTI_AFFINITY_REASON, True),
            (existing.near, EXISTING_ANTI_AFFINITY_REASON, True),
        ):
            first = refused & left
            if first.any():
                refusals.append(Refusal(first, reason, resolvable))
                left = left & ~refused
        return refusals

    def prioritize(self, pod: PendingPod, nodes: Nodes) -> Skip | IntArray:
        """Sum the weights of the preferred terms, those of the pod and those of placed pods that are about it.

        Raises:
            SelectorError: a term of the pod cannot be read.
        """
        terms = pod.affinity_terms
        if terms.faults:
            raise SelectorError("; ".join(terms.faults))
        if self.args.ignore_preferred_terms_of_existing_pods and not terms.preferred:
            return SKIP
        domains = Domains(nodes)
        for term in terms.preferred:
            domains.add_selected(term.topology_key, self.pods, self._select(term), term.weight)
        for carried in self._about(pod, self.placed.preferred):
            domains.add(carried.term.topology_key, carried.bag.rows, carried.term.weight)
        if self.args.hard_pod_affinity_weight:
            for carried in self._about(pod, self.placed.required_affinity):
                domains.add(carried.term.topology_key, carried.bag.rows, self.args.hard_pod_affinity_weight)
        if not domains.sums:
            return SKIP
        scores: IntArray = np.add.reduce(list(domains.sums.values()))
        return scores

    def normalize(self, pod: PendingPod, nodes: Nodes, scores: IntArray) -> IntArray:  # noqa: ARG002
        """Give 0 to the lowest and 100 to the highest score; what lies between is truncated from float64."""
        least, most = (int(scores.min()), int(scores.max())) if len(scores) else (0, 0)
        if least == most:
            return np.zeros_like(scores)
        return (MAX_NODE_SCORE * ((scores - least) / (most - least))).astype(np.int64)

    def _too_far(self, pod: PendingPod, nodes: Nodes) -> BoolArray:
        """Return which candidates do not meet the pod's required affinity; shape (candidates,).

        Where there is no pod that all the terms are about, a pod that they are about itself is let in as the first.
        """
        refused: BoolArray = np.zeros(len(nodes), np.bool_)
        terms = pod.affinity_terms.required_affinity
        if not terms:
            return refused
        selected = self._select(*terms)
        topology_keys = dict.fromkeys(term.topology_key for term in terms)
        domains = Domains(nodes)
        for key in topology_keys:
            domains.add_selected(key, self.pods, selected)
        first = not domains.sums and all(term.matches(pod.namespace, self._labels(pod), pod.labels) for term in terms)
        for key in topology_keys:
            if first:
                refused |= nodes.take(nodes.table.label(key).codes) == 0
            else:
                refused |= domains.sums.get(key, 0) == 0
        return refused

    def _anti_affinity(self, pod: PendingPod, nodes: Nodes) -> Domains:
        """Count the pods that the pod's required anti-affinity is about."""
        domains = Domains(nodes)
        for term in pod.affinity_terms.required_anti_affinity:
            domains.add_selected(term.topology_key, self.pods, self._select(term))
        return domains

    def _existing_anti_affinity(self, pod: PendingPod, nodes: Nodes) -> Domains:
        """Count the pods whose required anti-affinity is about the pod."""
        domains = Domains(nodes)
        for carried in self._about(pod, self.placed.required_anti_affinity):
            domains.add(carried.term.topology_key, carried.bag.rows)
        return domains

    def _about(self, pod: PendingPod, index: TermIndex) -> Iterator[Carried]:
        return index.matching(pod.namespace, self._labels(pod), pod.labels)

    def _labels(self, pod: PendingPod) -> Mapping[str, str]:
        return self.namespaces.labels(pod.namespace)

    def _select(self, *terms: AffinityTerm) -> Selection:
        """Return the placed pods that all of some terms of the pod are about."""
        # Upstream 1.36 takes a namespace selector of NotIn or DoesNotExist to select all namespaces here, against the
        # text of the API, which is followed.
        namespaces = [
            term.namespaces | self.namespaces.select(term.namespace_selector)
            for term in terms
            if not term.namespace_selector.empty
        ]
        matcher = terms[0].selector.both(*(term.selector for term in terms[1:]))
        return self.pods.select(matcher, frozenset.intersection(*namespaces) if namespaces else None)
