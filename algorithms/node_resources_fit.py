"""NodeResourcesFit: a pod goes where its requests fit, and prefers nodes by how much of them is in use.

Sources of the rules: plugins/noderesources/fit.go, least_allocated.go, most_allocated.go and
requested_to_capacity_ratio.go of 1.36; those of the arguments: apis/config/validation of 1.36.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import Annotated, Any, Literal

import numpy as np

from extender.framework import (
    MAX_NODE_SCORE,
    Args,
    BoolArray,
    Field,
    IntArray,
    Nodes,
    PendingPod,
    Predicate,
    Priority,
    Refusal,
    RequestedResources,
    Share,
    field_validator,
    is_extended_resource,
    is_qualified_name,
    model_validator,
    uses,
)

TOO_MANY_PODS = "Too many pods"
"""Why a node without a free pod slot is refused; eviction can help."""

INSUFFICIENT = "Insufficient {}"
"""Why a node with too little of a resource is refused; eviction can help unless the request exceeds the whole node."""

MAX_SHAPE_SCORE = 10
"""The best score a point of a shape can have (source: config.MaxCustomPriorityScore)."""


class WeightedResource(Args):
    """A resource that scores reckon with; a weight of 0 stands for the default, 1."""

    name: str
    weight: Annotated[int, Field(ge=0, le=100)] = 1

    @field_validator("weight")
    @classmethod
    def _default(cls, value: int) -> int:
        return value or 1


class ShapePoint(Args):
    """The score, 0 to 10, of a resource that is used to ``utilization`` percent."""

    utilization: Annotated[int, Field(ge=0, le=100)]
    score: Annotated[int, Field(ge=0, le=MAX_SHAPE_SCORE)]


class RequestedToCapacityRatio(Args):
    """A broken line from utilization to score, level before its first point and after its last."""

    shape: Annotated[tuple[ShapePoint, ...], Field(min_length=1)]

    @field_validator("shape")
    @classmethod
    def _ascending(cls, value: tuple[ShapePoint, ...]) -> tuple[ShapePoint, ...]:
        utilizations = [point.utilization for point in value]
        if sorted(set(utilizations)) != utilizations:
            raise ValueError("utilization must increase from point to point")
        return value

    @cached_property
    def scores(self) -> IntArray:
        """The score, 0 to 100, of each whole percent; shape (101,). Fractions are truncated as Go does it."""
        first, last = self.shape[0], self.shape[-1]
        line: IntArray = np.empty(101, np.int64)
        line[: first.utilization + 1] = first.score
        for left, right in zip(self.shape, self.shape[1:], strict=False):
            ...
        return line
