"""What an algorithm is: predicates refuse nodes, priorities score them, both for all candidates at once.

Upstream's extension points map onto these as follows: PreFilter and Filter are ``Predicate.filter``; PreScore and
Score are ``Priority.prioritize``; NormalizeScore is ``Priority.normalize``. What upstream keeps in CycleState is a
local variable here.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from enum import Enum
from typing import Any, ClassVar, Final, Literal, TypeAlias, TypeVar, cast

import msgspec
import numpy as np
from pydantic import BaseModel, ConfigDict
from pydantic.alias_generators import to_camel

from extender.framework.cache import Cache
from extender.framework.candidate import Nodes
from extender.model.column import BoolArray, IntArray
from extender.model.kind import Kind
from extender.model.node import NodeInfo
from extender.model.pod import PendingPod

MAX_NODE_SCORE: Final = 100
"""The best normalised score (source: framework.MaxNodeScore)."""

NAME_PATTERN: Final = re.compile(r"^[A-Za-z0-9]([-A-Za-z0-9]*[A-Za-z0-9])?$")
"""What an algorithm may be called (source: the name check of kube-scheduler's algorithm registry)."""


class _Skip(Enum):
    SKIP = "no opinion on this pod"


SKIP: Final = _Skip.SKIP
"""Returned by an algorithm that has no opinion on the pod: it refuses nothing and scores nothing."""

Skip: TypeAlias = Literal[_Skip.SKIP]

C = TypeVar("C", bound=Cache)


class Refusal(msgspec.Struct, frozen=True, gc=False, eq=False):
    """Some of the candidates are refused, all for one reason.

    ``nodes`` has one entry a candidate, shape (candidates,), bool; None refuses them all. ``reason`` is the same for
    every node, because kube-scheduler groups equal reasons. ``resolvable`` says whether evicting pods could help
    (upstream's Unschedulable) or not (UnschedulableAndUnresolvable). With ``error`` the nodes could not be judged
    (upstream's Error), for something in the cluster makes no sense; they are refused, and no pods evicted for them.
    """

    nodes: BoolArray | None
    reason: str
    resolvable: bool = True
    error: bool = False


class Args(BaseModel):
    """Root of every algorithm's arguments: camelCase in the file, unknown keys refused, never changed."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, alias_generator=to_camel, populate_by_name=True, arbitrary_types_allowed=False
    )


class NoArgs(Args):
    """The arguments of an algorithm that takes none."""


class _Uses:
    """Marks a class attribute that the framework fills with the shared instance of a cache."""

    def __init__(self, cache: type[Cache]) -> None:
        self.cache = cache


def uses(cache: type[C]) -> C:
    """Declare, in the class body of an algorithm, that it reads a cache.

    Written as ``ports = uses(HostPorts)``; ``self.ports`` is then the cache.
    All algorithms that name the same class share one instance, which exists only while one of them is enabled.
    """
    return cast(C, _Uses(cache))


class Algorithm(ABC):  # noqa: B024 - its two kinds have the abstract methods
    """Root of predicates and priorities.

    A subclass has a docstring, may narrow ``args`` to its own model with ``Arguments``, and declares caches with
    ``uses``. It does no I/O, reads no clock and keeps no module state; what it raises is reported under its name.
    """

    name: ClassVar[str] = ""
    """The registered name; the class name where not given."""

    Arguments: ClassVar[type[Args]] = NoArgs
    """The model that ``args`` is validated with."""

    watches: ClassVar[tuple[Kind, ...]] = ()
    """Kinds that the algorithm needs beyond those its caches fold."""

    def __init__(self, args: Any, caches: dict[type[Cache], Cache]) -> None:
        """Bind validated arguments and the shared caches; the framework calls this."""
        self.args = args
        for attribute, cache in type(self).declared_caches().items():
            setattr(self, attribute, caches[cache])

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "name" not in cls.__dict__:
            cls.name = cls.__name__

    @classmethod
    def declared_caches(cls) -> dict[str, type[Cache]]:
        """Return attribute names and the cache classes they were declared to use."""
        found: dict[str, type[Cache]] = {}
        for parent in reversed(cls.__mro__):
            found |= {name: value.cache for name, value in vars(parent).items() if isinstance(value, _Uses)}
        return found

    @classmethod
    def declared_kinds(cls) -> set[Kind]:
        """Return every kind that must be watched for this algorithm."""
        return set(cls.watches).union(*(cache.kinds for cache in cls.declared_caches().values()))


class Predicate(Algorithm):
    """Says which candidates a pod cannot go to."""

    mandatory: ClassVar[bool] = False
    """Mandatory predicates run first, whatever the configuration enables."""

    @abstractmethod
    def filter(self, pod: PendingPod, nodes: Nodes) -> Skip | Iterable[Refusal]:
        """Return what is refused and why; nothing returned means that every candidate fits.

        Several refusals may name the same node: all their reasons are reported, and it counts as unresolvable when
        one of them is.
        """


class Priority(Algorithm):
    """Says how good each candidate is for a pod."""

    default_weight: ClassVar[int] = 1
    """How much it counts in a profile that gives it no weight."""

    @abstractmethod
    def prioritize(self, pod: PendingPod, nodes: Nodes) -> Skip | IntArray:
        """Return a raw score a candidate, shape (candidates,), int64; 0 to 100 unless ``normalize`` is overridden."""

    def normalize(self, pod: PendingPod, nodes: Nodes, scores: IntArray) -> IntArray:  # noqa: ARG002
        """Return the scores brought to 0..100, shape (candidates,), int64; as they are by default."""
        return scores


class Reserver(Algorithm):
    """Chooses at bind time which part of the node a pod gets; also a predicate or a priority, which enables it.

    What it returns is written to the pod in the same request that binds it, and is counted at once: a cache that
    declares these annotations folds the pod with them. A bind that fails takes them back, and after a restart they are
    read from the pods.
    """

    @abstractmethod
    def reserve(self, pod: PendingPod, node: NodeInfo, now_seconds: float) -> Mapping[str, str] | Refusal | None:
        """Return annotations for the pod, None where it needs none, or a refusal whose reason the bind fails with.

        Nothing else is folded between this call and the counting of the pod, so no two pods are given the same thing.
        ``now_seconds`` is the time since 1970.
        """


class NodePredicate(Predicate):
    """A predicate that is asked about one node at a time; simpler to write, slower to run."""

    @abstractmethod
    def fits(self, pod: PendingPod, node: NodeInfo) -> str | None:
        """Return None where the pod fits, else the reason, equal for all nodes refused for the same cause."""

    def resolvable(self, reason: str) -> bool:  # noqa: ARG002
        """Say whether evicting pods could help a node refused for ``reason``; yes by default."""
        return True

    def filter(self, pod: PendingPod, nodes: Nodes) -> Skip | Sequence[Refusal]:
        """Ask ``fits`` about each candidate and group the reasons."""
        by_reason: dict[str, list[int]] = {}
        for position, node in enumerate(nodes.infos()):
            reason = self.fits(pod, node)
            if reason is not None:
                by_reason.setdefault(reason, []).append(position)
        refusals = []
        for reason, positions in by_reason.items():
            mask = np.zeros(len(nodes), np.bool_)
            mask[positions] = True
            refusals.append(Refusal(mask, reason, self.resolvable(reason)))
        return refusals


class NodePriority(Priority):
    """A priority that is asked about one node at a time; simpler to write, slower to run."""

    @abstractmethod
    def score(self, pod: PendingPod, node: NodeInfo) -> int:
        """Return the raw score of one node; 0 to 100 unless ``normalize`` is overridden."""

    def prioritize(self, pod: PendingPod, nodes: Nodes) -> Skip | IntArray:
        """Ask ``score`` about each candidate."""
        return np.fromiter((self.score(pod, node) for node in nodes.infos()), np.int64, len(nodes))


def normalize_to_best(scores: IntArray, *, reverse: bool = False) -> IntArray:
    """Scale scores so that the highest becomes 100, or with ``reverse`` the lowest; shape (candidates,), int64.

    Source: helper.DefaultNormalizeScore of 1.36: integer division, and all zeros stay zero (100 when reversed).
    """
    highest = int(scores.max(initial=0))
    if highest == 0:
        return np.full_like(scores, MAX_NODE_SCORE) if reverse else scores
    scaled = scores * MAX_NODE_SCORE // highest
    return MAX_NODE_SCORE - scaled if reverse else scaled
