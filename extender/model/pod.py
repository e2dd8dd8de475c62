"""Pods: the one to be placed, and the small records of all others."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from functools import cached_property
from sys import intern
from types import MappingProxyType
from typing import Final
from weakref import WeakValueDictionary

import msgspec

from extender.errors import QuantityError, RequestError
from extender.model.affinity import AffinityTerms, compile_affinity
from extender.model.claim import ClaimUse, claim_uses
from extender.model.kind import object_key
from extender.model.object import (
    Affinity,
    Labels,
    ObjectMeta,
    OwnerReference,
    Pod,
    PodAffinity,
    PodSpec,
    PodStatus,
    Toleration,
    Volume,
    digest,
)
from extender.model.port import HostPort, host_ports
from extender.model.request import PodRequests, nonzero_requests, pod_requests
from extender.model.selector import NodeMatcher, WeightedNodeTerm, compile_node_selector, compile_preferred_terms
from extender.model.spread import DO_NOT_SCHEDULE, SCHEDULE_ANYWAY, SpreadConstraint, compile_spread_constraints

_REMEMBERED_SPECS = 8192

NOT_STARTED = 2**62
"""The start time of a pod that has none: later than any other, as kube-scheduler takes it."""

NO_ANNOTATIONS: Mapping[str, str] = MappingProxyType({})
"""The annotations of a pod that has none of those that are kept; one object for all of them."""

PROBE_UID: Final = "00000000-0000-4000-8000-000000000000"
"""The uid of a pod that exists nowhere, which is asked about to see what the service answers: it gets no events."""


class PodShape(msgspec.Struct, frozen=True, eq=False, weakref=True):
    """What a placed pod takes from its node; shared by all pods that take the same.

    ``requests`` are in millicores for cpu and whole units for everything else. ``nonzero`` is (millicores, bytes) with
    the defaults that scoring assumes for containers that ask for nothing.
    """

    requests: PodRequests
    nonzero: tuple[int, int]
    ports: tuple[HostPort, ...]
    affinity: PodAffinity | None
    anti_affinity: PodAffinity | None
    host_network: bool
    """Whether the pod has the addresses of its node, and none of its own."""


class PodClass(msgspec.Struct, frozen=True, eq=False, weakref=True):
    """Namespace and labels, shared by all pods that have the same."""

    namespace: str
    labels: Labels


class PodInfo(msgspec.Struct, frozen=True, gc=False, eq=False):
    """The record of one pod in the caches; ``node_name`` is empty while it is not placed."""

    key: str
    uid: str
    resource_version: str
    node_name: str
    pod_class: PodClass
    shape: PodShape
    priority: int
    start_seconds: int
    """When the pod started, in seconds since 1970; ``NOT_STARTED`` before."""
    terminating: bool
    nominated_node_name: str
    """The node kept for a pending pod by preemption, or empty."""
    volumes: tuple[Volume, ...]
    """The volumes that can restrict placement; most pods have none."""
    owner: str = ""
    """The uid of the pod's controller, one object for all its pods; empty where it has none."""
    annotations: Mapping[str, str] = NO_ANNOTATIONS
    """Those that a cache declares; most pods have none."""
    making_room: bool = False
    """Whether kube-scheduler is deleting it so that another pod fits."""

    @property
    def name(self) -> str:
        """The pod's name."""
        return self.key.rpartition("/")[2]

    def same_for_scheduling(self, other: PodInfo) -> bool:
        """Say whether the two differ in nothing but their resource version."""
        return (
            self.uid == other.uid
            and self.node_name == other.node_name
            and self.shape is other.shape
            and self.pod_class is other.pod_class
            and self.priority == other.priority
            and self.start_seconds == other.start_seconds
            and self.terminating == other.terminating
            and self.making_room == other.making_room
            and self.nominated_node_name == other.nominated_node_name
            and self.volumes == other.volumes
            and self.owner == other.owner
            and (self.annotations is other.annotations or self.annotations == other.annotations)
        )


class PodReader:
    """Turns decoded pods into records, sharing whatever two pods have in common."""

    def __init__(self) -> None:
        self._shape_of_spec: dict[bytes, PodShape] = {}
        self._shapes: WeakValueDictionary[bytes, PodShape] = WeakValueDictionary()
        self._classes: WeakValueDictionary[bytes, PodClass] = WeakValueDictionary()
        self._kept_names: set[str] = set()
        self._kept_prefixes: tuple[str, ...] = ()
        self.generation = 0
        """Changes when records are read with more annotations than before."""

    def keep(self, patterns: Iterable[str]) -> None:
        """Keep annotations of these names, or with ``*`` at the end, of these prefixes, from now on."""
        wanted = set(patterns)
        names = {name for name in wanted if not name.endswith("*")} - self._kept_names
        prefixes = {name[:-1] for name in wanted if name.endswith("*")} - set(self._kept_prefixes)
        self._kept_names |= names
        self._kept_prefixes += tuple(sorted(prefixes))
        self.generation += bool(names or prefixes)

    def kept(self, annotations: Mapping[str, str] | None) -> Mapping[str, str]:
        """Return those of a pod's annotations that are kept."""
        if not annotations or not (self._kept_names or self._kept_prefixes):
            return NO_ANNOTATIONS
        names = annotations.keys() & self._kept_names
        if self._kept_prefixes:
            names |= {name for name in annotations if name.startswith(self._kept_prefixes)}
        return {intern(name): annotations[name] for name in names} if names else NO_ANNOTATIONS

    def read(self, pod: Pod, node_name: str | None = None) -> PodInfo:
        """Return the record of ``pod``, placed on ``node_name`` where given, else where its spec says.

        Raises:
            QuantityError: a request cannot be read; the message names the pod.
        """
        meta = pod.metadata or ObjectMeta()
        spec, status = pod.spec or PodSpec(), pod.status or PodStatus()
        node = node_name if node_name is not None else spec.node_name or ""
        return PodInfo(
            key=object_key(meta),
            uid=meta.uid or "",
            resource_version=meta.resource_version or "",
            node_name=intern(node),
            pod_class=self._class(meta.namespace or "", meta.labels or {}),
            shape=self._shape(pod),
            priority=spec.priority or 0,
            start_seconds=_seconds(status.start_time),
            terminating=meta.deletion_timestamp is not None,
            nominated_node_name=intern(status.nominated_node_name or "") if not node else "",
            volumes=restricting_volumes(spec),
            owner=owner_of(meta),
            annotations=self.kept(meta.annotations),
            making_room=meta.deletion_timestamp is not None and _is_evicted(status),
        )

    def placed_on(self, info: PodInfo, node_name: str, annotations: Mapping[str, str] = NO_ANNOTATIONS) -> PodInfo:
        """Return the record of a pod as if it were placed on ``node_name`` and ``annotations`` were added to it."""
        added = self.kept(annotations)
        merged = {**info.annotations, **added} if added else info.annotations
        return msgspec.structs.replace(info, node_name=intern(node_name), annotations=merged)

    def _class(self, namespace: str, labels: Labels) -> PodClass:
        key = digest((namespace, labels))
        found = self._classes.get(key)
        if found is None:
            found = self._classes[key] = PodClass(namespace, labels)
        return found

    def _shape(self, pod: Pod) -> PodShape:
        key = digest(_shape_source(pod))
        found = self._shape_of_spec.get(key)
        if found is None:
            found = self._share(read_shape(pod, placed=True))
            if len(self._shape_of_spec) >= _REMEMBERED_SPECS:
                self._shape_of_spec.clear()
            self._shape_of_spec[key] = found
        return found

    def _share(self, shape: PodShape) -> PodShape:
        key = digest(msgspec.structs.astuple(shape))
        return self._shapes.setdefault(key, shape)


def read_shape(pod: Pod, *, placed: bool) -> PodShape:
    """Compute what a pod takes from its node if ``placed``, else what it asks of the node it is to be placed on.

    Raises:
        QuantityError: a request cannot be read; the message names the pod.
    """
    affinity = (pod.spec and pod.spec.affinity) or Affinity()
    try:
        return PodShape(
            pod_requests(pod, placed=placed),
            nonzero_requests(pod, placed=placed),
            host_ports(pod),
            affinity.pod_affinity,
            affinity.pod_anti_affinity,
            _on_host_network(pod),
        )
    except QuantityError as error:
        raise QuantityError(f"pod {object_key(pod.metadata or ObjectMeta())}: {error}") from None


def _shape_source(pod: Pod) -> tuple[object, ...]:
    """Return the parts of a pod that its shape is computed from, and no others that tell pods of one owner apart."""
    spec, status = pod.spec or PodSpec(), pod.status or PodStatus()
    resized = (status.container_statuses, status.init_container_statuses, status.allocated_resources, status.resources)
    resizing = [condition for condition in status.conditions or () if condition.type == "PodResizePending"]
    affinity = spec.affinity and (spec.affinity.pod_affinity, spec.affinity.pod_anti_affinity)
    claimed = (spec.containers, spec.init_containers, spec.overhead, spec.resources)
    return (*claimed, affinity, _on_host_network(pod), resized, resizing)


def _is_evicted(status: PodStatus) -> bool:
    """Say whether kube-scheduler marked a pod as a victim (source: podTerminatingByPreemption of defaultpreemption)."""
    return any(
        each.type == "DisruptionTarget" and each.status == "True" and each.reason == "PreemptionByScheduler"
        for each in status.conditions or ()
    )


def _on_host_network(pod: Pod) -> bool:
    return bool(pod.spec and pod.spec.host_network)


def controller_of(meta: ObjectMeta) -> OwnerReference | None:
    """Return the object that manages another, such as the replica set of a pod."""
    return next((owner for owner in meta.owner_references or () if owner.controller), None)


def owner_of(meta: ObjectMeta) -> str:
    """Return the uid of an object's controller, shared by all it manages; empty where it has none."""
    controller = controller_of(meta)
    return intern((controller and controller.uid) or "")


def restricting_volumes(spec: PodSpec) -> tuple[Volume, ...]:
    """Return the volumes of a pod that can restrict placement: those with a source that is decoded and is no image."""
    return tuple(volume for volume in spec.volumes or () if volume != Volume(name=volume.name, image=volume.image))


def _seconds(timestamp: str | None) -> int:
    if not timestamp:
        return NOT_STARTED
    try:
        return int(datetime.fromisoformat(timestamp).timestamp())
    except ValueError:
        return NOT_STARTED


class PendingPod:
    """The pod that is to be placed, with everything algorithms ask of it parsed once."""

    def __init__(self, pod: Pod) -> None:
        if pod.spec is None:
            raise RequestError("Pod.spec: is missing; send the whole Pod object")
        self.object = pod
        self.spec: PodSpec = pod.spec
        self.metadata = pod.metadata or ObjectMeta()
        self.name = self.metadata.name or ""
        self.namespace = self.metadata.namespace or ""
        self.uid = self.metadata.uid or ""
        self.key = object_key(self.metadata)
        self.labels: Mapping[str, str] = self.metadata.labels or {}
        self.annotations: Mapping[str, str] = self.metadata.annotations or {}
        self.priority = pod.spec.priority or 0
        self.affinity = pod.spec.affinity or Affinity()
        self.tolerations: list[Toleration] = pod.spec.tolerations or []

    @cached_property
    def shape(self) -> PodShape:
        """What the pod would take from a node.

        Raises:
            QuantityError: a request cannot be read; the message names the pod.
        """
        return read_shape(self.object, placed=False)

    @property
    def requests(self) -> PodRequests:
        """Requests by resource: millicores for cpu, whole units for everything else."""
        return self.shape.requests

    @cached_property
    def container_requests(self) -> PodRequests:
        """The same without what is asked for the pod as a whole.

        Raises:
            QuantityError: a request cannot be read.
        """
        if self.spec.resources is None:
            return self.requests
        return pod_requests(self.object, placed=False, pod_level=False)

    @cached_property
    def claims(self) -> tuple[ClaimUse, ...]:
        """The claims among the pod's volumes, in order."""
        return tuple(claim_uses(self.name, self.spec.volumes or ()))

    @cached_property
    def node_matcher(self) -> NodeMatcher:
        """The nodes that the pod's ``nodeSelector`` and required node affinity allow."""
        affinity = self.affinity.node_affinity
        return compile_node_selector(affinity.required if affinity else None, self.spec.node_selector)

    @cached_property
    def preferred_node_terms(self) -> tuple[WeightedNodeTerm, ...] | None:
        """The nodes that the pod prefers, by term; None where it does not say.

        Raises:
            SelectorError: an expression that Kubernetes would refuse; the message names it.
        """
        affinity = self.affinity.node_affinity
        if affinity is None or affinity.preferred is None:
            return None
        return compile_preferred_terms(affinity.preferred)

    @cached_property
    def affinity_terms(self) -> AffinityTerms:
        """The pods that this one is to be near to, or far from."""
        return compile_affinity(self.affinity.pod_affinity, self.affinity.pod_anti_affinity, self.namespace)

    @cached_property
    def required_spread(self) -> tuple[SpreadConstraint, ...]:
        """The topology spread constraints that must be met.

        Raises:
            SelectorError: a selector that Kubernetes would refuse; the message names the expression.
        """
        return compile_spread_constraints(self.spec.topology_spread_constraints, DO_NOT_SCHEDULE, self.labels)

    @cached_property
    def preferred_spread(self) -> tuple[SpreadConstraint, ...]:
        """The topology spread constraints that are only preferred.

        Raises:
            SelectorError: a selector that Kubernetes would refuse; the message names the expression.
        """
        return compile_spread_constraints(self.spec.topology_spread_constraints, SCHEDULE_ANYWAY, self.labels)

    @property
    def controller(self) -> OwnerReference | None:
        """The object that manages the pod, such as its replica set."""
        return controller_of(self.metadata)

    @property
    def owner(self) -> str:
        """The uid of that object; empty where there is none."""
        return owner_of(self.metadata)
