"""What a pod asks of a node, counted as kube-scheduler counts it.

Source of the rules: component-helpers ``resource/helpers.go`` (``PodRequests``), kube-scheduler ``framework/types.go``
(``CalculateResource``), ``plugins/noderesources/fit.go`` and ``resource_allocation.go``, 1.36 with default feature
gates. Sums are exact and rounded once, when a pod or a node is counted.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import TypeAlias

from extender.errors import QuantityError
from extender.model.name import is_qualified_name
from extender.model.node import CPU, EPHEMERAL_STORAGE, LARGEST_AMOUNT, MEMORY
from extender.model.object import (
    Container,
    ContainerStatus,
    Pod,
    PodSpec,
    PodStatus,
    ResourceList,
    ResourceRequirements,
)
from extender.model.quantity import parse, round_to_millis, round_to_units

PodRequests: TypeAlias = Mapping[str, int]
"""What a pod asks for: cpu in millicores, every other resource in whole units; what it does not ask for is absent."""

_HUGE_PAGES = "hugepages-"
_ATTACHABLE_VOLUMES = "attachable-volumes-"
_NATIVE = "kubernetes.io/"
_QUOTA = "requests."
_BASIC = frozenset((CPU, MEMORY, EPHEMERAL_STORAGE))

# What a container without a request is taken to use when nodes are scored (pkg/scheduler/util/pod_resources.go).
_DEFAULT_NANOS = {CPU: parse("100m"), MEMORY: parse("200Mi")}

_EMPTY_STATUS = PodStatus()
_Nanos: TypeAlias = dict[str, int]


def pod_requests(pod: Pod, *, placed: bool, pod_level: bool = True) -> PodRequests:
    """Count the requests of ``pod``: as part of its node's load if ``placed``, else as the pod to find a node for.

    What the kubelet has granted to a pod resized in place counts for placed pods only. Without ``pod_level`` the
    requests of the pod as a whole do not count. Raises ``QuantityError``.
    """
    spec, status = _parts(pod, placed)
    total = _total(spec, status, {}, _pod_level(spec, status) if pod_level else {})
    return {
        name: amount
        for name, nanos in total.items()
        if (name in _BASIC or is_scalar_resource(name)) and (amount := _amount(name, nanos))
    }


def nonzero_requests(pod: Pod, *, placed: bool) -> tuple[int, int]:
    """Count cpu (millicores) and memory (bytes) as scores by used capacity do; ``placed`` as in ``pod_requests``.

    A container without a request counts 100 millicores or 200 MiB; one that asks for zero counts zero. Raises
    ``QuantityError``.
    """
    spec, status = _parts(pod, placed)
    # The scorer of NodeResourcesFit in 1.36 leaves requests of the pod as a whole out for the pod to place.
    pod_level = _pod_level(spec, status) if placed else {}
    defaults = _DEFAULT_NANOS
    if pod_level:
        stated = _total(spec, status, {}, pod_level)
        defaults = {name: nanos for name, nanos in _DEFAULT_NANOS.items() if name not in stated}
    total = _total(spec, status, defaults, pod_level)
    return _amount(CPU, total.get(CPU, 0)), _amount(MEMORY, total.get(MEMORY, 0))


@lru_cache(maxsize=1024)
def is_extended_resource(name: str) -> bool:
    """Tell whether ``name`` is a resource that vendors define: prefixed, and not by ``kubernetes.io``."""
    if "/" not in name or _NATIVE in name or name.startswith(_QUOTA):
        return False
    return is_qualified_name(_QUOTA + name)


def is_scalar_resource(name: str) -> bool:
    """Tell whether kube-scheduler counts ``name`` besides cpu, memory, ephemeral storage and pods."""
    return name.startswith((_HUGE_PAGES, _ATTACHABLE_VOLUMES)) or _NATIVE in name or is_extended_resource(name)


def _parts(pod: Pod, placed: bool) -> tuple[PodSpec, PodStatus]:
    return pod.spec or PodSpec(), (pod.status if placed else None) or _EMPTY_STATUS


def _amount(name: str, nanos: int) -> int:
    amount = round_to_millis(nanos) if name == CPU else round_to_units(nanos)
    return max(-LARGEST_AMOUNT, min(LARGEST_AMOUNT, amount))


def _total(spec: PodSpec, status: PodStatus, defaults: _Nanos, pod_level: _Nanos) -> _Nanos:
    """Return the pod's resources with its overhead.

    Each container that lacks a request is given that of ``defaults``; ``pod_level`` stands in place of the containers.
    """
    total = _total_of_containers(spec, status, defaults)
    total.update(pod_level)
    _add(total, _parse(spec.overhead))
    return total


def _total_of_containers(spec: PodSpec, status: PodStatus, defaults: _Nanos) -> _Nanos:
    """Return what the containers need at their peak.

    That is the sum of containers and sidecars or, where it is more, an init container with the sidecars before it.
    """
    statuses = {
        each.name: each for each in (*(status.container_statuses or ()), *(status.init_container_statuses or ()))
    }
    infeasible = _is_infeasible(status)
    total: _Nanos = {}
    peak: _Nanos = {}
    sidecars: _Nanos = {}
    for container in spec.containers or ():
        _add(total, defaults | _container_requests(container, statuses.get(container.name), infeasible))
    for container in spec.init_containers or ():
        if container.restart_policy == "Always":
            requests = defaults | _container_requests(container, statuses.get(container.name), infeasible)
            _add(total, requests)
            _add(sidecars, requests)
            _raise(peak, sidecars)
        else:
            running = defaults | _container_requests(container, None, infeasible)
            _add(running, sidecars)
            _raise(peak, running)
    _raise(total, peak)
    return total


def _container_requests(container: Container, status: ContainerStatus | None, infeasible: bool) -> _Nanos:
    spec = _parse(container.resources.requests if container.resources else None)
    if status is None or status.resources is None:
        return spec
    return _effective(spec, status.resources, status.allocated_resources, infeasible)


def _effective(
    spec: _Nanos, actuated: ResourceRequirements, allocated: ResourceList | None, infeasible: bool
) -> _Nanos:
    """Return what a container or pod resized in place holds: the most of what was asked for, granted and set.

    What was asked for does not count once the kubelet has found it infeasible.
    """
    held = {} if infeasible else dict(spec)
    _raise(held, _parse(actuated.requests))
    _raise(held, _parse(allocated))
    return held


def _is_infeasible(status: PodStatus) -> bool:
    pending = next((each for each in status.conditions or () if each.type == "PodResizePending"), None)
    return pending is not None and pending.reason == "Infeasible"


def _pod_level(spec: PodSpec, status: PodStatus) -> _Nanos:
    """Return the requests of the pod as a whole, of the kinds that may be made so."""
    requests = _parse(spec.resources.requests if spec.resources else None)
    wanted = {k: v for k, v in requests.items() if k in (CPU, MEMORY) or k.startswith(_HUGE_PAGES)}
    if not wanted or status.resources is None:
        return wanted
    held = _effective(wanted, status.resources, status.allocated_resources, _is_infeasible(status))
    return {name: held.get(name, 0) for name in wanted}


def _parse(resources: ResourceList | None) -> _Nanos:
    """Return quantities as they stand in JSON, where blanks around them are trimmed."""
    parsed = {}
    for name, value in (resources or {}).items():
        try:
            parsed[name] = parse(value.strip() if isinstance(value, str) else value or 0)
        except QuantityError as error:
            raise QuantityError(f"{name}: {error}") from None
    return parsed


def _add(total: _Nanos, more: _Nanos) -> None:
    for name, nanos in more.items():
        total[name] = total.get(name, 0) + nanos


def _raise(ceiling: _Nanos, other: _Nanos) -> None:
    for name, nanos in other.items():
        if name not in ceiling or nanos > ceiling[name]:
            ceiling[name] = nanos
