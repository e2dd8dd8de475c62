"""What a reload is made of: which settings take effect, which files count, and what the mirror forgets."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from extender import reload
from extender.config import ExtenderConfiguration
from extender.errors import ConfigurationError
from extender.framework import Cache
from extender.framework.mirror import Mirror
from extender.informer import Informers
from extender.model.kind import NAMESPACES, SERVICES, Kind
from extender.reload import ConfigurationSource, Reloader, merge
from extender.testing import make_node, make_pod
from extender.testing.lab import Lab


def configuration(**sections: Any) -> ExtenderConfiguration:
    return ExtenderConfiguration.model_validate(sections)


# --- settings --------------------------------------------------------------------------------------------------------

AT_ONCE: dict[str, Any] = {
    "profiles": [{"predicates": {"enabled": []}}],
    "algorithmSource": {"policyFile": "/policy.yaml"},
    "unmatchedSchedulerName": "passThrough",
    "exempt": {"namespaces": ["kube-system"]},
    "reload": {"pollSeconds": 1},
    "log": {"level": "debug", "levels": {"extender.verbs": "error"}},
}
AT_RESTART: dict[str, tuple[Any, tuple[str, ...]]] = {
    "server": ({"port": 1, "tls": {"minVersion": "1.3"}}, ("server.port", "server.tls.minVersion")),
    "management": ({"debug": True}, ("management.debug",)),
    "clientConnection": ({"pageSize": 1}, ("clientConnection.pageSize",)),
    "cache": ({"staleSeconds": 1}, ("cache.staleSeconds",)),
    "leaderElection": ({"enabled": True}, ("leaderElection.enabled",)),
    "events": ({"burst": 1}, ("events.burst",)),
    "log": ({"format": "text", "slowRequestSeconds": 1}, ("log.format", "log.slowRequestSeconds")),
    "tracing": ({"enabled": True}, ("tracing.enabled",)),
}


@pytest.mark.parametrize("section", AT_ONCE)
def test_a_section_that_takes_effect_at_once(section: str) -> None:
    wanted = configuration(**{section: AT_ONCE[section]})
    assert merge(configuration(), wanted) == (wanted, ())
    assert merge(wanted, configuration()) == (configuration(), ())


@pytest.mark.parametrize("section", AT_RESTART)
def test_a_section_that_waits_for_a_restart(section: str) -> None:
    values, paths = AT_RESTART[section]
    assert merge(configuration(), configuration(**{section: values})) == (configuration(), paths)


def test_every_section_is_one_or_the_other() -> None:
    named = set(ExtenderConfiguration().model_dump(by_alias=True)) - {"apiVersion", "kind"}
    assert named == AT_ONCE.keys() | AT_RESTART.keys()


# --- files -----------------------------------------------------------------------------------------------------------


def test_a_source_tells_whether_its_file_changed_since_it_was_loaded(tmp_path: Path) -> None:
    file = tmp_path / "extender.yaml"
    file.write_text("log: {level: debug}")
    source = ConfigurationSource(file, environment={}, settings=["log.format=text"])
    loaded = source.load()
    assert (loaded.log.level, loaded.log.format) == ("debug", "text")
    assert not source.has_changed()
    file.write_text("log: {level: loud}")
    assert source.has_changed()
    with pytest.raises(ConfigurationError, match=r"log\.level"):
        source.load()
    assert not source.has_changed()
    file.unlink()
    assert source.has_changed()


def test_a_source_knows_the_files_that_the_configuration_names(tmp_path: Path) -> None:
    file, policy = tmp_path / "extender.yaml", tmp_path / "policy.yaml"
    file.write_text(f"algorithmSource: {{policyFile: {policy}}}")
    source = ConfigurationSource(file, environment={})
    with pytest.raises(ConfigurationError, match=r"algorithmSource\.policyFile: .*policy\.yaml: cannot be read"):
        source.load()
    assert not source.has_changed()
    policy.write_text("{kind: Policy, apiVersion: v1}")
    assert source.has_changed()
    source.load()
    file.write_text("{}")
    source.load()
    policy.write_text("kind: Other")
    assert not source.has_changed()


def test_a_source_without_a_file_never_changes() -> None:
    source = ConfigurationSource(None, environment={})
    assert source.load() == ExtenderConfiguration()
    assert not source.has_changed()


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("server: {}\nreload: {}\nserver: {}", "server: stands in line 1 and again in line 3; keep one of them"),
        ("server: {path_prefixes: [/a]}", "server.path_prefixes: unknown key; write pathPrefixes"),
        ("server: {port: true}", "server.port: must be a whole number, got true"),
        ("cache: {staleSeconds: 20}", "cache.staleSeconds: must be > clientConnection.silenceSeconds (55)"),
        ("profiles: [{predicates: {enabled: [NodeName]}}]", 'enabled[0]: must be a mapping; write {name: "NodeName"}'),
        ("profiles: [{predicates: {enabled: [{name: EBSLimit}]}}]", "did you mean 'EBSLimits'?"),
        ("server: {tls: {certFile: /absent, keyFile: /absent}}", "server.tls.certFile: /absent: cannot be read: "),
        ("algorithmSource: {policyFile: /absent}", "algorithmSource.policyFile: /absent: cannot be read: "),
    ],
    ids=lambda value: value.partition(":")[0],
)
async def test_what_is_refused_at_the_start_is_refused_later_and_the_last_good_one_stays(
    tmp_path: Path, text: str, problem: str
) -> None:
    file = tmp_path / "extender.yaml"
    source = ConfigurationSource(file, environment={})
    adopted: list[ExtenderConfiguration] = []
    reloader = Reloader(configuration(), {}, Mirror(), Informers(print, []), lambda wanted, _: adopted.append(wanted))  # type: ignore[arg-type]
    file.write_text(text)
    with pytest.raises(ConfigurationError) as refusal:
        await reloader.apply(source.load)
    assert problem in str(refusal.value)
    assert reloader.problem.startswith(refusal.value.problems[0])
    assert (reloader.generation, adopted) == (1, [])


# --- when ------------------------------------------------------------------------------------------------------------


class Pieces(ConfigurationSource):
    """A file that holds something else at each reading, until it is whole."""

    def __init__(self, *contents: bytes) -> None:
        super().__init__(None)
        self._contents = list(contents)

    def read(self) -> dict[Path, bytes | None]:
        return {Path("file"): self._contents[0] if len(self._contents) == 1 else self._contents.pop(0)}

    def load(self) -> ExtenderConfiguration:
        self._used = self.read()
        return ExtenderConfiguration()


class Noting(Reloader):
    """Notes what it is to apply, and ends once that is enough."""

    def __init__(self, source: Pieces, problems: list[str]) -> None:
        super().__init__(configuration(reload={"pollSeconds": 0.01}), {}, Mirror(), Informers(print, []), print)  # type: ignore[arg-type]
        self._source = source
        self._problems = problems
        self.held: list[Any] = []

    async def apply(self, load: Any) -> None:
        self.held.append(self._source.read())
        load()
        self.problem = self._problems.pop(0)
        if not self._problems:
            raise asyncio.CancelledError


async def held(source: Pieces, *problems: str) -> list[Any]:
    reloader = Noting(source, list(problems))
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(reloader.follow(source), 10)
    return [list(contents.values()) for contents in reloader.held]


async def test_a_file_that_is_written_in_pieces_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reload, "_SETTLE_SECONDS", 0.001)
    assert await held(Pieces(b"", b"", b"a", b"ab", b"abc"), "") == [[b"abc"]]


async def test_what_was_refused_is_tried_again_after_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reload, "RETRY_SECONDS", 0.02)
    assert await held(Pieces(b"abc"), "services were not listed", "and still are not", "") == [[b"abc"]] * 3


# --- the mirror ------------------------------------------------------------------------------------------------------


class Counting(Cache):
    """Counts what it is told, and how often it grew."""

    kinds = (*Cache.kinds, SERVICES)

    def __init__(self, table: Any) -> None:
        super().__init__(table)
        self.pods = self.services = self.grown = 0

    def grow(self, capacity: int) -> None:
        self.grown += 1

    def add_pod(self, row: int, pod: Any) -> None:
        self.pods += 1

    def add(self, kind: Kind, item: Any) -> None:
        self.services += 1

    def remove(self, kind: Kind, item: Any) -> None:
        self.services -= 1

    def dump(self) -> Any:
        return self.pods, self.services


def test_a_cache_that_is_dropped_is_told_nothing_and_built_anew_when_it_is_wanted() -> None:
    lab = Lab([make_node("n"), make_pod("one", node="n")])
    first = lab.mirror.cache(Counting)
    lab.mirror.drop_cache(Counting)
    assert Counting not in map(type, lab.mirror.caches)
    lab.apply(make_pod("two", node="n"))
    for number in range(100):
        lab.apply(make_node(f"n{number}"))
    assert (first.dump(), first.grown) == ((1, 0), 0)
    again = lab.mirror.cache(Counting)
    assert (again is not first, again.dump()) == (True, (2, 0))


def test_objects_of_a_kind_that_is_watched_no_longer_are_forgotten() -> None:
    def service(name: str) -> dict[str, Any]:
        return {"apiVersion": "v1", "kind": "Service", "metadata": {"name": name, "namespace": "default"}}

    space = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "default"}}
    lab = Lab([service("a"), service("b"), space])
    cache = lab.mirror.cache(Counting)
    version = lab.mirror.version
    assert cache.dump() == (0, 2)
    lab.mirror.forget_kind(SERVICES)
    assert (cache.dump(), lab.mirror.objects(SERVICES)) == ((0, 0), {})
    assert (len(lab.mirror.objects(NAMESPACES)), lab.mirror.version > version) == (1, True)
    lab.mirror.forget_kind(SERVICES)
