"""InterPodAffinity: pods are drawn to, or kept from, the topology domains where certain other pods are."""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final, TypeAlias

import numpy as np

from extender.framework import (
    MAX_NODE_SCORE,
    SKIP,
    AffinityTerm,
    Args,
    BoolArray,
    Cache,
    Field,
    IntArray,
    NamespaceLabels,
    Nodes,
    NodeTable,
    Operator,
    PendingPod,
    PodClasses,
    PodInfo,
    PodShape,
    Predicate,
    Priority,
    Refusal,
    RowBag,
    SelectorError,
    Skip,
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

Place: TypeAlias = tuple[tuple[str, str] | None, str | None]
"""Where a term is found: a label that its pods must have, and their namespace; None where any will do."""


@dataclass(eq=False, slots=True)
class Carried:
    """A term, and the row of every pod that has it."""

    term: AffinityTerm
    places: tuple[Place, ...]
    bag: RowBag = field(default_factory=RowBag)


class TermIndex:
    """The distinct terms of placed pods, found by the labels and the namespace of the pods that they are about."""

    def __init__(self) -> None:
        self._carried: dict[AffinityTerm, Carried] = {}
        self._at: dict[Place, list[Carried]] = {}

    def get(self, term: AffinityTerm) -> Carried:
        """Return what is known of a term, entering it where it is new."""
        found = self._carried.get(term)
        if found is None:
            found = self._carried[term] = Carried(term, self._choose_places(term))
            for place in found.places:
                self._at.setdefault(place, []).append(found)
        return found

    def drop(self, carried: Carried) -> None:
        """Forget a term."""
        del self._carried[carried.term]
        for place in carried.places:
            self._at[place].remove(carried)
            if not self._at[place]:
                del self._at[place]

    def matching(
        self, namespace: str, namespace_labels: Mapping[str, str], labels: Mapping[str, str]
    ) -> Iterator[Carried]:
        """Yield each term that is about a pod in ``namespace`` with ``labels``."""
        if not self._at:
            return
        for label in (None, *labels.items()):
            for where in (None, namespace):
                for carried in self._at.get((label, where), ()):
                    if carried.term.matches(namespace, namespace_labels, labels):
                        yield carried

    def dump(self, table: NodeTable) -> Any:
        """Return the node names of each term, sorted, with repeats."""
        return {
            carried.term: sorted(table.name(row) for row in carried.bag.rows.tolist())
            for carried in self._carried.values()
        }

    def _choose_places(self, term: AffinityTerm) -> tuple[Place, ...]:
        """Return the places to look for a term: by the labels, all of one key, under which the fewest others are."""
        if term.selector.requirements is None:
            return ()
        selected = term.namespace_selector.requirements is not None
        namespaces = (None,) if selected else tuple(term.namespaces)
        options: list[list[Place]] = [
            [((each.key, value), where) for value in each.values for where in namespaces]
            for each in term.selector.requirements
            if each.operator is Operator.IN
        ] or [[(None, where) for where in namespaces]]
        return tuple(min(options, key=lambda places: sum(len(self._at.get(place, ())) for place in places)))


@dataclass(eq=False, slots=True)
class Carrier:
    """Pods of one namespace that have the same terms: how many they are, and the terms with their indexes."""

    terms: tuple[tuple[TermIndex, Carried], ...]
    pods: int = 0


class PlacedTerms(Cache):
    """The affinity terms of placed pods; preferred anti-affinity is preferred affinity with weights below 0."""

    def __init__(self, table: NodeTable) -> None:
        super().__init__(table)
        self.required_affinity = TermIndex()
        self.required_anti_affinity = TermIndex()
        self.preferred = TermIndex()
        self._carriers: dict[tuple[PodShape, str], Carrier] = {}

    def add_pod(self, row: int, pod: PodInfo) -> None:
        """Note the terms of a pod; they are compiled for the first pod of its shape and namespace."""
        shape = pod.shape
        if shape.affinity is None and shape.anti_affinity is None:
            return
        key = (shape, pod.pod_class.namespace)
        carrier = self._carriers.get(key)
        if carrier is None:
            carrier = self._carriers[key] = self._new_carrier(*key)
        carrier.pods += 1
        for _, carried in carrier.terms:
            carried.bag.add(row)

    def remove_pod(self, row: int, pod: PodInfo) -> None:
        """Undo ``add_pod``; terms that no pod has any more are forgotten."""
        shape = pod.shape
        if shape.affinity is None and shape.anti_affinity is None:
            return
        key = (shape, pod.pod_class.namespace)
        carrier = self._carriers[key]
        carrier.pods -= 1
        for index, carried in carrier.terms:
            carried.bag.remove(row)
            if not len(carried.bag):
                index.drop(carried)
        if not carrier.pods:
            del self._carriers[key]

    def dump(self) -> Any:
        """Return the node names of each term, by group, and how many pods of each namespace have terms."""
        pods: Counter[str] = Counter()
        for (_, namespace), carrier in self._carriers.items():
            pods[namespace] += carrier.pods
        return {
            "required affinity": self.required_affinity.dump(self.table),
            "required anti-affinity": self.required_anti_affinity.dump(self.table),
            "preferred": self.preferred.dump(self.table),
            "pods": dict(pods),
        }

    def _new_carrier(self, shape: PodShape, namespace: str) -> Carrier:
        # Upstream, too, leaves out the groups of a placed pod that cannot be read.
        terms = compile_affinity(shape.affinity, shape.anti_affinity, namespace)
        groups = (
            (self.required_affinity, terms.required_affinity),
            (self.required_anti_affinity, terms.required_anti_affinity),
            (self.preferred, terms.preferred),
        )
        return Carrier(tuple((index, index.get(term)) for index, group in groups for term in group))


class Domains:
    """Counts pods by the topology domain that they are in: the value that their node has for a label."""

    def __init__(self, nodes: Nodes) -> None:
        self._nodes = nodes
        self._rows: dict[tuple[str, int], list[IntArray]] = {}

    def add(self, topology_key: str, rows: IntArray, weight: int = 1) -> None:
        """Count a pod on each of ``rows``, shape (pods,), as ``weight``; before ``sums`` is asked for."""
        self._rows.setdefault((topology_key, weight), []).append(rows)

    @cached_property
    def sums(self) -> dict[str, IntArray]:
        """The sum of weights in each candidate's domain, shape (candidates,), by topology key.

        Keys are missing where no pod is in any domain of theirs. A node without the label is in none.
        """
        sums: dict[str, IntArray] = {}
        for (key, weight), groups in self._rows.items():
            column = self._nodes.table.label(key)
            counts = np.bincount(column.codes[np.concatenate(groups)], minlength=len(column.values))
            counts[0] = 0
            if counts.any():
                sums[key] = sums.get(key, 0) + weight * counts[self._nodes.take(column.codes)]
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
            domains.add(term.topology_key, self.pods.rows(self._select(term)), term.weight)
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
        rows = self.pods.rows(set[int].intersection(*(set(self._select(term)) for term in terms)))
        topology_keys = dict.fromkeys(term.topology_key for term in terms)
        domains = Domains(nodes)
        for key in topology_keys:
            domains.add(key, rows)
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
            domains.add(term.topology_key, self.pods.rows(self._select(term)))
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

    def _select(self, term: AffinityTerm) -> list[int]:
        """Return the classes of placed pods that a term of the pod is about."""
        # Upstream 1.36 takes a namespace selector of NotIn or DoesNotExist to select all namespaces here, against the
        # text of the API, which is followed.
        if term.namespace_selector.empty:
            return self.pods.select(term.selector)
        return self.pods.select(term.selector, term.namespaces | self.namespaces.select(term.namespace_selector))
