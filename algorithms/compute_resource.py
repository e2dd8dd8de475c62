"""ComputeResource: pods share the devices of a node, and what fits is decided device by device, not by their sum.

What nodes and pods write, and what device plug-ins read, is known to the framework's conventions. Here is what fits,
how good it is, and which devices a pod gets when it is bound.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import Final, Literal, TypeAlias, get_args

import numpy as np

from extender.framework import (
    CONVENTIONS,
    MAX_NODE_SCORE,
    SKIP,
    UNREADABLE,
    Args,
    BoolArray,
    DeviceAsk,
    DeviceKind,
    DevicePacking,
    DevicePool,
    DeviceRequest,
    DeviceSource,
    DeviceTables,
    Field,
    Grant,
    IntArray,
    NodeInfo,
    Nodes,
    NonEmpty,
    PendingPod,
    Predicate,
    Priority,
    Refusal,
    RequestedResources,
    Reserver,
    Skip,
    UnservableRequest,
    check_kinds,
    model_validator,
    uses,
)

POLICY: Final = "scheduler-extender/device-policy"
"""The pod annotation that says how devices are chosen."""

BAD_REQUEST: Final = "pod asks for devices in a way that cannot be read"
"""Why no node will do for a pod with a malformed request; eviction cannot help."""

ASKED_TWICE: Final = "pod asks for devices in more than one way"
"""Why no node will do for a pod that several conventions would serve; eviction cannot help."""

UNREADABLE_DEVICES: Final = "node(s) declared devices in a way that cannot be read"
NO_DEVICES: Final = "node(s) didn't have enough devices of the kind the pod asks for"
UNHEALTHY: Final = "node(s) didn't have enough healthy devices"
OTHER_MODEL: Final = "node(s) didn't have enough devices of the model the pod asks for"
TOO_LITTLE_MEMORY: Final = "node(s) didn't have a device with enough memory"
TOO_LITTLE_COMPUTE: Final = "node(s) didn't have a device with enough compute"
TOO_FEW: Final = "node(s) didn't have enough devices for all containers"
UNTOLD: Final = "node(s) didn't tell which devices are near to each other"
APART: Final = "node(s) didn't have enough devices near to each other"
"""Why a node is refused that would be refused without any pods; eviction cannot help."""

NO_FREE_DEVICE: Final = "node(s) didn't have enough free devices"
NO_FREE_MEMORY: Final = "node(s) didn't have a device with enough free memory"
NO_FREE_COMPUTE: Final = "node(s) didn't have a device with enough free compute"
FREE_APART: Final = "node(s) didn't have enough free devices near to each other"
"""Why a node is refused for what its pods have; eviction can help."""

BUSY: Final = "node's device plug-in has yet to serve the pod that was bound before"
LOCKED: Final = "node is locked by HAMi's own scheduler"
"""Why a pod is not bound to a node just now; kube-scheduler tries again."""

Policy: TypeAlias = Literal["binpack", "spread", "sameNuma", "sameLinkGroup"]
Name: TypeAlias = Literal["own", "gpushare", "hami"]
Check: TypeAlias = tuple[BoolArray, str, str]
"""The devices that pass so far, and why a node with too few of them is refused: an empty one, and one in use."""


class ComputeResourceArgs(Args):
    """How devices are chosen where the pod does not say, and which ways of declaring and asking for them count."""

    policy: Policy = "binpack"
    conventions: NonEmpty[Name] = ("own", "gpushare", "hami")

    resources: dict[str, DeviceKind] = Field(default={})
    """What the devices are that a node has by the number of an extended resource, if it declares none otherwise.

    A pod that asks for the resource gets so many whole devices.
    """

    @model_validator(mode="after")
    def _consistent(self) -> ComputeResourceArgs:
        check_kinds(self.resources, self.conventions)
        return self


class ComputeResource(Predicate, Priority, Reserver):
    """Refuses nodes whose devices are too full for the pod, scores the others, and gives devices out at bind time."""

    Arguments = ComputeResourceArgs
    args: ComputeResourceArgs
    node_local = True
    devices = uses(DevicePool)
    amounts = uses(RequestedResources)

    @cached_property
    def _source(self) -> DeviceSource:
        return DeviceSource(self.devices, self.amounts, self.args.resources)

    def filter(self, pod: PendingPod, nodes: Nodes) -> Skip | list[Refusal]:
        """Look for devices on all candidates; where there are too few, say what is wrong with the others."""
        try:
            request = self._request(pod)
        except UNREADABLE as error:
            return [_refuse(error)]
        if request is None:
            return SKIP
        having = self._source.having(request, nodes)
        refusals = list(self._refuse_others(request, nodes, having))
        if not having.any():
            return refusals or SKIP
        tables, policy = self._source.tables(request, nodes, having), self._policy(pod, request)
        packing = DevicePacking(tables, request, policy)
        if not packing.pack(choose=False).all():
            refusals += [_among(having, refusal) for refusal in _explain(tables, request, policy, ~packing.fits)]
        return refusals

    def prioritize(self, pod: PendingPod, nodes: Nodes) -> Skip | IntArray:
        """Return how full the chosen devices and their node would be, in percent, or how empty where pods spread."""
        try:
            request = self._request(pod)
        except UNREADABLE:  # every node is refused for it
            return SKIP
        if request is None:
            return SKIP
        having = self._source.having(request, nodes)
        if not having.any():
            return SKIP
        tables, policy = self._source.tables(request, nodes, having), self._policy(pod, request)
        packing = DevicePacking(tables, request, policy)
        packing.pack(choose=True)
        fullness = packing.fullness()
        scores: IntArray = np.zeros(len(nodes), np.int64)
        scores[having] = np.where(packing.fits, MAX_NODE_SCORE - fullness if policy == "spread" else fullness, 0)
        return scores

    def reserve(self, pod: PendingPod, node: NodeInfo, now_seconds: float) -> dict[str, str] | Refusal | None:
        """Give the pod devices of ``node``, written as the node's device plug-in reads it."""
        try:
            request = self._request(pod)
        except UNREADABLE as error:
            return _refuse(error)
        if request is None:
            return None
        row = self.devices.table.index[node.name]
        nodes = Nodes(self.devices.table, np.array([row], np.int64))
        having = self._source.having(request, nodes)
        if not having[0]:
            return next(self._refuse_others(request, nodes, having), None)
        tables, policy = self._source.tables(request, nodes, having), self._policy(pod, request)
        packing = DevicePacking(tables, request, policy)
        if not packing.pack(choose=True)[0]:
            return next(_explain(tables, request, policy, ~packing.fits))
        if request.convention.is_locked(node):
            return Refusal(None, LOCKED)
        if request.convention.one_at_a_time and self.devices.is_waiting(row, now_seconds):
            return Refusal(None, BUSY)
        grants = [
            [Grant(self._source.name(row, place), *amounts) for place, *amounts in given]
            for given in packing.given(request.asks)
        ]
        return request.convention.annotate(grants, node, now_seconds)

    def _request(self, pod: PendingPod) -> DeviceRequest | None:
        """Return what the pod asks for.

        Raises:
            ValueError: it cannot be read, or served.
            QuantityError: a quantity cannot be read.
        """
        asked = [request for name in self.args.conventions if (request := CONVENTIONS[name].request(pod)) is not None]
        asked += self._source.requests(pod)
        if not asked:
            return None
        if len(asked) > 1:
            raise UnservableRequest(ASKED_TWICE)
        if pod.annotations.get(POLICY, "binpack") not in get_args(Policy):
            raise ValueError(f"annotation {POLICY}: {pod.annotations[POLICY]!r} is no policy")
        return asked[0]

    def _policy(self, pod: PendingPod, request: DeviceRequest) -> str:
        return pod.annotations.get(POLICY) or request.policy or self.args.policy

    def _refuse_others(self, request: DeviceRequest, nodes: Nodes, having: BoolArray) -> Iterator[Refusal]:
        """Refuse candidates without devices that can be judged, unless they may have what is asked for without any."""
        garbled = self._source.garbled(request, nodes)
        if garbled.any():
            yield Refusal(garbled, UNREADABLE_DEVICES, resolvable=False)
        if not (request.optional or (having | garbled).all()):
            yield Refusal(~having & ~garbled, NO_DEVICES, resolvable=False)


def _refuse(error: Exception) -> Refusal:
    return Refusal(None, str(error) if isinstance(error, UnservableRequest) else BAD_REQUEST, resolvable=False)


def _among(having: BoolArray, refusal: Refusal) -> Refusal:
    """Return a refusal of some of those ``having`` devices as one of candidates."""
    refused: BoolArray = np.zeros(len(having), np.bool_)
    refused[having] = refusal.nodes
    return Refusal(refused, refusal.reason, refusal.resolvable)


def _explain(tables: DeviceTables, request: DeviceRequest, policy: str, refused: BoolArray) -> Iterator[Refusal]:
    """Say why candidates are refused, each by the first check that it fails.

    What would refuse a node that had no pods comes first: no eviction can help there.
    """
    for empty in (True, False):
        packing = DevicePacking(tables, request, policy, empty=empty)
        packing.fits = refused
        for ask, failing in packing.unmet(choose=False):
            left, passed = failing, packing.exists
            for passed, when_empty, when_used in _checks(packing, ask):
                here = left & ~packing.suffice(passed, ask)
                if here.any():
                    left = left & ~here
                    yield Refusal(here, when_empty if empty else when_used, resolvable=not empty)
        refused = packing.fits


def _checks(packing: DevicePacking, ask: DeviceAsk) -> Iterator[Check]:
    """Return one check after the other, each with the devices that passed it and all before."""
    memory, cores = packing.needs(ask)
    yield packing.exists, NO_DEVICES, NO_FREE_DEVICE
    yield packing.healthy, UNHEALTHY, NO_FREE_DEVICE
    yield (passed := packing.accepted), OTHER_MODEL, NO_FREE_DEVICE
    yield (passed := passed & (packing.memory >= memory)), TOO_LITTLE_MEMORY, NO_FREE_DEVICE
    yield (passed := passed & (packing.cores >= cores)), TOO_LITTLE_COMPUTE, NO_FREE_DEVICE
    yield (passed := passed & packing.has_room(ask)), TOO_FEW, NO_FREE_DEVICE
    yield (passed := passed & packing.has_memory(ask)), TOO_FEW, NO_FREE_MEMORY
    yield (passed := passed & packing.has_compute(ask)), TOO_FEW, NO_FREE_COMPUTE
    yield (passed := packing.grouped(passed, ask)), UNTOLD, FREE_APART
    yield packing.near(passed, ask), APART, FREE_APART
