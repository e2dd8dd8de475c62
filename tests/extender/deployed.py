"""What is deployed, as the API server gets to see it: rendered manifests and charts."""

from __future__ import annotations

import shutil
import subprocess
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any, TypeAlias

import pytest
import yaml

from extender.config import ExtenderConfiguration, load_configuration

Object: TypeAlias = dict[str, Any]

ROOT = Path(__file__).parents[2]
MANIFESTS = ROOT / "manifests"
CHART = ROOT / "charts" / "kube-scheduler-extender"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
NAME = PROJECT["name"]
KUBERNETES = "1.36"

WAYS = {
    "base": MANIFESTS / "base",
    "ha": MANIFESTS / "overlays" / "ha",
    "kubeadm": MANIFESTS / "overlays" / "kubeadm",
    "second-scheduler": MANIFESTS / "overlays" / "second-scheduler",
}


def tool(name: str) -> str | None:
    """Return where a program is: among those that ``make tools`` fetched, or on the path."""
    fetched = ROOT / ".tools" / "bin" / name
    return str(fetched) if fetched.exists() else shutil.which(name)


def needs(name: str) -> pytest.MarkDecorator:
    return pytest.mark.skipif(tool(name) is None, reason=f"{name} is not installed; make tools fetches it")


def documents(text: str) -> list[Object]:
    return [item for item in yaml.safe_load_all(text) if item]


@cache
def render(directory: Path) -> list[Object]:
    """Return the objects of a kustomization."""
    done = subprocess.run(
        [str(tool("kubectl")), "kustomize", str(directory)], capture_output=True, check=True, timeout=60
    )
    return documents(done.stdout.decode())


def helm(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([str(tool("helm")), *arguments], capture_output=True, text=True, timeout=60, check=False)


def render_chart(*options: str, release: str = NAME) -> list[Object]:
    """Return the objects of the chart, released by its own name into a namespace of that name."""
    done = helm("template", release, str(CHART), "--namespace", NAME, "--kube-version", KUBERNETES, *options)
    assert done.returncode == 0, done.stderr
    return documents(done.stdout)


def of_kind(objects: Iterable[Object], kind: str) -> list[Object]:
    return [item for item in objects if item["kind"] == kind]


def only(objects: Iterable[Object], kind: str) -> Object:
    (found,) = of_kind(objects, kind)
    return found


def pod_of(objects: Iterable[Object]) -> Object:
    pod: Object = only(objects, "Deployment")["spec"]["template"]
    return pod


def containers(pod: Mapping[str, Any]) -> dict[str, Object]:
    spec = pod["spec"]
    return {item["name"]: item for item in (*spec.get("initContainers", ()), *spec["containers"])}


def files_of(objects: Iterable[Object]) -> dict[str, str]:
    """Return the files that the pod finds in its configuration's directory."""
    objects = list(objects)
    (volume,) = (item for item in pod_of(objects)["spec"]["volumes"] if item["name"] == "configuration")
    (data,) = (
        item["data"]
        for item in of_kind(objects, "ConfigMap")
        if item["metadata"]["name"] == volume["configMap"]["name"]
    )
    return dict(data)


def configuration_of(objects: Iterable[Object], directory: Path) -> ExtenderConfiguration:
    """Return the service's configuration as it reads it; ``directory`` is for the file."""
    file = directory / "extender-configuration.yaml"
    file.write_text(files_of(objects)[file.name])
    return load_configuration(file, environment={})


def granted(objects: Iterable[Object], kind: str) -> set[tuple[str, str, str]]:
    """Return group, resource and verb of everything that roles of a kind allow."""
    return {right for role in of_kind(objects, kind) for right in _rights(role)}


def _rights(role: Object) -> Iterator[tuple[str, str, str]]:
    for rule in role["rules"]:
        yield from product(rule["apiGroups"], rule["resources"], rule["verbs"])
