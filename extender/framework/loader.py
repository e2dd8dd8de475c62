"""Finds algorithms: in a package's modules, by entry points of installed packages, or at an import path.

An in-tree algorithm lives in the module named after it in snake_case, so a name leads to one file. Neither files nor
entry points are imported unless they are enabled, so a broken one that is not can do no harm.
"""

from __future__ import annotations

import pkgutil
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import ModuleType

from extender.errors import ConfigurationError
from extender.framework.algorithm import Algorithm
from extender.framework.import_path import import_algorithm, import_module, import_provider
from extender.framework.plugin import Plugin
from extender.framework.provider import Provider
from extender.framework.registry import Registry, nearest

IN_TREE_PACKAGE = "algorithms"
"""The package whose modules hold the algorithms that come with the service."""

_CLASS = re.compile(r"^class (\w+)\(", re.MULTILINE)
_WORD_START = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")


def module_name(algorithm: str) -> str:
    """Return the module an in-tree algorithm lives in: ``NodeResourcesFit`` in ``node_resources_fit``."""
    return _WORD_START.sub("_", algorithm).replace("-", "_").lower()


def in_tree_modules(package: str = IN_TREE_PACKAGE) -> list[str]:
    """Return the names of the package's algorithm modules without importing them."""
    return sorted(module.name for module in pkgutil.iter_modules(import_module(package).__path__))


def in_tree_names(package: str = IN_TREE_PACKAGE) -> list[str]:
    """Return the names that lead to the package's modules; their text tells, so nothing is imported."""
    files = [
        Path(folder) / f"{stem}.py" for stem in in_tree_modules(package) for folder in import_module(package).__path__
    ]
    texts = {file.stem: file.read_text(encoding="utf-8", errors="replace") for file in files if file.is_file()}
    return [name for stem, text in texts.items() for name in _CLASS.findall(text) if module_name(name) == stem]


def default_set(package: str = IN_TREE_PACKAGE) -> Provider:
    """Return the provider of ``package`` that profiles begin with unless they name another."""
    return providers(package)[0]


def providers(package: str = IN_TREE_PACKAGE) -> Sequence[Provider]:
    """Return the providers that ``package`` declares, the default one first."""
    declared: Sequence[Provider] = import_module(package).PROVIDERS
    return declared


def load_provider(name: str, registry: Registry, package: str = IN_TREE_PACKAGE) -> Provider:
    """Register the providers of ``package`` and return the one called ``name``, or the one at ``module:PROVIDER``.

    Raises:
        ConfigurationError: there is none; names the nearest one, or says at which step it could not be loaded.
    """
    for provider in providers(package):
        registry.register_provider(provider)
    if ":" not in name:
        return registry.provider(name)
    found = import_provider(name, f"import path {name!r}")
    registry.register_provider(found)
    return found


def load(reference: str, registry: Registry, package: str = IN_TREE_PACKAGE) -> str:
    """Register what ``reference`` names and return the algorithm's name.

    ``reference`` is the name of an in-tree algorithm or of an entry point, or ``module:Class``.

    Raises:
        ConfigurationError: it cannot be found or loaded, or more than one claims the name; says at which step.
    """
    if ":" in reference:
        return _register(import_algorithm(reference, f"import path {reference!r}"), registry, package)
    if reference in registry.predicates or reference in registry.priorities:
        return reference
    module = module_name(reference)
    in_tree, plugins = module in in_tree_modules(package), registry.plugins.get(reference, ())
    claims = [f"{package}/{module}.py"] * in_tree + [plugin.origin for plugin in plugins]
    if len(claims) > 1:
        raise ConfigurationError(
            f"the name {reference!r} is claimed by {' and by '.join(claims)}; uninstall all but one of them"
        )
    if in_tree:
        return _load_in_tree(reference, module, registry, package)
    if plugins:
        return load_plugin(plugins[0], registry, package)
    known = [*in_tree_names(package), *registry.plugins]
    raise ConfigurationError(f"no algorithm named {reference!r}{nearest(reference, known)}")


def load_plugin(plugin: Plugin, registry: Registry, package: str = IN_TREE_PACKAGE) -> str:
    """Register the algorithm of an entry point and return its name.

    Raises:
        ConfigurationError: it cannot be loaded, or is called otherwise; says at which step.
    """
    algorithm = import_algorithm(plugin.path, plugin.origin)
    if algorithm.name != plugin.name:
        raise ConfigurationError(
            f"{plugin.origin}: the algorithm is called {algorithm.name!r}; give its entry point that name"
        )
    return _register(algorithm, registry, package)


def load_all(registry: Registry, package: str = IN_TREE_PACKAGE) -> dict[str, ConfigurationError]:
    """Register every in-tree algorithm; return the failures by module, so that one broken file hides no other."""
    failures: dict[str, ConfigurationError] = {}
    for module in in_tree_modules(package):
        try:
            for algorithm in defined_in(import_module(f"{package}.{module}")):
                registry.register(algorithm)
        except ConfigurationError as error:
            failures[module] = error
    return failures


def defined_in(module: ModuleType) -> Iterator[type[Algorithm]]:
    """Return the concrete algorithms a module defines itself, in the order of their text."""
    for value in vars(module).values():
        if (
            isinstance(value, type)
            and issubclass(value, Algorithm)
            and value.__module__ == module.__name__
            and not getattr(value, "__abstractmethods__", None)
        ):
            yield value


def _load_in_tree(name: str, module: str, registry: Registry, package: str) -> str:
    found = list(defined_in(import_module(f"{package}.{module}")))
    for algorithm in found:
        registry.register(algorithm)
    names = [algorithm.name for algorithm in found]
    if name not in names:
        defined = ", ".join(names) or "none that has all methods"
        raise ConfigurationError(f"no algorithm named {name!r}: {package}/{module}.py defines {defined}")
    return name


def _register(algorithm: type[Algorithm], registry: Registry, package: str) -> str:
    """Register a class, unless it comes from outside and has the name of an in-tree algorithm."""
    module, path = module_name(algorithm.name), f"{algorithm.__module__}:{algorithm.__qualname__}"
    if not path.startswith(f"{package}.") and module in in_tree_modules(package):
        raise ConfigurationError(
            f"{path}: the name {algorithm.name!r} is taken by {package}/{module}.py; give the class another"
        )
    registry.register(algorithm)
    return algorithm.name
