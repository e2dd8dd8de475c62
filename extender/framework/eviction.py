"""What eviction has to know: which pods are on a node, and which of them a disruption budget protects."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from extender.errors import SelectorError
from extender.framework.cache import Cache
from extender.model.kind import POD_DISRUPTION_BUDGETS, Kind
from extender.model.pod import PodInfo
from extender.model.selector import LabelMatcher, compile_label_selector
from extender.model.table import NodeTable
from extender.model.workload import PodDisruptionBudget, PodDisruptionBudgetSpec, PodDisruptionBudgetStatus


class PlacedPods(Cache):
    """The records of the pods on each row, in no order."""

    def __init__(self, table: NodeTable) -> None:
        super().__init__(table)
        self._by_row: dict[int, list[PodInfo]] = {}

    def add_pod(self, row: int, pod: PodInfo) -> None:
        """Note a pod on its row."""
        self._by_row.setdefault(row, []).append(pod)

    def remove_pod(self, row: int, pod: PodInfo) -> None:
        """Undo ``add_pod``."""
        pods = self._by_row[row]
        pods.remove(pod)
        if not pods:
            del self._by_row[row]

    def on(self, row: int) -> Sequence[PodInfo]:
        """Return the pods on ``row``; not to be changed."""
        return self._by_row.get(row, ())

    def dump(self) -> Any:
        """Return the pods' keys by node name, sorted."""
        return {self.table.name(row): sorted(pod.key for pod in pods) for row, pods in self._by_row.items()}


class EvictedPods(Cache):
    """The pods that a simulation has evicted and not brought back; none while nothing is simulated."""

    def __init__(self, table: NodeTable) -> None:
        super().__init__(table)
        self._evicted: dict[str, tuple[int, PodInfo]] = {}
        self._back: set[str] = set()

    def evict_pod(self, row: int, pod: PodInfo) -> None:
        """Note a pod that is taken out."""
        self._evicted[pod.uid] = (row, pod)

    def restore_pod(self, row: int, pod: PodInfo) -> None:  # noqa: ARG002
        """Undo ``evict_pod``."""
        del self._evicted[pod.uid]

    def add_pod(self, row: int, pod: PodInfo) -> None:  # noqa: ARG002
        """Note an evicted pod that is brought back."""
        if pod.uid in self._evicted:
            self._back.add(pod.uid)

    def remove_pod(self, row: int, pod: PodInfo) -> None:  # noqa: ARG002
        """Undo ``add_pod``."""
        self._back.discard(pod.uid)

    def gone(self) -> list[tuple[int, PodInfo]]:
        """Return the pods that are out now, each with the row it was on."""
        return [entry for uid, entry in self._evicted.items() if uid not in self._back]

    def dump(self) -> Any:
        """Return the pods' keys, sorted."""
        return sorted(pod.key for _, pod in self.gone())


class Budget(msgspec.Struct, frozen=True, gc=False):
    """One disruption budget: whom it protects and how many more of them may be evicted."""

    matcher: LabelMatcher
    allowed: int
    disrupted: frozenset[str]


class DisruptionBudgets(Cache):
    """Disruption budgets by namespace, their selectors compiled."""

    kinds = (POD_DISRUPTION_BUDGETS,)

    def __init__(self, table: NodeTable) -> None:
        super().__init__(table)
        self._by_namespace: dict[str, dict[str, Budget]] = {}

    def add(self, kind: Kind, item: PodDisruptionBudget) -> None:  # noqa: ARG002 - there is one kind only
        """Note a budget; one that selects nothing, or everything, or cannot be read, protects nothing."""
        budget = _read_budget(item)
        if budget is not None:
            namespace, name = _identity(item)
            self._by_namespace.setdefault(namespace, {})[name] = budget

    def remove(self, kind: Kind, item: PodDisruptionBudget) -> None:  # noqa: ARG002 - there is one kind only
        """Undo ``add``."""
        namespace, name = _identity(item)
        budgets = self._by_namespace.get(namespace, {})
        budgets.pop(name, None)
        if not budgets:
            self._by_namespace.pop(namespace, None)

    def split(self, pods: Iterable[PodInfo]) -> tuple[list[PodInfo], list[PodInfo]]:
        """Return the pods whose eviction violates a budget, and the others, each in the order given.

        Each pod uses up what its budgets allow, so that later ones may violate them.
        Source: filterPodsWithPDBViolation of plugins/defaultpreemption, 1.36.
        """
        left: dict[tuple[str, str], int] = {}
        violating: list[PodInfo] = []
        others: list[PodInfo] = []
        for pod in pods:
            violated = False
            for name, budget in self._protecting(pod):
                key = (pod.pod_class.namespace, name)
                left[key] = left.get(key, budget.allowed) - 1
                violated |= left[key] < 0
            (violating if violated else others).append(pod)
        return violating, others

    def dump(self) -> Any:
        """Return the budgets by namespace and name."""
        return {
            namespace: {name: msgspec.structs.astuple(budget) for name, budget in budgets.items()}
            for namespace, budgets in self._by_namespace.items()
        }

    def _protecting(self, pod: PodInfo) -> Iterable[tuple[str, Budget]]:
        labels = pod.pod_class.labels
        if not labels:
            return
        for name, budget in self._by_namespace.get(pod.pod_class.namespace, {}).items():
            if pod.name not in budget.disrupted and budget.matcher.matches(labels):
                yield name, budget


def _read_budget(item: PodDisruptionBudget) -> Budget | None:
    spec, status = item.spec or PodDisruptionBudgetSpec(), item.status or PodDisruptionBudgetStatus()
    try:
        matcher = compile_label_selector(spec.selector)
    except SelectorError:
        return None
    if not matcher.requirements:
        return None
    return Budget(matcher, status.disruptions_allowed or 0, frozenset(status.disrupted_pods or ()))


def _identity(item: PodDisruptionBudget) -> tuple[str, str]:
    meta = item.metadata
    return (meta and meta.namespace) or "", (meta and meta.name) or ""
