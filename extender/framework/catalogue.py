"""Every algorithm that a profile can name, described without running it; those that cannot be loaded, with why."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from extender.errors import ConfigurationError
from extender.framework.algorithm import Algorithm, Predicate, Priority, Reserver
from extender.framework.import_path import import_module
from extender.framework.loader import IN_TREE_PACKAGE, default_set, defined_in, in_tree_modules, load, module_name
from extender.framework.parameter import Parameter, parameters
from extender.framework.plugin import Plugin
from extender.framework.registry import Registry


@dataclass(frozen=True)
class Entry:
    """One algorithm, or where there is an ``error`` what claims to be one.

    ``source`` is ``in-tree``, ``entry point`` or ``import path``; ``origin`` is then a file, a distribution, or the
    path. ``path`` is ``module:Class``. ``roles`` are some of predicate, mandatory, priority and reserver. ``weight`` is
    what a priority counts in a profile that does not say, None for others. ``watches`` are the plural names of kinds.
    ``default`` says whether it runs in a profile that names nothing.
    """

    name: str
    source: str
    origin: str
    path: str = ""
    summary: str = ""
    roles: tuple[str, ...] = ()
    weight: int | None = None
    default: bool = False
    watches: tuple[str, ...] = ()
    parameters: tuple[Parameter, ...] = ()
    error: str = ""


class Catalogue:
    """Loads algorithms to describe them; each failure is kept to its own entry."""

    def __init__(self, package: str = IN_TREE_PACKAGE) -> None:
        self._package = package
        self._registry = Registry()

    def entries(self, references: Sequence[str] = ()) -> list[Entry]:
        """Return entries of the algorithms that ``references`` name, of all that are installed where there are none."""
        if references:
            return [self._named(reference) for reference in references]
        plugins = [plugin for plugins in self._registry.plugins.values() for plugin in plugins]
        return [*self._in_tree(), *map(self._plugin, plugins)]

    def _in_tree(self) -> Iterator[Entry]:
        for module in in_tree_modules(self._package):
            origin = self._file(module)
            try:
                names = [algorithm.name for algorithm in defined_in(import_module(f"{self._package}.{module}"))]
            except ConfigurationError as error:
                yield Entry(module, "in-tree", origin, error=str(error))
                continue
            for name in names:
                yield self._load(name, "in-tree", origin)

    def _file(self, module: str) -> str:
        return f"{self._package}/{module}.py"

    def _plugin(self, plugin: Plugin) -> Entry:
        return self._load(plugin.name, "entry point", plugin.distribution, plugin.path)

    def _named(self, reference: str) -> Entry:
        if ":" in reference:
            return self._load(reference, "import path", reference, reference)
        module = module_name(reference)
        if module in in_tree_modules(self._package):
            return self._load(reference, "in-tree", self._file(module))
        for plugin in self._registry.plugins.get(reference, ()):
            return self._plugin(plugin)
        return self._load(reference, "", "")

    def _load(self, reference: str, source: str, origin: str, path: str = "") -> Entry:
        try:
            name = load(reference, self._registry, self._package)
            found: type[Algorithm] | None = self._registry.predicates.get(name) or self._registry.priorities.get(name)
            assert found is not None  # noqa: S101 - it was registered as one of them
            return self._describe(found, source, origin)
        except ConfigurationError as error:
            return Entry(reference, source, origin, path, error=str(error))
        except Exception as error:
            problem = f"cannot be described: {type(error).__name__}: {error}"
            return Entry(reference, source, origin, path, error=problem)

    def _describe(self, cls: type[Algorithm], source: str, origin: str) -> Entry:
        provider = default_set(self._package)
        return Entry(
            cls.name,
            source,
            origin,
            f"{cls.__module__}:{cls.__qualname__}",
            (cls.__doc__ or "").strip().partition("\n")[0].replace("``", ""),
            tuple(_roles(cls)),
            provider.priorities.get(cls.name, cls.default_weight) if issubclass(cls, Priority) else None,
            cls.name in {*provider.mandatory, *provider.predicates, *provider.priorities},
            tuple(sorted(kind.plural for kind in cls.declared_kinds())),
            tuple(parameters(cls.Arguments)),
        )


def _roles(cls: type[Algorithm]) -> Iterator[str]:
    if issubclass(cls, Predicate):
        yield "predicate"
        if cls.mandatory:
            yield "mandatory"
    if issubclass(cls, Priority):
        yield "priority"
    if issubclass(cls, Reserver):
        yield "reserver"
