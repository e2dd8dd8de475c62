"""PodTopologySpread: pods that belong together are kept evenly spread over topology domains, such as zones.

Sources of the rules: plugins/podtopologyspread of 1.36; those of the arguments: apis/config/validation of 1.36.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import cached_property
from math import log
from typing import Annotated, Any, Final, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from extender.framework import (
    API_OBJECT,
    DO_NOT_SCHEDULE,
    MAX_NODE_SCORE,
    NO_EXECUTE,
    NO_SCHEDULE,
    SCHEDULE_ANYWAY,
    SKIP,
    Args,
    BoolArray,
    EvictedPods,
    IntArray,
    LabelColumn,
    LabelMatcher,
    Nodes,
    NodeTable,
    OwnerSelectors,
    PendingPod,
    PodClasses,
    PodInfo,
    Predicate,
    Priority,
    Refusal,
    Selection,
    Skip,
    SpreadConstraint,
    TopologySpreadConstraint,
    compile_spread_constraints,
    field_validator,
    is_qualified_name,
    model_validator,
    select_rows,
    select_untolerated_rows,
    uses,
)

REASON: Final = "node(s) didn't match pod topology spread constraints"
"""Why a node is refused where its domain has too many of the pods already; evicting some can help."""

MISSING_LABEL_REASON: Final = f"{REASON} (missing required label)"
"""Why a node is refused that is in no domain."""

HOSTNAME: Final = "kubernetes.io/hostname"
"""The label by which every node counts as a domain of its own in scores, whatever its value."""

SYSTEM_DEFAULTS: Final = (
    TopologySpreadConstraint(max_skew=3, topology_key=HOSTNAME, when_unsatisfiable=SCHEDULE_ANYWAY),
    TopologySpreadConstraint(
        max_skew=5, topology_key="topology.kubernetes.io/zone", when_unsatisfiable=SCHEDULE_ANYWAY
    ),
)
"""The constraints of pods that have none, where the arguments leave the choice to the system."""

NOTHING: Final = LabelMatcher(None)
"""The selector that selects no pod."""

MOST_PODS: Final = 2**31 - 1
"""The least count of no domains at all."""

Codes: TypeAlias = NDArray[np.int32]
"""The domain of each row as a code, shape (capacity,)."""


class PodTopologySpreadArgs(Args):
    """Arguments as in kube-scheduler's PodTopologySpreadArgs."""

    default_constraints: Annotated[tuple[TopologySpreadConstraint, ...], API_OBJECT] = ()
    """The constraints of pods that have none, written as in a pod; the selector is that of the pod's owners."""

    defaulting_type: Literal["System", "List"] = "System"
    """``List`` takes ``default_constraints``, none where there are none; ``System`` takes ``SYSTEM_DEFAULTS``."""

    @field_validator("defaulting_type", mode="before")
    @classmethod
    def _default(cls, value: Any) -> Any:
        return value or "System"

    @field_validator("default_constraints", mode="before")
    @classmethod
    def _none(cls, value: Any) -> Any:
        return [] if value is None else value

    @field_validator("default_constraints")
    @classmethod
    def _check(cls, constraints: tuple[TopologySpreadConstraint, ...]) -> tuple[TopologySpreadConstraint, ...]:
        problems = [f"[{place}]{fault}" for place, each in enumerate(constraints) for fault in _faults(each)]
        seen: list[tuple[str | None, str | None]] = []
        for place, each in enumerate(constraints):
            kind = (each.topology_key, each.when_unsatisfiable)
            if kind in seen:
                problems.append(f"[{place}]: has the topologyKey and whenUnsatisfiable of [{seen.index(kind)}]")
            seen.append(kind)
        if problems:
            raise ValueError("; ".join(problems))
        return constraints

    @model_validator(mode="after")
    def _chosen(self) -> "PodTopologySpreadArgs":
        if self.is_system and self.default_constraints:
            raise ValueError("defaultingType must be List where there are defaultConstraints, got System")
        return self

    @property
    def is_system(self) -> bool:
        """Whether pods without constraints get those of the system."""
        return self.defaulting_type == "System"

    @cached_property
    def required(self) -> tuple[SpreadConstraint, ...]:
        """The default constraints that must be met; their selectors are still to be replaced."""
        return compile_spread_constraints(self._defaults, DO_NOT_SCHEDULE, {})

    @cached_property
    def preferred(self) -> tuple[SpreadConstraint, ...]:
        """The default constraints that are only preferred; their selectors are still to be replaced."""
        return compile_spread_constraints(self._defaults, SCHEDULE_ANYWAY, {})

    @property
    def _defaults(self) -> tuple[TopologySpreadConstraint, ...]:
        return SYSTEM_DEFAULTS if self.is_system else self.default_constraints


def _faults(constraint: TopologySpreadConstraint) -> Iterator[str]:
    """Yield what is wrong with a default constraint, each with its place."""
    if (constraint.max_skew or 0) <= 0:
        yield f".maxSkew: must be > 0, got {constraint.max_skew}"
    if not is_qualified_name(constraint.topology_key or ""):
        yield f".topologyKey: must be a label key, got {constraint.topology_key!r}"
    if constraint.when_unsatisfiable not in (DO_NOT_SCHEDULE, SCHEDULE_ANYWAY):
        yield (
            f".whenUnsatisfiable: must be {DO_NOT_SCHEDULE} or {SCHEDULE_ANYWAY}, got {constraint.when_unsatisfiable!r}"
        )
    if constraint.label_selector is not None:
        yield ".labelSelector: must not be given, because it is that of the pod's owners"


class Counting:
    """Counts the pods of a constraint where nodes count for it.

    ``scope``, shape (capacity,), are the nodes that can count for any constraint at all.
    """

    def __init__(
        self, pods: PodClasses, pod: PendingPod, table: NodeTable, scope: BoolArray, evicted: EvictedPods
    ) -> None:
        self._pods = pods
        self._evicted = evicted
        self._pod = pod
        self._table = table
        self._scope = scope
        self._included: dict[tuple[bool, bool], BoolArray] = {}

    def included(self, constraint: SpreadConstraint) -> BoolArray:
        """Return which nodes count by the policies of the constraint; shape (capacity,)."""
        policies = (constraint.honors_affinity, constraint.honors_taints)
        found = self._included.get(policies)
        if found is None:
            found = self._scope
            if constraint.honors_affinity:
                found = found & select_rows(self._table, self._pod.node_matcher)
            if constraint.honors_taints:
                effects = (NO_SCHEDULE, NO_EXECUTE)
                found = found & ~select_untolerated_rows(self._table, self._pod.tolerations, effects)
            self._included[policies] = found
        return found

    def by_row(self, constraint: SpreadConstraint) -> IntArray:
        """Return how many pods that the constraint selects each row has; shape (capacity,)."""
        return self._pods.counts(self._select(constraint))

    def by_domain(self, constraint: SpreadConstraint, codes: Codes, size: int) -> IntArray:
        """Return the pods on nodes that count by domain, shape (size,); ``codes`` are the domains of rows."""
        included = self.included(constraint)
        counts = self._pods.sums(self._select(constraint), codes, size, included)
        for row, pod in self._evicted.gone():
            # Upstream takes off every pod that is evicted, though it never counted those that were being deleted.
            if pod.terminating and included[row] and self._selects(constraint, pod):
                counts[codes[row]] -= 1
        return counts

    def _select(self, constraint: SpreadConstraint) -> Selection:
        # Upstream counts no placed pod for an empty selector, although it does match the pod itself.
        selector = NOTHING if constraint.selector.empty else constraint.selector
        return self._pods.select(selector, frozenset((self._pod.namespace,)), terminating=False)

    def _selects(self, constraint: SpreadConstraint, pod: PodInfo) -> bool:
        found = pod.pod_class
        return found.namespace == self._pod.namespace and constraint.selector.matches(found.labels)


class PodTopologySpread(Predicate, Priority):
    """Keeps a domain from getting more pods than others, as far as the pod's spread constraints say.

    Pods count in the namespace of the pod to place, unless they are being deleted. Nodes without one of the labels are
    in no domain of any constraint.
    """

    Arguments = PodTopologySpreadArgs
    args: PodTopologySpreadArgs

    pods = uses(PodClasses)
    evicted = uses(EvictedPods)
    owners = uses(OwnerSelectors)

    def heeded(self, pod: PendingPod, others: Sequence[PodInfo]) -> list[PodInfo]:
        """Return those that a constraint selects.

        Raises:
            SelectorError: a selector of the pod cannot be read.
        """
        constraints = self._required(pod)
        return [
            other
            for other in others
            if constraints
            and other.pod_class.namespace == pod.namespace
            and any(each.selector.matches(other.pod_class.labels) for each in constraints)
        ]

    def filter(self, pod: PendingPod, nodes: Nodes) -> Skip | list[Refusal]:
        """Check one constraint after the other; a node has the first reason only.

        Raises:
            SelectorError: a selector of the pod cannot be read.
        """
        constraints = self._required(pod)
        if not constraints:
            return SKIP
        counting = Counting(self.pods, pod, nodes.table, _labelled(nodes.table, constraints), self.evicted)
        left: BoolArray = np.ones(len(nodes), np.bool_)
        missing, crowded = np.zeros_like(left), np.zeros_like(left)
        for constraint in constraints:
            codes = nodes.take(nodes.table.label(constraint.topology_key).codes)
            lacking = codes == 0
            missing |= left & lacking
            left &= ~lacking
            full = _full_domains(counting, constraint, nodes.table, self_match=constraint.selector.matches(pod.labels))
            refused = full.take(codes)
            crowded |= left & refused
            left &= ~refused
        refusals = (Refusal(missing, MISSING_LABEL_REASON, resolvable=False), Refusal(crowded, REASON))
        return [each for each in refusals if each.nodes is not None and each.nodes.any()]

    def prioritize(self, pod: PendingPod, nodes: Nodes) -> Skip | IntArray:
        """Sum the pods in each node's domains, weighted so that a constraint of few domains counts like one of many.

        Raises:
            SelectorError: a selector of the pod cannot be read.
        """
        own = pod.spec.topology_spread_constraints
        constraints = pod.preferred_spread if own else self._defaults(pod, self.args.preferred)
        if not constraints:
            return SKIP
        scope = self._scope(pod, nodes.table)
        counting, scored = Counting(self.pods, pod, nodes.table, scope, self.evicted), nodes.take(scope)
        total = np.zeros(len(nodes), np.float64)
        for constraint in constraints:
            column = nodes.table.label(constraint.topology_key)
            if constraint.topology_key == HOSTNAME:
                counts = nodes.take(counting.by_row(constraint))
                size = np.count_nonzero(scored)
            else:
                domains = _domains(column)
                codes = nodes.take(domains)
                counts = counting.by_domain(constraint, domains, len(column.values)).take(codes)
                size = np.count_nonzero(np.bincount(codes[scored]))
            score = counts * log(size + 2) + (constraint.max_skew - 1)
            score[nodes.take(column.codes) == 0] = 0
            total += score
        whole = np.floor(total)
        rounded: IntArray = (whole + (total - whole >= 0.5)).astype(np.int64)
        return rounded * scored

    def normalize(self, pod: PendingPod, nodes: Nodes, scores: IntArray) -> IntArray:
        """Give 100 to the nodes with the lowest sum, and 0 to those that are in no domain."""
        scored = nodes.take(self._scope(pod, nodes.table))
        most, least = int(scores.max(initial=0)), int(scores.min(initial=MOST_PODS, where=scored))
        if most == 0:
            return scored * np.int64(MAX_NODE_SCORE)
        return scored * (MAX_NODE_SCORE * (most + least - scores) // most)

    def _required(self, pod: PendingPod) -> tuple[SpreadConstraint, ...]:
        """Return the constraints that must be met."""
        own = pod.spec.topology_spread_constraints
        return pod.required_spread if own else self._defaults(pod, self.args.required)

    def _defaults(self, pod: PendingPod, constraints: tuple[SpreadConstraint, ...]) -> tuple[SpreadConstraint, ...]:
        """Return default constraints for a pod; none where nothing says which pods belong with it."""
        selector = self.owners.find(pod) if constraints else None
        if selector is None or selector.empty:
            return ()
        return tuple(replace(constraint, selector=selector) for constraint in constraints)

    def _scope(self, pod: PendingPod, table: NodeTable) -> BoolArray:
        """Return which nodes have a score; shape (capacity,).

        The defaults of the system do not ask for all labels, so that nodes are told apart in clusters without zones.
        """
        if pod.spec.topology_spread_constraints:
            return _labelled(table, pod.preferred_spread)
        return table.present if self.args.is_system else _labelled(table, self.args.preferred)


def _labelled(table: NodeTable, constraints: Iterable[SpreadConstraint]) -> BoolArray:
    """Return which nodes have the label of every constraint; shape (capacity,)."""
    labelled: BoolArray = np.logical_and.reduce([table.label(each.topology_key).codes != 0 for each in constraints])
    return labelled


def _full_domains(counting: Counting, constraint: SpreadConstraint, table: NodeTable, *, self_match: bool) -> BoolArray:
    """Return the domains that the pod would bring too far above the emptiest one; shape (codes,), by label code."""
    column = table.label(constraint.topology_key)
    counts = counting.by_domain(constraint, column.codes, len(column.values))
    exists = np.bincount(column.codes[counting.included(constraint)], minlength=len(column.values)) != 0
    least = int(counts[exists].min(initial=MOST_PODS))
    if np.count_nonzero(exists) < constraint.min_domains:
        least = 0
    return counts + self_match - least > constraint.max_skew


def _domains(column: LabelColumn) -> Codes:
    """Return the domain of each row; to have no label is the same as to have one without value."""
    empty = column.code("")
    if empty is None:
        return column.codes
    codes = column.codes.copy()
    codes[codes == 0] = empty
    return codes
