"""NodeLabel: nodes with certain labels, or without, whatever the values, and the same as a preference.

Sources of the rules: plugins/nodelabel and apis/config/validation of 1.22, the last release that had it.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from extender.framework import (
    MAX_NODE_SCORE,
    SKIP,
    Args,
    BoolArray,
    IntArray,
    LabelKey,
    Nodes,
    PendingPod,
    Predicate,
    Priority,
    Refusal,
    Skip,
    model_validator,
)

REASON: Final = "node(s) didn't have the requested labels"
"""Why a node is refused; no eviction can help."""


class NodeLabelArgs(Args):
    """Arguments as in kube-scheduler's NodeLabelArgs: keys of labels."""

    present_labels: tuple[LabelKey, ...] = ()
    """Labels that a node must have."""

    absent_labels: tuple[LabelKey, ...] = ()
    """Labels that a node must not have."""

    present_labels_preference: tuple[LabelKey, ...] = ()
    """Labels that a node had better have."""

    absent_labels_preference: tuple[LabelKey, ...] = ()
    """Labels that a node had better not have."""

    @model_validator(mode="after")
    def _consistent(self) -> NodeLabelArgs:
        for present, absent in (
            (self.present_labels, self.absent_labels),
            (self.present_labels_preference, self.absent_labels_preference),
        ):
            both = [label for label in present if label in absent]
            if both:
                raise ValueError(f"{both[0]} is asked to be both present and absent")
        return self


class NodeLabel(Predicate, Priority):
    """Refuses nodes, and scores them, by which labels they have; all pods are alike."""

    Arguments = NodeLabelArgs
    args: NodeLabelArgs

    def filter(self, pod: PendingPod, nodes: Nodes) -> Skip | list[Refusal]:  # noqa: ARG002
        """Refuse nodes that lack a label or have one too many."""
        if not (self.args.present_labels or self.args.absent_labels):
            return SKIP
        refused: BoolArray = np.zeros(len(nodes), np.bool_)
        for label in self.args.present_labels:
            refused |= ~_has(nodes, label)
        for label in self.args.absent_labels:
            refused |= _has(nodes, label)
        return [Refusal(refused, REASON, resolvable=False)]

    def prioritize(self, pod: PendingPod, nodes: Nodes) -> Skip | IntArray:  # noqa: ARG002
        """Return the percentage of preferences that a node meets, truncated."""
        present, absent = self.args.present_labels_preference, self.args.absent_labels_preference
        if not (present or absent):
            return SKIP
        met: IntArray = np.zeros(len(nodes), np.int64)
        for label in present:
            met += _has(nodes, label)
        for label in absent:
            met += ~_has(nodes, label)
        return met * MAX_NODE_SCORE // (len(present) + len(absent))


def _has(nodes: Nodes, label: str) -> BoolArray:
    """Return which candidates have a label; shape (candidates,)."""
    found: BoolArray = nodes.take(nodes.table.label(label).codes) != 0
    return found
