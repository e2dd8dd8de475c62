"""Which pods belong together: those that the same services lead to and that the same controller owns."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final, TypeAlias, cast

from extender.errors import SelectorError
from extender.framework.cache import Cache
from extender.model.kind import REPLICA_SETS, REPLICATION_CONTROLLERS, SERVICES, STATEFUL_SETS, Kind, object_key
from extender.model.object import Labels, LabelSelector
from extender.model.pod import PendingPod
from extender.model.selector import LabelMatcher, compile_label_selector
from extender.model.table import NodeTable
from extender.model.workload import ReplicaSet, ReplicationController, Service, StatefulSet

Controller: TypeAlias = ReplicationController | ReplicaSet | StatefulSet
Label: TypeAlias = tuple[str, str]

_EVERYTHING: Final = LabelMatcher(())
_CONTROLLERS: Final = (REPLICATION_CONTROLLERS, REPLICA_SETS, STATEFUL_SETS)
_API_VERSIONS: Final = {kind.name: f"{kind.group}/{kind.version}".lstrip("/") for kind in _CONTROLLERS}


class OwnerSelectors(Cache):
    """The selectors of services, replication controllers, replica sets and stateful sets.

    A service is found by one of the labels it selects by, the one that the fewest others had when it came.
    """

    kinds = (SERVICES, *_CONTROLLERS)

    def __init__(self, table: NodeTable) -> None:
        super().__init__(table)
        self._services: dict[tuple[str, Label], dict[str, Labels]] = {}
        self._places: dict[str, tuple[str, Label]] = {}
        self._controllers: dict[str, dict[str, LabelSelector | Labels | None]] = {
            kind.name: {} for kind in _CONTROLLERS
        }

    def add(self, kind: Kind, item: Service | Controller) -> None:
        """Note the selector of an object."""
        key = object_key(item.metadata) if item.metadata else ""
        selector = item.spec.selector if item.spec else None
        if kind is not SERVICES:
            self._controllers[kind.name][key] = selector
        elif selector:
            self._add_service(key, (item.metadata and item.metadata.namespace) or "", cast(Labels, selector))

    def remove(self, kind: Kind, item: Service | Controller) -> None:
        """Undo ``add``."""
        key = object_key(item.metadata) if item.metadata else ""
        if kind is not SERVICES:
            del self._controllers[kind.name][key]
            return
        place = self._places.pop(key, None)
        if place is not None:
            del self._services[place][key]
            if not self._services[place]:
                del self._services[place]

    def find(self, pod: PendingPod) -> LabelMatcher:
        """Return the selector of the pods that belong with ``pod`` in its namespace; empty where nothing is known.

        It has the selectors of all services that lead to the pod and of the controller that owns it; one that cannot be
        read counts for nothing. Source: DefaultSelector of plugins/helper/spread.go, 1.36.
        """
        labels: Labels = {}
        for selector in self.services_of(pod).values():
            labels |= selector
        owned = self._controller_selector(pod)
        if isinstance(owned, dict):
            return _EVERYTHING.with_labels(labels | owned)
        return _compile(owned).with_labels(labels)

    def services_of(self, pod: PendingPod) -> dict[str, Labels]:
        """Return the selectors of the services that lead to ``pod``, by ``namespace/name``; not to be changed.

        Source: GetPodServices of plugins/helper/spread.go, 1.36: a service without a selector leads to no pod.
        """
        labels = pod.labels.items()
        return {
            name: selector
            for label in labels
            for name, selector in self._services.get((pod.namespace, label), {}).items()
            if selector.items() <= labels
        }

    def dump(self) -> Any:
        """Return the selectors by kind and name."""
        services = {name: dict(found) for names in self._services.values() for name, found in names.items()}
        return {**{name: dict(found) for name, found in self._controllers.items()}, SERVICES.name: services}

    def _add_service(self, key: str, namespace: str, selector: Labels) -> None:
        places: Iterable[tuple[str, Label]] = ((namespace, label) for label in selector.items())
        place = min(places, key=lambda place: len(self._services.get(place, ())))
        self._places[key] = place
        self._services.setdefault(place, {})[key] = selector

    def _controller_selector(self, pod: PendingPod) -> LabelSelector | Labels | None:
        """Return the selector of the pod's controller, which for a replication controller is plain labels."""
        owner = pod.controller
        kind = (owner and owner.kind) or ""
        if owner is None or not owner.api_version or owner.api_version != _API_VERSIONS.get(kind):
            return None
        return self._controllers[kind].get(f"{pod.namespace}/{owner.name}")


def _compile(selector: LabelSelector | None) -> LabelMatcher:
    if selector is None:
        return _EVERYTHING
    try:
        return compile_label_selector(selector)
    except SelectorError:
        return _EVERYTHING
