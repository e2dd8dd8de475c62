"""The two sides of the wire as programs beside a control plane: the service, and kube-scheduler."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import httpx
import yaml
from prometheus_client.parser import text_string_to_metric_families

from tests.e2e.control_plane import ROOT, ControlPlane
from tests.e2e.process import Program, eventually, free_ports

PREFIX = "scheduler_extender_"


class Service:
    """One process of the service, with ports, a configuration and a log of its own, and the rights of the manifests."""

    def __init__(
        self,
        plane: ControlPlane,
        name: str = "extender",
        *,
        scheme: str = "http",
        management_scheme: str = "",
        environment: Mapping[str, str] | None = None,
    ) -> None:
        """``environment`` stands in for a kubeconfig: with it the service finds the API server as a pod does.

        ``token`` is what readers of the management port show.
        """
        self.token = ""
        self._plane = plane
        self._in_cluster = environment is not None
        self._verbs, self._management = free_ports(2)
        self.verbs_url = f"{scheme}://127.0.0.1:{self._verbs}"
        self.management_url = f"{management_scheme or scheme}://127.0.0.1:{self._management}"
        self.configuration_file = plane.directory / f"{name}.yaml"
        self.program = plane.own(
            Program(
                [*(sys.executable, "-m", "extender", "serve"), f"--config={self.configuration_file}"],
                plane.directory / f"{name}.log",
                directory=ROOT,
                environment=environment,
            )
        )

    def start(self, configuration: Mapping[str, Any], *, ready: bool = True) -> None:
        """Start the service and wait until it is ready, or alive at least."""
        self.configure(configuration)
        self.restart(ready=ready)

    def configure(self, configuration: Mapping[str, Any]) -> None:
        """Write the configuration that counts from the next start, or the next SIGHUP, on."""
        document = {
            "apiVersion": "scheduler-extender/v1",
            "kind": "ExtenderConfiguration",
            "log": {"format": "text"},
            **configuration,
            "server": {"host": "127.0.0.1", "port": self._verbs, **configuration.get("server", {})},
            "management": {
                "host": "127.0.0.1",
                "port": self._management,
                "debug": True,
                **configuration.get("management", {}),
            },
        }
        if not self._in_cluster:
            kubeconfig = str(self._plane.account_kubeconfig())
            document["clientConnection"] = {**configuration.get("clientConnection", {}), "kubeconfig": kubeconfig}
        self.configuration_file.write_text(yaml.safe_dump(document))

    def restart(self, *, ready: bool = True) -> None:
        """Start the service as it was configured before, and wait until it is ready, or alive at least."""
        probe = "readyz" if ready else "livez"
        self.program.start(lambda: self.management(probe).status_code == 200)

    @property
    def is_ready(self) -> bool:
        """Whether it says that it is ready, and within a second."""
        try:
            return self.management("readyz", seconds=1).status_code == 200
        except httpx.HTTPError:
            return False

    def management(self, path: str, *, token: str | None = None, seconds: float = 30) -> httpx.Response:
        """Return a page of the management port."""
        shown = self.token if token is None else token
        headers = {"Authorization": f"Bearer {shown}"} if shown else {}
        url = f"{self.management_url}/{path}"
        return httpx.get(url, timeout=seconds, trust_env=False, verify=False, headers=headers)

    def metric(self, name: str, **labels: str) -> float:
        """The sum of the series of a metric that have these labels."""
        return sum(self.series(name, **labels))

    def series(self, name: str, **labels: str) -> list[float]:
        """The values of a metric's series that have these labels."""
        text = self.management("metrics").text
        samples = [sample for family in text_string_to_metric_families(text) for sample in family.samples]
        return [
            sample.value
            for sample in samples
            if sample.name == PREFIX + name and labels.items() <= sample.labels.items()
        ]

    def expect_fresh(self, since: float) -> None:
        """Wait until the API server has been heard of by every informer since a moment on ``time.monotonic``."""
        eventually(lambda: max(self.series("cache_age_seconds")) < time.monotonic() - since, "news of every kind")


class KubeScheduler:
    """kube-scheduler with a configuration file."""

    def __init__(self, plane: ControlPlane, name: str = "kube-scheduler") -> None:
        self._plane = plane
        (self._port,) = free_ports(1)
        self._configuration = plane.directory / f"{name}.yaml"
        command = [
            str(plane.programs / "kube-scheduler"),
            f"--config={self._configuration}",
            "--bind-address=127.0.0.1",
            f"--secure-port={self._port}",
            "--leader-elect=false",
        ]
        self.program = plane.own(Program(command, plane.directory / f"{name}.log", directory=plane.directory))

    def start(self, document: Mapping[str, Any]) -> None:
        """Start it with a KubeSchedulerConfiguration in this place: with its own rights, and quick to try again."""
        kubeconfig = str(self._plane.scheduler_kubeconfig())
        quick = {"podInitialBackoffSeconds": 1, "podMaxBackoffSeconds": 2}
        self.start_as_written(yaml.safe_dump({**document, "clientConnection": {"kubeconfig": kubeconfig}, **quick}))

    def start_as_written(self, configuration: str) -> None:
        """Start it with a file as it is."""
        self._configuration.write_text(configuration)
        self.restart()

    def restart(self) -> None:
        """Start it as it was configured before, and wait until it is healthy."""
        url = f"https://127.0.0.1:{self._port}/healthz"
        self.program.start(lambda: httpx.get(url, verify=False, trust_env=False).text == "ok")


def delivered(url: str, *, mode: str = "names", file: Path = ROOT / "scheduler-extender.yaml") -> dict[str, Any]:
    """Return the registration that is delivered, adapted to a service at ``url`` and to what kube-scheduler sends."""
    document: dict[str, Any] = yaml.safe_load(file.read_text())
    (extender,) = document["extenders"]
    extender["urlPrefix"] = f"{url}/scheduler"
    extender["nodeCacheCapable"] = mode == "names"
    return document
