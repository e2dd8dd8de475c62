"""Addresses of pods: how many the pods of each node have, and how many its address ranges hold."""

from __future__ import annotations

import re
from ipaddress import ip_network
from typing import Annotated, Any, Final

import numpy as np
from pydantic import Field, model_validator

from extender.framework.algorithm import Args
from extender.framework.cache import Cache
from extender.model.column import IntArray, Interned, lengthen
from extender.model.node import NodeInfo
from extender.model.pod import PodInfo
from extender.model.table import NodeTable

ADDRESS_COUNT: Final = "scheduler-extender/ip-count"
"""Annotation of pods that have more than one address of each family."""

MOST_ADDRESSES: Final = 2**40
"""Larger numbers count as this one, which nothing uses up, so that sums over nodes stay inside int64."""

UNLIMITED: Final = 2**62
"""Stands for a capacity that is not known; pods never use it up."""

_VERSIONS: Final = (4, 6)
_COUNT: Final = re.compile("[1-9][0-9]{0,5}")


_WANTED: Final = "must be a number of addresses, or have ipv4 or ipv6"

Addresses = Annotated[int, Field(ge=0)]


class AddressCapacity(Args):
    """A number of addresses: ``30``, or one for each family, as in ``{ipv4: 30, ipv6: 1000}``.

    Every pod has an address of each family. A family that is not named is not limited.
    """

    addresses: Addresses | None = Field(default=None, json_schema_extra={"unset": "not limited"})
    """For addresses of which the family is not told."""
    ipv4: Addresses | None = Field(default=None, json_schema_extra={"unset": "not limited"})
    ipv6: Addresses | None = Field(default=None, json_schema_extra={"unset": "not limited"})

    @model_validator(mode="before")
    @classmethod
    def _read(cls, value: Any) -> Any:
        if isinstance(value, int) and not isinstance(value, bool):
            return {"addresses": value}
        if not isinstance(value, dict):
            raise ValueError(_WANTED)
        return value

    @model_validator(mode="after")
    def _told(self) -> AddressCapacity:
        if self.addresses is self.ipv4 is self.ipv6 is None:
            raise ValueError(_WANTED)
        return self

    def by_family(self) -> list[int]:
        """Return three numbers: of no family, of IPv4 and of IPv6; ``UNLIMITED`` where there is none."""
        stated = (self.addresses, self.ipv4, self.ipv6)
        return [UNLIMITED if number is None else min(number, MOST_ADDRESSES) for number in stated]


class PodAddresses(Cache):
    """What nodes have of addresses and what their pods take, by row.

    ``used``, shape (capacity,), int64, is how many addresses of each family the pods have; those on the host's network
    have none of their own. ``in_ranges`` and ``ranges``, shape (2, capacity), int64, first IPv4 and then IPv6, are how
    many addresses the node's ``podCIDRs`` hold and how many ranges that are. ``resources`` are the names of the
    allocatable resources, which tell none of a resource from a resource that the node does not know.
    """

    annotations = (ADDRESS_COUNT,)

    def __init__(self, table: NodeTable) -> None:
        super().__init__(table)
        self.used: IntArray = np.zeros(table.capacity, np.int64)
        self.in_ranges: IntArray = np.zeros((len(_VERSIONS), table.capacity), np.int64)
        self.ranges: IntArray = np.zeros_like(self.in_ranges)
        self.resources: Interned[frozenset[str]] = Interned(table.capacity, empty=frozenset())

    def grow(self, capacity: int) -> None:
        """Make room for ``capacity`` rows."""
        self.used = lengthen(self.used, capacity)
        self.in_ranges = lengthen(self.in_ranges, capacity)
        self.ranges = lengthen(self.ranges, capacity)
        self.resources.grow(capacity)

    def add_node(self, row: int, node: NodeInfo) -> None:
        """Count the addresses of a node's ranges; one that cannot be read is none."""
        self.resources.set(row, frozenset(node.allocatable))
        for text in node.pod_cidrs:
            try:
                network = ip_network(text, strict=False)
            except ValueError:
                continue
            family = _VERSIONS.index(network.version)
            self.in_ranges[family, row] += min(network.num_addresses, MOST_ADDRESSES)
            self.ranges[family, row] += 1

    def remove_node(self, row: int, node: NodeInfo) -> None:  # noqa: ARG002
        """Undo ``add_node``."""
        self.resources.set(row, frozenset())
        self.in_ranges[:, row] = 0
        self.ranges[:, row] = 0

    def add_pod(self, row: int, pod: PodInfo) -> None:
        """Take the pod's addresses."""
        self.used[row] += _addresses_of(pod)

    def remove_pod(self, row: int, pod: PodInfo) -> None:
        """Give the pod's addresses back."""
        self.used[row] -= _addresses_of(pod)

    def dump(self) -> Any:
        """Return what every named row has and takes."""
        return {
            name: {
                "used": int(self.used[row]),
                "inRanges": self.in_ranges[:, row].tolist(),
                "ranges": self.ranges[:, row].tolist(),
                "resources": sorted(self.resources.values[self.resources.codes[row]]),
            }
            for name, row in self.table.index.items()
        }


def read_address_count(text: str | None) -> int | None:
    """Return how many addresses of each family a pod asks for by its annotation, one without it.

    None where the text is no whole number of 1 to 999999.
    """
    if text is None:
        return 1
    text = text.strip()
    return int(text) if _COUNT.fullmatch(text) else None


def _addresses_of(pod: PodInfo) -> int:
    """Return how many addresses a placed pod has; where its annotation cannot be read, it has one."""
    if pod.shape.host_network:
        return 0
    return read_address_count(pod.annotations.get(ADDRESS_COUNT)) or 1
