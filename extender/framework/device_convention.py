"""The conventions for devices that are understood: our own, gpushare's and HAMi's.

Sources: pkg/utils and pkg/cache of gpushare-scheduler-extender.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Annotated, ClassVar, Final

import msgspec
from msgspec import Meta

from extender.framework.device import (
    MOST_AMOUNT,
    MOST_DEVICES,
    OVERASKED,
    UNLIMITED,
    Convention,
    Device,
    DeviceAsk,
    DeviceRequest,
    Grant,
    UnservableRequest,
)
from extender.framework.device_text import TOO_MUCH, Amount, check_devices, decode, is_amount, read_asked, split_parts
from extender.framework.hami_convention import HamiConvention
from extender.model.node import NodeInfo
from extender.model.pod import PendingPod, PodInfo


class _OwnDevice(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    id: Annotated[str, Meta(min_length=1)]
    memory: Amount = msgspec.field(name="memoryMiB", default=0)
    cores: Amount = 100
    model: str = ""
    numa: int | None = None
    link_group: str | None = None
    healthy: bool = True


class _OwnAsk(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    count: Annotated[int, Meta(ge=1, le=UNLIMITED)] = 1
    memory: Amount = msgspec.field(name="memoryMiB", default=0)
    memory_percent: Annotated[int, Meta(ge=1, le=UNLIMITED)] | None = None
    cores: Amount = 0
    model: str = ""


class _OwnGrant(msgspec.Struct):
    id: str
    memory: Amount = msgspec.field(name="memoryMiB", default=0)
    cores: Amount = 0


class OwnConvention(Convention):
    """Devices, requests and grants as JSON in annotations."""

    DEVICES: Final = "scheduler-extender/devices"
    REQUEST: Final = "scheduler-extender/device-request"
    ALLOCATED: Final = "scheduler-extender/devices-allocated"

    name = "own"
    annotations: ClassVar[tuple[str, ...]] = (REQUEST, ALLOCATED)

    def devices(self, node: NodeInfo) -> Sequence[Device] | None:
        """Read the list of the node's annotation; memory is in MiB."""
        text = node.annotations.get(self.DEVICES)
        if text is None:
            return None
        return check_devices(
            [
                Device(each.id, each.memory, each.cores, each.model, each.numa, each.link_group, each.healthy)
                for each in decode(text, list[_OwnDevice])
            ]
        )

    def request(self, pod: PendingPod) -> DeviceRequest | None:
        """Read the pod's annotation; one that asks for neither memory nor compute asks for whole devices."""
        text = pod.annotations.get(self.REQUEST)
        if text is None:
            return None
        asked = decode(text, _OwnAsk)
        percent = asked.memory_percent
        if percent is not None and percent > 100:
            raise UnservableRequest(OVERASKED)
        if percent is not None and asked.memory:
            raise ValueError("memoryMiB and memoryPercent cannot both be asked for")
        count = min(asked.count, MOST_DEVICES + 1)
        whole = not (asked.memory or percent or asked.cores)
        ask = DeviceAsk(count, asked.memory, percent, asked.cores, exclusive=whole, whole=whole)
        return DeviceRequest(self, (ask,), split_parts(asked.model))

    def demand(self, pod: PodInfo) -> int:
        """Read the count; a request that cannot be read counts as one device."""
        text = pod.annotations.get(self.REQUEST)
        if text is None:
            return 0
        try:
            return decode(text, _OwnAsk).count
        except ValueError:
            return 1

    def grants(self, annotations: Mapping[str, str]) -> Sequence[Grant]:
        """Read the list of what was allocated."""
        text = annotations.get(self.ALLOCATED)
        if text is None:
            return ()
        try:
            return [Grant(each.id, each.memory, each.cores) for each in decode(text, list[_OwnGrant])]
        except ValueError:
            return ()

    def annotate(self, grants: Sequence[Sequence[Grant]], node: NodeInfo, now_seconds: float) -> dict[str, str]:  # noqa: ARG002
        """Write the list of what is allocated."""
        listed = [_OwnGrant(*grant) for grant in chain.from_iterable(grants)]
        return {self.ALLOCATED: msgspec.json.encode(listed).decode()}


class GpuShareConvention(Convention):
    """Equal devices by two extended resources, numbered from 0; memory is in whatever unit the plug-in counts."""

    MEMORY: Final = "aliyun.com/gpu-mem"
    COUNT: Final = "aliyun.com/gpu-count"
    INDEX: Final = "ALIYUN_COM_GPU_MEM_IDX"
    OF_POD: Final = "ALIYUN_COM_GPU_MEM_POD"
    OF_DEVICE: Final = "ALIYUN_COM_GPU_MEM_DEV"
    ASSIGNED: Final = "ALIYUN_COM_GPU_MEM_ASSIGNED"
    ASSUME_TIME: Final = "ALIYUN_COM_GPU_MEM_ASSUME_TIME"

    name = "gpushare"
    annotations: ClassVar[tuple[str, ...]] = (INDEX, OF_POD)
    resources: ClassVar[tuple[str, ...]] = (MEMORY, COUNT)

    def devices(self, node: NodeInfo) -> Sequence[Device] | None:
        """Divide the node's memory by its number of devices."""
        if node.allocatable.get(self.MEMORY, 0) <= 0:
            return None
        count = min(node.allocatable.get(self.COUNT, 0), MOST_DEVICES + 1)
        return check_devices([Device(str(index), self._memory_of_one(node)) for index in range(count)])

    def request(self, pod: PendingPod) -> DeviceRequest | None:
        """Sum the memory that the containers ask for, all of it on one device."""
        asked = sum(read_asked(container, self.MEMORY) or 0 for container in pod.spec.containers or ())
        return DeviceRequest(self, (DeviceAsk(1, min(asked, TOO_MUCH)),)) if asked > 0 else None

    def demand(self, pod: PodInfo) -> int:
        """Count one device for a pod that asks for memory of one."""
        return int(pod.shape.requests.get(self.MEMORY, 0) > 0)

    def grants(self, annotations: Mapping[str, str]) -> Sequence[Grant]:
        """Read the device's number and the pod's memory on it."""
        index, memory = annotations.get(self.INDEX, ""), annotations.get(self.OF_POD, "")
        if not (is_amount(index) and is_amount(memory)):
            return ()
        return (Grant(str(int(index)), int(memory), 0),)

    def annotate(self, grants: Sequence[Sequence[Grant]], node: NodeInfo, now_seconds: float) -> dict[str, str]:
        """Write what the plug-in looks for among the node's pods; it turns ``false`` into ``true``."""
        ((grant,),) = grants
        return {
            self.INDEX: grant.device,
            self.OF_POD: str(grant.memory),
            self.OF_DEVICE: str(self._memory_of_one(node)),
            self.ASSIGNED: "false",
            self.ASSUME_TIME: str(int(now_seconds * 1_000_000_000)),
        }

    def _memory_of_one(self, node: NodeInfo) -> int:
        return min(node.allocatable[self.MEMORY] // max(1, node.allocatable.get(self.COUNT, 0)), MOST_AMOUNT)


CONVENTIONS: Final[Mapping[str, Convention]] = {
    each.name: each for each in (OwnConvention(), GpuShareConvention(), HamiConvention())
}
"""The conventions by name; of several that a node or a pod uses, the first counts."""
