"""Whether an extender has to be up for its own pod to be placed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from extender.doctor.api import Api
from extender.registration.entry import Entry, SchedulerConfiguration
from extender.registration.finding import Finding, Severity
from extender.testing.reply import Json

SERVICE_LABEL = "app.kubernetes.io/name=kube-scheduler-extender"
"""What the pods of this service are found by, wherever they are called from."""

_MIRROR = "kubernetes.io/config.mirror"
"""The annotation of static pods, which are placed by no scheduler."""


async def find_pods(api: Api, entry: Entry, *, is_foreign: bool) -> list[Json]:
    """Return the pods behind an extender: those of the Service in its URL, else those that bear this service's label.

    Raises ClusterError.
    """
    service = await _find_service(api, entry)
    selector = (service or {}).get("spec", {}).get("selector") or {}
    if service is not None and selector:
        labels = ",".join(f"{key}={value}" for key, value in sorted(selector.items()))
        return await api.find(f"/api/v1/namespaces/{service['metadata']['namespace']}/pods", {"labelSelector": labels})
    return [] if is_foreign else await api.find("/api/v1/pods", {"labelSelector": SERVICE_LABEL})


async def _find_service(api: Api, entry: Entry) -> Json | None:
    host = ((entry.address and entry.address.hostname) or "").rstrip(".")
    name, _, rest = host.partition(".")
    namespace, _, suffix = rest.partition(".")
    if name and namespace and (suffix == "svc" or suffix.startswith("svc.")):
        found = await api.find(f"/api/v1/namespaces/{namespace}/services", {"fieldSelector": f"metadata.name={name}"})
    elif host.replace(".", "").isdecimal() or ":" in host:
        found = await api.find("/api/v1/services", {"fieldSelector": f"spec.clusterIP={host}"})
    else:
        found = []
    return found[0] if found else None


def check_own_pods(configuration: SchedulerConfiguration, entry: Entry, pods: Sequence[Json]) -> Iterator[Finding]:
    """Yield a finding if the pods behind ``entry`` are placed with its help; a second one that runs mitigates it."""
    if entry.ignorable or not {"filter", "bind"} & entry.verbs.keys():
        return
    placed = [pod for pod in pods if _is_placed_by(configuration, entry, pod)]
    if not placed:
        return
    meta = placed[0]["metadata"]
    running = sum((pod.get("status") or {}).get("phase") == "Running" for pod in pods)
    yield Finding(
        Severity.WARNING if running < 2 else Severity.NOTE,
        f"{entry.path}.ignorable",
        f"pod {meta.get('namespace')}/{meta.get('name')} of this extender is placed with its help: once "
        f"{'it is' if running < 2 else f'all {running} are'} down, nothing places the next one, nor any other pod",
        "give the pod another schedulerName, run it as a static pod, or set ignorable: true or managedResources",
    )


def _is_placed_by(configuration: SchedulerConfiguration, entry: Entry, pod: Json) -> bool:
    if _MIRROR in (pod["metadata"].get("annotations") or {}):
        return False
    if (pod["spec"].get("schedulerName") or "default-scheduler") not in configuration.scheduler_names:
        return False
    return entry.is_interested(pod)
