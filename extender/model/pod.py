"""Pods: the one to be placed, and the small records of all others."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from sys import intern
from weakref import WeakValueDictionary

import msgspec

from extender.errors import QuantityError, RequestError
from extender.model.kind import object_key
from extender.model.object import Affinity, ObjectMeta, Pod, PodSpec, PodStatus, Toleration, encode_canonical
from extender.model.port import HostPort, host_ports
from extender.model.request import PodRequests, nonzero_requests, pod_requests

_REMEMBERED_SPECS = 8192


class PodShape(msgspec.Struct, frozen=True, eq=False, weakref=True):
    """What a placed pod takes from its node; shared by all pods that take the same.

    ``requests`` are in millicores for cpu and whole units for everything else. ``nonzero`` is (millicores, bytes) with
    the defaults that scoring assumes for containers that ask for nothing.
    """

    requests: PodRequests
    nonzero: tuple[int, int]
    ports: tuple[HostPort, ...]


class PodClass(msgspec.Struct, frozen=True, eq=False, weakref=True):
    """Namespace and labels, shared by all pods that have the same."""

    namespace: str
    labels: Mapping[str, str]


class PodInfo(msgspec.Struct, frozen=True, gc=False, eq=False):
    """The record of one pod in the caches; ``node_name`` is empty while it is not placed."""

    key: str
    uid: str
    resource_version: str
    node_name: str
    pod_class: PodClass
    shape: PodShape

    def same_for_scheduling(self, other: PodInfo) -> bool:
        """Say whether the two differ in nothing but their resource version."""
        return (
            self.uid == other.uid
            and self.node_name == other.node_name
            and self.shape is other.shape
            and self.pod_class is other.pod_class
        )


class PodReader:
    """Turns decoded pods into records, sharing whatever two pods have in common."""

    def __init__(self) -> None:
        self._shape_of_spec: dict[bytes, PodShape] = {}
        self._shapes: WeakValueDictionary[bytes, PodShape] = WeakValueDictionary()
        self._classes: WeakValueDictionary[bytes, PodClass] = WeakValueDictionary()

    def read(self, pod: Pod, node_name: str | None = None) -> PodInfo:
        """Return the record of ``pod``, placed on ``node_name`` where given, else where its spec says.

        Raises:
            QuantityError: a request cannot be read; the message names the pod.
        """
        meta = pod.metadata or ObjectMeta()
        node = node_name if node_name is not None else (pod.spec and pod.spec.node_name) or ""
        return PodInfo(
            key=object_key(meta),
            uid=meta.uid or "",
            resource_version=meta.resource_version or "",
            node_name=intern(node),
            pod_class=self._class(meta.namespace or "", meta.labels or {}),
            shape=self._shape(pod),
        )

    @staticmethod
    def placed_on(info: PodInfo, node_name: str) -> PodInfo:
        """Return the record of a pod as if it were placed on ``node_name``."""
        return msgspec.structs.replace(info, node_name=intern(node_name))

    def _class(self, namespace: str, labels: Mapping[str, str]) -> PodClass:
        key = encode_canonical((namespace, labels))
        found = self._classes.get(key)
        if found is None:
            found = self._classes[key] = PodClass(namespace, labels)
        return found

    def _shape(self, pod: Pod) -> PodShape:
        key = encode_canonical(_shape_source(pod))
        found = self._shape_of_spec.get(key)
        if found is None:
            found = self._share(read_shape(pod, placed=True))
            if len(self._shape_of_spec) >= _REMEMBERED_SPECS:
                self._shape_of_spec.clear()
            self._shape_of_spec[key] = found
        return found

    def _share(self, shape: PodShape) -> PodShape:
        return self._shapes.setdefault(encode_canonical((shape.requests, shape.nonzero, shape.ports)), shape)


def read_shape(pod: Pod, *, placed: bool) -> PodShape:
    """Compute what a pod takes from its node if ``placed``, else what it asks of the node it is to be placed on.

    Raises:
        QuantityError: a request cannot be read; the message names the pod.
    """
    try:
        return PodShape(pod_requests(pod, placed=placed), nonzero_requests(pod, placed=placed), host_ports(pod))
    except QuantityError as error:
        raise QuantityError(f"pod {object_key(pod.metadata or ObjectMeta())}: {error}") from None


def _shape_source(pod: Pod) -> tuple[object, ...]:
    """Return the parts of a pod that its shape is computed from, and no others that tell pods of one owner apart."""
    spec, status = pod.spec or PodSpec(), pod.status or PodStatus()
    resized = (status.container_statuses, status.init_container_statuses, status.allocated_resources, status.resources)
    resizing = [condition for condition in status.conditions or () if condition.type == "PodResizePending"]
    return (spec.containers, spec.init_containers, spec.overhead, spec.resources, resized, resizing)


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
