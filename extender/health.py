"""Whether what the informers hold can be trusted.

An API server that cannot be reached is no reason to stop answering: the caches go on serving what was known, unless the
configuration sets a limit. A watch that is open and yet silent is one, because nothing else would show it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from extender.cluster.reflector import Reflector

FAILING_SECONDS = 10.0
"""Failures that last longer are told by the checks; shorter ones are everyday."""


class Check(NamedTuple):
    """One line of a health check: failed where there is a ``problem``; a ``note`` is worth knowing all the same."""

    name: str
    problem: str = ""
    note: str = ""


class InformerHealth:
    """Judges all informers of a service."""

    def __init__(
        self, reflectors: Sequence[Reflector], *, quiet_seconds: float, stale_seconds: float, error_after_seconds: float
    ) -> None:
        """``quiet_seconds`` of an open watch's silence are noted, ``stale_seconds`` make the service unready.

        ``error_after_seconds`` without news, 0 for no limit, also make it answer with errors.
        """
        self._reflectors = reflectors
        self._quiet_seconds = quiet_seconds
        self._stale_seconds = stale_seconds
        self._error_after_seconds = error_after_seconds

    def missing(self) -> str:
        """Return why no answer can be given from the caches, or nothing."""
        return "; ".join(
            f"{reflector.kind.plural} are {problem}"
            for reflector in self._reflectors
            if (problem := self._bar(reflector))
        )

    def checks(self) -> Iterable[Check]:
        """Return a check for each informer."""
        for reflector in self._reflectors:
            yield self._check(reflector)

    def _bar(self, reflector: Reflector) -> str:
        """Return why this informer bars answers, or nothing."""
        if not reflector.synced:
            return "not synced" + _because(reflector)
        if self._error_after_seconds and (age := reflector.age_seconds()) > self._error_after_seconds:
            return f"{age:.0f} s old, over cache.errorAfterSeconds" + _because(reflector)
        return ""

    def _check(self, reflector: Reflector) -> Check:
        name = f"informer-{reflector.kind.plural}"
        barred, silent = self._bar(reflector), reflector.silent_seconds()
        if barred:
            return Check(name, barred)
        if silent > self._stale_seconds:
            return Check(name, f"the watch is open but silent for {silent:.0f} s, over cache.staleSeconds")
        if silent > self._quiet_seconds:
            return Check(name, note=f"the watch is open but silent for {silent:.0f} s")
        if reflector.failing_seconds() > FAILING_SECONDS:
            return Check(name, note=f"{reflector.age_seconds():.0f} s old{_because(reflector)}")
        return Check(name)


def _because(reflector: Reflector) -> str:
    return f" ({reflector.failing})" if reflector.failing else ""
