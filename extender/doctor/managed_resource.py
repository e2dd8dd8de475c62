"""Whether anybody offers, and anybody names, the resources for which an extender is called."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from extender.doctor.api import Api
from extender.registration.entry import SchedulerConfiguration, in_resources, names_resource
from extender.registration.finding import Finding, note, warning
from extender.testing.reply import Json

_UNFINISHED = "status.phase!=Succeeded,status.phase!=Failed"


@dataclass
class Usage:
    """Who offers and who names one resource; ``overlooked`` pods name it where kube-scheduler does not look."""

    nodes: int = 0
    pods: int = 0
    overlooked: list[str] = field(default_factory=list)


@dataclass
class Census:
    """The usage of resources by name; ``is_complete`` is false where the cluster is too large to look at all of it."""

    usage: dict[str, Usage]
    is_complete: bool = True


async def take_census(api: Api, names: Iterable[str]) -> Census:
    """Return who uses the resources of ``names``. Raises ClusterError."""
    census = Census({name: Usage() for name in names})
    if not census.usage:
        return census
    more: object = None
    async for page in api.pages("/api/v1/nodes"):
        for node in page.get("items") or ():
            count_node(census, node)
        more = (page.get("metadata") or {}).get("continue")
    async for page in api.pages("/api/v1/pods", {"fieldSelector": _UNFINISHED}):
        for pod in page.get("items") or ():
            count_pod(census, pod)
        more = (page.get("metadata") or {}).get("continue") or more
    census.is_complete = not more
    return census


def count_node(census: Census, node: Json) -> None:
    """Add a node to a census."""
    for name, quantity in ((node.get("status") or {}).get("allocatable") or {}).items():
        if name in census.usage and quantity != "0":
            census.usage[name].nodes += 1


def count_pod(census: Census, pod: Json) -> None:
    """Add a pod to a census."""
    meta, spec = pod["metadata"], pod.get("spec") or {}
    elsewhere = [spec, *(spec.get("ephemeralContainers") or ())]
    for name, usage in census.usage.items():
        if names_resource(pod, name):
            usage.pods += 1
        elif any(in_resources(part.get("resources"), name) for part in elsewhere):
            usage.overlooked.append(f"{meta.get('namespace')}/{meta.get('name')}")


def check_census(configuration: SchedulerConfiguration, census: Census) -> Iterator[Finding]:
    """Yield what managed resources match nothing, and which pods pass the extender by."""
    if not census.is_complete:
        yield note("", "managedResources: the cluster is too large to look at all nodes and pods; some were left out")
    for entry in configuration.entries:
        for place, resource in enumerate(entry.managed_resources):
            path, usage = f"{entry.path}.managedResources[{place}].name", census.usage[resource.name]
            # A resource that kube-scheduler ignores need not stand on any node.
            if not usage.nodes and not usage.pods and census.is_complete:
                yield warning(
                    path,
                    f"no node offers {resource.name} and no pod names it: the extender is never called",
                    "correct the name, or see that the device plugin runs",
                )
            elif not usage.nodes and not resource.ignored and census.is_complete:
                yield warning(
                    path,
                    f"no node offers {resource.name}, so the pods that name it fit nowhere",
                    "correct the name, or see that the device plugin runs",
                )
            elif not usage.pods:
                yield note(path, f"no pod names {resource.name} now, so the extender is not called")
            if usage.overlooked:
                yield warning(
                    path,
                    f"{len(usage.overlooked)} pods, such as {usage.overlooked[0]}, name {resource.name} only for the "
                    "pod as a whole or in ephemeral containers: they pass the extender by",
                    "name it in the resources of a container",
                )
