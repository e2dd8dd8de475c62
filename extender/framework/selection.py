"""Which rows of the node table a selector, or a pod's tolerations, let through: decided by column, not by node.

Columns returned here have shape (capacity,), and mean nothing in rows without a node object; candidates' entries are
picked with ``Nodes.take``.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable

import numpy as np

from extender.model.column import BoolArray, IntArray
from extender.model.object import Taint, Toleration
from extender.model.selector import NAME_FIELD, NodeMatcher, NodeTerm, Operator, Requirement
from extender.model.table import NodeTable
from extender.model.toleration import find_untolerated


def select_rows(table: NodeTable, matcher: NodeMatcher) -> BoolArray:
    """Return which nodes are selected, as ``matcher.matches`` says of each; shape (capacity,)."""
    selected = _meet_all(table, matcher.requirements)
    if matcher.terms is not None:
        any_term: BoolArray = np.zeros(table.capacity, np.bool_)
        for term in matcher.terms:
            any_term |= select_rows_of_term(table, term)
        selected &= any_term
    return selected


def select_rows_of_term(table: NodeTable, term: NodeTerm) -> BoolArray:
    """Return which nodes are selected, as ``term.matches`` says of each; shape (capacity,)."""
    if not (term.labels or term.fields):
        return np.zeros(table.capacity, np.bool_)
    selected = _meet_all(table, term.labels)
    for requirement in term.fields:
        selected &= _rows_by_field(table, requirement)
    return selected


def select_untolerated_rows(
    table: NodeTable, tolerations: Collection[Toleration], effects: Collection[str]
) -> BoolArray:
    """Return which nodes have a taint of one of ``effects`` that nothing tolerates; shape (capacity,)."""
    column = decide_taints(table, lambda taints: find_untolerated(taints, tolerations, effects) is not None)
    return column.astype(np.bool_)


def decide_taints(table: NodeTable, decide: Callable[[tuple[Taint, ...]], int]) -> IntArray:
    """Return what ``decide`` says of each node's taints, asked once for each distinct set; shape (capacity,), int64."""
    decided = np.fromiter(map(decide, table.taints.values), np.int64, len(table.taints.values))
    column: IntArray = decided.take(table.taints.codes)
    return column


def _meet_all(table: NodeTable, requirements: Iterable[Requirement]) -> BoolArray:
    met: BoolArray = np.ones(table.capacity, np.bool_)
    for requirement in requirements:
        met &= table.matching(requirement)
    return met


def _rows_by_field(table: NodeTable, requirement: Requirement) -> BoolArray:
    """Return which rows meet a requirement on a field; every field but the name reads as empty, as it does upstream."""
    if requirement.key != NAME_FIELD:
        return np.full(table.capacity, requirement.accepts(""))
    named: BoolArray = np.zeros(table.capacity, np.bool_)
    named[[row for name in requirement.values if (row := table.index.get(name)) is not None]] = True
    return named if requirement.operator is Operator.IN else ~named
