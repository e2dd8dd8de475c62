"""Devices that pods share: what nodes declare, what pods ask for and what they were given, whatever the convention.

A convention says how all of this is written down. Amounts of memory are in the convention's own unit, compute is in
percent of a device.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import ClassVar, Final, NamedTuple

import msgspec

from extender.model.node import NodeInfo
from extender.model.pod import PendingPod, PodInfo

MOST_DEVICES: Final = 64
"""So many devices a node may declare."""

MOST_AMOUNT: Final = 2**40
"""No amount of memory or compute is larger, declared, asked for or given: sums and percentages stay inside int64."""

UNLIMITED: Final = 2**31
"""How many pods may share a device that states no limit."""

OVERASKED: Final = "pod asks for more than 100 percent of a device's memory"
"""Why no node will do for a pod that asks for more than all of a device; eviction cannot help."""


class UnservableRequest(ValueError):
    """A request that can be read and that no node can serve; its text is the reason."""


class Device(msgspec.Struct, frozen=True):
    """One device of a node; ``sharers`` is how many may share it.

    ``numa`` and ``link_group`` name what it is near to; None means that nothing is known to be near.
    """

    id: str
    memory: int
    cores: int = 100
    model: str = ""
    numa: int | None = None
    link_group: str | None = None
    healthy: bool = True
    sharers: int = UNLIMITED


class Grant(NamedTuple):
    """What a pod has of one device."""

    device: str
    memory: int
    cores: int


class DeviceAsk(msgspec.Struct, frozen=True):
    """So many different devices, and of each so much memory and compute; ``count`` may be 0.

    Where ``memory_percent`` is set, 1 to 100, it stands in place of ``memory``. An ``exclusive`` ask shares with
    nobody; a ``whole`` one takes all that a device has.
    """

    count: int
    memory: int = 0
    memory_percent: int | None = None
    cores: int = 0
    exclusive: bool = False
    whole: bool = False


class DeviceRequest(msgspec.Struct, frozen=True):
    """All that a pod asks of devices: an ask for each container, or one for them all.

    ``models`` and ``unwanted_models`` are parts of model names in lower case; without ``models`` any will do.
    ``policy`` is how to choose, where the pod says so in its convention. An ``optional`` request concerns only nodes of
    its convention: others may have what the pod asks for without any. ``resource`` is the extended resource that whole
    devices are asked for by.
    """

    convention: Convention
    asks: tuple[DeviceAsk, ...]
    models: tuple[str, ...] = ()
    unwanted_models: tuple[str, ...] = ()
    policy: str | None = None
    optional: bool = False
    resource: str = ""

    def accepts(self, model: str) -> bool:
        """Say whether a device of ``model`` will do."""
        folded = model.lower()
        if any(part in folded for part in self.unwanted_models):
            return False
        return not self.models or any(part in folded for part in self.models)


class Convention(ABC):
    """One way of writing down devices, requests and grants."""

    name: ClassVar[str]
    annotations: ClassVar[tuple[str, ...]]
    """The annotations of placed pods that are read."""
    resources: ClassVar[tuple[str, ...]] = ()
    """The extended resources that mean something."""
    one_at_a_time: ClassVar[bool] = False
    """Whether the device plug-in takes any pod that waits for it on a node for the one to serve."""

    @abstractmethod
    def devices(self, node: NodeInfo) -> Sequence[Device] | None:
        """Return the devices that a node declares, None where it declares none in this way.

        Raises:
            ValueError: the declaration cannot be read.
        """

    @abstractmethod
    def request(self, pod: PendingPod) -> DeviceRequest | None:
        """Return what a pod asks for, None where it asks for nothing in this way.

        Raises:
            ValueError: the request cannot be read, or asks for more than a device can have.
            QuantityError: a quantity cannot be read.
        """

    @abstractmethod
    def demand(self, pod: PodInfo) -> int:
        """Return how many devices a placed pod asks for."""

    @abstractmethod
    def grants(self, annotations: Mapping[str, str]) -> Sequence[Grant]:
        """Return what a pod was given; nothing where that is not written, or cannot be read."""

    @abstractmethod
    def annotate(self, grants: Sequence[Sequence[Grant]], node: NodeInfo, now_seconds: float) -> dict[str, str]:
        """Return the annotations that tell a pod's grants, one sequence an ask, to the node's device plug-in."""

    def waiting_since(self, annotations: Mapping[str, str]) -> int | None:  # noqa: ARG002
        """Return when a placed pod was bound that waits for the plug-in, in seconds since 1970; else None."""
        return None

    def is_locked(self, node: NodeInfo) -> bool:  # noqa: ARG002
        """Say whether somebody else has the node's device plug-in for itself."""
        return False
