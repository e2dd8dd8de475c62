"""The labels of namespaces, for selectors of namespaces."""

from __future__ import annotations

from typing import Any

from extender.framework.cache import Cache
from extender.model.kind import NAMESPACES, Kind
from extender.model.object import Labels
from extender.model.selector import LabelMatcher
from extender.model.table import NodeTable
from extender.model.workload import Namespace

_REMEMBERED_SELECTIONS = 1024


class NamespaceLabels(Cache):
    """The namespaces that exist, with their labels."""

    kinds = (NAMESPACES,)

    def __init__(self, table: NodeTable) -> None:
        super().__init__(table)
        self._labels: dict[str, Labels] = {}
        self._selections: dict[LabelMatcher, frozenset[str]] = {}

    def add(self, kind: Kind, item: Namespace) -> None:  # noqa: ARG002 - there is one kind
        """Note a namespace."""
        name, labels = _name_and_labels(item)
        self._labels[name] = labels
        self._selections.clear()

    def remove(self, kind: Kind, item: Namespace) -> None:  # noqa: ARG002
        """Undo ``add``."""
        del self._labels[_name_and_labels(item)[0]]
        self._selections.clear()

    def labels(self, name: str) -> Labels:
        """Return the labels of a namespace; none where it is not known."""
        return self._labels.get(name) or {}

    def select(self, matcher: LabelMatcher) -> frozenset[str]:
        """Return the names of the known namespaces that ``matcher`` selects."""
        found = self._selections.get(matcher)
        if found is None:
            if len(self._selections) >= _REMEMBERED_SELECTIONS:
                self._selections.clear()
            found = frozenset(name for name, labels in self._labels.items() if matcher.matches(labels))
            self._selections[matcher] = found
        return found

    def dump(self) -> Any:
        """Return the labels by name."""
        return {name: dict(labels) for name, labels in self._labels.items()}


def _name_and_labels(item: Namespace) -> tuple[str, Labels]:
    meta = item.metadata
    return (meta and meta.name) or "", (meta and meta.labels) or {}
