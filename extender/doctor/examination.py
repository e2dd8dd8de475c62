"""One run of the doctor: the file, then every extender it names, then the cluster around them."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TypeVar

from extender.cluster.connection import Connection
from extender.config import ExtenderConfiguration
from extender.doctor.api import Api, refusal
from extender.doctor.greeting import check_greeting
from extender.doctor.managed_resource import check_census, take_census
from extender.doctor.own_pod import check_own_pods, find_pods
from extender.doctor.report import Report
from extender.doctor.right import check_rights
from extender.doctor.sampling import check_requeue, check_sampling
from extender.doctor.scheduler_pod import check_schedulers, find_schedulers
from extender.doctor.target import targets_of
from extender.doctor.visit import Scene, Visit, visit
from extender.errors import ClusterError
from extender.registration.decoding import decode
from extender.registration.entry import Entry, SchedulerConfiguration
from extender.registration.finding import Severity, error, note
from extender.registration.rule import judge
from extender.registration.source import read_source
from extender.testing.reply import Json

_NODES_ASKED_ABOUT = 2
_VICTIMS_A_NODE = 2

T = TypeVar("T")


@dataclass(frozen=True)
class Examination:
    """What to look at; without a ``connection`` what only the API server can tell is left out, and said to be."""

    scheduler_config: Path
    connection: Connection | None = None
    configuration: ExtenderConfiguration = field(default_factory=ExtenderConfiguration)
    extender_urls: list[str] = field(default_factory=list)
    idle_seconds: float = 6.0
    environment: Mapping[str, str] = field(default_factory=lambda: dict(os.environ))

    async def run(self) -> Report:
        """Return all findings. Raises ConfigurationError when the file cannot be read, or an address cannot be used."""
        source = read_source(self.scheduler_config)
        configuration, findings = decode(source.tree)
        report = Report(str(self.scheduler_config), findings=[*source.findings, *findings])
        if configuration is None:
            return report
        report.findings.extend(judge(configuration))
        targets_of(configuration.entries, self.extender_urls)  # a wrong address is told before anything is called
        report.looked_at.append(f"{configuration.dialect.kind} {configuration.dialect.api_version}")
        if self.connection is None:
            missing = "version, clock, rights, nodes and pods"
            report.findings.append(note("", f"not checked for want of an API server: {missing}", "give --kubeconfig"))
            await _Run(self, configuration, report, None).look()
        else:
            async with Api(self.connection) as api:
                await _Run(self, configuration, report, api).look()
        return report


class _Run:
    """The part of an examination that calls others."""

    def __init__(
        self, case: Examination, configuration: SchedulerConfiguration, report: Report, api: Api | None
    ) -> None:
        self._case = case
        self._configuration = configuration
        self._report = report
        self._api = api
        self._add = report.findings.extend

    async def look(self) -> None:
        """Look at everything and add what is found to the report."""
        entries = self._configuration.entries
        scene, number = await self._meet()
        visits = await self._visit(scene)
        self._add(check_sampling(self._configuration, number))
        self._add(check_requeue(self._configuration))
        schedulers: list[Json] = []
        if self._api is not None:
            schedulers = await self._try("kube-scheduler", find_schedulers(self._api, self._configuration)) or []
            await self._inspect(self._api, visits)
        self._add(check_schedulers(self._configuration, schedulers, self._case.environment))
        ours = {f"{entry.path}.preemptVerb" for entry in entries if (met := visits.get(entry.path)) and met.is_ours}
        for place, finding in enumerate(self._report.findings):
            # This service does serve preempt: leaving it out is a mistake then.
            if finding.severity is Severity.NOTE and finding.path in ours:
                self._report.findings[place] = replace(finding, severity=Severity.WARNING)

    async def _meet(self) -> tuple[Scene, int | None]:
        """Greet the API server; return what to ask extenders about, and the number of nodes if it can be told."""
        api = self._api
        if api is None:
            return Scene(), None
        try:
            greeting = await api.greet()
        except ClusterError as problem:
            self._add([error("", f"the API server cannot be asked: {problem}", f"check {api.connection.origin}")])
            self._api = None
            return Scene(), None
        self._report.looked_at.append(f"API server {api.connection.url}, {greeting.version}")
        self._add(check_greeting(greeting, self._configuration.dialect))
        page = await self._try("nodes", api.get("/api/v1/nodes", {"limit": str(_NODES_ASKED_ABOUT)}))
        if page is None:
            return Scene(), None
        items: list[Json] = page.get("items") or []
        pods = {item["metadata"]["name"]: await self._pods_on(api, item["metadata"]["name"]) for item in items}
        for item in (item for group in (items, *pods.values()) for item in group):
            item["metadata"].pop("managedFields", None)
        return Scene(items, pods), len(items) + int((page.get("metadata") or {}).get("remainingItemCount") or 0)

    async def _pods_on(self, api: Api, node: str) -> list[Json]:
        query = {"fieldSelector": f"spec.nodeName={node}", "limit": str(_VICTIMS_A_NODE)}
        page = await self._try("preempt replies about pods", api.get("/api/v1/pods", query))
        items: list[Json] = (page or {}).get("items") or []
        return items

    async def _visit(self, scene: Scene) -> dict[str, Visit]:
        """Call all extenders at once; return what was met at each, by its path in the file."""
        case = self._case
        targets = targets_of(self._configuration.entries, case.extender_urls)
        visits = await asyncio.gather(
            *(
                asyncio.to_thread(visit, target, scene, case.configuration.server, case.idle_seconds)
                for target in targets
            )
        )
        for met in visits:
            self._add(met.findings)
            self._report.looked_at.extend(met.asked)
        return {met.entry.path: met for met in visits}

    async def _inspect(self, api: Api, visits: Mapping[str, Visit]) -> None:
        """Look for what the cluster tells of the extenders."""
        own: list[Json] = []
        for entry in self._configuration.entries:
            met = visits.get(entry.path)
            is_ours = met.is_ours if met else None
            pods = await self._try("pods of the extender", find_pods(api, entry, is_foreign=is_ours is False)) or []
            self._add(check_own_pods(self._configuration, entry, pods))
            own += pods if is_ours is not False else []
        census = await self._try("managedResources", take_census(api, _managed(self._configuration.entries)))
        if census is not None:
            self._add(check_census(self._configuration, census))
        self._add(await self._try("rights", check_rights(api, self._case.configuration, own)) or [])

    async def _try(self, what: str, work: Awaitable[T]) -> T | None:
        """Return what ``work`` brings; where the API server refuses, note what was not checked."""
        try:
            return await work
        except ClusterError as problem:
            self._add([note("", f"{what}: not checked: {refusal(problem)}")])
            return None


def _managed(entries: Iterable[Entry]) -> list[str]:
    return [resource.name for entry in entries for resource in entry.managed_resources]
