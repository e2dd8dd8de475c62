"""Manifests and charts as a real API server takes them: every object and field, and what policies say of the pods."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.e2e.control_plane import NAME, ROOT, ControlPlane, control_plane
from tests.e2e.peer import KubeScheduler, delivered
from tests.e2e.process import environment
from tests.extender.deployed import CHART, MANIFESTS, files_of, needs, of_kind, only, pod_of, render, render_chart

pytestmark = [pytest.mark.e2e, needs("kubectl")]

WAYS = {
    "base": MANIFESTS,
    **{name: MANIFESTS / "overlays" / name for name in ("ha", "kubeadm", "second-scheduler")},
    "monitoring": MANIFESTS / "monitoring",
    "kubeadm with monitoring": MANIFESTS / "overlays" / "kubeadm" / "monitoring",
}
MODES = ("service", "ha", "kubeadm", "sidecar")
FOREIGN = "monitoring.coreos.com/"
"""Kinds of the operator of Prometheus, which this API server does not have."""

every_way = pytest.mark.parametrize("way", WAYS)
every_mode = pytest.mark.parametrize("mode", MODES)


@pytest.fixture(scope="module")
def plane(request: pytest.FixtureRequest) -> Iterator[ControlPlane]:
    with control_plane(request) as plane:
        yield plane


def kubectl(plane: ControlPlane, *arguments: str, text: str = "") -> str:
    """Run kubectl as administrator; it must succeed without a warning."""
    done = subprocess.run(
        ["kubectl", f"--kubeconfig={plane.admin_kubeconfig()}", f"--cache-dir={plane.directory}/cache", *arguments],
        input=text,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env=environment(),
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return done.stdout


def admit(plane: ControlPlane, objects: list[dict[str, Any]]) -> int:
    """Have objects looked at as strictly as can be, without keeping them; return how many there were."""
    objects = [item for item in objects if not item["apiVersion"].startswith(FOREIGN)]
    strictly = ("--validate=strict", "--dry-run=server", "--server-side", "--force-conflicts", "--output=name")
    text = json.dumps({"apiVersion": "v1", "kind": "List", "items": objects})
    assert len(kubectl(plane, "apply", *strictly, "--filename=-", text=text).splitlines()) == len(objects)
    return len(objects)


def run_as_pod(plane: ControlPlane, objects: list[dict[str, Any]]) -> None:
    """Have the pod of a Deployment judged by the policies of its namespace, in which pods are restricted."""
    namespace = plane.get(f"/api/v1/namespaces/{NAME}")["metadata"]["labels"]
    assert namespace["pod-security.kubernetes.io/enforce"] == "restricted"
    template = pod_of(objects)
    pod = {"apiVersion": "v1", "kind": "Pod", **template, "metadata": {**template["metadata"], "name": "judged"}}
    created = plane.request("POST", f"/api/v1/namespaces/{NAME}/pods?dryRun=All&fieldValidation=Strict", pod)
    assert created["spec"]["priority"] == 2_000_000_000


def test_a_pod_that_may_do_more_is_not_admitted(plane: ControlPlane) -> None:
    """Or the tests below would prove nothing."""
    objects = render(MANIFESTS)
    for item in containers_of(pod_of(objects)):
        assert item["securityContext"]
    lax = json.loads(json.dumps(objects))
    for item in containers_of(pod_of(lax)):
        del item["securityContext"]
    with pytest.raises(AssertionError, match="violates PodSecurity"):
        run_as_pod(plane, lax)


def containers_of(pod: dict[str, Any]) -> list[dict[str, Any]]:
    return [*pod["spec"].get("initContainers", ()), *pod["spec"]["containers"]]


@every_way
def test_every_object_of_the_manifests_is_admitted(plane: ControlPlane, way: str) -> None:
    objects = render(WAYS[way])
    assert admit(plane, objects)
    if of_kind(objects, "Deployment"):
        run_as_pod(plane, objects)


@needs("helm")
@every_mode
def test_every_object_of_the_chart_is_admitted(plane: ControlPlane, mode: str) -> None:
    values = CHART / "ci" / f"{mode}-values.yaml"
    extra = ("--set", "monitoring.dashboard=true", "--set", "rbac.extraRules[0].apiGroups[0]=apps")
    extra += ("--set", "rbac.extraRules[0].resources[0]=deployments", "--set", "rbac.extraRules[0].verbs[0]=list")
    objects = render_chart("--values", str(values), *extra)
    assert admit(plane, objects)
    run_as_pod(plane, objects)


def test_the_manifests_are_applied_as_readers_are_told(plane: ControlPlane) -> None:
    for _ in ("installed", "applied again"):
        kubectl(
            plane, "apply", f"--filename={MANIFESTS / 'base' / 'namespace.yaml'}", "--server-side", "--force-conflicts"
        )
        kubectl(plane, "apply", f"--kustomize={WAYS['kubeadm']}", "--server-side", "--force-conflicts")
    found = kubectl(plane, "get", f"--namespace={NAME}", "deployments,services,poddisruptionbudgets", "--output=name")
    assert found.split() == [
        f"deployment.apps/{NAME}",
        f"service/{NAME}",
        f"poddisruptionbudget.policy/{NAME}",
    ]
    assert plane.get(f"/api/v1/namespaces/{NAME}/services/{NAME}")["spec"]["clusterIP"] == "10.96.0.42"


# --- what kube-scheduler makes of the files --------------------------------------------------------------------------


def configurations() -> dict[str, str]:
    overlay = files_of(render(MANIFESTS / "overlays" / "second-scheduler"))
    kubeadm = MANIFESTS / "overlays" / "kubeadm" / "control-plane" / "scheduler-extender.yaml"
    return {
        "the root of the project": (ROOT / "scheduler-extender.yaml").read_text(),
        "the second scheduler": overlay["scheduler-configuration.yaml"],
        "kubeadm": kubeadm.read_text(),
    }


@pytest.mark.parametrize("origin", configurations())
def test_kube_scheduler_takes_the_configuration_of(plane: ControlPlane, origin: str) -> None:
    """As it is written, but for the address of the API server and the place of the certificates."""
    document = yaml.safe_load(configurations()[origin])
    for extender in document["extenders"]:
        for key, file in {"caFile": "ca.crt", "certFile": "apiserver.crt", "keyFile": "apiserver.key"}.items():
            if key in extender.get("tlsConfig", {}):
                extender["tlsConfig"][key] = str(plane.directory / file)
    expect_taken(plane, document, origin.rpartition(" ")[2])


@needs("helm")
def test_kube_scheduler_takes_the_configuration_of_the_chart(plane: ControlPlane) -> None:
    objects = render_chart("--values", str(CHART / "ci" / "sidecar-values.yaml"))
    expect_taken(plane, yaml.safe_load(files_of(objects)["scheduler-configuration.yaml"]), "chart")


def expect_taken(plane: ControlPlane, document: dict[str, Any], name: str) -> None:
    """Start kube-scheduler with a configuration, of which it must not complain."""
    scheduler = KubeScheduler(plane, f"scheduler-{name}")
    scheduler.start(document)
    scheduler.program.kill()
    told = scheduler.program.log.read_text()
    assert "Disabling signatures for profile because it has extenders configured" in told
    for complaint in ("deprecat", "strict decoding", "unknown field", "will be removed"):
        assert complaint not in told.lower()


def test_kube_scheduler_refuses_an_unknown_key(plane: ControlPlane) -> None:
    """Or the tests above would prove nothing."""
    document = delivered("http://127.0.0.1:1")
    document["extenders"][0]["nodeCacheCapabel"] = True
    scheduler = KubeScheduler(plane, "scheduler-misspelt")
    with pytest.raises(AssertionError, match="ended at once"):
        scheduler.start(document)
    assert "extenders[0].nodeCacheCapabel" in scheduler.program.log.read_text()


def test_only_what_the_manifests_name_is_there(plane: ControlPlane) -> None:
    """The account is the one that tokens are made for, in the namespace that pods are restricted in."""
    account = only(render(Path(WAYS["base"])), "ServiceAccount")["metadata"]
    assert (account["namespace"], account["name"]) == (NAME, NAME)
    assert plane.account_token()
