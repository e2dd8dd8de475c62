"""The conventions for devices that are understood: our own, gpushare's and HAMi's.

Sources: pkg/utils and pkg/cache of gpushare-scheduler-extender; pkg/device/devices.go, pkg/device/nvidia/device.go and
pkg/util of HAMi 2.x.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Annotated, ClassVar, Final, TypeVar

import msgspec
from msgspec import Meta

from extender.errors import QuantityError
from extender.framework.device import MOST_DEVICES, UNLIMITED, Convention, Device, DeviceAsk, DeviceRequest, Grant
from extender.model.node import NodeInfo, amount
from extender.model.object import Container, ResourceRequirements
from extender.model.pod import PendingPod, PodInfo

T = TypeVar("T")
Amount = Annotated[int, Meta(ge=0, le=2**40)]
Count = Annotated[int, Meta(ge=0, le=UNLIMITED)]


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
        return _checked(
            [
                Device(each.id, each.memory, each.cores, each.model, each.numa, each.link_group, each.healthy)
                for each in _decode(text, list[_OwnDevice])
            ]
        )

    def request(self, pod: PendingPod) -> DeviceRequest | None:
        """Read the pod's annotation; one that asks for neither memory nor compute asks for whole devices."""
        text = pod.annotations.get(self.REQUEST)
        if text is None:
            return None
        asked = _decode(text, _OwnAsk)
        whole = not asked.memory and not asked.cores
        ask = DeviceAsk(asked.count, asked.memory, None, asked.cores, exclusive=whole, whole=whole)
        return DeviceRequest(self, (ask,), _parts(asked.model))

    def demand(self, pod: PodInfo) -> int:
        """Read the count; a request that cannot be read counts as one device."""
        text = pod.annotations.get(self.REQUEST)
        if text is None:
            return 0
        try:
            return _decode(text, _OwnAsk).count
        except ValueError:
            return 1

    def grants(self, annotations: Mapping[str, str]) -> Sequence[Grant]:
        """Read the list of what was allocated."""
        text = annotations.get(self.ALLOCATED)
        if text is None:
            return ()
        try:
            return [Grant(each.id, each.memory, each.cores) for each in _decode(text, list[_OwnGrant])]
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

    def devices(self, node: NodeInfo) -> Sequence[Device] | None:
        """Divide the node's memory by its number of devices."""
        if node.allocatable.get(self.MEMORY, 0) <= 0:
            return None
        count = min(node.allocatable.get(self.COUNT, 0), MOST_DEVICES + 1)
        return _checked([Device(str(index), self._memory_of_one(node)) for index in range(count)])

    def request(self, pod: PendingPod) -> DeviceRequest | None:
        """Sum the memory that the containers ask for, all of it on one device."""
        asked = sum(_asked(container, self.MEMORY) or 0 for container in pod.spec.containers or ())
        return DeviceRequest(self, (DeviceAsk(1, asked),)) if asked > 0 else None

    def demand(self, pod: PodInfo) -> int:
        """Count one device for a pod that asks for memory of one."""
        return int(pod.shape.requests.get(self.MEMORY, 0) > 0)

    def grants(self, annotations: Mapping[str, str]) -> Sequence[Grant]:
        """Read the device's number and the pod's memory on it."""
        index, memory = annotations.get(self.INDEX, ""), annotations.get(self.OF_POD, "")
        if not (_is_number(index) and _is_number(memory)):
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
        return node.allocatable[self.MEMORY] // max(1, node.allocatable.get(self.COUNT, 0))


class _HamiDevice(msgspec.Struct):
    """Go leaves out what is zero or false, so that is what is missing."""

    id: str = ""
    count: Count = 0
    devmem: Amount = 0
    devcore: Amount = 0
    type: str = ""
    numa: int = 0
    mode: str = ""
    health: bool = False


class HamiConvention(Convention):
    """NVIDIA devices as HAMi registers them; memory is in MiB. Devices in MIG mode are left alone."""

    REGISTERED: Final = "hami.io/node-nvidia-register"
    COUNT: Final = "nvidia.com/gpu"
    MEMORY: Final = "nvidia.com/gpumem"
    MEMORY_PERCENT: Final = "nvidia.com/gpumem-percentage"
    CORES: Final = "nvidia.com/gpucores"
    USE_TYPE: Final = "nvidia.com/use-gputype"
    NO_USE_TYPE: Final = "nvidia.com/nouse-gputype"
    NUMA_BIND: Final = "nvidia.com/numa-bind"
    POLICY: Final = "hami.io/gpu-scheduler-policy"
    ALLOCATED: Final = "hami.io/vgpu-devices-allocated"
    TO_ALLOCATE: Final = "hami.io/vgpu-devices-to-allocate"
    NODE: Final = "hami.io/vgpu-node"
    TIME: Final = "hami.io/vgpu-time"
    BIND_TIME: Final = "hami.io/bind-time"
    BIND_PHASE: Final = "hami.io/bind-phase"

    name = "hami"
    annotations: ClassVar[tuple[str, ...]] = (ALLOCATED,)

    def devices(self, node: NodeInfo) -> Sequence[Device] | None:
        """Read the node's annotation, JSON or fields between commas and devices between colons."""
        text = node.annotations.get(self.REGISTERED)
        if text is None:
            return None
        if text.lstrip().startswith("["):
            listed = _decode(text, list[_HamiDevice])
        else:
            listed = [_from_fields(part.split(",")) for part in text.split(":") if part.strip()]
        return _checked(
            [
                Device(
                    each.id,
                    each.devmem,
                    each.devcore,
                    each.type,
                    each.numa,
                    healthy=each.health and each.mode != "mig",
                    sharers=each.count,
                )
                for each in listed
            ]
        )

    def request(self, pod: PendingPod) -> DeviceRequest | None:
        """Read what each container asks for, init containers first."""
        containers = (*(pod.spec.init_containers or ()), *(pod.spec.containers or ()))
        asks = tuple(self._ask(container) for container in containers)
        if not any(ask.count for ask in asks):
            return None
        notes = pod.annotations
        near = notes.get(self.NUMA_BIND, "").lower() in ("true", "1", "t")
        policy = "sameNuma" if near else notes.get(self.POLICY)
        models, unwanted = _parts(notes.get(self.USE_TYPE, "")), _parts(notes.get(self.NO_USE_TYPE, ""))
        return DeviceRequest(
            self, asks, models, unwanted, policy if policy in ("binpack", "spread", "sameNuma") else None
        )

    def _ask(self, container: Container) -> DeviceAsk:
        """Read one container; it gets all the memory of a device where it names no amount."""
        count, memory = _asked(container, self.COUNT), _asked(container, self.MEMORY)
        percent, cores = _asked(container, self.MEMORY_PERCENT), _asked(container, self.CORES)
        if count is None:
            count = int(any(amount is not None for amount in (memory, percent, cores)))
        if memory:
            percent = None
        elif percent is None:
            percent = 100
        return DeviceAsk(count, memory or 0, percent, min(cores or 0, 100), exclusive=(cores or 0) >= 100)

    def demand(self, pod: PodInfo) -> int:
        """Return the number of devices that the containers ask for."""
        return pod.shape.requests.get(self.COUNT, 0)

    def grants(self, annotations: Mapping[str, str]) -> Sequence[Grant]:
        """Read the devices of all containers."""
        found = []
        for part in annotations.get(self.ALLOCATED, "").replace(";", ":").split(":"):
            fields = part.split(",")
            if len(fields) < 4:
                continue
            if not (_is_number(fields[2]) and _is_number(fields[3])):
                return ()
            found.append(Grant(fields[0], int(fields[2]), int(fields[3])))
        return found

    def annotate(self, grants: Sequence[Sequence[Grant]], node: NodeInfo, now_seconds: float) -> dict[str, str]:
        """Write the devices by container, and that the plug-in is to hand them out."""
        text = "".join(
            "".join(f"{grant.device},NVIDIA,{grant.memory},{grant.cores}:" for grant in of_container) + ";"
            for of_container in grants
        )
        now = str(int(now_seconds))
        return {
            self.NODE: node.name,
            self.TIME: now,
            self.TO_ALLOCATE: text,
            self.ALLOCATED: text,
            self.BIND_PHASE: "allocating",
            self.BIND_TIME: now,
        }


CONVENTIONS: Final[Mapping[str, Convention]] = {
    each.name: each for each in (OwnConvention(), GpuShareConvention(), HamiConvention())
}
"""The conventions by name; of several that a node or a pod uses, the first counts."""


def _from_fields(fields: list[str]) -> _HamiDevice:
    """Read one device of the older form: id, count, memory, cores, type, numa, health, and maybe index and mode."""
    if len(fields) not in (7, 9):
        raise ValueError(f"a device has {len(fields)} fields, not 7 or 9")
    identity, count, memory, cores, model, numa, health = fields[:7]
    known = {
        "id": identity,
        "count": int(count),
        "devmem": int(memory),
        "devcore": int(cores),
        "type": model,
        "numa": int(numa),
        "mode": fields[8] if len(fields) == 9 else "",
        "health": health.lower() in ("true", "1", "t"),
    }
    return msgspec.convert(known, _HamiDevice)


def _checked(devices: list[Device]) -> list[Device]:
    """Return ``devices`` if they can be told apart and are not too many."""
    if len(devices) > MOST_DEVICES:
        raise ValueError(f"more than {MOST_DEVICES} devices")
    if len({device.id for device in devices}) != len(devices):
        raise ValueError("two devices have the same id")
    return devices


def _decode(text: str, kind: type[T]) -> T:
    """Decode JSON; msgspec's errors are ValueErrors, but for nesting that is too deep."""
    try:
        return msgspec.json.decode(text, type=kind)
    except RecursionError as error:
        raise ValueError(str(error)) from None


def _asked(container: Container, resource: str) -> int | None:
    """Return a container's limit, else its request, None where it has neither."""
    resources = container.resources or ResourceRequirements()
    for stated in (resources.limits, resources.requests):
        if stated is not None and resource in stated:
            return max(0, amount(resource, stated[resource]))
    return None


def _parts(listed: str) -> tuple[str, ...]:
    return tuple(part.strip().lower() for part in listed.split(",") if part.strip())


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) < 16


UNREADABLE: Final = (ValueError, QuantityError)
"""What reading a declaration or a request raises."""
