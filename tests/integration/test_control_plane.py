"""What manifests/README.md tells an operator to do on a control plane, done."""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import ssl
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from extender.cluster.apiserver import ApiServer, ServerOptions
from extender.testing import make_node, make_pod
from extender.testing.cluster import RunningService, running_service
from tests.extender.deployed import MANIFESTS, NAME, ROOT, needs

KUBEADM = MANIFESTS / "overlays" / "kubeadm"
SCRIPT = KUBEADM / "certificates.sh"
REFUSED = (httpx.ConnectError, httpx.ReadError, httpx.RemoteProtocolError)

needs_openssl = pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl is not installed")


def issue(directory: Path) -> None:
    subprocess.run([str(SCRIPT), str(directory)], check=True, capture_output=True, timeout=60)


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("certificates")
    issue(directory)
    return directory


@pytest.fixture(scope="module")
def service(certificates: Path) -> Iterator[RunningService]:
    """Run what the overlay configures, with the certificates of the script."""
    text = (KUBEADM / "extender-configuration.yaml").read_text()
    configuration = yaml.safe_load(text.replace("/etc/scheduler-extender-tls", str(certificates)))
    for section in ("server", "management"):
        configuration[section]["port"] = 0
    options = ServerOptions(users={"prometheus": "scraper"}, readers=frozenset({("scraper", "/metrics")}))
    with running_service(nodes=[make_node("a")], configuration=configuration, options=options) as running:
        running.until(lambda: not running.runtime.not_leading(), "the lease")
        yield running


def context(certificates: Path, certificate: str = "") -> ssl.SSLContext:
    made = ssl.create_default_context(cafile=str(certificates / "ca.crt"))
    made.verify_flags |= ssl.VERIFY_X509_STRICT
    if certificate:
        made.load_cert_chain(certificates / f"{certificate}.crt", certificates / f"{certificate}.key")
    return made


def registered() -> dict[str, Any]:
    document = yaml.safe_load((KUBEADM / "control-plane" / "scheduler-extender.yaml").read_text())
    extender: dict[str, Any] = document["extenders"][0]
    return extender


def ask(url: str, tls: ssl.SSLContext, name: str = "", **options: Any) -> httpx.Response:
    """Send a request as kube-scheduler does: to an address, and with ``tlsConfig.serverName`` for the certificate."""
    extensions = {"sni_hostname": name or registered()["tlsConfig"]["serverName"]}
    with httpx.Client(verify=tls) as client:
        return client.request(options.pop("method", "GET"), url, extensions=extensions, **options)


def filter_verdict(service: RunningService, tls: ssl.SSLContext) -> Any:
    body = json.dumps({"Pod": make_pod("p"), "NodeNames": ["a"]})
    answer = ask(f"{service.url}/scheduler/filter", tls, method="POST", content=body)
    return answer.json()


@needs_openssl
def test_kube_scheduler_gets_through_with_its_certificate(service: RunningService, certificates: Path) -> None:
    assert filter_verdict(service, context(certificates, "client"))["NodeNames"] == ["a"]


@needs_openssl
@pytest.mark.parametrize("certificate", ["", "tls"], ids=["nobody", "the service itself"])
def test_others_do_not_get_through(service: RunningService, certificates: Path, certificate: str) -> None:
    with pytest.raises(REFUSED):
        filter_verdict(service, context(certificates, certificate))


@needs_openssl
def test_the_certificate_is_for_the_name_that_is_registered(service: RunningService, certificates: Path) -> None:
    url = f"{service.management_url}/livez"
    assert ask(url, context(certificates)).text == "ok"
    with pytest.raises(httpx.ConnectError, match="certificate is not valid for"):
        ask(url, context(certificates), name="elsewhere.svc")


@needs_openssl
def test_metrics_are_for_those_with_a_token(service: RunningService, certificates: Path) -> None:
    url = f"{service.management_url}/metrics"
    assert ask(url, context(certificates)).status_code == 401
    answer = ask(url, context(certificates), headers={"Authorization": "Bearer prometheus"})
    assert "scheduler_extender_certificate_expiry_seconds{" in answer.text


@needs_openssl
def test_the_second_call_renews_under_the_same_authority(tmp_path: Path) -> None:
    issue(tmp_path)
    first = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    assert all(path.stat().st_mode & 0o077 == 0 for path in tmp_path.iterdir())
    issue(tmp_path)
    same = {path.name for path in tmp_path.iterdir() if path.read_bytes() == first[path.name]}
    assert same == {"ca.crt", "ca.key"}
    for certificate in ("tls", "client"):
        context(tmp_path, certificate)  # raises unless certificate and key belong together


def rescue() -> str:
    """Return the commands that bind a pod of the service by hand."""
    section = (MANIFESTS / "README.md").read_text().partition("## When no replica is left")[2]
    (commands,) = re.findall(r"```sh\n(.*?)```", section, re.DOTALL)
    return str(commands)


@needs("kubectl")
async def test_when_no_replica_is_left_one_can_be_placed_by_hand(tmp_path: Path) -> None:
    async with ApiServer([make_node("spare"), make_pod("lost", namespace=NAME)]) as server:
        kubeconfig = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "c", "cluster": {"server": server.url}}],
            "users": [{"name": "u", "user": {}}],
            "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
            "current-context": "x",
        }
        file = tmp_path / "kubeconfig"
        file.write_text(json.dumps(kubeconfig))
        assert "node=NAME" in rescue()
        process = await asyncio.create_subprocess_exec(
            *("sh", "-e", "-c", rescue().replace("node=NAME", "node=spare")),
            env={"PATH": os.environ["PATH"], "HOME": str(tmp_path), "KUBECONFIG": str(file)},
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        async with asyncio.timeout(30):
            output, _ = await process.communicate()
        assert process.returncode == 0, output.decode()
        assert server.storage.get("pods", "lost", NAME)["spec"]["nodeName"] == "spare"


def test_every_file_that_the_guides_name_exists() -> None:
    guide = (MANIFESTS / "README.md").read_text()
    for target in re.findall(r"\]\(([^)#:]+)\)", guide):
        assert (MANIFESTS / target).exists(), target
    for text in (guide, (ROOT / "README.md").read_text()):
        for target in re.findall(r"(?<![\w/-])manifests/[\w./-]+", text):
            assert (ROOT / target).exists(), target
    for target in re.findall(r"control-plane/[\w./+-]+", guide):
        assert (KUBEADM / target).exists(), target
