"""A real control plane on loopback: etcd and kube-apiserver as programs, and what an administrator does with them.

There are no kubelets and no controllers: nodes are objects, pods stay where they are bound, and what controllers would
do at the start, service accounts above all, is left out by flags or done here. Flags are those of Kubernetes 1.36.
"""

from __future__ import annotations

import json
import os
import shutil
import ssl
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat

from tests.e2e.process import Program, free_ports
from tests.extender.authority import Authority

ROOT = Path(__file__).parents[2]
PROGRAMS = ("etcd", "kube-apiserver", "kube-scheduler")
NAME = "kube-scheduler-extender"
ACCOUNT = f"system:serviceaccount:{NAME}:{NAME}"

ADMIN_TOKEN, _SCHEDULER_TOKEN = "e2e-admin-token", "e2e-scheduler-token"
_TOKENS = f"""{ADMIN_TOKEN},admin,admin,"system:masters"
{_SCHEDULER_TOKEN},system:kube-scheduler,system:kube-scheduler,
"""
_AUDIT_POLICY = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived"],
    "rules": [
        {"level": "Metadata", "verbs": ["create"], "resources": [{"group": "", "resources": ["pods/binding"]}]},
        {"level": "None"},
    ],
}
_WITHOUT_CONTROLLERS = ("ServiceAccount", "TaintNodesByCondition")
"""Admission plug-ins that wait for what a controller does: create accounts, take the first taint off a node."""

Json = dict[str, Any]


def assets() -> tuple[Path | None, str]:
    """Return the folder that KUBE_ASSETS names, or None and what is wrong with it."""
    named = os.environ.get("KUBE_ASSETS")
    if not named:
        return None, f"KUBE_ASSETS names no folder with {', '.join(PROGRAMS)}"
    missing = [name for name in PROGRAMS if not os.access(Path(named) / name, os.X_OK)]
    return (None, f"KUBE_ASSETS={named} lacks {', '.join(missing)}") if missing else (Path(named), "")


@contextmanager
def control_plane(request: pytest.FixtureRequest, *apiserver_flags: str) -> Iterator[ControlPlane]:
    """Run a control plane with the account of the manifests; logs are kept where a test fails. Skips without assets."""
    programs, problem = assets()
    if programs is None:
        pytest.skip(problem)
    directory = Path(tempfile.mkdtemp(prefix="extender-e2e-"))
    failed_before = request.session.testsfailed
    reporter = request.config.pluginmanager.getplugin("terminalreporter")
    kept = f"\nthe logs of all programs are kept in {directory}"
    try:
        with ControlPlane(programs, directory, apiserver_flags) as plane:
            for manifest in ("namespace.yaml", "rbac.yaml"):
                plane.apply_manifest(ROOT / "manifests" / "base" / manifest)
            yield plane
    except BaseException:
        reporter.write_line(kept)
        raise
    if request.session.testsfailed > failed_before:
        reporter.write_line(kept)
    else:
        shutil.rmtree(directory)


class ControlPlane:
    """The programs, and an administrator's access to the API server.

    Use as a context manager: on leaving, every program is ended, those that were given to ``own`` first. All files are
    in ``directory``.
    """

    def __init__(self, programs: Path, directory: Path, apiserver_flags: Sequence[str] = ()) -> None:
        self.directory = directory
        self.programs = programs
        self.authority = Authority("e2e")
        self._etcd_port, self._peer_port, self.port = free_ports(3)
        self._write_files()
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        self._context.load_verify_locations(cadata=self.authority.pem.decode())
        self.url = f"https://127.0.0.1:{self.port}"
        self.etcd = self._program("etcd", self._etcd_flags())
        self.apiserver = self._program("kube-apiserver", [*self._apiserver_flags(), *apiserver_flags])
        self._stack = ExitStack()

    def __enter__(self) -> ControlPlane:
        with self._stack:
            self.own(self.etcd)
            self.own(self.apiserver)
            self._client = self._stack.enter_context(
                httpx.Client(
                    base_url=self.url,
                    verify=self._context,
                    headers={"Authorization": f"Bearer {ADMIN_TOKEN}"},
                    timeout=20,
                    trust_env=False,
                )
            )
            self.start_etcd()
            self.start_apiserver()
            self._stack = self._stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def own(self, program: Program) -> Program:
        """End a program together with the control plane."""
        self._stack.callback(program.kill)
        return program

    def start_etcd(self) -> None:
        """Start etcd and wait until it is healthy."""
        url = f"http://127.0.0.1:{self._etcd_port}/health"
        self.etcd.start(lambda: httpx.get(url, trust_env=False).json()["health"] == "true")

    def start_apiserver(self) -> None:
        """Start kube-apiserver and wait until it is ready and has made the namespace that pods go to."""
        self.apiserver.start(lambda: self.is_well() and self.get("/api/v1/namespaces/default"))

    # --- the API server ----------------------------------------------------------------------------------------------

    def request(self, method: str, path: str, body: Any = None, content_type: str = "application/json") -> Json:
        """Send a request as administrator and return the answer, which must be a success."""
        content = None if body is None else json.dumps(body)
        answer = self._client.request(method, path, content=content, headers={"Content-Type": content_type})
        assert answer.is_success, f"{method} {path}: {answer.status_code} {answer.text}"
        found: Json = answer.json()
        return found

    def get(self, path: str) -> Json:
        """Return an object or a list."""
        return self.request("GET", path)

    def text(self, path: str) -> str:
        """Return a page that is no JSON, such as metrics."""
        return self._client.get(path).text

    def is_well(self) -> bool:
        """Say whether the API server is ready."""
        return self.text("/readyz") == "ok"

    def create(self, path: str, item: Mapping[str, Any]) -> Json:
        """Create an object."""
        return self.request("POST", path, dict(item))

    def apply_manifest(self, path: Path) -> None:
        """Create every object of a manifest."""
        for item in yaml.safe_load_all(path.read_text()):
            self.create(_collection(item), item)

    def bindings(self) -> Iterator[Json]:
        """Yield the audit events of all bindings that were asked for, whatever came of them."""
        for line in (self.directory / "audit.log").read_text().splitlines():
            event = json.loads(line)
            if event["objectRef"].get("subresource") == "binding":
                yield event

    # --- access ------------------------------------------------------------------------------------------------------

    def admin_kubeconfig(self) -> Path:
        """Return a kubeconfig of an administrator."""
        return self.kubeconfig("admin", ADMIN_TOKEN)

    def scheduler_kubeconfig(self) -> Path:
        """Return a kubeconfig of kube-scheduler."""
        return self.kubeconfig("scheduler", _SCHEDULER_TOKEN)

    def account_kubeconfig(self) -> Path:
        """Return a kubeconfig of the account that the manifests make."""
        return self.kubeconfig("extender", self.account_token())

    def kubeconfig(self, name: str, token: str) -> Path:
        """Write a kubeconfig for the bearer of a token."""
        path = self.directory / f"{name}.kubeconfig"
        cluster = {"server": self.url, "certificate-authority": str(self.directory / "ca.crt")}
        document = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "e2e", "cluster": cluster}],
            "users": [{"name": name, "user": {"token": token}}],
            "contexts": [{"name": "e2e", "context": {"cluster": "e2e", "user": name}}],
            "current-context": "e2e",
        }
        path.write_text(yaml.safe_dump(document))
        return path

    def account_token(self, name: str = NAME, *, seconds: int = 3600) -> str:
        """Return a token of an account in the namespace of the manifests, as a projected volume would hold it."""
        path = f"/api/v1/namespaces/{NAME}/serviceaccounts/{name}/token"
        request = {
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenRequest",
            "spec": {"expirationSeconds": seconds},
        }
        token: str = self.create(path, request)["status"]["token"]
        return token

    # --- files and flags ---------------------------------------------------------------------------------------------

    def write(self, name: str, content: bytes) -> Path:
        """Write a file that only its owner may read."""
        path = self.directory / name
        path.touch(mode=0o600)
        path.write_bytes(content)
        return path

    def _write_files(self) -> None:
        certificate, key = self.authority.issue("localhost")
        account = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        for name, content in {
            "ca.crt": self.authority.pem,
            "apiserver.crt": certificate,
            "apiserver.key": key,
            "account.key": account.private_bytes(Encoding.PEM, PrivateFormat.TraditionalOpenSSL, NoEncryption()),
            "account.pub": account.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo),
            "tokens.csv": _TOKENS.encode(),
            "audit.yaml": yaml.safe_dump(_AUDIT_POLICY).encode(),
        }.items():
            self.write(name, content)

    def _program(self, name: str, flags: list[str]) -> Program:
        command = [str(self.programs / name), *flags]
        return Program(command, self.directory / f"{name}.log", directory=self.directory)

    def _etcd_flags(self) -> list[str]:
        clients, peers = (f"http://127.0.0.1:{port}" for port in (self._etcd_port, self._peer_port))
        return [
            "--name=e2e",
            f"--data-dir={self.directory}/etcd",
            f"--listen-client-urls={clients}",
            f"--advertise-client-urls={clients}",
            f"--listen-peer-urls={peers}",
            f"--initial-advertise-peer-urls={peers}",
            f"--initial-cluster=e2e={peers}",
        ]

    def _apiserver_flags(self) -> list[str]:
        directory = self.directory
        return [
            f"--etcd-servers=http://127.0.0.1:{self._etcd_port}",
            "--bind-address=127.0.0.1",
            "--advertise-address=127.0.0.1",
            f"--secure-port={self.port}",
            "--endpoint-reconciler-type=none",  # endpoints on loopback are refused
            "--service-cluster-ip-range=10.96.0.0/12",  # kubeadm's own
            f"--cert-dir={directory}",
            f"--tls-cert-file={directory}/apiserver.crt",
            f"--tls-private-key-file={directory}/apiserver.key",
            "--authorization-mode=RBAC",
            f"--token-auth-file={directory}/tokens.csv",
            f"--service-account-issuer={self.url}",
            f"--service-account-key-file={directory}/account.pub",
            f"--service-account-signing-key-file={directory}/account.key",
            f"--disable-admission-plugins={','.join(_WITHOUT_CONTROLLERS)}",
            f"--audit-policy-file={directory}/audit.yaml",
            f"--audit-log-path={directory}/audit.log",
        ]


def _collection(item: Mapping[str, Any]) -> str:
    """Return the path that objects of the kind of ``item`` are created at."""
    group = item["apiVersion"]
    namespace = item["metadata"].get("namespace")
    within = f"/namespaces/{namespace}" if namespace else ""
    return f"/{'apis' if '/' in group else 'api'}/{group}{within}/{item['kind'].lower()}s"
