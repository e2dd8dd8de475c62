"""How scores judge the use of resources: by a shape, and by the mean over resources of different weight.

Source of the formulas: plugins/noderesources/requested_to_capacity_ratio.go and plugins/helper/shape_score.go of 1.36;
of the rules for arguments: apis/config/validation of 1.36.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cached_property
from itertools import pairwise
from typing import Annotated, Any, Final, TypeAlias

import numpy as np
from pydantic import Field, field_validator

from extender.framework.algorithm import MAX_NODE_SCORE, Args
from extender.framework.candidate import Nodes
from extender.framework.resource import RequestedResources, Share
from extender.model.column import BoolArray, IntArray
from extender.model.pod import PendingPod

MAX_SHAPE_SCORE: Final = 10
"""The best score that a point of a shape can have (source: config.MaxCustomPriorityScore)."""

SHAPE_SCORE: Final = MAX_NODE_SCORE // MAX_SHAPE_SCORE
"""What one of its points of score is worth."""


Rating: TypeAlias = tuple[IntArray, BoolArray]
"""Scores of one resource, 0 to 100 and truncated, and where it counts at all; both of shape (candidates,)."""


class ShapePoint(Args):
    """The score, 0 to 10, of a resource that is used to ``utilization`` percent; what is not given is 0."""

    utilization: Annotated[int, Field(ge=0, le=100)] = 0
    score: Annotated[int, Field(ge=0, le=MAX_SHAPE_SCORE)] = 0


def check_points(points: tuple[ShapePoint, ...]) -> tuple[ShapePoint, ...]:
    """Return the points of a shape; ``ValueError`` where there are none or their utilization does not increase."""
    utilizations = [point.utilization for point in points]
    if not utilizations:
        raise ValueError("must have at least one point")
    if sorted(set(utilizations)) != utilizations:
        raise ValueError("utilization must increase from point to point")
    return points


class UtilizationShape(Args):
    """A broken line from utilization to score, level before its first point and after its last."""

    shape: tuple[ShapePoint, ...]

    @field_validator("shape")
    @classmethod
    def _ascending(cls, value: tuple[ShapePoint, ...]) -> tuple[ShapePoint, ...]:
        return check_points(value)

    @cached_property
    def scores(self) -> IntArray:
        """The score, 0 to 100, of each whole percent; shape (101,). What rises or falls is truncated to an integer."""
        line: IntArray = np.empty(101, np.int64)
        line[: self.shape[0].utilization + 1] = self.shape[0].score * SHAPE_SCORE
        for left, right in pairwise(self.shape):
            percents, rise = right.utilization - left.utilization, (right.score - left.score) * SHAPE_SCORE
            change = np.trunc(np.arange(percents + 1) * rise / percents).astype(np.int64)
            line[left.utilization : right.utilization + 1] = left.score * SHAPE_SCORE + change
        line[self.shape[-1].utilization :] = self.shape[-1].score * SHAPE_SCORE
        return line

    def rate(self, share: Share) -> Rating:
        """Return the score of one resource, 0 to 100, and where it counts at all; shapes (candidates,).

        It counts for nothing on nodes that do not have it, and where its score is 0.
        """
        scores = self.scores[measure_percents(share)] * (share.allocatable != 0)
        return scores, scores > 0


def measure_percents(share: Share) -> IntArray:
    """Return how much of a resource would be in use with the pod, 0 to 100, truncated; shape (candidates,)."""
    used: IntArray = np.minimum(share.requested + share.asked, share.allocatable)
    return used * 100 // np.maximum(share.allocatable, 1)


def rate_used(share: Share) -> Rating:
    """Return the percentage of a resource that would be in use with the pod, and where it counts: on nodes with it."""
    return measure_percents(share), share.allocatable != 0


def rate_free(share: Share) -> Rating:
    """Return the percentage of a resource that would be left with the pod, and where it counts: on nodes with it."""
    free: IntArray = np.maximum(share.allocatable - share.requested - share.asked, 0)
    return free * 100 // np.maximum(share.allocatable, 1), share.allocatable != 0


class ScoredResource(Args):
    """A resource that scores reckon with; a weight of 0 stands for the default, 1."""

    name: str
    weight: Annotated[int, Field(ge=0, le=100)] = 1

    @field_validator("weight")
    @classmethod
    def _default(cls, value: int) -> int:
        return value or 1


CPU_AND_MEMORY = (ScoredResource(name="cpu"), ScoredResource(name="memory"))
"""The resources scored where arguments name none."""


class ScoredResources(Args):
    """Arguments that name the resources to score."""

    resources: tuple[ScoredResource, ...] = CPU_AND_MEMORY

    @field_validator("resources", mode="before")
    @classmethod
    def _default(cls, value: Any) -> Any:
        return CPU_AND_MEMORY if value in (None, []) else value

    @property
    def weights(self) -> list[tuple[str, int]]:
        """The resources by name, each with its weight."""
        return [(resource.name, resource.weight) for resource in self.resources]


class WeightedMean:
    """Takes the scores of one resource after another; the mean is over those that count on a node, 0 where none does.

    Scores have shape (candidates,), int64.
    """

    def __init__(self, candidates: int) -> None:
        self._total: IntArray = np.zeros(candidates, np.int64)
        self._weights: IntArray | int = 0

    def add(self, scores: IntArray, counts: BoolArray, weight: int) -> None:
        """Take the scores of a resource; they must be 0 where ``counts``, shape (candidates,), is false."""
        self._total += scores * weight
        self._weights = self._weights + (weight if counts.all() else counts * weight)

    def truncate(self) -> IntArray:
        """Return the mean, without its fraction."""
        return self._total // self._divisor

    def round(self) -> IntArray:
        """Return the mean to the nearest integer, halves upwards."""
        return (2 * self._total + self._divisor) // (2 * self._divisor)

    @property
    def _divisor(self) -> IntArray:
        return np.maximum(self._weights, 1)


def weigh(
    resources: RequestedResources,
    pod: PendingPod,
    nodes: Nodes,
    weights: Iterable[tuple[str, int]],
    rate: Callable[[Share], Rating],
) -> WeightedMean:
    """Return the mean over the resources named in ``weights``, as ``rate`` scores the share of each with the pod.

    Containers that ask for no cpu or memory count with defaults; what nodes do not have does not count, nor do extended
    resources that the pod does not ask for.
    """
    mean = WeightedMean(len(nodes))
    for resource, weight in weights:
        share = resources.share(pod, resource, nodes, nonzero=True)
        if share is not None:
            mean.add(*rate(share), weight)
    return mean
