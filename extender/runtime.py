"""The service without its ports: everything between the API server's watches and the verbs."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import threading
from collections.abc import AsyncIterator, Iterable
from time import monotonic
from typing import TYPE_CHECKING

from extender.cluster.client import Client
from extender.cluster.connection import Connection
from extender.cluster.event import EventBroadcaster
from extender.cluster.lease import LeaderElection, own_identity, own_namespace
from extender.cluster.reflector import Reflector
from extender.config import ExtenderConfiguration
from extender.framework.mirror import Mirror
from extender.framework.profile import watched_kinds
from extender.framework.registry import Registry
from extender.framework.runner import Profile, Runner
from extender.health import Check, InformerHealth
from extender.informer import Informers
from extender.model.kind import NODES, PODS, Kind
from extender.reload import Reloader
from extender.source import bind_profiles
from extender.telemetry import InformerCollector, InformerSample, Metrics, set_levels
from extender.trial import import_tracing
from extender.verbs.bind import Binder
from extender.verbs.service import Service, Unrecorded

if TYPE_CHECKING:
    from extender.tracing import Tracing

_log = logging.getLogger(__name__)

_TICK_SECONDS = 0.5
_FLUSH_SECONDS = 2.0
"""How long writing the last events may hold up the end."""


class Runtime:
    """Owns the mirror, the informers and the binder; all of them live on one event loop.

    ``configuration`` is the one in force, and ``reloader`` puts others in its place.
    ``loop`` and ``thread_id`` are those that they run on, once ``running`` has begun.
    ``lost`` is set once this replica has led and leads no more: it must end, because its reservations may be outdated.
    """

    def __init__(self, configuration: ExtenderConfiguration, connection: Connection) -> None:
        """Bind the profiles and prepare the informers.

        Raises:
            ConfigurationError: a profile, or the file they come from, cannot be used; all findings at once.
        """
        self.configuration = configuration
        self.metrics = Metrics()
        self.mirror = Mirror()
        self.profiles = bind_profiles(Registry(), self.mirror, configuration)
        self.tracing = self._tracing()
        self.client = Client(connection, observe=self.metrics.api_request)
        self.informers = Informers(self._reflector, watched_kinds(*self.profiles.values()))
        self.health = InformerHealth(
            self.informers.reflectors,
            quiet_seconds=configuration.client_connection.silence_seconds,
            stale_seconds=configuration.cache.stale_seconds,
            error_after_seconds=configuration.cache.error_after_seconds,
        )
        self.loop: asyncio.AbstractEventLoop | None = None
        self.thread_id = 0
        self.lost = asyncio.Event()
        self.identity = configuration.leader_election.identity or own_identity()
        self.election = self._election()
        self.broadcaster = self._broadcaster()
        self.service = self._service()
        self.reloader = Reloader(configuration, self.profiles, self.mirror, self.informers, self._adopt)
        self.reloader.export(self.metrics)
        self.binder = Binder(
            self.service,
            self.client,
            now_seconds=monotonic,
            bind_seconds=configuration.server.deadline_seconds,
            confirm_seconds=configuration.cache.assumed_pod_seconds,
            barred=self.not_leading,
            observer=self.metrics,
        )
        self.stopping = False
        self._last_tick = monotonic()
        self.metrics.watch(InformerCollector(self.samples))
        self.metrics.gauge("assumed_pods", "Pods counted before the watch says so.", lambda: len(self.mirror.assumed))

    @property
    def reflectors(self) -> list[Reflector]:
        """The informers that the service answers from."""
        return self.informers.reflectors

    def _reflector(self, kind: Kind) -> Reflector:
        section = self.configuration.client_connection
        return Reflector(
            kind,
            self.client,
            self.mirror.store(kind),
            page_size=section.page_size,
            silence_seconds=section.silence_seconds,
            observe_lag=self.metrics.event_lag,
            reached=self._rouse,
        )

    def _rouse(self) -> None:
        self.informers.rouse()

    def _service(self) -> Service:
        runners = self._runners(self.profiles)
        return Service(
            self.mirror,
            next(iter(runners.values())),
            self.missing,
            self.broadcaster or Unrecorded(),
            named=runners,
            pass_unmatched=self.configuration.unmatched_scheduler_name == "passThrough",
            exempt=self.configuration.exempt,
            note_passed=self.metrics.passed_through,
        )

    def _runners(self, profiles: dict[str, Profile]) -> dict[str, Runner]:
        return {name: Runner(profile, self.metrics) for name, profile in profiles.items()}

    def _adopt(self, configuration: ExtenderConfiguration, profiles: dict[str, Profile]) -> None:
        """Put another configuration in force, of which nothing differs that needs a restart."""
        runners, log = self._runners(profiles), configuration.log
        self.service.adopt(
            next(iter(runners.values())),
            runners,
            pass_unmatched=configuration.unmatched_scheduler_name == "passThrough",
            exempt=configuration.exempt,
        )
        if log != self.configuration.log:
            set_levels(log.level, log.levels, self.configuration.log.levels)
        self.configuration, self.profiles = configuration, profiles

    def _tracing(self) -> Tracing | None:
        section = self.configuration.tracing
        if not section.enabled:
            return None
        return import_tracing()(section.endpoint, section.sampling_rate_per_million)

    def _election(self) -> LeaderElection | None:
        section = self.configuration.leader_election
        if not section.enabled:
            return None
        election = LeaderElection(
            self.client,
            namespace=section.lease_namespace or own_namespace(),
            name=section.lease_name,
            identity=self.identity,
            lease_seconds=section.lease_duration_seconds,
            renew_seconds=section.renew_deadline_seconds,
            retry_seconds=section.retry_period_seconds,
        )
        self.metrics.gauge("leader", "1 while this replica holds the lease and binds.", lambda: election.leading)
        self.metrics.totals(
            "lease_transitions", "Changes of the holder that were seen.", "", lambda: {"": election.transitions}
        )
        self.metrics.totals("lease_failures", "Attempts at the lease that failed.", "", lambda: {"": election.failures})
        return election

    def _broadcaster(self) -> EventBroadcaster | None:
        section = self.configuration.events
        if not section.enabled:
            return None
        broadcaster = EventBroadcaster(
            self.client,
            instance=self.identity,
            queue_length=section.queue_length,
            per_second=section.per_second,
            burst=section.burst,
        )
        self.metrics.totals("events_written", "Events written.", "operation", lambda: broadcaster.written)
        self.metrics.totals("events_dropped", "Events not written, by why.", "reason", lambda: broadcaster.dropped)
        return broadcaster

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Follow the API server while the caller serves.

        On leaving, binds are finished before the lease is given up, and the last events are written.
        """
        self.loop, self.thread_id = asyncio.get_running_loop(), threading.get_ident()
        self.informers.start()
        tasks = [
            asyncio.create_task(self._tick(), name="tick"),
            asyncio.create_task(self.reloader.mend(), name="mend caches"),
        ]
        if self.broadcaster is not None:
            tasks.append(asyncio.create_task(self.broadcaster.run(), name="events"))
        if self.election is not None:
            tasks.append(asyncio.create_task(self.election.run(lambda: None, self.lost.set), name="leader election"))
        try:
            yield
        finally:
            await self.binder.drain()
            await self.informers.stop()
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            if self.broadcaster is not None:
                await self.broadcaster.flush(_FLUSH_SECONDS)
            await self.client.close()
            if self.tracing is not None:
                await asyncio.to_thread(self.tracing.close)

    # --- health ------------------------------------------------------------------------------------------------------

    def missing(self) -> str:
        """Return why the caches cannot be trusted, or nothing."""
        return self.health.missing()

    def not_leading(self) -> str:
        """Return why nothing may be bound here, or nothing."""
        election = self.election
        if election is None or election.leading:
            return ""
        problem = f": {election.problem}" if election.problem else ""
        return f"not leader (holder {election.holder or 'none'}){problem}"

    def readiness(self) -> Iterable[Check]:
        """Return the checks of ``/readyz``."""
        yield Check("shutdown", "stopping" if self.stopping else "")
        yield self.reloader.check()
        yield self.reloader.check_caches()
        yield from self.health.checks()
        if self.election is not None:
            yield Check("leader", self.not_leading())

    def liveness(self) -> Iterable[Check]:
        """Return the checks of ``/livez``; the API server is not one."""
        idle = monotonic() - self._last_tick
        stuck = idle > self.configuration.management.stuck_seconds
        yield Check("event-loop", f"stuck for {idle:.0f} s" if stuck else "")

    def samples(self) -> list[InformerSample]:
        """Return how each informer fares."""
        return [
            InformerSample(
                resource=reflector.kind.plural,
                objects=self._count(reflector.kind),
                synced=reflector.synced,
                age_seconds=reflector.age_seconds(),
                lists=reflector.lists,
                watches=reflector.watches,
                events=dict(reflector.events),
                failures=dict(reflector.failures),
            )
            for reflector in self.reflectors
        ]

    def _count(self, kind: Kind) -> int:
        if kind == NODES:
            return len(self.mirror.table)
        return len(self.mirror.pods) if kind == PODS else len(self.mirror.objects(kind))

    # --- housekeeping ------------------------------------------------------------------------------------------------

    async def _tick(self) -> None:
        """Expire assumptions, note that the loop turns, and keep the collector off what was synced."""
        gc.disable()  # the first lists build much and drop little
        try:
            frozen = False
            while True:
                self._last_tick = monotonic()
                for info in self.mirror.expire(self._last_tick):
                    self.metrics.expired_assumptions.inc()
                    _log.warning("assumed pod expired", extra={"pod": info.key, "node": info.node_name})
                if not frozen and not self.missing():
                    frozen = True
                    gc.collect()
                    gc.freeze()
                    gc.enable()
                    _log.info("synced", extra={"objects": {s.resource: s.objects for s in self.samples()}})
                await asyncio.sleep(_TICK_SECONDS)
                self.metrics.loop_lag.observe(max(0.0, monotonic() - self._last_tick - _TICK_SECONDS))
        finally:
            gc.enable()
