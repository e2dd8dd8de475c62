"""LocalReplicas: at most so many replicas of one workload on a node, or in any other topology domain.

A rule of this house; kube-scheduler has none like it. Pod anti-affinity allows one replica or any number, and topology
spread limits differences: neither says "at most two".
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cached_property
from typing import Annotated, Any, Final, Literal, NamedTuple

import numpy as np

from extender.framework import (
    API_OBJECT,
    SKIP,
    Args,
    DesiredReplicas,
    Field,
    IntArray,
    LabelKey,
    LabelMatcher,
    LabelSelector,
    Nodes,
    NodeTable,
    OwnedPods,
    PendingPod,
    PodClasses,
    PodInfo,
    Predicate,
    Refusal,
    SelectorError,
    Skip,
    compile_label_selector,
    field_validator,
    model_validator,
    uses,
)

ANNOTATION: Final = "scheduler-extender/max-local-replicas"
"""Annotation of a pod that limits its workload, such as ``2`` or ``25%``; it wins over the rules in the arguments."""

REASON: Final = "node(s) already had as many replicas of the workload as allowed"
"""Why a node is refused; evicting other replicas can help."""

UNREADABLE: Final = f"pod has an annotation {ANNOTATION} that is neither a number nor a percentage"
"""Why all nodes are refused to a pod whose annotation cannot be read; no eviction can help."""

NUMBER: Final = re.compile("([1-9][0-9]{0,8})(%?)")
EVERYTHING: Final = LabelMatcher(())


class Limit(NamedTuple):
    """How many replicas a domain may have: a number, or a percentage of the desired replicas."""

    number: int
    percent: bool

    def of(self, desired: int) -> int:
        """Return the number for a workload of ``desired`` replicas; percentages are rounded up, to 1 at least."""
        return max(1, -(-desired * self.number // 100)) if self.percent else self.number


def read_limit(value: Any) -> Limit:
    """Read a number of at least 1, or a percentage of 1% to 100%.

    Raises:
        ValueError: it is neither.
    """
    found = None if isinstance(value, bool) else NUMBER.fullmatch(str(value).strip())
    if found is None or (found[2] and int(found[1]) > 100):
        raise ValueError('must be a whole number of at least 1, or a percentage of 1% to 100% such as "25%"')
    return Limit(int(found[1]), bool(found[2]))


class Rule(Args):
    """Limits the workloads of some pods."""

    max_replicas: Limit
    """A whole number of at least 1, or a percentage of the desired replicas, such as ``"25%"``."""

    label_selector: Annotated[LabelSelector, API_OBJECT] | None = Field(
        default=None, json_schema_extra={"unset": "all pods"}
    )
    """Which pods, by their labels; all of them without one."""

    namespaces: tuple[str, ...] = ()
    """Which pods, by their namespaces; those of all namespaces where none is named."""

    @field_validator("max_replicas", mode="plain", json_schema_input_type=int | str)
    @classmethod
    def _read(cls, value: Any) -> Limit:
        return read_limit(value)

    @field_validator("label_selector")
    @classmethod
    def _check(cls, selector: LabelSelector | None) -> LabelSelector | None:
        try:
            compile_label_selector(selector)
        except SelectorError as error:
            raise ValueError(str(error)) from error
        return selector

    @cached_property
    def matcher(self) -> LabelMatcher:
        """The selector, compiled."""
        return EVERYTHING if self.label_selector is None else compile_label_selector(self.label_selector)

    def applies(self, pod: PendingPod) -> bool:
        """Say whether the rule is for ``pod``."""
        return (not self.namespaces or pod.namespace in self.namespaces) and self.matcher.matches(pod.labels)


class LocalReplicasArgs(Args):
    """What can be set."""

    topology_key: LabelKey = "kubernetes.io/hostname"
    """The node label whose values are the domains. A node without it is a domain of its own."""

    identity: Literal["owner", "label"] = "owner"
    """What makes pods replicas of one workload: that the same controller owns them, or that a label is equal.

    A deployment has a replica set for each revision, so with ``owner`` revisions count apart during a rollout.
    """

    label_key: LabelKey = ""
    """The label of pods, needed with ``label``; pods of one namespace that have the same value are one workload."""

    rules: tuple[Rule, ...] = ()
    """Limits for pods without the annotation; the first that applies counts."""

    @model_validator(mode="after")
    def _consistent(self) -> LocalReplicasArgs:
        if (self.identity == "label") != bool(self.label_key):
            raise ValueError("labelKey must be given with identity label, and only then")
        return self


class LocalReplicas(Predicate):
    """Refuses nodes whose domain has as many replicas of the pod's workload as are allowed.

    Placed, assumed and nominated pods count. Pods that are being deleted do not: they leave in any case, and counted
    they would keep their replacement away from the place that they give up, for as long as they take to end. Pods of no
    workload (no controller, or not the label) are not limited.

    The desired replicas of a percentage are those of the owning replica set, stateful set or replication controller.
    Where they are not known, as for jobs, they are taken to be the replicas that are placed and this one: the limit
    grows with the workload and never exceeds what the final number allows. For a workload by label, which may have
    several controllers, the larger of the two counts.
    """

    Arguments = LocalReplicasArgs
    args: LocalReplicasArgs
    counts_nominated_everywhere = True
    owned = uses(OwnedPods)
    desired = uses(DesiredReplicas)
    placed = uses(PodClasses)

    def heeded(self, pod: PendingPod, others: Sequence[PodInfo]) -> list[PodInfo]:
        """Return the replicas of the pod's workload."""
        if self.args.identity == "owner":
            return [other for other in others if pod.owner and other.owner == pod.owner]
        key, namespace = self.args.label_key, pod.namespace
        value = pod.labels.get(key)
        return [
            other
            for other in others
            if value is not None and other.pod_class.labels.get(key) == value and other.pod_class.namespace == namespace
        ]

    def filter(self, pod: PendingPod, nodes: Nodes) -> Skip | list[Refusal]:
        """Count the replicas of each domain, where the pod has both a limit and a workload."""
        try:
            limit = self._find_limit(pod)
        except ValueError:
            return [Refusal(None, UNREADABLE, resolvable=False, error=True)]
        rows = self._find_replicas(pod) if limit else None
        if limit is None or rows is None:
            return SKIP
        most = limit.of(self._count_desired(pod, len(rows))) if limit.percent else limit.number
        if len(rows) < most:
            return []
        domains = _number_domains(nodes.table, self.args.topology_key)
        counts = np.bincount(domains[rows], minlength=int(domains.max()) + 1)
        return [Refusal(counts[nodes.take(domains)] >= most, REASON)]

    def _find_limit(self, pod: PendingPod) -> Limit | None:
        stated = pod.annotations.get(ANNOTATION)
        if stated is not None:
            return read_limit(stated)
        return next((rule.max_replicas for rule in self.args.rules if rule.applies(pod)), None)

    def _find_replicas(self, pod: PendingPod) -> IntArray | None:
        """Return the row of each replica that counts, shape (replicas,); None where the pod is of no workload."""
        if self.args.identity == "owner":
            return self.owned.rows(pod.owner) if pod.owner else None
        value = pod.labels.get(self.args.label_key)
        if value is None:
            return None
        alike = EVERYTHING.with_labels({self.args.label_key: value})
        return self.placed.rows(self.placed.select(alike, frozenset((pod.namespace,)), terminating=False))

    def _count_desired(self, pod: PendingPod, placed: int) -> int:
        stated = self.desired.of(pod.owner)
        if stated is None or self.args.identity == "label":
            return max(stated or 0, placed + 1)
        return stated


def _number_domains(table: NodeTable, topology_key: str) -> IntArray:
    """Return a number a row, equal for the nodes of one domain; shape (capacity,)."""
    column = table.label(topology_key)
    own = len(column.values) + np.arange(table.capacity)
    return np.where(column.codes != 0, column.codes, own)
