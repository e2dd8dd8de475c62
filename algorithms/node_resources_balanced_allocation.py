"""NodeResourcesBalancedAllocation: prefer nodes whose resources would be used up evenly.

Source of the formulas: plugins/noderesources/balanced_allocation.go of 1.36.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import reduce
from operator import add
from typing import Annotated, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from extender.framework import (
    MAX_NODE_SCORE,
    SKIP,
    Args,
    Field,
    IntArray,
    Nodes,
    PendingPod,
    Priority,
    RequestedResources,
    Share,
    Skip,
    field_validator,
    uses,
)

FloatArray: TypeAlias = NDArray[np.float64]
Group: TypeAlias = slice | NDArray[np.intp]


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
        scores = np.full(len(nodes), MAX_NODE_SCORE * 3 // 4, np.int64)
        for group, owned in _groups(shares, len(nodes)):
            if len(owned) > 1:
                parts = [(share.allocatable[group], share.requested[group], share.asked) for share in owned]
                without = _evenness([_fraction(requested, capacity) for capacity, requested, _ in parts])
                within = _evenness([_fraction(requested + asked, capacity) for capacity, requested, asked in parts])
                scores[group] += (within - without) // 2
        return scores


def _groups(shares: Iterable[Share], candidates: int) -> list[tuple[Group, list[Share]]]:
    """Return groups of candidates and the resources that all of a group have, which are those that count for it."""
    groups: list[tuple[Group, list[Share]]] = [(slice(None), [])]
    for share in shares:
        whole, groups = groups, []
        for group, owned in whole:
            has = share.allocatable[group] != 0
            if has.all():
                groups.append((group, [*owned, share]))
            else:
                places = np.arange(candidates)[group]
                groups += [(places[has], [*owned, share]), (places[~has], owned)]
    return groups


def _fraction(used: IntArray, capacity: IntArray) -> FloatArray:
    """Return the used part of a capacity, at most 1; shape (candidates,)."""
    fraction = used / capacity
    return np.minimum(fraction, 1.0, out=fraction)


def _evenness(fractions: list[FloatArray]) -> IntArray:
    """Return 100 less the standard deviation of two or more fractions in percent, truncated; shape (candidates,).

    Additions are in the order of the resources, because the last bit can decide a score.
    """
    if len(fractions) == 2:
        deviation = np.abs((fractions[0] - fractions[1]) / 2)
    else:
        mean = reduce(add, fractions) / len(fractions)
        squares = [(fraction - mean) ** 2 for fraction in fractions]
        deviation = np.sqrt(reduce(add, squares) / len(fractions))
    return ((1 - deviation) * MAX_NODE_SCORE).astype(np.int64)
