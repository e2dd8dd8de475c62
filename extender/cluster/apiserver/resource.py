"""The resources that the embedded API server serves: one line each.

Field labels are those of ``fieldSelector`` besides ``metadata.name`` and ``metadata.namespace``; ``path=value`` names
what an object without the field counts as. Source: the field label conversions of Kubernetes 1.36.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from extender.errors import ConfigurationError


@dataclass(frozen=True, eq=False)
class Resource:
    """One resource: where it is served and what the server must know of its objects.

    ``status`` says that the resource has a status subresource, ``generation`` that its objects count their spec's
    changes. ``blank`` is what an otherwise empty object of the kind has beside its metadata, as it stands in bookmarks.
    """

    plural: str
    kind: str
    group: str = ""
    version: str = "v1"
    namespaced: bool = True
    status: bool = True
    generation: bool = False
    short_names: tuple[str, ...] = ()
    fields: tuple[str, ...] = ()
    blank: str = ""
    selectable: dict[str, int] = field(init=False, repr=False)
    """Field labels and their positions in ``Entry.fields``."""
    paths: tuple[tuple[tuple[str, ...], str], ...] = field(init=False, repr=False)
    """Of each of ``fields`` the steps into the object, and what an object without it counts as."""

    def __post_init__(self) -> None:
        parted = [label.partition("=") for label in self.fields]
        labels = ["metadata.name", "metadata.namespace", *(path for path, _, _ in parted)]
        object.__setattr__(self, "selectable", {label: position for position, label in enumerate(labels)})
        object.__setattr__(self, "paths", tuple((tuple(path.split(".")), absent) for path, _, absent in parted))

    @property
    def api_version(self) -> str:
        """The ``apiVersion`` of the resource's objects."""
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def qualified(self) -> str:
        """The plural with its group, as it stands in messages."""
        return f"{self.plural}.{self.group}" if self.group else self.plural

    def key(self, namespace: str, name: str) -> str:
        """Return where an object is kept: ``namespace/name``, or ``name`` outside namespaces."""
        return f"{namespace}/{name}" if self.namespaced else name


_EVENT_FIELDS = (
    "involvedObject.kind",
    "involvedObject.namespace",
    "involvedObject.name",
    "involvedObject.uid",
    "involvedObject.apiVersion",
    "involvedObject.resourceVersion",
    "involvedObject.fieldPath",
    "reason",
    "reportingComponent",
    "source.component",
    "type",
)
_POD_FIELDS = (
    "spec.nodeName",
    "status.phase",
    "spec.schedulerName",
    "status.nominatedNodeName",
    "spec.serviceAccountName",
    "spec.restartPolicy",
    "spec.hostNetwork=false",
    "status.podIP",
)
_POD_BLANK = '"spec":{"containers":null},"status":{}'
_NODE_BLANK = (
    '"spec":{},"status":{"daemonEndpoints":{"kubeletEndpoint":{"Port":0}},"nodeInfo":{"machineID":"","systemUUID":"",'
    '"bootID":"","kernelVersion":"","osImage":"","containerRuntimeVersion":"","kubeletVersion":"",'
    '"kubeProxyVersion":"","operatingSystem":"","architecture":""}}'
)

BUILTIN: tuple[Resource, ...] = (
    Resource("configmaps", "ConfigMap", status=False, short_names=("cm",)),
    Resource("endpoints", "Endpoints", status=False, short_names=("ep",)),
    Resource("events", "Event", status=False, short_names=("ev",), fields=_EVENT_FIELDS),
    Resource("namespaces", "Namespace", namespaced=False, short_names=("ns",), fields=("status.phase",)),
    Resource(
        "nodes",
        "Node",
        namespaced=False,
        short_names=("no",),
        fields=("spec.unschedulable=false",),
        blank=_NODE_BLANK,
    ),
    Resource("persistentvolumeclaims", "PersistentVolumeClaim", short_names=("pvc",)),
    Resource("persistentvolumes", "PersistentVolume", namespaced=False, short_names=("pv",)),
    Resource("pods", "Pod", generation=True, short_names=("po",), fields=_POD_FIELDS, blank=_POD_BLANK),
    Resource(
        "replicationcontrollers",
        "ReplicationController",
        generation=True,
        short_names=("rc",),
        fields=("status.replicas=0",),
    ),
    Resource("secrets", "Secret", status=False, fields=("type",)),
    Resource("serviceaccounts", "ServiceAccount", status=False, short_names=("sa",)),
    Resource("services", "Service", short_names=("svc",), fields=("spec.clusterIP", "spec.type")),
    Resource("daemonsets", "DaemonSet", "apps", generation=True, short_names=("ds",)),
    Resource("deployments", "Deployment", "apps", generation=True, short_names=("deploy",)),
    Resource("replicasets", "ReplicaSet", "apps", generation=True, short_names=("rs",), fields=("status.replicas=0",)),
    Resource("statefulsets", "StatefulSet", "apps", generation=True, short_names=("sts",)),
    Resource("cronjobs", "CronJob", "batch", generation=True, short_names=("cj",)),
    Resource("jobs", "Job", "batch", generation=True, fields=("status.successful",)),
    Resource("leases", "Lease", "coordination.k8s.io", status=False),
    Resource("events", "Event", "events.k8s.io", status=False, fields=("regarding.name", "reason", "type")),
    Resource("poddisruptionbudgets", "PodDisruptionBudget", "policy", generation=True, short_names=("pdb",)),
    Resource("priorityclasses", "PriorityClass", "scheduling.k8s.io", namespaced=False, status=False),
    Resource("csidrivers", "CSIDriver", "storage.k8s.io", namespaced=False, status=False),
    Resource("csinodes", "CSINode", "storage.k8s.io", namespaced=False, status=False),
    Resource("csistoragecapacities", "CSIStorageCapacity", "storage.k8s.io", status=False),
    Resource("storageclasses", "StorageClass", "storage.k8s.io", namespaced=False, status=False, short_names=("sc",)),
    Resource("volumeattachments", "VolumeAttachment", "storage.k8s.io", namespaced=False),
)


class Catalogue:
    """All resources of one server, found by address, by kind or by name."""

    def __init__(self, extra: Iterable[Resource] = ()) -> None:
        """Take the built-in resources and ``extra`` ones; raise ``ConfigurationError`` for one that is there twice."""
        self._by_address: dict[tuple[str, str, str], Resource] = {}
        self._by_kind: dict[tuple[str, str], Resource] = {}
        self._by_name: dict[str, Resource] = {}
        for resource in (*BUILTIN, *extra):
            address = (resource.group, resource.version, resource.plural)
            if address in self._by_address:
                raise ConfigurationError(f"resource {resource.qualified}: is served already")
            self._by_address[address] = resource
            self._by_kind[resource.api_version, resource.kind] = resource
            self._by_name[resource.qualified] = resource
            self._by_name.setdefault(resource.plural, resource)

    def __iter__(self) -> Iterator[Resource]:
        return iter(self._by_address.values())

    def at(self, group: str, version: str, plural: str) -> Resource | None:
        """Return the resource of an address in the API."""
        return self._by_address.get((group, version, plural))

    def of(self, api_version: str, kind: str) -> Resource | None:
        """Return the resource of an object's ``apiVersion`` and ``kind``."""
        return self._by_kind.get((api_version, kind))

    def named(self, plural: str) -> Resource:
        """Return the resource called ``plural`` or ``plural.group``; raise ``KeyError`` if there is none."""
        return self._by_name[plural]
