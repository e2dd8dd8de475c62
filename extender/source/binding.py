"""From the configuration to bound profiles by scheduler name, wherever they are described."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Sequence

from extender.config import ExtenderConfiguration
from extender.errors import ConfigurationError
from extender.framework.loader import default_set, load
from extender.framework.mirror import Mirror
from extender.framework.profile import ProfileBinder
from extender.framework.registry import Registry
from extender.framework.runner import Profile
from extender.source.draft import SourcedProfile
from extender.source.policy import read_policy
from extender.source.scheduler_configuration import read_scheduler_configuration

_log = logging.getLogger(__name__)


def read_profiles(configuration: ExtenderConfiguration) -> list[SourcedProfile]:
    """Return the profiles of the configuration, or those of the file that it names.

    Raises:
        ConfigurationError: the file cannot be used; all findings at once, each with the file and the place in it.
    """
    source = configuration.algorithm_source
    if source.policy_file:
        return [read_policy(source.policy_file)]
    if source.scheduler_configuration_file:
        return read_scheduler_configuration(source.scheduler_configuration_file)
    return [SourcedProfile(section, f"profiles[{place}]") for place, section in enumerate(configuration.profiles)]


def bind_profiles(registry: Registry, mirror: Mirror, configuration: ExtenderConfiguration) -> dict[str, Profile]:
    """Return all profiles of the configuration as ``bind_sourced`` does.

    Raises:
        ConfigurationError: all findings at once, each with its path.
    """
    return bind_sourced(registry, mirror, read_profiles(configuration))


def bind_sourced(registry: Registry, mirror: Mirror, profiles: Sequence[SourcedProfile]) -> dict[str, Profile]:
    """Return profiles by scheduler name, the first one first; they share the caches of the mirror.

    Raises:
        ConfigurationError: all findings at once, each with its path.
    """
    # A mandatory predicate from outside runs in all profiles, in those before the one that names it as well.
    named = [entry.name for sourced in profiles for entry in sourced.section.predicates.enabled or ()]
    for name in (*default_set().mandatory, *named):
        with contextlib.suppress(ConfigurationError):  # it is reported when the profile is bound
            load(name, registry)
    bound: dict[str, Profile] = {}
    problems: list[str] = []
    for sourced in profiles:
        try:
            profile = ProfileBinder(registry, mirror, sourced.path).bind(sourced.section)
        except ConfigurationError as error:
            problems += map(sourced.locate, error.problems)
            continue
        bound[sourced.section.scheduler_name] = profile
        if sourced.file:
            _log.info("profile read", extra={"file": sourced.file, "scheduler": sourced.section.scheduler_name})
    if problems:
        raise ConfigurationError(problems)
    return bound
