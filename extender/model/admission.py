"""What the API server does not let into a pod, as far as placement would come to nonsense with it.

Source: ``pkg/apis/core/validation`` of 1.36: quantities of a pod are not negative (ValidateResourceQuantityValue), and
weights of what it prefers are 1 to 100 (ValidatePreferredSchedulingTerms, validateWeightedPodAffinityTerms).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from extender.errors import QuantityError, RequestError
from extender.model.object import (
    Affinity,
    Container,
    NodeAffinity,
    Pod,
    PodAffinity,
    PodSpec,
    ResourceList,
    ResourceRequirements,
)
from extender.model.quantity import parse


def check_admitted(pod: Pod) -> None:
    """Check the amounts that a pod asks for, or limits itself to, and the weights of what it prefers.

    A weight of 0 passes: it counts for nothing.

    Raises:
        QuantityError: an amount cannot be read or is negative; the message names the field and the remedy.
        RequestError: a weight is negative; the message names the field and the remedy.
    """
    spec = pod.spec or PodSpec()
    if spec.affinity is not None:
        for place, weight in _weights(spec.affinity):
            if weight is not None and weight < 0:
                raise RequestError(f"Pod.spec.affinity.{place}.weight: must be 1 to 100, got {weight}")
    for place, amounts in _amounts(spec):
        for resource, amount in amounts.items():
            try:
                is_negative = parse(amount.strip() if isinstance(amount, str) else amount or 0) < 0
            except QuantityError as error:
                raise QuantityError(f"Pod.spec.{place}[{resource!r}]: {error}") from None
            if is_negative:
                raise QuantityError(f"Pod.spec.{place}[{resource!r}]: must be 0 or more, got {amount}")


def _weights(affinity: Affinity) -> Iterator[tuple[str, int | None]]:
    """Yield the weights of what a pod prefers, each with its place in the affinity."""
    nodes = (affinity.node_affinity or NodeAffinity()).preferred or ()
    near = (affinity.pod_affinity or PodAffinity()).preferred or ()
    far = (affinity.pod_anti_affinity or PodAffinity()).preferred or ()
    for field, weights in (
        ("nodeAffinity", [each.weight for each in nodes]),
        ("podAffinity", [each.weight for each in near]),
        ("podAntiAffinity", [each.weight for each in far]),
    ):
        for number, weight in enumerate(weights):
            yield f"{field}.preferredDuringSchedulingIgnoredDuringExecution[{number}]", weight


def _amounts(spec: PodSpec) -> Iterator[tuple[str, ResourceList]]:
    """Yield what a pod says of amounts, each with its place in the spec."""
    yield from _amounts_of_containers("containers", spec.containers or ())
    yield from _amounts_of_containers("initContainers", spec.init_containers or ())
    if spec.resources is not None:
        yield from _amounts_of(spec.resources, "resources")
    if spec.overhead:
        yield "overhead", spec.overhead


def _amounts_of_containers(field: str, containers: Iterable[Container]) -> Iterator[tuple[str, ResourceList]]:
    for number, container in enumerate(containers):
        if container.resources is not None:
            yield from _amounts_of(container.resources, f"{field}[{number}].resources")


def _amounts_of(resources: ResourceRequirements, place: str) -> Iterator[tuple[str, ResourceList]]:
    if resources.requests:
        yield f"{place}.requests", resources.requests
    if resources.limits:
        yield f"{place}.limits", resources.limits
