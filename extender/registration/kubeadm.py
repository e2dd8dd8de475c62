"""A patch of the static pod in which kubeadm runs kube-scheduler: ``kubeadm init --patches DIRECTORY``.

Source: kubeadm's ``phases/controlplane`` (the command and the volumes of kube-scheduler) and ``util/patches``, 1.36.
"""

from __future__ import annotations

import posixpath
from pathlib import PurePosixPath

from extender.errors import ConfigurationError
from extender.registration.commented import render
from extender.registration.request import Request

PATCH_FILE = "kube-scheduler+strategic.yaml"
"""The name by which kubeadm knows what to patch, and how."""

_KUBECONFIG = "/etc/kubernetes/scheduler.conf"
"""What kubeadm mounts of its own."""

_LAST_WITH_OPEN_PORT = 22
"""Up to this minor release kube-scheduler opens a second port, without access control, unless told not to."""


def patch(request: Request) -> str:
    """Return the patch that starts kube-scheduler with the document of ``request``, as YAML.

    Raises:
        ConfigurationError: files of a client certificate lie where a container cannot have them; all findings at once.
    """
    files = {"--cert-file": request.tls.cert_file, "--key-file": request.tls.key_file}
    problems = [
        f"{option}: {file}: its directory, the root of the machine, cannot be mounted into the static pod; "
        "put the file into one of its own, such as /etc/kubernetes/scheduler-extender"
        for option, file in files.items()
        if file and _directory(file) == "/"
    ]
    if problems:
        raise ConfigurationError(problems)
    mounts = _mounts(request)
    container = {
        "name": "kube-scheduler",
        "command": _command(request),
        "volumeMounts": [{"name": name, "mountPath": path, "readOnly": True} for name, (path, _) in mounts.items()],
    }
    volumes = [{"name": name, "hostPath": {"path": path, "type": kind}} for name, (path, kind) in mounts.items()]
    return render({"spec": {"containers": [container], "volumes": volumes}}, _comments(request))


def _command(request: Request) -> list[str]:
    flags = {
        "authentication-kubeconfig": _KUBECONFIG,
        "authorization-kubeconfig": _KUBECONFIG,
        "bind-address": "127.0.0.1",
        request.dialect.flag.removeprefix("--"): request.config_file,
        "leader-elect": "true",
    }
    if request.minor is not None and request.minor <= _LAST_WITH_OPEN_PORT:
        flags["port"] = "0"
    if request.dialect.is_policy:
        flags["kubeconfig"] = request.kubeconfig
    return ["kube-scheduler", *(f"--{flag}={flags[flag]}" for flag in sorted(flags))]


def _mounts(request: Request) -> dict[str, tuple[str, str]]:
    """Return path and type of each volume, by name.

    A mounted file is the one that was there at start. The document and the authority are read at start only; the client
    certificate is followed when it is rotated, so its directory is mounted.
    """
    mounts = {"scheduler-extender-config": (request.config_file, "File")}
    if request.kubeconfig != _KUBECONFIG:
        mounts["scheduler-extender-kubeconfig"] = (request.kubeconfig, "File")
    directories = dict.fromkeys(_directory(file) for file in (request.tls.cert_file, request.tls.key_file) if file)
    for number, directory in enumerate(directories):
        mounts[f"scheduler-extender-client-{number}"] = (directory, "Directory")
    authority = request.tls.ca_file
    if authority and not any(PurePosixPath(authority).is_relative_to(directory) for directory in directories):
        mounts["scheduler-extender-ca"] = (authority, "File")
    return mounts


def _directory(file: str) -> str:
    return posixpath.dirname(posixpath.normpath(f"/{file.lstrip('/')}"))


def _comments(request: Request) -> dict[str, str]:
    gone = (
        "--policy-config-file adds the Policy."
        if request.dialect.is_policy
        else "--config is added; --kubeconfig and the deprecated --kube-api-qps, --kube-api-burst, "
        "--kube-api-content-type and --profiling do not count beside it and are left out: set them in the file."
    )
    return {
        "": f"{PATCH_FILE}: save it by this name, and name its directory to kubeadm init, join or upgrade by "
        "--patches. It changes /etc/kubernetes/manifests/kube-scheduler.yaml on each control-plane machine.",
        "spec.containers[0].command": "A patch replaces the whole command: add the extraArgs of your own. " + gone,
        "spec.volumes": f"Put {request.config_file} on every control-plane machine before: kube-scheduler does not "
        "start without.",
    }
