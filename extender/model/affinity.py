"""Pod affinity terms, compiled once and hashable, so that pods of one owner share them.

Source of the rules: kube-scheduler ``framework/types.go`` (AffinityTerm, PodInfo) and the API text of PodAffinityTerm,
1.36. ``matchLabelKeys`` and ``mismatchLabelKeys`` are left alone: the API server has merged them into the selector.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from extender.errors import SelectorError
from extender.model.object import PodAffinity, PodAffinityTerm
from extender.model.selector import LabelMatcher, compile_label_selector


@dataclass(frozen=True, slots=True)
class AffinityTerm:
    """Pods by labels and namespaces, and the node label whose value they are to share, or not to share.

    A namespace counts where it is named or selected; that the selector is absent is no selection at all. ``weight`` is
    what one such pod adds to the score: 0 for required terms, below 0 for preferred anti-affinity.
    """

    topology_key: str
    selector: LabelMatcher
    namespaces: frozenset[str]
    namespace_selector: LabelMatcher
    weight: int = 0

    def matches(self, namespace: str, namespace_labels: Mapping[str, str], labels: Mapping[str, str]) -> bool:
        """Tell whether a pod with ``labels`` is one of those that the term is about."""
        return (
            namespace in self.namespaces or self.namespace_selector.matches(namespace_labels)
        ) and self.selector.matches(labels)


@dataclass(frozen=True, slots=True)
class AffinityTerms:
    """All terms of a pod; ``faults`` says why a group was left out because a term in it cannot be read."""

    required_affinity: tuple[AffinityTerm, ...] = ()
    required_anti_affinity: tuple[AffinityTerm, ...] = ()
    preferred: tuple[AffinityTerm, ...] = ()
    faults: tuple[str, ...] = ()


def compile_affinity(affinity: PodAffinity | None, anti_affinity: PodAffinity | None, namespace: str) -> AffinityTerms:
    """Compile what a pod in ``namespace`` asks for; raises nothing: see ``AffinityTerms.faults``."""
    faults: list[str] = []
    attract, repel = affinity or PodAffinity(), anti_affinity or PodAffinity()

    def compile_group(name: str, terms: Iterable[tuple[PodAffinityTerm | None, int]]) -> tuple[AffinityTerm, ...]:
        try:
            return tuple(_compile_term(term or PodAffinityTerm(), namespace, weight) for term, weight in terms)
        except SelectorError as error:
            faults.append(f"{name}: {error}")
            return ()

    return AffinityTerms(
        compile_group("required podAffinity", ((term, 0) for term in attract.required or ())),
        compile_group("required podAntiAffinity", ((term, 0) for term in repel.required or ())),
        compile_group("preferred podAffinity", _weighted(attract, 1))
        + compile_group("preferred podAntiAffinity", _weighted(repel, -1)),
        tuple(faults),
    )


def _weighted(affinity: PodAffinity, sign: int) -> Iterable[tuple[PodAffinityTerm | None, int]]:
    return ((each.pod_affinity_term, sign * (each.weight or 0)) for each in affinity.preferred or ())


def _compile_term(term: PodAffinityTerm, namespace: str, weight: int) -> AffinityTerm:
    named = term.namespaces or ([namespace] if term.namespace_selector is None else [])
    return AffinityTerm(
        topology_key=term.topology_key or "",
        selector=compile_label_selector(term.label_selector),
        namespaces=frozenset(named),
        namespace_selector=compile_label_selector(term.namespace_selector),
        weight=weight,
    )
