"""A configuration that changes while the service runs: checked, built beside the one in force, and swapped in.

::

    file or SIGHUP ──> load ──> bind on an empty mirror ──> list new kinds ──> build new caches ──> swap
                         └────────────┴────────────────────────┴──────────────────> the last good one stays

Requests are answered all the while: caches are built in short steps, and the swap comes between two requests. What
nobody uses any more is dropped after it.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from extender.cluster.backoff import Backoff
from extender.config import ExtenderConfiguration, read_configuration
from extender.errors import FAULTS, CacheError, ConfigurationError
from extender.framework.cache import Cache
from extender.framework.mirror import Mirror
from extender.framework.profile import readers, rebind, used_caches, watched_kinds
from extender.framework.registry import Registry
from extender.framework.runner import Profile
from extender.health import Check
from extender.informer import Informers
from extender.model.kind import PODS, Kind
from extender.source import bind_sourced
from extender.telemetry import Metrics
from extender.trial import bind_to_nothing, find_faults

_log = logging.getLogger(__name__)

RETRY_SECONDS: Final = 60.0
"""After so long what could not be used is tried once more, since the fault may lie outside the files."""
MEND_SECONDS: Final = 1.0
"""About so long after a cache broke it is built anew, and after twice as long each time that it breaks again."""
LONGEST_MEND_SECONDS: Final = 300.0
_LOOK_SECONDS: Final = 0.5
_SETTLE_SECONDS: Final = 0.2
_MOST_READINGS: Final = 50
_POLL_SECONDS: Final = 0.02
_TAKEN_OVER: Final = ("profiles", "algorithm_source", "unmatched_scheduler_name", "exempt", "reload")
"""What takes effect at once; of ``log``, the levels do."""

Adopt = Callable[[ExtenderConfiguration, dict[str, Profile]], None]


class ConfigurationSource:
    """Where the configuration is read: a file, those that it names, and what variables and flags set over it."""

    def __init__(
        self, path: Path | None, *, environment: Mapping[str, str] | None = None, settings: Sequence[str] = ()
    ) -> None:
        self._path = path
        self._environment = environment
        self._settings = settings
        self._own = [path] if path else []
        self._files = list(self._own)
        self._used: dict[Path, bytes | None] = {}

    def load(self) -> ExtenderConfiguration:
        """Return the configuration as it is now, having tried it.

        Raises:
            ConfigurationError: it cannot be used; all findings at once, those about algorithms and certificates too.
        """
        self._used = self.read()  # each file before it is used: what changes meanwhile is a change
        configuration, problems = read_configuration(self._path, environment=self._environment, settings=self._settings)
        source = configuration.algorithm_source
        named = [Path(file) for file in (source.policy_file, source.scheduler_configuration_file) if file]
        self._files = [*self._own, *named]
        self._used = self.read() | {path: self._used[path] for path in self._own}
        problems += find_faults(configuration)
        if problems:
            raise ConfigurationError(problems)
        return configuration

    def read(self) -> dict[Path, bytes | None]:
        """Return what the files hold, None for those that cannot be read."""
        return {path: _content(path) for path in self._files}

    def has_changed(self) -> bool:
        """Say whether the files hold something else than when they were loaded last."""
        return self.read() != self._used


class Reloader:
    """Puts configurations in force, one after the other.

    ``adopt`` is called with a configuration and its profiles to swap them in. ``generation`` counts them from 1, the
    first; ``problem`` is why the last one could not be used, and ``waiting`` are its settings that need a restart.
    """

    def __init__(
        self,
        configuration: ExtenderConfiguration,
        profiles: dict[str, Profile],
        mirror: Mirror,
        informers: Informers,
        adopt: Adopt,
    ) -> None:
        self.generation = 1
        self.problem = ""
        self.waiting: tuple[str, ...] = ()
        self.results = {"ok": 0, "failed": 0}
        self.succeeded_at = time.time()
        self._configuration = configuration
        self._profiles = profiles
        self._mirror = mirror
        self._informers = informers
        self._adopt = adopt
        self._asked = asyncio.Event()
        self._turn = asyncio.Lock()

    def export(self, metrics: Metrics) -> None:
        """Have the state told by metrics."""
        metrics.gauge("configuration_generation", "How many have been in force so far.", lambda: self.generation)
        results = "Changed configurations: ok, or failed and not used."
        metrics.totals("configuration_reloads", results, "result", lambda: self.results)
        metrics.gauge(
            "configuration_last_reload_successful", "0 while the last one cannot be used.", lambda: not self.problem
        )
        metrics.gauge(
            "configuration_last_reload_success_timestamp_seconds",
            "When the one in force was taken over, in seconds since the epoch.",
            lambda: self.succeeded_at,
        )
        metrics.gauge(
            "configuration_settings_waiting", "Settings that differ and need a restart.", lambda: len(self.waiting)
        )
        upkeep = self._mirror.upkeep
        metrics.gauge("broken_caches", "Caches that raised and are not built anew yet.", lambda: len(upkeep.broken))
        metrics.totals("cache_failures", "How often a cache raised.", "cache", lambda: upkeep.failures)

    def check(self) -> Check:
        """Return the line of health checks about the configuration; the last good one serves, so it never fails."""
        if self.problem:
            return Check("configuration", note=f"number {self.generation} stays, the last is refused: {self.problem}")
        if self.waiting:
            return Check("configuration", note=f"number {self.generation}; a restart is needed for {self._waiting()}")
        return Check("configuration")

    # --- when --------------------------------------------------------------------------------------------------------

    def request(self) -> None:
        """Have the configuration loaded anew, changed or not."""
        self._asked.set()

    async def follow(self, source: ConfigurationSource) -> None:
        """Take over what ``source`` holds whenever it changes or ``request`` is called, for ever."""
        retry_at = float("inf")
        while True:
            asked = await self._is_asked_within(self._configuration.reload.poll_seconds)
            if asked or time.monotonic() >= retry_at or await asyncio.to_thread(source.has_changed):
                await _settle(source)
                with contextlib.suppress(Exception):  # it is logged
                    await self.apply(source.load)
                retry_at = time.monotonic() + RETRY_SECONDS if self.problem else float("inf")

    async def _is_asked_within(self, seconds: float) -> bool:
        try:
            async with asyncio.timeout(seconds or None):
                await self._asked.wait()
        except TimeoutError:
            return False
        self._asked.clear()
        return True

    # --- broken caches -----------------------------------------------------------------------------------------------

    def check_caches(self) -> Check:
        """Return the line of health checks about broken caches; only the algorithms that read them fail."""
        notes = [
            f"{error}; read by {', '.join(readers(cache, *self._profiles.values())) or 'preemption'}"
            for cache, broken in self._mirror.upkeep.broken.items()
            if (error := broken.cache_error) is not None
        ]
        return Check("caches", note=" | ".join(notes))

    async def mend(self) -> None:
        """Build broken caches anew and give them to their algorithms, for ever; ever later while they break again."""
        backoff, mended_at = Backoff(MEND_SECONDS, LONGEST_MEND_SECONDS), time.monotonic()
        while True:
            await asyncio.sleep(_LOOK_SECONDS)
            if self._mirror.upkeep.broken or self._is_behind():
                await asyncio.sleep(backoff.next())
                async with self._turn:
                    try:
                        await self._mend()
                    except FAULTS:
                        _log.exception("broken caches not built anew for a fault of an algorithm")
                mended_at = time.monotonic()
            elif time.monotonic() - mended_at > LONGEST_MEND_SECONDS:
                backoff.reset()

    def _is_behind(self) -> bool:
        """Say whether an algorithm reads a broken cache that has been built anew."""
        algorithms = (each for profile in self._profiles.values() for each in profile.algorithms)
        held = (cache for each in algorithms for cache in each.held_caches())
        return any(cache.cache_error is not None and type(cache) in self._mirror.upkeep.whole for cache in held)

    async def _mend(self) -> None:
        for cache in list(self._mirror.upkeep.broken):
            await self._build(cache, self._profiles.values())
        if self._is_behind():
            profiles = {name: rebind(profile, self._mirror) for name, profile in self._profiles.items()}
            self._adopt(self._configuration, profiles)
            self._profiles = profiles
            _log.info("broken caches built anew", extra={"still_broken": len(self._mirror.upkeep.broken)})

    # --- how ---------------------------------------------------------------------------------------------------------

    async def apply(self, load: Callable[[], ExtenderConfiguration]) -> None:
        """Put in force what ``load``, called on a thread of its own, returns; all or nothing.

        Raises:
            ConfigurationError: it cannot be used; all findings at once. The one before stays in force.
        """
        async with self._turn:
            try:
                await self._replace(await asyncio.to_thread(load))
            except ConfigurationError as error:
                self._note_failure(error.problems)
                raise
            except Exception as error:
                _log.exception("configuration not replaced for a fault of the service")
                self._note_failure([f"{type(error).__name__}: {error}"])
                raise

    async def _replace(self, wanted: ExtenderConfiguration) -> None:
        registry = Registry()
        sourced, trial = await asyncio.to_thread(bind_to_nothing, registry, wanted)
        kinds = watched_kinds(*trial.values())
        try:
            await self._informers.add(kinds, wanted.reload.sync_seconds)
            for cache in used_caches(*trial.values()):
                await self._build(cache, trial.values())
            await self._complete_pods(wanted.reload.sync_seconds)
            profiles = bind_sourced(registry, self._mirror, sourced)
            configuration, waiting = merge(self._configuration, wanted)
            self._adopt(configuration, profiles)
            self._configuration, self._profiles = configuration, profiles
        finally:
            await self._drop_unused(kinds)
        self._note_success(waiting)

    async def _build(self, cache: type[Cache], profiles: Iterable[Profile]) -> None:
        """Build a cache where it is new or broken; one that was broken and raises again stays so.

        Raises:
            ConfigurationError: a new one raised; says which algorithms read it.
        """
        try:
            with contextlib.closing(self._mirror.build_cache(cache)) as steps:
                for _ in steps:
                    await asyncio.sleep(0)  # requests and events come between two steps
        except CacheError as error:
            if cache not in self._mirror.upkeep.broken:
                raise ConfigurationError(f"{', '.join(readers(cache, *profiles))}: {error}") from error

    async def _complete_pods(self, within_seconds: float) -> None:
        """Have pods listed again where new caches read annotations that were not kept."""
        if not self._mirror.pods_outdated:
            return
        await self._informers.list_again(PODS)
        try:
            async with asyncio.timeout(within_seconds):
                while self._mirror.pods_outdated:  # noqa: ASYNC110 - a plain attribute
                    await asyncio.sleep(_POLL_SECONDS)
        except TimeoutError:
            raise ConfigurationError(
                "pods, whose annotations a new algorithm reads, were not listed again within "
                f"{within_seconds:g} s, reload.syncSeconds"
            ) from None

    async def _drop_unused(self, tried: set[Kind]) -> None:
        """Drop the caches and kinds that the profiles in force do not need."""
        profiles = self._profiles.values()
        for unused in self._mirror.upkeep.classes - used_caches(*profiles):
            self._mirror.drop_cache(unused)
        dropped = {*await self._informers.keep(watched_kinds(*profiles)), *tried - self._informers.kinds}
        for kind in dropped:
            self._mirror.forget_kind(kind)

    def _note_success(self, waiting: tuple[str, ...]) -> None:
        self.generation += 1
        self.problem, self.waiting = "", waiting
        self.results["ok"] += 1
        self.succeeded_at = time.time()
        _log.info("configuration replaced", extra={"generation": self.generation})
        if waiting:
            _log.warning("settings need a restart to take effect", extra={"settings": waiting})

    def _note_failure(self, problems: Sequence[str]) -> None:
        self.results["failed"] += 1
        more = f"; and {len(problems) - 1} more" if len(problems) > 1 else ""
        problem = f"{problems[0]}{more}"
        if problem != self.problem:  # it is tried again and again: say it once
            _log.error("configuration not replaced", extra={"generation": self.generation, "problems": list(problems)})
        self.problem = problem

    def _waiting(self) -> str:
        return ", ".join(self.waiting)


def merge(
    in_force: ExtenderConfiguration, wanted: ExtenderConfiguration
) -> tuple[ExtenderConfiguration, tuple[str, ...]]:
    """Return ``in_force`` with all of ``wanted`` that takes effect at once, and the paths of what does not."""
    log = in_force.log.model_copy(update={"level": wanted.log.level, "levels": wanted.log.levels})
    taken = {key: getattr(wanted, key) for key in _TAKEN_OVER}
    merged = in_force.model_copy(update={**taken, "log": log})
    waiting = _differences(merged.model_dump(by_alias=True), wanted.model_dump(by_alias=True))
    return merged, tuple(waiting)


def _differences(left: Mapping[str, Any], right: Mapping[str, Any], root: str = "") -> Iterator[str]:
    for key in left:
        if isinstance(left[key], Mapping) and isinstance(right[key], Mapping):
            yield from _differences(left[key], right[key], f"{root}{key}.")
        elif left[key] != right[key]:
            yield f"{root}{key}"


async def _settle(source: ConfigurationSource) -> None:
    """Wait until the files are the same for a moment: some are written in pieces, and none is not a configuration."""
    before, now = None, await asyncio.to_thread(source.read)
    for _ in range(_MOST_READINGS):
        if now == before:
            return
        await asyncio.sleep(_SETTLE_SECONDS)
        before, now = now, await asyncio.to_thread(source.read)


def _content(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except OSError:
        return None
