"""The management port with authentication on, over TLS and on its own thread."""

from __future__ import annotations

import ssl
import threading
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from extender import access
from extender.cluster.apiserver import ServerOptions
from extender.testing import make_node
from extender.testing.cluster import RunningService, running_service
from tests.extender.authority import Authority

AUTHORITY = Authority("servers")
TOKENS = {f"reader-{number}": "prometheus" for number in range(4)} | {"stranger": "stranger"}


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningService]:
    directory: Path = tmp_path_factory.mktemp("access")
    for name, content in zip(("tls.crt", "tls.key"), AUTHORITY.issue("localhost"), strict=True):
        (directory / name).write_bytes(content)
    tls = {"certFile": str(directory / "tls.crt"), "keyFile": str(directory / "tls.key")}
    configuration = {"management": {"tls": tls, "authentication": {"enabled": True}}}
    options = ServerOptions(users=TOKENS, readers={("prometheus", "/metrics")})
    with running_service(nodes=[make_node("n1")], configuration=configuration, options=options) as running:
        yield running


def get(service: RunningService, path: str, token: str = "", method: str = "GET") -> httpx.Response:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(cadata=AUTHORITY.pem.decode())
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    return httpx.request(method, f"{service.management_url}{path}", headers=headers, verify=context, timeout=20)


def test_probes_are_open_and_metrics_are_for_readers(service: RunningService) -> None:
    for path in ("/livez", "/readyz", "/healthz"):
        assert get(service, path).text == "ok"
    assert "scheduler_extender_cache_objects" in get(service, "/metrics", "reader-0").text
    assert get(service, "/metrics", "reader-0", "HEAD").status_code == 200
    assert get(service, "//metrics/", "reader-0").status_code == 200
    assert get(service, "/metrics", "reader-0", "POST").status_code == 403
    for path in ("/metrics", "/metrics/", "//metrics", "/debug/pods", "/nothing"):
        assert get(service, path).status_code == 401
        assert get(service, path, "unknown").status_code == 401
        assert get(service, path, "stranger").status_code == 403


def test_nobody_is_let_in_while_the_loop_of_the_verbs_is_busy(
    service: RunningService, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(access, "_REVIEW_SECONDS", 0.2)
    begun, done = threading.Event(), threading.Event()

    def block() -> None:
        begun.set()
        done.wait(20)

    blocking = threading.Thread(target=service.call, args=(block,))
    blocking.start()
    try:
        assert begun.wait(20)
        assert get(service, "/metrics", "reader-1").status_code == 503
        assert get(service, "/livez").text == "ok"
    finally:
        done.set()
        blocking.join()
    assert get(service, "/metrics", "reader-1").status_code == 200


def test_nobody_is_let_in_while_the_api_server_is_away(service: RunningService) -> None:
    service.call(service.api.stop)
    try:
        response = get(service, "/metrics", "reader-2")
        assert response.status_code == 503
        assert response.text.startswith("the API server cannot be asked whose the token is")
        assert get(service, "/livez").text == "ok"
    finally:
        service.call(service.api.start)
    assert get(service, "/metrics", "reader-2").status_code == 200
