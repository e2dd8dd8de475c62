"""A node as algorithms see it: parsed once, shared, never changed."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

import msgspec

from extender.errors import QuantityError
from extender.model.object import ContainerImage, Node, Taint
from extender.model.quantity import to_millis, to_units

LARGEST_AMOUNT = 2**55
"""Amounts are capped here (32 PiB of bytes), so that sums of a node's pods and percentages stay inside int64."""

_SHARED_IMAGES = 8192

CPU, MEMORY, EPHEMERAL_STORAGE, PODS_RESOURCE = "cpu", "memory", "ephemeral-storage", "pods"


class NodeInfo(msgspec.Struct, frozen=True, gc=False, eq=False):
    """One version of one node.

    ``allocatable`` is in millicores for ``cpu`` and whole units for everything else. ``images`` are as reported, their
    sizes capped like all amounts.
    """

    name: str
    uid: str
    resource_version: str
    labels: Mapping[str, str]
    annotations: Mapping[str, str]
    taints: tuple[Taint, ...]
    unschedulable: bool
    allocatable: Mapping[str, int]
    images: tuple[ContainerImage, ...]
    pod_cidrs: tuple[str, ...]

    def same_for_scheduling(self, other: NodeInfo) -> bool:
        """Say whether the two differ in nothing but their resource version, as after a heartbeat."""
        return (
            self.uid == other.uid
            and self.allocatable == other.allocatable
            and self.labels == other.labels
            and self.taints == other.taints
            and self.unschedulable == other.unschedulable
            and self.annotations == other.annotations
            and self.images == other.images
            and self.pod_cidrs == other.pod_cidrs
        )


def amount(resource: str, quantity: str | int | float | None) -> int:
    """Return ``quantity`` in the unit of ``resource``: millicores for cpu, else whole units; capped.

    JSON may have blanks around the text, which are trimmed.

    Raises:
        QuantityError: the text is not a Kubernetes quantity.
    """
    text = quantity.strip() if isinstance(quantity, str) else quantity or 0
    value = to_millis(text) if resource == CPU else to_units(text)
    return _capped(value)


def _capped(value: int) -> int:
    return max(-LARGEST_AMOUNT, min(LARGEST_AMOUNT, value))


@lru_cache(maxsize=_SHARED_IMAGES)
def _share_image(names: tuple[str, ...], size_bytes: int | None) -> ContainerImage:
    """Return one object for an image that many nodes hold; they would be most of what a node takes in memory."""
    return ContainerImage(list(names), size_bytes and _capped(size_bytes))


def read_node(node: Node) -> NodeInfo:
    """Parse a decoded node.

    Raises:
        QuantityError: an allocatable amount cannot be read; the message names node and resource.
    """
    meta, spec, status = node.metadata, node.spec, node.status
    name = (meta and meta.name) or ""
    amounts = (status and status.allocatable) or {}
    try:
        allocatable = {resource: amount(resource, quantity) for resource, quantity in amounts.items()}
    except QuantityError as error:
        raise QuantityError(f"node {name}: status.allocatable: {error}") from None
    return NodeInfo(
        name=name,
        uid=(meta and meta.uid) or "",
        resource_version=(meta and meta.resource_version) or "",
        labels=(meta and meta.labels) or {},
        annotations=(meta and meta.annotations) or {},
        taints=tuple((spec and spec.taints) or ()),
        unschedulable=bool(spec and spec.unschedulable),
        allocatable=allocatable,
        images=tuple(
            _share_image(tuple(image.names or ()), image.size_bytes) for image in (status and status.images) or ()
        ),
        pod_cidrs=tuple((spec and spec.pod_cidrs) or ()),
    )
