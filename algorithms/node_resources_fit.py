"""NodeResourcesFit: a pod goes where its requests fit, and prefers nodes by how much of them is in use.

Sources of the rules: plugins/noderesources/fit.go, least_allocated.go and most_allocated.go of 1.36; those of the
arguments: apis/config/validation of 1.36.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal

from extender.framework import (
    Args,
    Field,
    IntArray,
    Nodes,
    PendingPod,
    Predicate,
    Priority,
    Rating,
    Refusal,
    RequestedResources,
    ScoredResources,
    Share,
    UtilizationShape,
    field_validator,
    is_extended_resource,
    is_qualified_name,
    model_validator,
    rate_free,
    rate_used,
    uses,
    weigh,
)

TOO_MANY_PODS = "Too many pods"
"""Why a node without a free pod slot is refused; eviction can help."""

INSUFFICIENT = "Insufficient {}"
"""Why a node with too little of a resource is refused; eviction can help unless the request exceeds the whole node."""


class ScoringStrategy(ScoredResources):
    """Which nodes are better: those with the most left, the most in use, or what a shape says of their use."""

    type: Literal["LeastAllocated", "MostAllocated", "RequestedToCapacityRatio"]
    requested_to_capacity_ratio: UtilizationShape | None = Field(
        default=None, json_schema_extra={"unset": "for the other types"}
    )

    @model_validator(mode="after")
    def _shaped(self) -> ScoringStrategy:
        shaped = self.type == "RequestedToCapacityRatio"
        if shaped and self.requested_to_capacity_ratio is None:
            raise ValueError("requestedToCapacityRatio must be given with type RequestedToCapacityRatio")
        if not shaped and self.requested_to_capacity_ratio is not None:
            raise ValueError(f"requestedToCapacityRatio must not be given with type {self.type}")
        return self

    def rate(self, share: Share) -> Rating:
        """Return the score of one resource, 0 to 100, and where it counts at all; shapes (candidates,).

        A resource that a node does not have counts for nothing, and so does one that a shape gives no score.
        """
        if self.requested_to_capacity_ratio is not None:
            return self.requested_to_capacity_ratio.rate(share)
        return rate_used(share) if self.type == "MostAllocated" else rate_free(share)


DEFAULT_STRATEGY = ScoringStrategy(type="LeastAllocated")
"""How nodes are scored where the arguments do not say."""


class NodeResourcesFitArgs(Args):
    """Arguments as in kube-scheduler's NodeResourcesFitArgs."""

    ignored_resources: tuple[str, ...] = ()
    """Extended resources that are not checked, by name."""
    ignored_resource_groups: tuple[str, ...] = ()
    """Extended resources that are not checked, by what stands before the slash."""
    scoring_strategy: ScoringStrategy = DEFAULT_STRATEGY

    @field_validator("scoring_strategy", mode="before")
    @classmethod
    def _default(cls, value: Any) -> Any:
        return DEFAULT_STRATEGY if value is None else value

    @field_validator("ignored_resources")
    @classmethod
    def _qualified(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for name in value:
            if not is_qualified_name(name):
                raise ValueError(f"{name!r} is not a resource name")
        return value

    @field_validator("ignored_resource_groups")
    @classmethod
    def _unprefixed(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for name in value:
            if "/" in name or not is_qualified_name(name):
                raise ValueError(f"{name!r} is not a resource group: it is what stands before the slash")
        return value

    def ignores(self, resource: str) -> bool:
        """Say whether ``resource`` is left to others to check; only extended resources can be."""
        named = resource in self.ignored_resources or resource.partition("/")[0] in self.ignored_resource_groups
        return named and is_extended_resource(resource)


class NodeResourcesFit(Predicate, Priority):
    """Refuses nodes that are too full for the pod, and scores the others by a strategy."""

    Arguments = NodeResourcesFitArgs
    args: NodeResourcesFitArgs
    node_local = True
    resources = uses(RequestedResources)

    def filter(self, pod: PendingPod, nodes: Nodes) -> Iterator[Refusal]:
        """Check the pod slots, which every pod needs one of, and each resource that the pod asks for."""
        full = nodes.take(self.resources.pods) >= nodes.take(self.resources.allowed_pods)
        if full.any():
            yield Refusal(full, TOO_MANY_PODS)
        for resource, asked in pod.requests.items():
            if not self.args.ignores(resource):
                yield from self._insufficient(nodes, resource, asked)

    def _insufficient(self, nodes: Nodes, resource: str, asked: int) -> Iterator[Refusal]:
        reason = INSUFFICIENT.format(resource)
        allocatable = self.resources.amounts(self.resources.allocatable, resource)
        requested = self.resources.amounts(self.resources.requested, resource)
        if allocatable is None or requested is None:
            yield Refusal(None, reason, resolvable=False)
            return
        capacity = nodes.take(allocatable)
        short = capacity - nodes.take(requested) < asked
        if short.any():
            yield Refusal(short, reason)
            too_small = capacity < asked
            if too_small.any():
                yield Refusal(too_small, reason, resolvable=False)

    def prioritize(self, pod: PendingPod, nodes: Nodes) -> IntArray:
        """Return the weighted mean of the scores of the resources that count on a node, 0 where none does.

        It is truncated, but rounded for RequestedToCapacityRatio. Containers that ask for no cpu or memory count with
        defaults.
        """
        strategy = self.args.scoring_strategy
        mean = weigh(self.resources, pod, nodes, strategy.weights, strategy.rate)
        return mean.truncate() if strategy.requested_to_capacity_ratio is None else mean.round()
