"""Whether kube-scheduler itself is run so that the file counts and its calls arrive."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import PurePosixPath

from extender.doctor.api import Api
from extender.doctor.proxy import proxy_for
from extender.registration.entry import Entry, SchedulerConfiguration
from extender.registration.finding import Finding, error, note, warning
from extender.testing.reply import Json

_DEFAULT = "default-scheduler"
_PODS = "/api/v1/namespaces/kube-system/pods"


async def find_schedulers(api: Api, configuration: SchedulerConfiguration) -> list[Json]:
    """Return kube-scheduler's pods as kubeadm labels them, unless the file is for another one. Raises ClusterError."""
    if _DEFAULT not in configuration.scheduler_names:
        return []
    return await api.find(_PODS, {"labelSelector": "component=kube-scheduler"})


def check_schedulers(
    configuration: SchedulerConfiguration, pods: Sequence[Json], environment: Mapping[str, str]
) -> Iterator[Finding]:
    """Yield what is wrong with the ``pods`` of kube-scheduler; without any, what may be, judged by ``environment``."""
    for pod in pods:
        yield from _check_flag(configuration, pod)
        yield from _check_mounts(configuration, pod)
    for entry in configuration.entries:
        yield from _check_name(entry, pods)
        yield from _check_proxy(entry, pods, environment)


def _check_flag(configuration: SchedulerConfiguration, pod: Json) -> Iterator[Finding]:
    flag = configuration.dialect.flag
    container = _container(pod)
    words = [*(container.get("command") or ()), *(container.get("args") or ())]
    if not any(word == flag or word.startswith(f"{flag}=") for word in words):
        yield warning(
            "",
            f"{_name(pod)} runs without {flag}: no file like this one counts",
            f"add {flag} and a mount of the file: scheduler-extender register --kubeadm prints a patch",
        )


def _check_mounts(configuration: SchedulerConfiguration, pod: Json) -> Iterator[Finding]:
    mounts = [PurePosixPath(mount["mountPath"]) for mount in _container(pod).get("volumeMounts") or ()]
    for entry in configuration.entries:
        for key, file in entry.tls.files.items():
            if not any(PurePosixPath(file).is_relative_to(mount) for mount in mounts):
                yield error(
                    f"{entry.path}.tlsConfig.{key}",
                    f"{file} is under no volume of {_name(pod)}: kube-scheduler does not find it",
                    "mount it there: scheduler-extender register --kubeadm prints a patch",
                )


def _check_name(entry: Entry, pods: Sequence[Json]) -> Iterator[Finding]:
    host = ((entry.address and entry.address.hostname) or "").rstrip(".")
    if not (host.endswith(".svc") or ".svc." in host):
        return
    remedy = "use its ClusterIP, or set dnsPolicy: ClusterFirstWithHostNet on the pod of kube-scheduler"
    path = f"{entry.path}.urlPrefix"
    if not pods:
        yield note(path, f"{host} does not resolve on the host's network, where kube-scheduler mostly runs", remedy)
    for pod in pods:
        if pod["spec"].get("hostNetwork") and pod["spec"].get("dnsPolicy") != "ClusterFirstWithHostNet":
            yield error(path, f"{host} does not resolve for {_name(pod)}, which is on the host's network", remedy)


def _check_proxy(entry: Entry, pods: Sequence[Json], environment: Mapping[str, str]) -> Iterator[Finding]:
    address = entry.address
    if address is None:
        return
    places: dict[str, Mapping[str, str]] = {_name(pod): _variables(pod) for pod in pods} or {
        "kube-scheduler, if its environment is like this": environment
    }
    for place, variables in places.items():
        if proxy := proxy_for(address, variables):
            yield warning(
                f"{entry.path}.urlPrefix",
                f"{place} sends these calls through the proxy {proxy}",
                f"add {address.hostname} to NO_PROXY of kube-scheduler",
            )


def _variables(pod: Json) -> dict[str, str]:
    return {variable["name"]: variable.get("value") or "" for variable in _container(pod).get("env") or ()}


def _container(pod: Json) -> Json:
    containers: list[Json] = pod["spec"].get("containers") or [{}]
    return containers[0]


def _name(pod: Json) -> str:
    return f"pod {pod['metadata'].get('namespace')}/{pod['metadata'].get('name')}"
