"""The informers of a service: one reflector for each kind, and kinds come and go while it runs."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable

from extender.cluster.reflector import Reflector
from extender.errors import ConfigurationError
from extender.model.kind import Kind

_POLL_SECONDS = 0.02


class Informers:
    """Runs a reflector for each kind; ``reflectors`` are those that the service answers from."""

    def __init__(self, make: Callable[[Kind], Reflector], kinds: Iterable[Kind]) -> None:
        """``make`` returns the reflector of a kind; those of ``kinds`` are made at once, and run from ``start`` on."""
        self._make = make
        self.reflectors = [make(kind) for kind in _in_order(kinds)]
        self._tasks: dict[Kind, asyncio.Task[None]] = {}

    @property
    def kinds(self) -> set[Kind]:
        """What the service answers from."""
        return {reflector.kind for reflector in self.reflectors}

    def start(self) -> None:
        """Begin to follow the API server."""
        for reflector in self.reflectors:
            self._run(reflector)

    async def stop(self) -> None:
        """Follow nothing any more."""
        await self._cancel(list(self._tasks))

    async def add(self, kinds: Iterable[Kind], within_seconds: float) -> None:
        """Follow ``kinds`` as well, and return once they are listed; until then nothing depends on them.

        Raises:
            ConfigurationError: they were not listed in time, and are not followed; says why.
        """
        joining = [self._make(kind) for kind in _in_order(set(kinds) - self.kinds)]
        for reflector in joining:
            self._run(reflector)
        try:
            async with asyncio.timeout(within_seconds):
                while not all(reflector.synced for reflector in joining):  # noqa: ASYNC110 - a plain attribute
                    await asyncio.sleep(_POLL_SECONDS)
        except TimeoutError:
            raise ConfigurationError(
                f"{reflector.kind.plural} were not listed within {within_seconds:g} s, reload.syncSeconds: "
                f"{reflector.failing or 'the list is long'}"
                for reflector in joining
                if not reflector.synced
            ) from None
        finally:
            if all(reflector.synced for reflector in joining):
                self.reflectors += joining
            else:
                await self._cancel([reflector.kind for reflector in joining])

    async def keep(self, kinds: Iterable[Kind]) -> list[Kind]:
        """Follow no others than ``kinds`` any more; return those that are no longer followed."""
        dropped = _in_order(self.kinds - set(kinds))
        self.reflectors[:] = [reflector for reflector in self.reflectors if reflector.kind not in dropped]
        await self._cancel(dropped)
        return dropped

    async def list_again(self, kind: Kind) -> None:
        """Have all objects of a kind told once more; the service goes on answering from what it holds."""
        await self._cancel([kind])
        for reflector in self.reflectors:
            if reflector.kind == kind:
                reflector.resource_version = None
                self._run(reflector)

    def rouse(self) -> None:
        """Have all that wait before another attempt try now, because the API server has been reached."""
        for reflector in self.reflectors:
            reflector.rouse()

    def _run(self, reflector: Reflector) -> None:
        self._tasks[reflector.kind] = asyncio.create_task(reflector.run(), name=f"informer {reflector.kind.plural}")

    async def _cancel(self, kinds: Iterable[Kind]) -> None:
        tasks = [self._tasks.pop(kind) for kind in kinds if kind in self._tasks]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _in_order(kinds: Iterable[Kind]) -> list[Kind]:
    return sorted(kinds, key=lambda kind: kind.path)
