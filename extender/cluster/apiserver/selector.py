"""Field and label selectors of list and watch requests.

Grammar after ``apimachinery/pkg/fields`` and ``apimachinery/pkg/labels`` of Kubernetes 1.36.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from extender.cluster.apiserver.entry import Entry
from extender.cluster.apiserver.resource import Resource
from extender.cluster.apiserver.status import bad_request

_Term = Callable[[Entry], bool]

_FIELD_TERM = re.compile(r"(?P<label>[^=!]+)(?P<operator>!=|==|=)(?P<value>.*)")
_LABEL_TERM = re.compile(
    r"""\s*(?P<absent>!)?\s*(?P<key>[A-Za-z0-9][-A-Za-z0-9_./]*)\s*
    (?:(?P<operator>==|=|!=|>|<)\s*(?P<value>[-A-Za-z0-9_.]*)|(?P<set>in|notin)\s*\((?P<values>[^()]*)\))?
    \s*(?:,|$)""",
    re.VERBOSE,
)


class Selector:
    """Which entries a request is about."""

    def __init__(self, terms: tuple[_Term, ...]) -> None:
        self._terms = terms

    def __bool__(self) -> bool:
        """Tell whether the selector restricts anything."""
        return bool(self._terms)

    def admits(self, entry: Entry) -> bool:
        """Tell whether the entry is selected."""
        return all(term(entry) for term in self._terms)


def parse_selector(resource: Resource, namespace: str, query: Mapping[str, str]) -> Selector:
    """Return what ``fieldSelector``, ``labelSelector`` and the path's namespace select.

    Raises ``StatusError`` 400 for a selector the API would refuse.
    """
    terms: list[_Term] = []
    if namespace:
        prefix = f"{namespace}/"
        terms.append(lambda entry: entry.key.startswith(prefix))
    terms.extend(_field_terms(resource, query.get("fieldSelector", "")))
    terms.extend(_label_terms(query.get("labelSelector", "")))
    return Selector(tuple(terms))


def _field_terms(resource: Resource, text: str) -> list[_Term]:
    terms: list[_Term] = []
    for part in filter(None, re.split(r"(?<!\\),", text)):
        match = _FIELD_TERM.fullmatch(part)
        if match is None:
            raise bad_request(f"invalid selector: '{text}'; can't understand '{part}'")
        position = resource.selectable.get(match["label"])
        if position is None:
            raise bad_request(f"field label not supported: {match['label']}")
        value = re.sub(r"\\([\\,=])", r"\1", match["value"])
        terms.append(_field_term(position, value, wanted=match["operator"] != "!="))
    return terms


def _field_term(position: int, value: str, *, wanted: bool) -> _Term:
    return lambda entry: (entry.fields[position] == value) is wanted


def _label_terms(text: str) -> list[_Term]:
    terms: list[_Term] = []
    position = 0
    while position < len(text):
        match = _LABEL_TERM.match(text, position)
        if match is None or (match["absent"] and (match["operator"] or match["set"])):
            raise bad_request(f"unable to parse requirement: {text[position:]!r}")
        terms.append(_label_term(match))
        position = match.end()
    return terms


def _label_term(match: re.Match[str]) -> _Term:
    key, operator, value = match["key"], match["operator"], match["value"]
    if match["set"]:
        values = frozenset(part.strip() for part in match["values"].split(","))
        wanted = match["set"] == "in"
        # A label that is not there is in no set: None is never one of the values.
        return lambda entry: (entry.labels.get(key) in values) is wanted
    if operator in ("=", "=="):
        return lambda entry: entry.labels.get(key) == value
    if operator == "!=":
        return lambda entry: entry.labels.get(key) != value
    if operator:
        return _bound_term(key, operator, value)
    wanted = not match["absent"]
    return lambda entry: (key in entry.labels) is wanted


def _bound_term(key: str, operator: str, value: str) -> _Term:
    if not re.fullmatch(r"-?\d+", value):
        raise bad_request(f"values: Invalid value: {value!r}: for 'Gt', 'Lt' operators, the value must be an integer")
    bound = int(value)
    sign = 1 if operator == ">" else -1

    def is_beyond(entry: Entry) -> bool:
        found = entry.labels.get(key, "")
        return re.fullmatch(r"-?\d+", found) is not None and (int(found) - bound) * sign > 0

    return is_beyond
