"""HAMi's convention for devices: what its device plug-in registers, and what it waits for before it hands one out.

Sources: pkg/device/devices.go, pkg/device/nvidia/device.go, pkg/util and pkg/device-plugin/nvidiadevice of HAMi 2.4 to
2.10.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar, Final

import msgspec

from extender.framework.device import (
    MOST_DEVICES,
    OVERASKED,
    Convention,
    Device,
    DeviceAsk,
    DeviceRequest,
    Grant,
    UnservableRequest,
)
from extender.framework.device_text import Amount, Count, check_devices, decode, is_amount, read_asked, split_parts
from extender.model.node import NodeInfo
from extender.model.object import Container
from extender.model.pod import PendingPod, PodInfo

_TRUE: Final = ("true", "1", "t")


class _HamiDevice(msgspec.Struct):
    """Go leaves out what is zero or false, and takes null for it."""

    id: str | None = ""
    count: Count | None = 0
    devmem: Amount | None = 0
    devcore: Amount | None = 0
    type: str | None = ""
    numa: int | None = 0
    mode: str | None = ""
    health: bool | None = False


class HamiConvention(Convention):
    """NVIDIA devices as HAMi registers them; memory is in MiB. Devices in MIG mode are left alone."""

    REGISTERED: Final = "hami.io/node-nvidia-register"
    HANDSHAKE: Final = "hami.io/node-handshake"
    CORDONED: Final = "hami.io/device-cordon"
    LOCK: Final = "hami.io/mutex.lock"
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
    ALLOCATING: Final = "allocating"

    name = "hami"
    annotations: ClassVar[tuple[str, ...]] = (ALLOCATED, BIND_PHASE, BIND_TIME)
    resources: ClassVar[tuple[str, ...]] = (COUNT, MEMORY, MEMORY_PERCENT, CORES)
    one_at_a_time = True

    def devices(self, node: NodeInfo) -> Sequence[Device] | None:
        """Read the node's annotation, JSON or fields between commas and devices between colons."""
        text = node.annotations.get(self.REGISTERED)
        if text is None:
            return None
        if text.lstrip().startswith("["):
            listed = decode(text, list[_HamiDevice])
        else:
            listed = [_from_fields(part.split(",")) for part in text.split(":") if part.strip()]
        is_gone = self._is_gone(node)
        cordoned = {part.strip() for part in node.annotations.get(self.CORDONED, "").split(",")}
        return check_devices(
            [
                Device(
                    each.id or "",
                    each.devmem or 0,
                    each.devcore or 0,
                    each.type or "",
                    each.numa or 0,
                    healthy=bool(each.health) and each.mode != "mig" and not is_gone and each.id not in cordoned,
                    sharers=each.count or 0,
                )
                for each in listed
            ]
        )

    def _is_gone(self, node: NodeInfo) -> bool:
        """Say whether the node's device plug-in is gone.

        Kubelet then has no device of it left to allocate. The handshake counts where kubelet does not tell: HAMi up to
        2.9 writes ``Deleted_`` once the plug-in is silent, and 2.8 leaves that standing when it has come back. How old
        a ``Requesting_`` is says nothing more: HAMi gives up on it only where nothing is left to allocate.
        """
        left = node.allocatable.get(self.COUNT)
        return "Deleted" in node.annotations.get(self.HANDSHAKE, "") if left is None else left <= 0

    def request(self, pod: PendingPod) -> DeviceRequest | None:
        """Read what each container asks for, init containers first; a number of devices alone is optional."""
        containers = (*(pod.spec.init_containers or ()), *(pod.spec.containers or ()))
        asks = tuple(self._ask(container) for container in containers)
        if not any(ask.count for ask in asks):
            return None
        notes = pod.annotations
        near = notes.get(self.NUMA_BIND, "").lower() in _TRUE
        policy = "sameNuma" if near else notes.get(self.POLICY)
        shares, hints = (self.MEMORY, self.MEMORY_PERCENT, self.CORES), (self.USE_TYPE, self.NO_USE_TYPE, self.POLICY)
        is_plain = all(read_asked(container, share) is None for container in containers for share in shares)
        return DeviceRequest(
            self,
            asks,
            split_parts(notes.get(self.USE_TYPE, "")),
            split_parts(notes.get(self.NO_USE_TYPE, "")),
            policy if policy in ("binpack", "spread", "sameNuma") else None,
            optional=is_plain and self.NUMA_BIND not in notes and not any(hint in notes for hint in hints),
        )

    def _ask(self, container: Container) -> DeviceAsk:
        """Read one container; it gets all the memory of a device where it names no amount."""
        count, memory = read_asked(container, self.COUNT), read_asked(container, self.MEMORY)
        percent, cores = read_asked(container, self.MEMORY_PERCENT), read_asked(container, self.CORES)
        if count is None:
            count = int(any(asked is not None for asked in (memory, percent, cores)))
        if percent is not None and percent > 100:
            raise UnservableRequest(OVERASKED)
        share = None if memory else percent or 100
        return DeviceAsk(
            min(count, MOST_DEVICES + 1), memory or 0, share, min(cores or 0, 100), exclusive=(cores or 0) >= 100
        )

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
            if not (is_amount(fields[2]) and is_amount(fields[3])):
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
            self.BIND_PHASE: self.ALLOCATING,
            self.BIND_TIME: now,
        }

    def waiting_since(self, annotations: Mapping[str, str]) -> int | None:
        """Read when a pod was bound that the plug-in has not served; it takes any such pod for the one to serve."""
        since = annotations.get(self.BIND_TIME, "")
        return int(since) if annotations.get(self.BIND_PHASE) == self.ALLOCATING and is_amount(since) else None

    def is_locked(self, node: NodeInfo) -> bool:
        """Say whether HAMi's scheduler has locked the node: the plug-in then serves the pod that the lock names."""
        return self.LOCK in node.annotations


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
        "health": health.lower() in _TRUE,
    }
    return msgspec.convert(known, _HamiDevice)
