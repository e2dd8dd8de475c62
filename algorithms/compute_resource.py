"""ComputeResource: pods share the devices of a node, and what fits is decided device by device, not by their sum.

What nodes and pods write, and what device plug-ins read, is known to the framework's conventions. Here is what fits,
how good it is, and which devices a pod gets when it is bound.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, Literal, TypeAlias, get_args

import numpy as np

from extender.framework import (
    CONVENTIONS,
    GARBLED,
    MAX_NODE_SCORE,
    SKIP,
    UNREADABLE,
    Args,
    BoolArray,
    DeviceAsk,
    DevicePacking,
    DevicePool,
    DeviceRequest,
    Grant,
    IntArray,
    NodeInfo,
    Nodes,
    PendingPod,
    Predicate,
    Priority,
    Refusal,
    Reserver,
    Skip,
    uses,
)

POLICY: Final = "scheduler-extender/device-policy"
"""The pod annotation that says how devices are chosen."""

BAD_REQUEST: Final = "pod asks for devices in a way that cannot be read"
"""Why no node will do for a pod with a malformed request; eviction cannot help."""

UNREADABLE_DEVICES: Final = "node(s) declared devices in a way that cannot be read"
NO_DEVICES: Final = "node(s) didn't have enough devices of the kind the pod asks for"
UNHEALTHY: Final = "node(s) didn't have enough healthy devices"
OTHER_MODEL: Final = "node(s) didn't have enough devices of the model the pod asks for"
TOO_LITTLE_MEMORY: Final = "node(s) didn't have a device with enough memory"
TOO_LITTLE_COMPUTE: Final = "node(s) didn't have a device with enough compute"
TOO_FEW: Final = "node(s) didn't have enough devices for all containers"
APART: Final = "node(s) didn't have enough devices near to each other"
"""Why a node is refused that would be refused without any pods; eviction cannot help."""

NO_FREE_DEVICE: Final = "node(s) didn't have enough free devices"
NO_FREE_MEMORY: Final = "node(s) didn't have a device with enough free memory"
NO_FREE_COMPUTE: Final = "node(s) didn't have a device with enough free compute"
FREE_APART: Final = "node(s) didn't have enough free devices near to each other"
"""Why a node is refused for what its pods have; eviction can help."""

Policy: TypeAlias = Literal["binpack", "spread", "sameNuma", "sameLinkGroup"]
Check: TypeAlias = tuple[BoolArray, str, str]
"""The devices that pass so far, and why a node with too few of them is refused: an empty one, and one in use."""


class ComputeResourceArgs(Args):
    """How devices are chosen where the pod does not say, and which conventions count."""

    policy: Policy = "binpack"
    conventions: tuple[Literal["own", "gpushare", "hami"], ...] = ("own", "gpushare", "hami")


class ComputeResource(Predicate, Priority, Reserver):
    """Refuses nodes whose devices are too full for the pod, scores the others, and gives devices out at bind time."""

    Arguments = ComputeResourceArgs
    args: ComputeResourceArgs
    devices = uses(DevicePool)

    def filter(self, pod: PendingPod, nodes: Nodes) -> Skip | list[Refusal]:
        """Look for devices on all candidates; where there are too few, say what is wrong with the others."""
        try:
            request = self._request(pod)
        except UNREADABLE:
            return [Refusal(None, BAD_REQUEST, resolvable=False)]
        if request is None:
            return SKIP
        short = ~self._pack(pod, request, nodes, choose=False).fits
        return list(self._explain(pod, request, nodes, short)) if short.any() else []

    def prioritize(self, pod: PendingPod, nodes: Nodes) -> Skip | IntArray:
        """Return how full the chosen devices and their node would be, in percent, or how empty where pods spread."""
        try:
            request = self._request(pod)
        except UNREADABLE:  # every node is refused for it
            return SKIP
        if request is None:
            return SKIP
        packing = self._pack(pod, request, nodes, choose=True)
        fullness = packing.fullness()
        score = MAX_NODE_SCORE - fullness if self._policy(pod, request) == "spread" else fullness
        return np.where(packing.fits, score, 0)

    def reserve(self, pod: PendingPod, node: NodeInfo, now_seconds: float) -> dict[str, str] | Refusal | None:
        """Give the pod devices of ``node``, written as the node's device plug-in reads it."""
        try:
            request = self._request(pod)
        except UNREADABLE:
            return Refusal(None, BAD_REQUEST, resolvable=False)
        if request is None:
            return None
        table = self.devices.table
        row = table.index[node.name]
        nodes = Nodes(table, np.array([row], np.int64))
        packing = self._pack(pod, request, nodes, choose=True)
        if not packing.fits[0]:
            return next(self._explain(pod, request, nodes, ~packing.fits))
        grants = []
        for ask, chosen in zip(request.asks, packing.chosen, strict=True):
            memory, cores = (np.broadcast_to(need, packing.memory.shape)[:, 0] for need in packing.needs(ask))
            places = sorted(chosen[:, 0].tolist())
            grants.append(
                [Grant(self.devices.of(row)[place].id, int(memory[place]), int(cores[place])) for place in places]
            )
        return request.convention.annotate(grants, node, now_seconds)

    def _request(self, pod: PendingPod) -> DeviceRequest | None:
        """Return what the pod asks for, in the first convention in which it asks for anything."""
        for name in self.args.conventions:
            request = CONVENTIONS[name].request(pod)
            if request is not None:
                if pod.annotations.get(POLICY, "binpack") not in get_args(Policy):
                    raise ValueError(f"annotation {POLICY}: {pod.annotations[POLICY]!r} is no policy")
                return request
        return None

    def _policy(self, pod: PendingPod, request: DeviceRequest) -> str:
        return pod.annotations.get(POLICY) or request.policy or self.args.policy

    def _pack(self, pod: PendingPod, request: DeviceRequest, nodes: Nodes, *, choose: bool) -> DevicePacking:
        """Give devices for one ask after the other; for the last one only to ``choose``: no verdict hangs on it."""
        packing = DevicePacking(self.devices, nodes, request, self._policy(pod, request))
        for place, ask in enumerate(request.asks):
            passed = packing.accepted & packing.has_room(ask) & packing.has_memory(ask) & packing.has_compute(ask)
            passed = packing.near(passed, ask)
            if ask.count:
                packing.fits = packing.fits & packing.suffice(passed, ask)
            last = place == len(request.asks) - 1
            if choose or not last:
                packing.give(passed, ask)
            if not last:
                packing.settle()
        return packing

    def _explain(self, pod: PendingPod, request: DeviceRequest, nodes: Nodes, refused: BoolArray) -> Iterator[Refusal]:
        """Say why candidates are refused, each by the first check that it fails.

        What would refuse a node that had no pods comes first: no eviction can help there.
        """
        garbled = refused & (nodes.take(self.devices.convention) == GARBLED)
        if garbled.any():
            yield Refusal(garbled, UNREADABLE_DEVICES, resolvable=False)
        left = refused & ~garbled
        for empty in (True, False):
            packing = DevicePacking(self.devices, nodes, request, self._policy(pod, request), empty=empty)
            packing.fits = left
            for ask in request.asks:
                passed = packing.kind
                for passed, when_empty, when_used in _checks(packing, ask) if ask.count else ():
                    failing = packing.fits & ~packing.suffice(passed, ask)
                    if failing.any():
                        packing.fits = packing.fits & ~failing
                        yield Refusal(failing, when_empty if empty else when_used, resolvable=not empty)
                if ask is not request.asks[-1]:
                    packing.give(passed, ask)
                    packing.settle()
            left = packing.fits


def _checks(packing: DevicePacking, ask: DeviceAsk) -> Iterator[Check]:
    """Return one check after the other, each with the devices that passed it and all before."""
    memory, cores = packing.needs(ask)
    yield packing.kind, NO_DEVICES, NO_FREE_DEVICE
    yield packing.healthy, UNHEALTHY, NO_FREE_DEVICE
    yield (passed := packing.accepted), OTHER_MODEL, NO_FREE_DEVICE
    yield (passed := passed & (packing.memory >= memory)), TOO_LITTLE_MEMORY, NO_FREE_DEVICE
    yield (passed := passed & (packing.cores >= cores)), TOO_LITTLE_COMPUTE, NO_FREE_DEVICE
    yield (passed := passed & packing.has_room(ask)), TOO_FEW, NO_FREE_DEVICE
    yield (passed := passed & packing.has_memory(ask)), TOO_FEW, NO_FREE_MEMORY
    yield (passed := passed & packing.has_compute(ask)), TOO_FEW, NO_FREE_COMPUTE
    yield packing.near(passed, ask), APART, FREE_APART
