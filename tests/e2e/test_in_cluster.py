"""The service as a pod: its token in a projected volume that changes, and readers who show tokens of their own."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from extender.cluster.connection import SERVICE_ACCOUNT
from tests.e2e.control_plane import ADMIN_TOKEN, NAME, ControlPlane, control_plane
from tests.e2e.peer import KubeScheduler, Service, delivered
from tests.e2e.process import eventually
from tests.e2e.workload import create_node, create_pod, expect_bound
from tests.extender.deployed import MANIFESTS
from tests.extender.secret_volume import SecretVolume

pytestmark = pytest.mark.e2e

ACCOUNTS = f"/api/v1/namespaces/{NAME}/serviceaccounts"
PODS = f"/api/v1/namespaces/{NAME}/pods"


@pytest.fixture(scope="module")
def plane(request: pytest.FixtureRequest) -> Iterator[ControlPlane]:
    with control_plane(request) as plane:
        create_node(plane, "n0", cpu=64, pods=1000)
        plane.apply_manifest(MANIFESTS / "authentication" / "rbac.yaml")
        yield plane


class Mounted:
    """What the kubelet mounts for a pod of the service's account, and renews."""

    def __init__(self, plane: ControlPlane, volume: SecretVolume) -> None:
        self._plane = plane
        self._volume = volume
        self.pod = ""

    def renew(self, pod: str) -> str:
        """Put a token there that ends with ``pod``, and return it."""
        container = {"name": "main", "image": "x", "securityContext": {"allowPrivilegeEscalation": False}}
        container["securityContext"] |= {"capabilities": {"drop": ["ALL"]}}  # type: ignore[operator]
        context = {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}
        spec = {
            "containers": [container],
            "schedulerName": "nobody",
            "securityContext": context,
            "serviceAccountName": NAME,
            "terminationGracePeriodSeconds": 0,
        }
        holder = self._plane.create(PODS, {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": pod}, "spec": spec})
        reference = {"apiVersion": "v1", "kind": "Pod", "name": pod, "uid": holder["metadata"]["uid"]}
        token = request_token(self._plane, NAME, boundObjectRef=reference)
        self._volume.put(token=token.encode(), ca_crt=self._plane.authority.pem, namespace=NAME.encode())
        self.pod = pod
        return token


def request_token(plane: ControlPlane, account: str, **spec: Any) -> str:
    request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest"}
    request["spec"] = {"expirationSeconds": 600, **spec}  # type: ignore[assignment]
    token: str = plane.create(f"{ACCOUNTS}/{account}/token", request)["status"]["token"]
    return token


@pytest.fixture(scope="module")
def mounted(plane: ControlPlane) -> Iterator[Mounted]:
    """The volume of the account, at the only place where it is looked for."""
    place = SERVICE_ACCOUNT.parent
    if place.exists() or not os.access(place.parents[2], os.W_OK):
        pytest.skip(f"{SERVICE_ACCOUNT} cannot be made here")
    missing = [path for path in (place, *place.parents) if not path.exists()]
    volume = SecretVolume(plane.directory / "volume")
    mounted = Mounted(plane, volume)
    mounted.renew("first")
    place.mkdir(parents=True)
    SERVICE_ACCOUNT.symlink_to(plane.directory / "volume")
    try:
        yield mounted
    finally:
        shutil.rmtree(missing[-1])


@pytest.fixture(scope="module")
def service(plane: ControlPlane, mounted: Mounted) -> Service:
    """The service as in a pod, with certificates on its management port."""
    for name, content in zip(("tls.crt", "tls.key"), plane.authority.issue("localhost"), strict=True):
        plane.write(name, content)
    pair = {"certFile": f"{plane.directory}/tls.crt", "keyFile": f"{plane.directory}/tls.key"}
    variables = {"KUBERNETES_SERVICE_HOST": "127.0.0.1", "KUBERNETES_SERVICE_PORT": str(plane.port)}
    service = Service(plane, environment=variables | {"HOME": str(plane.directory)}, management_scheme="https")
    service.token = ADMIN_TOKEN
    service.start({"management": {"tls": pair, "authentication": {"enabled": True}}})
    KubeScheduler(plane).start(delivered(service.verbs_url))
    return service


def credential_of(plane: ControlPlane, pod: str) -> str:
    """Return which token a pod was bound with."""
    events = (event for event in plane.bindings() if event["objectRef"]["name"] == pod)
    (event,) = (event for event in events if event["responseStatus"]["code"] == 201)
    return str(event["user"]["extra"]["authentication.kubernetes.io/credential-id"][0])


def test_in_a_pod_the_account_of_the_pod_is_used_and_a_renewed_token_taken_over(
    plane: ControlPlane, service: Service, mounted: Mounted
) -> None:
    create_pod(plane, "at-first")
    expect_bound(plane, "at-first")
    mounted.renew("second")
    used = [credential_of(plane, "at-first")]

    def is_renewed() -> bool:
        name = f"renewed-{len(used)}"
        create_pod(plane, name)
        expect_bound(plane, name)
        used.append(credential_of(plane, name))
        return used[-1] != used[0]

    eventually(is_renewed, "the use of the new token", 45)


def test_a_token_that_ends_early_is_replaced_without_a_failure(
    plane: ControlPlane, service: Service, mounted: Mounted
) -> None:
    old = (SERVICE_ACCOUNT / "token").read_text()
    before, ended = service.metric("api_requests_total", code="401"), mounted.pod
    create_pod(plane, "before-the-end")
    expect_bound(plane, "before-the-end")
    mounted.renew("third")
    plane.request("DELETE", f"{PODS}/{ended}?gracePeriodSeconds=0")
    eventually(lambda: status_of(plane, old) == 401, "the end of the old token", 30)
    create_pod(plane, "after-the-end")
    expect_bound(plane, "after-the-end", seconds=5)
    assert credential_of(plane, "after-the-end") != credential_of(plane, "before-the-end")
    assert service.metric("api_requests_total", code="401") >= before


def status_of(plane: ControlPlane, token: str) -> int:
    headers = {"Authorization": f"Bearer {token}"}
    return httpx.get(f"{plane.url}/api", headers=headers, verify=False, trust_env=False).status_code


def test_readers_show_tokens_that_the_api_server_knows_and_lets_read(plane: ControlPlane, service: Service) -> None:
    for name in ("prometheus", "stranger"):
        account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name}}
        plane.create(ACCOUNTS, account)
    binding = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": "prometheus-monitoring"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "system:monitoring"},
        "subjects": [{"kind": "ServiceAccount", "name": "prometheus", "namespace": NAME}],
    }
    plane.create("/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", binding)
    reader, stranger = (plane.account_token(name) for name in ("prometheus", "stranger"))
    eventually(lambda: service.management("metrics", token=reader).status_code == 200, "that the role counts", 20)
    assert service.management("metrics", token=stranger).status_code == 403
    assert service.management("metrics", token="nonsense").status_code == 401
    assert service.management("metrics", token="").status_code == 401
    assert service.management("debug/config", token=reader).status_code == 403
    assert [service.management(probe, token="").status_code for probe in ("livez", "readyz", "healthz")] == [200] * 3
