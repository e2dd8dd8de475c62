"""A configuration tried on nothing, so that all that is wrong with it shows before anything is connected or replaced.

Profiles are bound to an empty mirror, and the files that are named are read.
"""

from __future__ import annotations

import contextlib
import importlib
import logging
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Final

from extender.config import ExtenderConfiguration
from extender.errors import ConfigurationError
from extender.framework.mirror import Mirror
from extender.framework.registry import Registry
from extender.framework.runner import Profile
from extender.source import SourcedProfile, bind_sourced, read_profiles
from extender.tls import certificate_problems

if TYPE_CHECKING:
    from extender.tracing import Tracing

_NOTES: Final = logging.getLogger("extender.source")


def bind_to_nothing(
    registry: Registry, configuration: ExtenderConfiguration
) -> tuple[list[SourcedProfile], Mapping[str, Profile]]:
    """Return the profiles as they are described, and bound to a mirror of nothing.

    Raises:
        ConfigurationError: all findings at once, each with its path.
    """
    importlib.invalidate_caches()  # modules and packages may have come since
    sourced = read_profiles(configuration)
    return sourced, bind_sourced(registry, Mirror(), sourced)


def find_faults(configuration: ExtenderConfiguration) -> list[str]:
    """Return what is wrong with the algorithms, certificates and extras that ``configuration`` names."""
    problems: list[str] = []
    try:
        with _untold():
            bind_to_nothing(Registry(), configuration)
    except ConfigurationError as error:
        problems += error.problems
    problems += certificate_problems(configuration)
    if configuration.tracing.enabled:
        try:
            import_tracing()
        except ConfigurationError as error:
            problems += error.problems
    return problems


def import_tracing() -> type[Tracing]:
    """Return what traces requests.

    Raises:
        ConfigurationError: the extra that it needs is not installed.
    """
    try:
        from extender.tracing import Tracing  # noqa: PLC0415 - an extra that need not be installed
    except ImportError as error:
        raise ConfigurationError(
            f"tracing.enabled: needs {error.name}, which is not installed; "
            "pip install 'kube-scheduler-extender[otel]', or set it to false"
        ) from error
    return Tracing


@contextlib.contextmanager
def _untold() -> Iterator[None]:
    """Keep back what is told of profiles as they are read: it is told when they are put in force."""
    level = _NOTES.level
    _NOTES.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        _NOTES.setLevel(level)
