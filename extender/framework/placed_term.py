"""Affinity terms of placed pods, found by the labels and the namespace of the pods that they are about."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from extender.framework.cache import Cache
from extender.model.affinity import AffinityTerm, compile_affinity
from extender.model.bag import RowBag
from extender.model.pod import PodInfo, PodShape
from extender.model.selector import Operator
from extender.model.table import NodeTable

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
