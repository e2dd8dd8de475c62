"""Label and node selectors, compiled once and hashable, so that equal ones can be shared and decided once.

A selector becomes requirements: a key, an operator and what it compares with. ``Requirement.accepts`` is the only place
that knows what the operators mean, and it asks for one value, so that columns can be decided once per distinct value.
Source of the rules: apimachinery ``labels/selector.go``, ``fields/selector.go`` and ``meta/v1/helpers.go``, and
component-helpers ``scheduling/corev1/nodeaffinity``, 1.36.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum

from extender.errors import SelectorError
from extender.model.name import is_label_value, is_qualified_name
from extender.model.object import (
    Labels,
    LabelSelector,
    NodeSelector,
    NodeSelectorTerm,
    PreferredSchedulingTerm,
)
from extender.model.object import Requirement as Expression
from extender.model.quantity import MAX_INT64, MIN_INT64

NAME_FIELD = "metadata.name"
"""The only field of nodes that a node selector can see."""

_INTEGER = re.compile(r"[+-]?[0-9]{1,256}")


class Operator(StrEnum):
    """How a requirement compares the value of its key."""

    IN = "In"
    NOT_IN = "NotIn"
    EXISTS = "Exists"
    DOES_NOT_EXIST = "DoesNotExist"
    GT = "Gt"
    LT = "Lt"


_FIELD_OPERATORS = (Operator.IN, Operator.NOT_IN)
_LABEL_OPERATORS = (*_FIELD_OPERATORS, Operator.EXISTS, Operator.DOES_NOT_EXIST)
_NODE_OPERATORS = (*_LABEL_OPERATORS, Operator.GT, Operator.LT)


@dataclass(frozen=True, slots=True)
class Requirement:
    """One condition on the value of one key; ``values`` serves In and NotIn, ``bound`` serves Gt and Lt."""

    key: str
    operator: Operator
    values: frozenset[str] = frozenset()
    bound: int = 0

    def accepts(self, value: str | None) -> bool:
        """Tell whether the condition holds for ``value``, which is ``None`` where the key is absent."""
        if value is None:
            return self.operator in (Operator.NOT_IN, Operator.DOES_NOT_EXIST)
        match self.operator:
            case Operator.IN:
                return value in self.values
            case Operator.NOT_IN:
                return value not in self.values
            case Operator.EXISTS:
                return True
            case Operator.DOES_NOT_EXIST:
                return False
        number = _parse_int64(value)
        if number is None:
            return False
        return number > self.bound if self.operator is Operator.GT else number < self.bound


@dataclass(frozen=True, slots=True)
class LabelMatcher:
    """A compiled label selector: every requirement must hold; ``requirements`` of ``None`` match nothing."""

    requirements: tuple[Requirement, ...] | None

    @property
    def empty(self) -> bool:
        """Whether the selector matches everything, whatever the labels."""
        return self.requirements == ()

    def matches(self, labels: Mapping[str, str] | None) -> bool:
        """Tell whether an object with ``labels`` is selected."""
        return self.requirements is not None and _all_accept(self.requirements, labels)

    def both(self, *others: LabelMatcher) -> LabelMatcher:
        """Return a selector of what this one and all others select."""
        requirements: list[Requirement] = []
        for matcher in (self, *others):
            if matcher.requirements is None:
                return matcher
            requirements += matcher.requirements
        return LabelMatcher(_canonical(requirements)) if others else self

    def with_labels(self, labels: Mapping[str, str]) -> LabelMatcher:
        """Return a selector of those objects only that have ``labels`` too, whose text is not checked."""
        if self.requirements is None or not labels:
            return self
        return LabelMatcher(_canonical([*self.requirements, *_each_equals(labels)]))


@dataclass(frozen=True, slots=True)
class NodeTerm:
    """A compiled node selector term: all requirements must hold; a term that has none matches nothing."""

    labels: tuple[Requirement, ...]
    fields: tuple[Requirement, ...]

    def matches(self, labels: Labels | None, name: str) -> bool:
        """Tell whether the node called ``name`` with ``labels`` is selected."""
        if not (self.labels or self.fields):
            return False
        # A field other than the name reads as empty, as it does upstream.
        return _all_accept(self.labels, labels) and all(
            requirement.accepts(name if requirement.key == NAME_FIELD else "") for requirement in self.fields
        )


@dataclass(frozen=True, slots=True)
class NodeMatcher:
    """What a pod requires of its node: every requirement must hold, and one of ``terms`` unless they are ``None``.

    ``faults`` says what is wrong with terms that cannot be read. They match no node, but do not spoil the others.
    """

    requirements: tuple[Requirement, ...] = ()
    terms: tuple[NodeTerm, ...] | None = None
    faults: tuple[str, ...] = ()

    def matches(self, labels: Labels | None, name: str) -> bool:
        """Tell whether the node called ``name`` with ``labels`` is selected."""
        return _all_accept(self.requirements, labels) and (
            self.terms is None or any(term.matches(labels, name) for term in self.terms)
        )


@dataclass(frozen=True, slots=True)
class WeightedNodeTerm:
    """A compiled preference for nodes and the score it adds."""

    weight: int
    term: NodeTerm


def compile_label_selector(selector: LabelSelector | None) -> LabelMatcher:
    """Compile ``selector``: without one nothing matches, with an empty one everything does.

    Raises ``SelectorError``, naming the expression, where Kubernetes would refuse it.
    """
    if selector is None:
        return LabelMatcher(None)
    requirements = [_compile_label(Expression(k, "In", [v])) for k, v in (selector.match_labels or {}).items()]
    requirements += [_compile_label(each) for each in selector.match_expressions or ()]
    return LabelMatcher(_canonical(requirements))


def compile_node_selector_term(term: NodeSelectorTerm) -> NodeTerm:
    """Compile one term of a node selector.

    Raises ``SelectorError``, naming the expression, where Kubernetes would refuse it.
    """
    return NodeTerm(
        _canonical(_compile_label(each, _NODE_OPERATORS) for each in term.match_expressions or ()),
        _canonical(_compile_field(each) for each in term.match_fields or ()),
    )


def compile_node_selector(required: NodeSelector | None, labels: Labels | None = None) -> NodeMatcher:
    """Compile required terms, one of which must match, and ``labels`` that the node must carry as well.

    For a pod these are its required node affinity and its ``nodeSelector``. Raises nothing: see ``NodeMatcher.faults``.
    """
    # Upstream does not check the text of a nodeSelector, so neither does this.
    requirements = _canonical(_each_equals(labels or {}))
    if required is None:
        return NodeMatcher(requirements)
    terms: dict[NodeTerm, None] = {}
    faults = []
    for term in required.node_selector_terms or ():
        if not (term.match_expressions or term.match_fields):
            continue  # an empty term matches nothing
        try:
            terms[compile_node_selector_term(term)] = None
        except SelectorError as error:
            faults.append(str(error))
    return NodeMatcher(requirements, tuple(terms), tuple(faults))


def compile_preferred_terms(preferred: Iterable[PreferredSchedulingTerm] | None) -> tuple[WeightedNodeTerm, ...]:
    """Compile preferences, leaving out those without weight or without any expression.

    Raises ``SelectorError``, naming the expression, where Kubernetes would refuse one of the rest.
    """
    terms = []
    for each in preferred or ():
        wanted = each.preference
        if each.weight and wanted is not None and (wanted.match_expressions or wanted.match_fields):
            terms.append(WeightedNodeTerm(each.weight, compile_node_selector_term(wanted)))
    return tuple(terms)


def _compile_label(expression: Expression, operators: tuple[Operator, ...] = _LABEL_OPERATORS) -> Requirement:
    key, values = expression.key or "", expression.values or []
    operator = _operator(expression, operators)
    if not is_qualified_name(key):
        raise _fault(expression, "the key is not a label key")
    if operator in (Operator.IN, Operator.NOT_IN) and not values:
        raise _fault(expression, f"{operator} needs at least one value")
    if operator in (Operator.EXISTS, Operator.DOES_NOT_EXIST) and values:
        raise _fault(expression, f"{operator} takes no values")
    for value in values:
        if not is_label_value(value):
            raise _fault(expression, f"{value!r} cannot be the value of a label")
    if operator not in (Operator.GT, Operator.LT):
        return Requirement(key, operator, frozenset(values))
    bound = _parse_int64(values[0]) if len(values) == 1 else None
    if bound is None:
        raise _fault(expression, f"{operator} needs one value, a decimal integer of 64 bits")
    return Requirement(key, operator, bound=bound)


def _compile_field(expression: Expression) -> Requirement:
    operator = _operator(expression, _FIELD_OPERATORS)
    if len(expression.values or ()) != 1:
        raise _fault(expression, f"{operator} on a field needs exactly one value")
    return Requirement(expression.key or "", operator, frozenset(expression.values or ()))


def _operator(expression: Expression, known: tuple[Operator, ...]) -> Operator:
    for operator in known:
        if operator == expression.operator:
            return operator
    raise _fault(expression, f"the operator must be one of {', '.join(known)}")


def _fault(expression: Expression, problem: str) -> SelectorError:
    return SelectorError(
        f"selector expression {expression.key or ''!r} {expression.operator or ''!r} {expression.values or []}:"
        f" {problem}"
    )


def _each_equals(labels: Mapping[str, str]) -> Iterator[Requirement]:
    return (Requirement(key, Operator.IN, frozenset((value,))) for key, value in labels.items())


def _canonical(requirements: Iterable[Requirement]) -> tuple[Requirement, ...]:
    """Return the requirements once each and in one order, so that selectors of one meaning compare equal."""
    return tuple(sorted(set(requirements), key=lambda each: (each.key, each.operator, sorted(each.values), each.bound)))


def _all_accept(requirements: tuple[Requirement, ...], labels: Mapping[str, str] | None) -> bool:
    labels = labels or {}
    return all(requirement.accepts(labels.get(requirement.key)) for requirement in requirements)


def _parse_int64(text: str) -> int | None:
    """Return the number that Go's ``strconv.ParseInt(text, 10, 64)`` reads, or ``None`` where it fails."""
    if not _INTEGER.fullmatch(text):
        return None
    number = int(text)
    return number if MIN_INT64 <= number <= MAX_INT64 else None
