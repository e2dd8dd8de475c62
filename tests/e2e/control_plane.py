"""A real control plane on loopback: etcd, kube-apiserver and kube-scheduler as programs, nothing else.

There are no kubelets and no controllers: nodes are objects, pods stay where they are bound, and what controllers would
do at the start, service accounts above all, is left out by flags or done here. Flags are those of Kubernetes 1.36.
"""

from __future__ import annotations

import json
import os
import ssl
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx
import yaml
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat

from tests.e2e.process import Program, free_ports
from tests.extender.authority import Authority

ROOT = Path(__file__).parents[2]
PROGRAMS = ("etcd", "kube-apiserver", "kube-scheduler")
NAME = "kube-scheduler-extender"
ACCOUNT = f"system:serviceaccount:{NAME}:{NAME}"

_ADMIN_TOKEN, _SCHEDULER_TOKEN = "e2e-admin-token", "e2e-scheduler-token"
_TOKENS = f"""{_ADMIN_TOKEN},admin,admin,"system:masters"
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

_PORTS = ("etcd", "peer", "api", "scheduler", "verbs", "management")

Json = dict[str, Any]


def assets() -> tuple[Path | None, str]:
    """Return the folder that KUBE_ASSETS names, or None and what is wrong with it."""
    named = os.environ.get("KUBE_ASSETS")
    if not named:
        return None, f"KUBE_ASSETS names no folder with {', '.join(PROGRAMS)}"
    missing = [name for name in PROGRAMS if not os.access(Path(named) / name, os.X_OK)]
    return (None, f"KUBE_ASSETS={named} lacks {', '.join(missing)}") if missing else (Path(named), "")


class ControlPlane:
    """The programs, and an administrator's access to the API server.

    Use as a context manager: on leaving, every program is ended. All files are in ``directory``.
    """

    def __init__(self, programs: Path, directory: Path) -> None:
        self.directory = directory
        self._programs = programs
        self._ports = dict(zip(_PORTS, free_ports(len(_PORTS)), strict=True))
        self._authority = Authority("e2e")
        self._write_files()
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        self._context.load_verify_locations(cadata=self._authority.pem.decode())
        self.url = f"https://127.0.0.1:{self._ports['api']}"
        self.verbs_url = f"http://127.0.0.1:{self._ports['verbs']}"
        self.management_url = f"http://127.0.0.1:{self._ports['management']}"
        self.etcd = self._program("etcd", self._etcd_flags())
        self.apiserver = self._program("kube-apiserver", self._apiserver_flags())
        self.scheduler = self._program("kube-scheduler", self._scheduler_flags())
        self.extender = Program(
            [*(sys.executable, "-m", "extender", "serve"), f"--config={directory}/extender.yaml"],
            directory / "extender.log",
            directory=ROOT,
        )
        self.scheduler_mode = ""
        """What kube-scheduler sends: ``names`` of nodes, or whole ``nodes``."""
        self._stack = ExitStack()

    def __enter__(self) -> ControlPlane:
        with self._stack:
            for program in (self.etcd, self.apiserver, self.extender, self.scheduler):
                self._stack.callback(program.stop)
            self._client = self._stack.enter_context(
                httpx.Client(
                    base_url=self.url,
                    verify=self._context,
                    headers={"Authorization": f"Bearer {_ADMIN_TOKEN}"},
                    timeout=10,
                    trust_env=False,
                )
            )
            self.start_etcd()
            self.start_apiserver()
            self._stack = self._stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    # --- programs ----------------------------------------------------------------------------------------------------

    def start_etcd(self) -> None:
        """Start etcd and wait until it is healthy."""
        url = f"http://127.0.0.1:{self._ports['etcd']}/health"
        self.etcd.start(lambda: httpx.get(url, trust_env=False).json()["health"] == "true")

    def start_apiserver(self) -> None:
        """Start kube-apiserver and wait until it is ready and has made the namespace that pods go to."""
        self.apiserver.start(lambda: self.is_well() and self.get("/api/v1/namespaces/default"))

    def start_extender(self, configuration: Mapping[str, Any]) -> None:
        """Start the service with the rights of its manifests and no others, and wait until it is ready."""
        kubeconfig = self._kubeconfig("extender", self._account_token())
        document = {
            "apiVersion": "scheduler-extender/v1",
            "kind": "ExtenderConfiguration",
            "server": {"host": "127.0.0.1", "port": self._ports["verbs"]},
            "management": {"host": "127.0.0.1", "port": self._ports["management"], "debug": True},
            "clientConnection": {"kubeconfig": str(kubeconfig)},
            "log": {"format": "text"},
            **configuration,
        }
        (self.directory / "extender.yaml").write_text(yaml.safe_dump(document))
        self.restart_extender()

    def restart_extender(self) -> None:
        """Start the service as it was configured before, and wait until it is ready."""
        self.extender.start(lambda: self.management("readyz").status_code == 200)

    def start_scheduler(self, mode: str) -> None:
        """Start kube-scheduler with the registration that is delivered, adapted to this place and mode."""
        document = yaml.safe_load((ROOT / "scheduler-extender.yaml").read_text())
        document["clientConnection"]["kubeconfig"] = str(self._kubeconfig("scheduler", _SCHEDULER_TOKEN))
        document["leaderElection"] = {"leaderElect": False}
        document |= {"podInitialBackoffSeconds": 1, "podMaxBackoffSeconds": 2}
        (extender,) = document["extenders"]
        extender["urlPrefix"] = f"{self.verbs_url}/scheduler"
        extender["nodeCacheCapable"] = mode == "names"
        self.scheduler_mode = mode
        (self.directory / "scheduler.yaml").write_text(yaml.safe_dump(document))
        url = f"https://127.0.0.1:{self._ports['scheduler']}/healthz"
        self.scheduler.start(lambda: httpx.get(url, verify=False, trust_env=False).text == "ok")

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

    def is_well(self) -> bool:
        """Say whether the API server is ready."""
        return self._client.get("/readyz").text == "ok"

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

    def management(self, path: str) -> httpx.Response:
        """Return a page of the service's management port."""
        return httpx.get(f"{self.management_url}/{path}", timeout=30, trust_env=False)

    # --- files -------------------------------------------------------------------------------------------------------

    def _write_files(self) -> None:
        certificate, key = self._authority.issue("localhost")
        account = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        files = {
            "ca.crt": self._authority.pem,
            "apiserver.crt": certificate,
            "apiserver.key": key,
            "account.key": account.private_bytes(Encoding.PEM, PrivateFormat.TraditionalOpenSSL, NoEncryption()),
            "account.pub": account.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo),
            "tokens.csv": _TOKENS.encode(),
            "audit.yaml": yaml.safe_dump(_AUDIT_POLICY).encode(),
        }
        for name, content in files.items():
            path = self.directory / name
            path.touch(mode=0o600)
            path.write_bytes(content)

    def _kubeconfig(self, name: str, token: str) -> Path:
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

    def _account_token(self) -> str:
        """Return a token of the account that the manifests make, as the projected volume of a pod would hold it."""
        path = f"/api/v1/namespaces/{NAME}/serviceaccounts/{NAME}/token"
        request = {
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenRequest",
            "spec": {"expirationSeconds": 3600},
        }
        token: str = self.create(path, request)["status"]["token"]
        return token

    # --- flags -------------------------------------------------------------------------------------------------------

    def _program(self, name: str, flags: list[str]) -> Program:
        command = [str(self._programs / name), *flags]
        return Program(command, self.directory / f"{name}.log", directory=self.directory)

    def _etcd_flags(self) -> list[str]:
        clients, peers = (f"http://127.0.0.1:{self._ports[port]}" for port in ("etcd", "peer"))
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
            f"--etcd-servers=http://127.0.0.1:{self._ports['etcd']}",
            "--bind-address=127.0.0.1",
            "--advertise-address=127.0.0.1",
            f"--secure-port={self._ports['api']}",
            "--endpoint-reconciler-type=none",  # endpoints on loopback are refused
            "--service-cluster-ip-range=10.0.0.0/24",
            f"--cert-dir={directory}",
            f"--tls-cert-file={directory}/apiserver.crt",
            f"--tls-private-key-file={directory}/apiserver.key",
            "--authorization-mode=RBAC",
            f"--token-auth-file={directory}/tokens.csv",
            f"--service-account-issuer=https://127.0.0.1:{self._ports['api']}",
            f"--service-account-key-file={directory}/account.pub",
            f"--service-account-signing-key-file={directory}/account.key",
            f"--disable-admission-plugins={','.join(_WITHOUT_CONTROLLERS)}",
            f"--audit-policy-file={directory}/audit.yaml",
            f"--audit-log-path={directory}/audit.log",
        ]

    def _scheduler_flags(self) -> list[str]:
        return [
            f"--config={self.directory}/scheduler.yaml",
            "--bind-address=127.0.0.1",
            f"--secure-port={self._ports['scheduler']}",
        ]


def _collection(item: Mapping[str, Any]) -> str:
    """Return the path that objects of the kind of ``item`` are created at."""
    group = item["apiVersion"]
    namespace = item["metadata"].get("namespace")
    within = f"/namespaces/{namespace}" if namespace else ""
    return f"/{'apis' if '/' in group else 'api'}/{group}{within}/{item['kind'].lower()}s"
