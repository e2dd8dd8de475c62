"""Kubernetes objects, decoded only as far as scheduling needs them.

Every field is optional and accepts ``null``, because Go writes ``null`` for nil slices, maps and pointers. Fields that
are not declared here are skipped by the decoder without being built. Source of the shapes: the Kubernetes API of 1.36,
groups ``core/v1``, ``apps/v1``, ``policy/v1`` and ``storage.k8s.io/v1``.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import Annotated, Any, TypeAlias

import msgspec

Int32: TypeAlias = Annotated[int, msgspec.Meta(ge=-(2**31), le=2**31 - 1)]
"""A number as Kubernetes has it in an int32; others are refused, as they are by its own decoders."""

Int64: TypeAlias = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]
"""The same of an int64."""

Labels: TypeAlias = dict[str, str]
"""Label or annotation names to values."""

ResourceList: TypeAlias = dict[str, str | int | float | None]
"""Resource names to quantities as they stand in JSON: a string, a bare number, or ``null`` for zero."""


class KubernetesObject(msgspec.Struct, gc=False, rename="camel", omit_defaults=True):
    """Root of every decoded struct: camelCase on the wire, no cycle collection, defaults left out when encoded."""


class OwnerReference(KubernetesObject):
    """The object that manages this one."""

    api_version: str | None = None
    kind: str | None = None
    name: str | None = None
    uid: str | None = None
    controller: bool | None = None


class ObjectMeta(KubernetesObject):
    """Identity, labels and annotations of an object."""

    name: str | None = None
    namespace: str | None = None
    uid: str | None = None
    resource_version: str | None = None
    creation_timestamp: str | None = None
    deletion_timestamp: str | None = None
    labels: Labels | None = None
    annotations: Labels | None = None
    owner_references: list[OwnerReference] | None = None


# --- selectors -------------------------------------------------------------------------------------------------------


class Requirement(KubernetesObject):
    """One expression of a label or node selector; operators are those of the API text."""

    key: str | None = None
    operator: str | None = None
    values: list[str] | None = None


class LabelSelector(KubernetesObject):
    """A selector over labels; all of its parts must hold."""

    match_labels: Labels | None = None
    match_expressions: list[Requirement] | None = None


class NodeSelectorTerm(KubernetesObject):
    """One term of a node selector; all of its parts must hold, an empty term matches nothing."""

    match_expressions: list[Requirement] | None = None
    match_fields: list[Requirement] | None = None


class NodeSelector(KubernetesObject):
    """Terms of which at least one must hold."""

    node_selector_terms: list[NodeSelectorTerm] | None = None


class PreferredSchedulingTerm(KubernetesObject):
    """A node selector term with a weight of 1 to 100."""

    weight: Int32 | None = None
    preference: NodeSelectorTerm | None = None


class NodeAffinity(KubernetesObject):
    """Required and preferred node selectors of a pod."""

    required: NodeSelector | None = msgspec.field(name="requiredDuringSchedulingIgnoredDuringExecution", default=None)
    preferred: list[PreferredSchedulingTerm] | None = msgspec.field(
        name="preferredDuringSchedulingIgnoredDuringExecution", default=None
    )


class PodAffinityTerm(KubernetesObject):
    """Pods, by labels and namespaces, that share a topology domain."""

    label_selector: LabelSelector | None = None
    namespaces: list[str] | None = None
    topology_key: str | None = None
    namespace_selector: LabelSelector | None = None
    match_label_keys: list[str] | None = None
    mismatch_label_keys: list[str] | None = None


class WeightedPodAffinityTerm(KubernetesObject):
    """A pod affinity term with a weight of 1 to 100."""

    weight: Int32 | None = None
    pod_affinity_term: PodAffinityTerm | None = None


class PodAffinity(KubernetesObject):
    """Required and preferred terms of pod affinity or of pod anti-affinity."""

    required: list[PodAffinityTerm] | None = msgspec.field(
        name="requiredDuringSchedulingIgnoredDuringExecution", default=None
    )
    preferred: list[WeightedPodAffinityTerm] | None = msgspec.field(
        name="preferredDuringSchedulingIgnoredDuringExecution", default=None
    )


class Affinity(KubernetesObject):
    """All affinities of a pod."""

    node_affinity: NodeAffinity | None = None
    pod_affinity: PodAffinity | None = None
    pod_anti_affinity: PodAffinity | None = None


class TopologySpreadConstraint(KubernetesObject):
    """How evenly the pods of a selector are to lie over topology domains."""

    max_skew: Int32 | None = None
    topology_key: str | None = None
    when_unsatisfiable: str | None = None
    label_selector: LabelSelector | None = None
    min_domains: Int32 | None = None
    node_affinity_policy: str | None = None
    node_taints_policy: str | None = None
    match_label_keys: list[str] | None = None


class Toleration(KubernetesObject):
    """What a pod puts up with; see ``extender.model.toleration``."""

    key: str | None = None
    operator: str | None = None
    value: str | None = None
    effect: str | None = None
    toleration_seconds: Int64 | None = None


# --- volumes of a pod ------------------------------------------------------------------------------------------------


class ClaimSource(KubernetesObject):
    """A reference to a persistent volume claim in the pod's namespace."""

    claim_name: str | None = None
    read_only: bool | None = None


class ClaimSpec(KubernetesObject):
    """What a claim asks for."""

    access_modes: list[str] | None = None
    resources: ResourceRequirements | None = None
    selector: LabelSelector | None = None
    storage_class_name: str | None = None
    volume_name: str | None = None
    volume_mode: str | None = None
    volume_attributes_class_name: str | None = None


class ClaimTemplate(KubernetesObject):
    """The claim an ephemeral volume creates."""

    spec: ClaimSpec | None = None


class EphemeralSource(KubernetesObject):
    """A volume whose claim is made from a template and named ``{pod}-{volume}``."""

    volume_claim_template: ClaimTemplate | None = None


class DiskSource(KubernetesObject):
    """The in-tree disk sources in one shape; which fields are set depends on the kind of disk."""

    pd_name: str | None = None
    volume_id: str | None = msgspec.field(name="volumeID", default=None)
    disk_name: str | None = None
    disk_uri: str | None = msgspec.field(name="diskURI", default=None)
    kind: str | None = None
    target_portal: str | None = None
    iqn: str | None = None
    lun: Int32 | None = None
    monitors: list[str] | None = None
    pool: str | None = None
    image: str | None = None
    read_only: bool | None = None


class CsiSource(KubernetesObject):
    """A volume of a CSI driver, inline in a pod or in a persistent volume."""

    driver: str | None = None
    volume_handle: str | None = None
    read_only: bool | None = None


class ImageSource(KubernetesObject):
    """An image whose files are a volume."""

    reference: str | None = None


class Volume(KubernetesObject):
    """A volume of a pod; only sources that matter for placement are kept."""

    name: str | None = None
    persistent_volume_claim: ClaimSource | None = None
    ephemeral: EphemeralSource | None = None
    gce_persistent_disk: DiskSource | None = None
    aws_elastic_block_store: DiskSource | None = None
    azure_disk: DiskSource | None = None
    iscsi: DiskSource | None = None
    rbd: DiskSource | None = None
    cinder: DiskSource | None = None
    portworx_volume: DiskSource | None = None
    csi: CsiSource | None = None
    image: ImageSource | None = None


# --- pods ------------------------------------------------------------------------------------------------------------


class ContainerPort(KubernetesObject):
    """A port of a container; only ``host_port`` matters for placement."""

    host_port: Int32 | None = None
    container_port: Int32 | None = None
    host_ip: str | None = msgspec.field(name="hostIP", default=None)
    protocol: str | None = None


class ResourceRequirements(KubernetesObject):
    """Requests and limits of a container, a pod or a claim."""

    requests: ResourceList | None = None
    limits: ResourceList | None = None


class Container(KubernetesObject):
    """A container; ``restart_policy: Always`` on an init container makes it a sidecar."""

    name: str | None = None
    image: str | None = None
    ports: list[ContainerPort] | None = None
    resources: ResourceRequirements | None = None
    restart_policy: str | None = None


class SchedulingGate(KubernetesObject):
    """A name that holds a pod back from scheduling."""

    name: str | None = None


class PodSpec(KubernetesObject):
    """What a pod asks for."""

    node_name: str | None = None
    scheduler_name: str | None = None
    containers: list[Container] | None = None
    init_containers: list[Container] | None = None
    overhead: ResourceList | None = None
    resources: ResourceRequirements | None = None
    node_selector: Labels | None = None
    affinity: Affinity | None = None
    tolerations: list[Toleration] | None = None
    topology_spread_constraints: list[TopologySpreadConstraint] | None = None
    volumes: list[Volume] | None = None
    priority: Int32 | None = None
    priority_class_name: str | None = None
    preemption_policy: str | None = None
    host_network: bool | None = None
    scheduling_gates: list[SchedulingGate] | None = None


class ContainerStatus(KubernetesObject):
    """What the kubelet has given a container, for pods resized in place."""

    name: str | None = None
    allocated_resources: ResourceList | None = None
    resources: ResourceRequirements | None = None


class PodCondition(KubernetesObject):
    """A condition of a pod: whether it cannot be resized, which matters for its requests, or makes room for another."""

    type: str | None = None
    status: str | None = None
    reason: str | None = None


class PodStatus(KubernetesObject):
    """Where a pod is in its life."""

    phase: str | None = None
    nominated_node_name: str | None = None
    start_time: str | None = None
    conditions: list[PodCondition] | None = None
    container_statuses: list[ContainerStatus] | None = None
    init_container_statuses: list[ContainerStatus] | None = None
    allocated_resources: ResourceList | None = None
    resources: ResourceRequirements | None = None


class Pod(KubernetesObject):
    """A pod as the API serves it."""

    metadata: ObjectMeta | None = None
    spec: PodSpec | None = None
    status: PodStatus | None = None


# --- nodes -----------------------------------------------------------------------------------------------------------


class Taint(msgspec.Struct, gc=False, rename="camel", omit_defaults=True, frozen=True):
    """A taint of a node; hashable, so that equal taint sets are decided once."""

    key: str | None = None
    value: str | None = None
    effect: str | None = None


class ContainerImage(KubernetesObject):
    """An image a node holds, under each of its names."""

    names: list[str] | None = None
    size_bytes: Int64 | None = None


class NodeSpec(KubernetesObject):
    """What is set on a node by its owner."""

    unschedulable: bool | None = None
    taints: list[Taint] | None = None
    pod_cidrs: list[str] | None = msgspec.field(name="podCIDRs", default=None)


class NodeStatus(KubernetesObject):
    """What a node reports of itself."""

    allocatable: ResourceList | None = None
    capacity: ResourceList | None = None
    images: list[ContainerImage] | None = None


class Node(KubernetesObject):
    """A node as the API serves it."""

    metadata: ObjectMeta | None = None
    spec: NodeSpec | None = None
    status: NodeStatus | None = None


_DIGEST_BYTES = 16


def digest(value: Any) -> bytes:
    """Return a short key for interning: the same for equal values, whatever the order of their mappings.

    That two others have the same is as likely as guessing a random number of 128 bits.
    """
    try:
        text = msgspec.msgpack.encode(value, order="deterministic")
    except OverflowError:  # a quantity may be written as a number of any length
        text = msgspec.json.encode(value, order="deterministic")
    return blake2b(text, digest_size=_DIGEST_BYTES).digest()
