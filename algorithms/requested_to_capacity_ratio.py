"""RequestedToCapacityRatio: prefers nodes by how much of them is in use, along a line that the arguments draw.

Sources of the rules: plugins/noderesources/requested_to_capacity_ratio.go and apis/config/validation of 1.22, the last
release that had it under this name; NodeResourcesFit has it as a scoring strategy.
"""

from __future__ import annotations

from typing import Annotated, Any

from extender.framework import (
    Args,
    Field,
    IntArray,
    Nodes,
    PendingPod,
    Priority,
    RequestedResources,
    UtilizationShape,
    field_validator,
    uses,
    weigh,
)

LARGEST_WEIGHT = 2**31 - 1
"""What keeps sums of weighted scores inside int64."""


class WeightedResource(Args):
    """A resource to score; a weight of 0 stands for the default, 1."""

    name: str
    weight: Annotated[int, Field(ge=0, le=LARGEST_WEIGHT)] = 1


DEFAULT_RESOURCES = (WeightedResource(name="cpu"), WeightedResource(name="memory"))
"""The resources scored where the arguments name none."""


class RequestedToCapacityRatioArgs(UtilizationShape):
    """Arguments as in kube-scheduler's RequestedToCapacityRatioArgs: ``shape`` and ``resources``."""

    resources: tuple[WeightedResource, ...] = DEFAULT_RESOURCES

    @field_validator("resources", mode="before")
    @classmethod
    def _default(cls, value: Any) -> Any:
        return DEFAULT_RESOURCES if value in (None, []) else value

    @property
    def weights(self) -> dict[str, int]:
        """Weights by resource name; the last one counts where a resource is named twice."""
        return {resource.name: resource.weight or 1 for resource in self.resources}


class RequestedToCapacityRatio(Priority):
    """Scores the use of each resource with the pod by a shape, to spread pods or to pack them."""

    Arguments = RequestedToCapacityRatioArgs
    args: RequestedToCapacityRatioArgs
    resources = uses(RequestedResources)

    def prioritize(self, pod: PendingPod, nodes: Nodes) -> IntArray:
        """Return the rounded mean of the scores of the resources that count on a node, 0 where none does.

        Containers that ask for no cpu or memory count with defaults; what nodes do not have does not count, nor do
        extended resources that the pod does not ask for.
        """
        return weigh(self.resources, pod, nodes, self.args.weights.items(), self.args.rate).round()
