"""A mirror and a runner in this process, as the service has them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from benchmarks.cluster import Json
from extender.framework.mirror import Mirror
from extender.framework.profile import ProfileBinder, watched_kinds
from extender.framework.registry import Registry
from extender.framework.runner import Runner
from extender.model.kind import NODES, PODS, Store
from extender.section import ProfileSection
from extender.telemetry import Metrics


class Bench:
    """The algorithms of a profile with their caches, and the stores that informers would deliver to."""

    def __init__(self, profile: Mapping[str, Any] | None = None) -> None:
        self.mirror = Mirror()
        bound = ProfileBinder(Registry(), self.mirror, "profile").bind(ProfileSection.model_validate(profile or {}))
        self.runner = Runner(bound, Metrics())
        self._stores = {kind.name: (kind, self.mirror.store(kind)) for kind in watched_kinds(bound)}

    @property
    def nodes(self) -> Store:
        """The store of nodes."""
        return self._stores[NODES.name][1]

    @property
    def pods(self) -> Store:
        """The store of pods."""
        return self._stores[PODS.name][1]

    def fold(self, objects: Iterable[Json]) -> None:
        """Deliver objects of the kinds that are watched."""
        for item in objects:
            found = self._stores.get(item["kind"])
            if found is not None:
                kind, store = found
                store.upsert(msgspec.convert(item, kind.type))
