"""Import paths ``module:attribute``, followed step by step, so that an error tells which step failed.

Each error begins with ``origin``, which says where the path stands.
"""

from __future__ import annotations

import importlib
import sys
from importlib.util import find_spec
from types import ModuleType
from typing import Any

from extender.errors import ConfigurationError
from extender.framework.algorithm import Algorithm
from extender.framework.provider import Provider


def import_algorithm(path: str, origin: str) -> type[Algorithm]:
    """Return the algorithm at ``path``.

    Raises:
        ConfigurationError: the form is wrong, there is no such module or attribute, the module fails, or what is there
            is no algorithm.
    """
    found = _import_attribute(path, origin, "module:Class")
    if not (isinstance(found, type) and issubclass(found, Algorithm)):
        raise ConfigurationError(f"{origin}: {_attribute_of(path)!r} is not a subclass of Predicate or Priority")
    return found


def import_provider(path: str, origin: str) -> Provider:
    """Return the provider at ``path``.

    Raises:
        ConfigurationError: as for algorithms.
    """
    found = _import_attribute(path, origin, "module:PROVIDER")
    if not isinstance(found, Provider):
        raise ConfigurationError(f"{origin}: {_attribute_of(path)!r} is not a Provider")
    return found


def _import_attribute(path: str, origin: str, form: str) -> Any:
    module_path, attribute = path.partition(":")[0], _attribute_of(path)
    if not (_is_dotted(module_path) and _is_dotted(attribute)):
        raise ConfigurationError(f"{origin} must have the form '{form}'")
    if not _exists(module_path, origin):
        raise ConfigurationError(f"{origin}: no module named {module_path!r}; is its package installed?")
    found: Any = import_module(module_path, origin)
    for name in attribute.split("."):
        found = getattr(found, name, None)
    if found is None:
        raise ConfigurationError(f"{origin}: module {module_path!r} has no attribute {attribute!r}")
    return found


def _attribute_of(path: str) -> str:
    return path.partition(":")[2]


def import_module(path: str, origin: str = "") -> ModuleType:
    """Import a module; whatever it raises, and be it an exit, is an error of the configuration.

    Raises:
        ConfigurationError: the module raised; its cause is what it raised.
    """
    try:
        return importlib.import_module(path)
    except (Exception, SystemExit) as error:
        problem = f"module {path!r} failed to load: {type(error).__name__}: {error}"
        raise ConfigurationError(f"{origin}: {problem}" if origin else problem) from error


def _exists(path: str, origin: str) -> bool:
    """Say whether there is such a module; the packages it is in are imported for that."""
    parent, _, _ = path.rpartition(".")
    if parent and not (_exists(parent, origin) and hasattr(import_module(parent, origin), "__path__")):
        return False
    return path in sys.modules or find_spec(path) is not None


def _is_dotted(path: str) -> bool:
    return all(part.isidentifier() for part in path.split("."))
