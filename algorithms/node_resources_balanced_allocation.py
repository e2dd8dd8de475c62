"""NodeResourcesBalancedAllocation: prefer nodes whose resources would be used up evenly.

Source of the formulas: plugins/noderesources/balanced_allocation.go of 1.36.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, TypeAlias

import numpy as np

from extender.framework import (
    MAX_NODE_SCORE,
    SKIP,
    Args,
    BoolArray,
    Field,
    IntArray,
    Nodes,
    PendingPod,
    Priority,
    RequestedResources,
    Skip,
    field_validator,
    uses,
)

Choice: TypeAlias = slice | BoolArray


class BalancedResource(Args):
    """A resource to keep in balance; all count alike, so a weight other than 1 is refused."""

    name: str
    weight: Annotated[int, Field(ge=0, le=1)] = 1


DEFAULT_RESOURCES = (BalancedResource(name="cpu"), BalancedResource(name="memory"))
"""The resources kept in balance where the arguments name none."""


class NodeResourcesBalancedAllocationArgs(Args):
    """Arguments as in kube-scheduler's NodeResourcesBalancedAllocationArgs."""

    resources: tuple[BalancedResource, ...] = DEFAULT_RESOURCES

    @field_validator("resources", mode="before")
    @classmethod
    def _default(cls, value: Any) -> Any:
        return DEFAULT_RESOURCES if value in (None, []) else value

    @field_validator("resources")
    @classmethod
    def _distinct(cls, value: tuple[BalancedResource, ...]) -> tuple[BalancedResource, ...]:
        names = [resource.name for resource in value]
        twice = [name for place, name in enumerate(names) if name in names[:place]]
        if twice:
            raise ValueError(f"{twice[0]} is named twice")
        return value


class NodeResourcesBalancedAllocation(Priority):
    """Compares how evenly the resources of a node are used with the pod and without it."""

    Arguments = NodeResourcesBalancedAllocationArgs
    args: NodeResourcesBalancedAllocationArgs
    resources = uses(RequestedResources)

    def prioritize(self, pod: PendingPod, nodes: Nodes) -> Skip | IntArray:
        """Score 75 where the pod changes nothing, up to 100 where it evens use out and down to 50 where it does not.

        A pod that asks for none of the resources is not scored: it would draw others of its kind to the same node.
        """
        names = [resource.name for resource in self.args.resources]
        if not any(pod.requests.get(name) for name in names):
            return SKIP
        shares = [share for name in names if (share := self.resources.share(pod, name, nodes)) is not None]
        shape = (len(shares), len(nodes))
        allocatable = np.array([share.allocatable for share in shares], np.int64).reshape(shape)
        requested = np.array([share.requested for share in shares], np.int64).reshape(shape)
        asked = np.array([share.asked for share in shares], np.int64)[:, np.newaxis]
        scores = np.empty(len(nodes), np.int64)
        for resources, group in _groups(allocatable != 0):
            capacity, used = allocatable[resources][:, group], requested[resources][:, group]
            gain = _evenness(used + asked[resources], capacity) - _evenness(used, capacity)
            scores[group] = MAX_NODE_SCORE // 2 + (MAX_NODE_SCORE // 2 + gain) // 2
        return scores


def _groups(exists: BoolArray) -> Iterator[tuple[Choice, Choice]]:
    """Yield the resources that candidates have, and the candidates that have just these, for each such set.

    ``exists`` has shape (resources, candidates). What a node does not have is left out of its balance.
    """
    if exists.all():
        yield slice(None), slice(None)
        return
    left = np.ones(exists.shape[1], np.bool_)
    while left.any():
        resources = exists[:, left.argmax()]
        group: BoolArray = (exists == resources[:, np.newaxis]).all(axis=0)
        yield resources, group
        left &= ~group


def _evenness(used: IntArray, capacity: IntArray) -> IntArray:
    """Return 100 less the standard deviation of the used fractions in percent, truncated; shape (candidates,), int64.

    Both arrays have shape (resources, candidates). Fractions deviate by a half at most, so this is never below 50.
    Additions are in the order of the resources, one resource at a time, as the last bit can decide a score.
    """
    fractions = list(np.minimum(used / capacity, 1.0))
    deviation = np.zeros(capacity.shape[1])
    if len(fractions) == 2:
        deviation = np.abs((fractions[0] - fractions[1]) / 2)
    elif len(fractions) > 2:
        mean = sum(fractions) / len(fractions)
        deviation = np.sqrt(sum((fraction - mean) * (fraction - mean) for fraction in fractions) / len(fractions))
    return ((1 - deviation) * MAX_NODE_SCORE).astype(np.int64)
