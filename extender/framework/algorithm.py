"""What an algorithm is: predicates refuse nodes, priorities score them, both for all candidates at once.

Upstream's extension points map onto these as follows: PreFilter and Filter are ``Predicate.filter``; PreScore and
Score are ``Priority.prioritize``; NormalizeScore is ``Priority.normalize``. What upstream keeps in CycleState is a
local variable here.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from enum import Enum
from typing import Any, ClassVar, Final, Literal, TypeAlias, TypeVar, cast, overload

import msgspec
import numpy as np
from pydantic import ConfigDict
from pydantic.alias_generators import to_camel

from extender.errors import AnswerError
from extender.framework.cache import Cache
from extender.framework.candidate import Nodes
from extender.model.column import BoolArray, IntArray
from extender.model.kind import Kind
from extender.model.node import NodeInfo
from extender.model.pod import PendingPod, PodInfo
from extender.section import ExactModel

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


class Args(ExactModel):
    """Root of every algorithm's arguments: camelCase in the file, unknown keys refused, never changed.

    Numbers and truths are taken as such, and no text in their place.
    """

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

    _cache_attributes: ClassVar[tuple[str, ...]] = ()

    def __init__(self, args: Any, caches: dict[type[Cache], Cache]) -> None:
        """Bind validated arguments and the shared caches; the framework calls this."""
        self.args = args
        for attribute, cache in type(self).declared_caches().items():
            setattr(self, attribute, caches[cache])

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "name" not in cls.__dict__:
            cls.name = cls.__name__
        cls._cache_attributes = tuple(cls.declared_caches())

    @classmethod
    def declared_caches(cls) -> dict[str, type[Cache]]:
        """Return attribute names and the cache classes they were declared to use."""
        found: dict[str, type[Cache]] = {}
        for parent in reversed(cls.__mro__):
            found |= {name: value.cache for name, value in vars(parent).items() if isinstance(value, _Uses)}
        return found

    def held_caches(self) -> Iterator[Cache]:
        """Return the caches that it was bound to."""
        return (getattr(self, attribute) for attribute in self._cache_attributes)

    @classmethod
    def declared_kinds(cls) -> set[Kind]:
        """Return every kind that must be watched for this algorithm."""
        return set(cls.watches).union(*(cache.kinds for cache in cls.declared_caches().values()))


class Predicate(Algorithm):
    """Says which candidates a pod cannot go to."""

    mandatory: ClassVar[bool] = False
    """Mandatory predicates run first, whatever the configuration enables."""

    node_local: ClassVar[bool] = False
    """Whether no placed pod can change the verdict about another node than its own.

    Saying so makes a filter quicker while pods are nominated; it is then asked about all their nodes at once.
    """

    counts_nominated_everywhere: ClassVar[bool] = False
    """Whether pods that are nominated to other nodes count as well, as rules about zones or pools want it.

    kube-scheduler counts a nominated pod on its own node alone. Such a predicate is asked about all candidates with all
    nominated pods of equal or higher priority placed, besides being asked without any.
    """

    def heeded(self, pod: PendingPod, others: Sequence[PodInfo]) -> Collection[PodInfo]:  # noqa: ARG002
        """Return those of some pods that can change a verdict by coming to their ``node_name`` or leaving it.

        All of them by default, and none where no cache of the predicate folds pods. To return fewer makes filters
        quicker while pods are nominated, and preemption always. What is said of one of them must not hang on the
        others, nor on what is placed.
        """
        return others if any(type(cache).folds_pods() for cache in self.held_caches()) else ()

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


class NodeRefusals(Sequence[Refusal]):
    """Refusals of which no two name the same node: one code a node, in place of one mask a reason.

    ``codes``, shape (candidates,), int64, is 0 where the pod fits, else 1 and more for ``reasons`` in their order, each
    of which is ``resolvable`` or not.
    """

    def __init__(self, codes: IntArray, reasons: Sequence[str], resolvable: Sequence[bool]) -> None:
        self.codes = codes
        self.reasons = reasons
        self.resolvable = resolvable

    def __len__(self) -> int:
        """Return the number of reasons."""
        return len(self.reasons)

    @overload
    def __getitem__(self, place: int) -> Refusal: ...
    @overload
    def __getitem__(self, place: slice) -> list[Refusal]: ...
    def __getitem__(self, place: int | slice) -> Refusal | list[Refusal]:
        """Return one of them, with its mask."""
        if isinstance(place, slice):
            return [self[each] for each in range(*place.indices(len(self)))]
        code = range(1, len(self) + 1)[place]
        return Refusal(self.codes == code, self.reasons[place], self.resolvable[place])


class NodePredicate(Predicate):
    """A predicate that is asked about one node at a time; simpler to write, slower to run.

    It is asked about nodes that no predicate before it refused, and about no others.
    """

    @abstractmethod
    def fits(self, pod: PendingPod, node: NodeInfo) -> str | None:
        """Return None where the pod fits, else the reason, equal for all nodes refused for the same cause."""

    def resolvable(self, reason: str) -> bool:  # noqa: ARG002
        """Say whether evicting pods could help a node refused for ``reason``; yes by default."""
        return True

    def filter(self, pod: PendingPod, nodes: Nodes) -> Skip | Sequence[Refusal]:
        """Ask ``fits`` about each candidate and group the reasons.

        Raises:
            AnswerError: ``fits`` returned something else than text or None.
        """
        codes: IntArray = np.zeros(len(nodes), np.int64)
        code_of: dict[str, int] = {}
        for position, node in enumerate(nodes.infos()):
            reason = self.fits(pod, node)
            if reason is None:
                continue
            if not isinstance(reason, str):
                raise AnswerError(f"fits must return text or None, got {type(reason).__name__}")
            codes[position] = code_of.setdefault(reason, len(code_of) + 1)
        return NodeRefusals(codes, list(code_of), [bool(self.resolvable(reason)) for reason in code_of])


class NodePriority(Priority):
    """A priority that is asked about one node at a time; simpler to write, slower to run."""

    @abstractmethod
    def score(self, pod: PendingPod, node: NodeInfo) -> int:
        """Return the raw score of one node; 0 to 100 unless ``normalize`` is overridden."""

    def prioritize(self, pod: PendingPod, nodes: Nodes) -> Skip | IntArray:
        """Ask ``score`` about each candidate.

        Raises:
            AnswerError: ``score`` returned something else than an integer.
        """
        scores = [self.score(pod, node) for node in nodes.infos()]
        for kind in set(map(type, scores)):
            if not issubclass(kind, int | np.integer) or issubclass(kind, bool):
                raise AnswerError(f"score must return an integer, got {kind.__name__}")
        return np.array(scores, np.int64)


def normalize_to_best(scores: IntArray, *, reverse: bool = False) -> IntArray:
    """Scale scores so that the highest becomes 100, or with ``reverse`` the lowest; shape (candidates,), int64.

    Source: helper.DefaultNormalizeScore of 1.36: integer division, and all zeros stay zero (100 when reversed).
    """
    highest = int(scores.max(initial=0))
    if highest == 0:
        return np.full_like(scores, MAX_NODE_SCORE) if reverse else scores
    scaled = scores * MAX_NODE_SCORE // highest
    return MAX_NODE_SCORE - scaled if reverse else scaled
