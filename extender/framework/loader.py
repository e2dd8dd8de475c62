"""Finds algorithms: in a package's modules, or at an import path ``module:Class``.

An in-tree algorithm lives in the module named after it in snake_case, so a name leads to one file and a broken file
that is not enabled is never imported. Errors tell apart a malformed path, a missing module, a missing attribute and
a failure inside the module.
"""

from __future__ import annotations

import importlib
import pkgutil
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from types import ModuleType

from extender.errors import ConfigurationError
from extender.framework.algorithm import Algorithm
from extender.framework.registry import Registry, nearest

IN_TREE_PACKAGE = "algorithms"
"""The package whose modules hold the algorithms that come with the service."""

_WORD_START = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")


def module_name(algorithm: str) -> str:
    """Return the module an in-tree algorithm lives in: ``NodeResourcesFit`` in ``node_resources_fit``."""
    return _WORD_START.sub("_", algorithm).replace("-", "_").lower()


def in_tree_modules(package: str = IN_TREE_PACKAGE) -> list[str]:
    """Return the names of the package's algorithm modules without importing them."""
    return sorted(module.name for module in pkgutil.iter_modules(_import(package).__path__))


@dataclass(frozen=True)
class DefaultSet:
    """What a package enables where the configuration names nothing; ``priorities`` come with their weights."""

    mandatory: Sequence[str]
    predicates: Sequence[str]
    priorities: Mapping[str, int]


def default_set(package: str = IN_TREE_PACKAGE) -> DefaultSet:
    """Return the default algorithms of ``package`` by name."""
    module = _import(package)
    return DefaultSet(module.MANDATORY_PREDICATES, module.DEFAULT_PREDICATES, module.DEFAULT_PRIORITIES)


def load(reference: str, registry: Registry, package: str = IN_TREE_PACKAGE) -> str:
    """Register what ``reference`` names and return the algorithm's name.

    ``reference`` is the name of an in-tree algorithm, or ``module:Class`` for one from outside.

    Raises:
        ConfigurationError: it cannot be found or loaded; says at which step.
    """
    if ":" in reference:
        algorithm = _attribute(reference)
        registry.register(algorithm)
        return algorithm.name
    if reference in registry.predicates or reference in registry.priorities:
        return reference
    module = module_name(reference)
    if module in in_tree_modules(package):
        for algorithm in defined_in(_import(f"{package}.{module}")):
            registry.register(algorithm)
            if algorithm.name == reference:
                return reference
    known = [_camel(stem) for stem in in_tree_modules(package)]
    raise ConfigurationError(f"no algorithm named {reference!r}{nearest(reference, known)}")


def load_all(registry: Registry, package: str = IN_TREE_PACKAGE) -> dict[str, ConfigurationError]:
    """Register every in-tree algorithm; return the failures by module, so that one broken file hides no other."""
    failures: dict[str, ConfigurationError] = {}
    for module in in_tree_modules(package):
        try:
            for algorithm in defined_in(_import(f"{package}.{module}")):
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


def _attribute(path: str) -> type[Algorithm]:
    module_path, _, attribute = path.partition(":")
    if not module_path or not attribute:
        raise ConfigurationError(f"import path {path!r} must have the form 'module:Class'")
    try:
        missing = find_spec(module_path) is None
    except ModuleNotFoundError:
        missing = True
    if missing:
        raise ConfigurationError(f"import path {path!r}: no module named {module_path!r}; is its package installed?")
    found = getattr(_import(module_path), attribute, None)
    if found is None:
        raise ConfigurationError(f"import path {path!r}: module {module_path!r} has no attribute {attribute!r}")
    if not (isinstance(found, type) and issubclass(found, Algorithm)):
        raise ConfigurationError(f"import path {path!r}: {attribute!r} is not a subclass of Predicate or Priority")
    return found


def _import(path: str) -> ModuleType:
    try:
        return importlib.import_module(path)
    except Exception as error:
        raise ConfigurationError(f"module {path!r} failed to load: {type(error).__name__}: {error}") from error


def _camel(stem: str) -> str:
    return "".join(word.capitalize() for word in stem.split("_"))
