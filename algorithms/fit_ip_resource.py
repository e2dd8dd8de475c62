"""FitIPResource: a pod goes where it can get an address: its node has one left, and so has the pool its node is in.

A rule of this house; kube-scheduler has none like it: a pod that finds no address is bound all the same, and then waits
on its node for one. Capacity is what the cluster tells of it, and use is reckoned from the pods that are placed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Annotated, Final, Literal, NamedTuple

import numpy as np

from extender.framework import (
    ADDRESS_COUNT,
    MOST_ADDRESSES,
    SKIP,
    UNLIMITED,
    AddressCapacity,
    AnnotationKey,
    Args,
    BoolArray,
    Field,
    IntArray,
    LabelColumn,
    LabelKey,
    Nodes,
    NodeTable,
    NonEmpty,
    PendingPod,
    PodAddresses,
    Predicate,
    Refusal,
    RequestedResources,
    ResourceName,
    Skip,
    model_validator,
    read_address_count,
    uses,
)

FAMILIES: Final = ("", "IPv4 ", "IPv6 ")
"""The first axis of capacities: addresses of which the family is not told, and those of each family."""

NODE_REASONS: Final = tuple(f"node(s) had too few free {family}pod addresses" for family in FAMILIES)
"""Why a full node is refused; evicting pods can help unless the node as a whole has too few."""

POOL_REASONS: Final = tuple(f"node(s) were in a pool of too few free {family}pod addresses" for family in FAMILIES)
"""Why the nodes of a full pool are refused; evicting pods can help unless the pool as a whole has too few."""

UNKNOWN: Final = "node(s) had no known capacity of pod addresses"
"""Why a node is refused of which nothing is known, where the arguments say so; no eviction can help."""

UNREADABLE: Final = "node(s) had an annotation of pod addresses that cannot be read"
"""Why a node is refused whose annotation is neither a number nor one a family; no eviction can help."""

UNREADABLE_POD: Final = f"pod has an annotation {ADDRESS_COUNT} that is no number"
"""Why all nodes are refused to a pod whose annotation cannot be read; no eviction can help."""

INSTANCE_TYPE: Final = "node.kubernetes.io/instance-type"

Source = Literal["annotation", "extendedResource", "podCIDRs", "instanceType"]
SOURCES: Final[tuple[Source, ...]] = ("annotation", "extendedResource", "podCIDRs", "instanceType")
Addresses = Annotated[int, Field(ge=0, le=MOST_ADDRESSES)]


class Pool(Args):
    """Nodes that share addresses, such as those of one subnet."""

    label_key: LabelKey
    """The node label whose values are the pools; a node without it is in none."""

    capacity: dict[str, AddressCapacity] | None = Field(
        default=None, json_schema_extra={"unset": "what its nodes have together"}
    )
    """What each pool has, by label value; what a node has itself holds as well. A value not named has no limit.

    Without it, a pool has what its nodes have together, and any of them may use it; nodes of which nothing is known
    are then left out, with their pods.
    """


class Reserved(Args):
    """Addresses that pods cannot have, of each family."""

    per_node: Addresses = 0
    per_pool: Addresses = 0


class FitIPResourceArgs(Args):
    """What can be set."""

    sources: NonEmpty[Source] = SOURCES
    """Where the capacity of a node is looked for; the first that knows it counts."""

    annotation: AnnotationKey = "scheduler-extender/pod-ips"
    """The annotation of nodes that has it: ``30``, or ``{"ipv4": 30, "ipv6": 1000}``."""

    extended_resource: ResourceName = ""
    """The resource of which a node has as much to allocate as addresses; pods need not ask for it."""

    reserved_per_cidr: Addresses = 3
    """Addresses of each range in ``podCIDRs`` that pods cannot have: network, broadcast and gateway."""

    instance_types: dict[str, AddressCapacity] = Field(default={})
    """Capacities by the value of the label ``node.kubernetes.io/instance-type``."""

    pool: Pool | None = Field(default=None, json_schema_extra={"unset": "nodes share no addresses"})
    reserved: Reserved = Reserved()

    unknown_capacity: Literal["fit", "refuse"] = "fit"
    """What becomes of nodes of which neither their own capacity nor that of their pool is known."""

    @model_validator(mode="after")
    def _heeded(self) -> FitIPResourceArgs:
        needed = {"extendedResource": self.extended_resource, "instanceType": self.instance_types}
        for source, given in needed.items():
            if bool(given) != (source in self.sources) and (given or "sources" in self.model_fields_set):
                key = "instanceTypes" if source == "instanceType" else source
                raise ValueError(f"{key} must be given where sources have {source}, and only there")
        return self


class Known(NamedTuple):
    """What there is of addresses: all but the last of shape (families, capacity), int64; ``UNLIMITED`` if not known.

    ``pools`` numbers the pools that the nodes share in, 0 where there is none. ``unreadable`` has shape (capacity,).
    """

    own: IntArray
    shared: IntArray
    pools: IntArray
    unreadable: BoolArray


class FitIPResource(Predicate):
    """Refuses nodes that have too few free addresses for the pod, or are in a pool that has.

    A pod takes one address of each family, or as many as its annotation ``scheduler-extender/ip-count`` says; on the
    host's network it takes none and fits anywhere. Pods that are being deleted have theirs until they are gone.
    """

    Arguments = FitIPResourceArgs
    args: FitIPResourceArgs
    counts_nominated_everywhere = True
    addresses = uses(PodAddresses)
    resources = uses(RequestedResources)
    _known: tuple[int, Known] | None = None

    def filter(self, pod: PendingPod, nodes: Nodes) -> Skip | list[Refusal]:
        """Compare what is left with what the pod takes, for each family on the node and in its pool."""
        if pod.spec.host_network:
            return SKIP
        asked = read_address_count(pod.annotations.get(ADDRESS_COUNT))
        if asked is None:
            return [Refusal(None, UNREADABLE_POD, resolvable=False, error=True)]
        known = self._find_capacities(nodes.table)
        refusals = [Refusal(nodes.take(known.unreadable), UNREADABLE, error=True)] if known.unreadable.any() else []
        if self.args.unknown_capacity == "refuse":
            untold = (np.minimum(known.own, known.shared) == UNLIMITED).all(axis=0) & ~known.unreadable
            refusals.append(Refusal(nodes.take(untold), UNKNOWN, resolvable=False))
        for capacity, reason in zip(known.own, NODE_REASONS, strict=True):
            refusals += _refuse(nodes, capacity, self.addresses.used, asked, reason)
        if self.args.pool is not None:
            for capacity, pools, reason in zip(known.shared, known.pools, POOL_REASONS, strict=True):
                if pools.any():
                    used = np.bincount(pools, weights=self.addresses.used).astype(np.int64)[pools]
                    refusals += _refuse(nodes, capacity, used, asked, reason)
        return refusals

    def _find_capacities(self, table: NodeTable) -> Known:
        """Return what is known of all nodes; reckoned again only where nodes changed."""
        if self._known is None or self._known[0] != table.generation:
            self._known = (table.generation, self._reckon(table))
        return self._known[1]

    def _reckon(self, table: NodeTable) -> Known:
        own, unreadable = np.full((len(FAMILIES), table.capacity), UNLIMITED), np.zeros(table.capacity, np.bool_)
        for source in self.args.sources:
            told, untold = self._ask(source, table), (own == UNLIMITED).all(axis=0)
            if source == "annotation":
                annotated = table.annotation(self.args.annotation).codes != 0
                unreadable = untold & annotated & (told == UNLIMITED).all(axis=0)
            own = np.where(untold & ~unreadable, told, own)
        own = _subtract(own, self.args.reserved.per_node)
        shared = np.full_like(own, UNLIMITED)
        pools = np.zeros_like(own)
        if self.args.pool is not None:
            column = table.label(self.args.pool.label_key)
            if self.args.pool.capacity is None:
                pools = np.where(own != UNLIMITED, column.codes, 0)
                shared, own = _add_up(own, pools), np.where(pools != 0, UNLIMITED, own)
            else:
                shared = _decide(column, self.args.pool.capacity.get)
                pools = np.where(shared != UNLIMITED, column.codes, 0)
            shared = _subtract(shared, self.args.reserved.per_pool)
        return Known(own, shared, pools, unreadable)

    def _ask(self, source: Source, table: NodeTable) -> IntArray:
        """Return what one source knows of each row; shape (families, capacity)."""
        if source == "annotation":
            return _decide(table.annotation(self.args.annotation), _read)
        if source == "instanceType":
            return _decide(table.label(INSTANCE_TYPE), self.args.instance_types.get)
        told = np.full((len(FAMILIES), table.capacity), UNLIMITED)
        if source == "podCIDRs":
            usable = np.maximum(self.addresses.in_ranges - self.addresses.ranges * self.args.reserved_per_cidr, 0)
            told[1:] = np.where(self.addresses.ranges != 0, usable, UNLIMITED)
            return told
        resource, names = self.args.extended_resource, self.addresses.resources
        amounts = self.resources.amounts(self.resources.allocatable, resource)
        if amounts is not None:
            has = np.fromiter((resource in each for each in names.values), np.bool_)[names.codes]
            told[0] = np.where(has, amounts.clip(0, MOST_ADDRESSES), UNLIMITED)
        return told


def _refuse(nodes: Nodes, capacity: IntArray, used: IntArray, asked: int, reason: str) -> Iterator[Refusal]:
    """Yield the candidates that have too few addresses left, and again those that would have too few if empty."""
    total = nodes.take(capacity)
    short = total - nodes.take(used) < asked
    if short.any():
        yield Refusal(short, reason)
        if (total < asked).any():
            yield Refusal(total < asked, reason, resolvable=False)


def _decide(column: LabelColumn, find: Callable[[str], AddressCapacity | None]) -> IntArray:
    """Return the capacity that each row's value stands for, found once a value; shape (families, capacity)."""
    found = [find(value) if value is not None else None for value in column.values]
    numbers = [[UNLIMITED] * len(FAMILIES) if each is None else each.by_family() for each in found]
    return np.array(numbers, np.int64).T[:, column.codes]


def _read(text: str) -> AddressCapacity | None:
    try:
        return AddressCapacity.model_validate_json(text)
    except ValueError:
        return None


def _add_up(own: IntArray, pools: IntArray) -> IntArray:
    """Return what the nodes of each row's pool have together; shape (families, capacity)."""
    sums = [np.bincount(of, weights=np.where(of != 0, has, 0))[of] for has, of in zip(own, pools, strict=True)]
    return np.where(pools != 0, np.array(sums, np.int64), UNLIMITED)


def _subtract(capacity: IntArray, reserved: int) -> IntArray:
    return np.where(capacity == UNLIMITED, UNLIMITED, np.maximum(capacity - reserved, 0))
