"""Namespaces, and the objects that stand for a set of pods: services, controllers and disruption budgets."""

from __future__ import annotations

from extender.model.object import Int32, KubernetesObject, Labels, LabelSelector, ObjectMeta


class Namespace(KubernetesObject):
    """A namespace; its labels are what namespace selectors see."""

    metadata: ObjectMeta | None = None


class ServiceSpec(KubernetesObject):
    """Which pods a service leads to; without a selector, none that are known here."""

    selector: Labels | None = None


class Service(KubernetesObject):
    """A service."""

    metadata: ObjectMeta | None = None
    spec: ServiceSpec | None = None


class ReplicationControllerSpec(KubernetesObject):
    """Which pods a replication controller owns."""

    selector: Labels | None = None
    replicas: Int32 | None = None


class ReplicationController(KubernetesObject):
    """A replication controller."""

    metadata: ObjectMeta | None = None
    spec: ReplicationControllerSpec | None = None


class WorkloadSpec(KubernetesObject):
    """Which pods a replica set or stateful set owns."""

    selector: LabelSelector | None = None
    replicas: Int32 | None = None


class ReplicaSet(KubernetesObject):
    """A replica set."""

    metadata: ObjectMeta | None = None
    spec: WorkloadSpec | None = None


class StatefulSet(KubernetesObject):
    """A stateful set."""

    metadata: ObjectMeta | None = None
    spec: WorkloadSpec | None = None


class PodDisruptionBudgetSpec(KubernetesObject):
    """Which pods a disruption budget protects."""

    selector: LabelSelector | None = None


class PodDisruptionBudgetStatus(KubernetesObject):
    """How many of them may be evicted now; those in ``disrupted_pods`` are counted already."""

    disruptions_allowed: Int32 | None = None
    disrupted_pods: dict[str, str | None] | None = None


class PodDisruptionBudget(KubernetesObject):
    """A pod disruption budget."""

    metadata: ObjectMeta | None = None
    spec: PodDisruptionBudgetSpec | None = None
    status: PodDisruptionBudgetStatus | None = None
