"""A KubeSchedulerConfiguration, v1beta1 to v1, as profiles: what its plug-ins filter and score, with their arguments.

Only the points ``filter`` and ``score``, and ``multiPoint``, decide what runs. ``preFilter`` and ``preScore`` are parts
of a predicate and a priority here, and go with them.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Annotated, Any, Final

from pydantic import Field, ValidationError

from extender.config import explain
from extender.errors import ConfigurationError
from extender.framework.loader import default_set
from extender.framework.registry import nearest
from extender.registration.dialect import CONFIGURATION, Dialect
from extender.section import ALL, DEFAULT_SCHEDULER, Section, repeated_names
from extender.source.document import read_document
from extender.source.draft import Draft, SourcedProfile
from extender.source.plugin_name import ALGORITHMS, FILTERING, KNOWN, PASSED_OVER, SCORING, defaults
from extender.source.plugin_set import Plugin, PluginSet, expand

_log = logging.getLogger(__name__)

_META: Final = ("apiVersion", "kind")
_BY_CAPACITY: Final = ("VolumeBinding", "shape")
"""A plug-in that scores only with this argument; kube-scheduler has it behind a feature gate."""


class _Plugin(Section):
    name: Annotated[str, Field(min_length=1)]
    weight: Annotated[int, Field(ge=0)] | None = None


class _PluginSet(Section):
    enabled: list[_Plugin] | None = None
    disabled: list[_Plugin] | None = None


class _Plugins(Section):
    multi_point: _PluginSet | None = None
    pre_enqueue: _PluginSet | None = None
    queue_sort: _PluginSet | None = None
    pre_filter: _PluginSet | None = None
    filter: _PluginSet | None = None
    post_filter: _PluginSet | None = None
    pre_score: _PluginSet | None = None
    score: _PluginSet | None = None
    reserve: _PluginSet | None = None
    unreserve: _PluginSet | None = None
    permit: _PluginSet | None = None
    pre_bind: _PluginSet | None = None
    bind: _PluginSet | None = None
    post_bind: _PluginSet | None = None
    placement_generate: _PluginSet | None = None
    placement_score: _PluginSet | None = None


class _PluginConfig(Section):
    name: Annotated[str, Field(min_length=1)]
    args: dict[str, Any] | None = None


class _Profile(Section):
    scheduler_name: str | None = None
    plugins: _Plugins | None = None
    plugin_config: list[_PluginConfig] | None = None
    percentage_of_nodes_to_score: int | None = None


class _Profiles(Section):
    profiles: list[_Profile] = Field(default=[])


def read_scheduler_configuration(file: str) -> list[SourcedProfile]:
    """Return the profiles that a KubeSchedulerConfiguration describes.

    Raises:
        ConfigurationError: all findings at once, each with the file and the place in it.
    """
    tree, dialect = read_document(file, CONFIGURATION)
    try:
        profiles = _Profiles.read({"profiles": tree.get("profiles") or [{}]}).profiles
    except ValidationError as error:
        raise ConfigurationError(f"{file}: {line}" for line in explain(error)) from None
    names = [profile.scheduler_name or DEFAULT_SCHEDULER for profile in profiles]
    problems = [
        f"{file}: profiles[{place}].schedulerName: {names[place]!r} is that of profiles[{first}]; give another"
        for place, first in repeated_names(names)
    ]
    found = []
    for place, (name, profile) in enumerate(zip(names, profiles, strict=True)):
        translation = _Translation(file, f"profiles[{place}]", profile)
        try:
            found.append(translation.profile(name, dialect))
        except ConfigurationError as error:
            problems += error.problems
    if problems:
        raise ConfigurationError(problems)
    return found


class _Translation:
    def __init__(self, file: str, path: str, profile: _Profile) -> None:
        self._file = file
        self._path = path
        self._profile = profile
        self._draft = Draft()
        self._problems: list[str] = []

    def profile(self, scheduler_name: str, dialect: Dialect) -> SourcedProfile:
        given, default, empty = self._sets(), defaults(dialect), PluginSet()
        multi_point = given["multiPoint"].over(default.get("multiPoint", empty))
        for plugin in expand(multi_point, given["filter"].over(default.get("filter", empty)), FILTERING):
            if self._has_part(plugin, FILTERING, "filter"):
                self._draft.add_predicate(ALGORITHMS[plugin.name], plugin.place)
        scoring = SCORING if self._scores_by_capacity() else SCORING - {_BY_CAPACITY[0]}
        for plugin in expand(multi_point, given["score"].over(default.get("score", empty)), scoring):
            if self._has_part(plugin, SCORING, "score"):
                self._draft.add_priority(ALGORITHMS[plugin.name], plugin.weight or 1, plugin.place)
        self._args()
        if self._problems:
            raise ConfigurationError(f"{self._file}: {problem}" for problem in self._problems)
        return self._draft.finish(self._file, self._path, scheduler_name=scheduler_name)

    def _sets(self) -> dict[str, PluginSet]:
        """Return what the profile says of each point, and report names that nothing has."""
        plugins = self._profile.plugins or _Plugins()
        found = {}
        for field, info in _Plugins.model_fields.items():
            point, given = str(info.alias), getattr(plugins, field) or _PluginSet()
            path = f"{self._path}.plugins.{point}"
            enabled = [
                Plugin(plugin.name, plugin.weight or 0, f"{path}.enabled[{place}]")
                for place, plugin in enumerate(given.enabled or ())
            ]
            self._check_names(enabled)
            disabled = frozenset(plugin.name for plugin in given.disabled or ())
            self._report_disabled(path, disabled, point)
            found[point] = PluginSet(enabled, disabled)
        return found

    def _check_names(self, plugins: list[Plugin]) -> None:
        names = [plugin.name for plugin in plugins]
        self._problems += [
            f"{plugins[place].place}.name: {names[place]} is enabled twice" for place, _ in repeated_names(names)
        ]
        self._problems += [_unknown(plugin.name, plugin.place) for plugin in plugins if plugin.name not in KNOWN]

    def _report_disabled(self, path: str, disabled: Iterable[str], point: str) -> None:
        """Log what is disabled without effect: what nothing is called, and what is mandatory here."""
        mandatory = default_set().mandatory if point in ("filter", "multiPoint") else ()
        for name in sorted(disabled):
            if name != ALL and name not in KNOWN:
                _log.warning("no such plug-in to disable", extra={"place": f"{self._file}: {path}", "plugin": name})
            elif name in mandatory:
                _log.info("runs although disabled", extra={"place": f"{self._file}: {path}", "plugin": name})

    def _has_part(self, plugin: Plugin, extending: Iterable[str], point: str) -> bool:
        """Say whether a plug-in has a counterpart at a point, and report one that has no business there."""
        if plugin.name in extending:
            return True
        if plugin.name in PASSED_OVER:
            extra = {"place": f"{self._file}: {plugin.place}", "plugin": plugin.name, "why": PASSED_OVER[plugin.name]}
            _log.debug("plug-in passed over", extra=extra)
        elif plugin.name in KNOWN:
            self._problems.append(f"{plugin.place}.name: {plugin.name} does not {point}; remove it")
        return False

    def _scores_by_capacity(self) -> bool:
        name, arg = _BY_CAPACITY
        entries = self._profile.plugin_config or ()
        return any(entry.name == name and (entry.args or {}).get(arg) for entry in entries)

    def _args(self) -> None:
        entries = self._profile.plugin_config or []
        names = [entry.name for entry in entries]
        path = f"{self._path}.pluginConfig"
        self._problems += [
            f"{path}[{place}].name: {names[place]} has arguments in [{first}] already"
            for place, first in repeated_names(names)
        ]
        for place, entry in enumerate(entries):
            where = f"{path}[{place}]"
            if entry.name not in KNOWN:
                self._problems.append(_unknown(entry.name, where))
            elif entry.name in ALGORITHMS:
                args = {key: value for key, value in (entry.args or {}).items() if key not in _META}
                args = {key: value for key, value in args.items() if value is not None}
                self._draft.argue(ALGORITHMS[entry.name], args, f"{where}.args")


def _unknown(name: str, place: str) -> str:
    return f"{place}.name: no plug-in named {name!r}{nearest(name, KNOWN)}"
