"""NodeAffinity: a pod says which nodes it can go to, and which it prefers, by their labels and names."""

from functools import cached_property
from typing import Annotated, Final

import numpy as np

from extender.framework import (
    API_OBJECT,
    NAME_FIELD,
    SKIP,
    Args,
    Field,
    IntArray,
    NodeMatcher,
    Nodes,
    NodeSelectorTerm,
    PendingPod,
    Predicate,
    Priority,
    Refusal,
    SelectorError,
    Skip,
    WeightedNodeTerm,
    compile_node_selector,
    compile_preferred_terms,
    field_validator,
    normalize_to_best,
    select_rows,
    select_rows_of_term,
)
from extender.framework import NodeAffinity as AffinityRules

REASON: Final = "node(s) didn't match Pod's node affinity/selector"
"""Why a node is refused by the pod's own rules (source of all reasons: plugins/nodeaffinity of 1.36)."""

ENFORCED_REASON: Final = "node(s) didn't match scheduler-enforced node affinity"
"""Why a node is refused by the rules in the arguments."""

CONFLICT_REASON: Final = "pod affinity terms conflict"
"""Why all nodes are refused where no term of the pod's affinity names a node that it does not also rule out."""


class NodeAffinityArgs(Args):
    """Arguments as in kube-scheduler's NodeAffinityArgs."""

    added_affinity: Annotated[AffinityRules, API_OBJECT] | None = Field(
        default=None, json_schema_extra={"unset": "pods have their own rules alone"}
    )
    """Rules that hold for every pod besides its own, written as a pod's ``nodeAffinity``."""

    @field_validator("added_affinity")
    @classmethod
    def _check(cls, rules: AffinityRules | None) -> AffinityRules | None:
        """Refuse expressions that cannot be read; a pod's own are let pass, as upstream does."""
        matcher = compile_node_selector(rules.required) if rules else NodeMatcher()
        if matcher.faults:
            raise ValueError("; ".join(matcher.faults))
        try:
            compile_preferred_terms(rules.preferred if rules else None)
        except SelectorError as error:
            raise ValueError(str(error)) from error
        return rules

    @cached_property
    def required(self) -> NodeMatcher | None:
        """The nodes that every pod can go to; None where the arguments do not say."""
        rules = self.added_affinity
        return compile_node_selector(rules.required) if rules and rules.required else None

    @cached_property
    def preferred(self) -> tuple[WeightedNodeTerm, ...] | None:
        """The nodes that every pod prefers, by term; None where the arguments do not say."""
        rules = self.added_affinity
        return compile_preferred_terms(rules.preferred) if rules and rules.preferred else None


class NodeAffinity(Predicate, Priority):
    """Refuses nodes outside the required node affinity and ``nodeSelector``, and prefers those of preferred terms."""

    Arguments = NodeAffinityArgs
    args: NodeAffinityArgs

    def filter(self, pod: PendingPod, nodes: Nodes) -> Skip | list[Refusal]:
        """Decide by label values; a node refused by the arguments is not refused again by the pod."""
        matcher = pod.node_matcher
        if self.args.required is None and matcher == NodeMatcher():
            return SKIP
        if _names_conflict(pod):
            return [Refusal(None, CONFLICT_REASON, resolvable=False)]
        matching = nodes.take(select_rows(nodes.table, matcher))
        if self.args.required is None:
            return [Refusal(~matching, REASON, resolvable=False)]
        allowed = nodes.take(select_rows(nodes.table, self.args.required))
        return [
            Refusal(~allowed, ENFORCED_REASON, resolvable=False),
            Refusal(allowed & ~matching, REASON, resolvable=False),
        ]

    def prioritize(self, pod: PendingPod, nodes: Nodes) -> Skip | IntArray:
        """Sum the weights of the preferred terms that match each node, those of pod and arguments."""
        preferred = pod.preferred_node_terms
        if preferred is None and self.args.preferred is None:
            return SKIP
        weights: IntArray = np.zeros(len(nodes), np.int64)
        for weighted in (*(preferred or ()), *(self.args.preferred or ())):
            weights += weighted.weight * nodes.take(select_rows_of_term(nodes.table, weighted.term))
        return weights

    def normalize(self, pod: PendingPod, nodes: Nodes, scores: IntArray) -> IntArray:  # noqa: ARG002
        """Give 100 to the nodes with the highest sum."""
        return normalize_to_best(scores)


def _names_conflict(pod: PendingPod) -> bool:
    """Say whether every required term names nodes, but asks for two names at once."""
    affinity = pod.affinity.node_affinity
    terms = (affinity and affinity.required and affinity.required.node_selector_terms) or ()
    return bool(terms) and all(_names_nothing(term) for term in terms)


def _names_nothing(term: NodeSelectorTerm) -> bool:
    named = [
        frozenset(each.values or ())
        for each in term.match_fields or ()
        if each.key == NAME_FIELD and each.operator == "In"
    ]
    return bool(named) and not frozenset.intersection(*named)
