"""Cluster files: objects out of multi-document YAML or JSON, ready for the embedded API server."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import yaml

from extender.cluster.apiserver.check import find_problems
from extender.cluster.apiserver.resource import Catalogue
from extender.errors import ConfigurationError

_SafeLoader: type[yaml.SafeLoader] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class _Loader(_SafeLoader):  # type: ignore[misc, valid-type]  # the C parser where PyYAML was built with it
    """YAML as Kubernetes reads it: times stay text, keys become text, a lone ``=`` is text."""

    yaml_implicit_resolvers = {  # noqa: RUF012  # PyYAML's own class attribute
        letter: [(tag, pattern) for tag, pattern in resolvers if tag.rpartition(":")[2] not in ("timestamp", "value")]
        for letter, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        """Return a mapping whose keys are text, as JSON has them."""
        return {_key_text(key): value for key, value in super().construct_mapping(node, deep).items()}


def load_objects(path: str | Path, catalogue: Catalogue | None = None) -> list[dict[str, Any]]:
    """Return the objects of a YAML or JSON file; lists are taken apart.

    ``catalogue`` says which kinds are known, with their scope. Raises ``ConfigurationError`` with one line for each
    thing that is wrong: file, document, item, kind and name, field.
    """
    known = catalogue or Catalogue()
    source = Path(path)
    objects: list[dict[str, Any]] = []
    problems: list[str] = []
    places: dict[tuple[str, ...], str] = {}
    for place, obj in _located_objects(source):
        found = _problems_of(known, obj) or _duplicates(known, obj, place, places)
        problems.extend(f"{source}: {place}: {problem}" for problem in found)
        objects.append(obj)
    if problems:
        raise ConfigurationError(problems)
    return objects


def _located_objects(source: Path) -> Iterator[tuple[str, Any]]:
    """Yield each object with where it stands."""
    for number, document in enumerate(_documents(source), start=1):
        if document is None:
            continue
        place = f"document {number}"
        kind = document.get("kind") if isinstance(document, dict) else None
        if not isinstance(kind, str) or not kind.endswith("List") or "items" not in document:
            yield place, document
            continue
        items = document["items"] or []
        if not isinstance(items, list):
            raise ConfigurationError(f"{source}: {place}: {kind}: items: must be a list, got {type(items).__name__}")
        # Items of a PodList carry no kind of their own, those of a List do.
        inherited = {} if kind == "List" else {"apiVersion": document.get("apiVersion"), "kind": kind[: -len("List")]}
        for index, item in enumerate(items, start=1):
            yield f"{place}, item {index}", {**inherited, **item} if isinstance(item, dict) else item


def _documents(source: Path) -> Iterator[Any]:
    try:
        text = source.read_bytes()
    except OSError as error:
        raise ConfigurationError(f"{source}: cannot be read: {error.strerror}") from error
    if source.suffix == ".json":
        try:
            yield msgspec.json.decode(text)
        except msgspec.DecodeError as error:
            raise ConfigurationError(f"{source}: is not JSON: {error}") from error
        return
    number = 0
    try:
        for document in yaml.load_all(text, Loader=_Loader):  # a safe loader
            number += 1
            yield document
    except yaml.YAMLError as error:
        raise ConfigurationError(f"{source}: document {number + 1}: is not YAML: {_one_line(error)}") from error


def _problems_of(catalogue: Catalogue, obj: Any) -> list[str]:
    if not isinstance(obj, dict):
        return [f"must be an object, got {type(obj).__name__}"]
    missing = [name for name in ("apiVersion", "kind") if not isinstance(obj.get(name), str)]
    if missing:
        return [f"{name}: must be a string, got {obj.get(name)!r}" for name in missing]
    resource = catalogue.of(obj["apiVersion"], obj["kind"])
    if resource is None:
        return [f"{obj['kind']}: kind: is not served in {obj['apiVersion']}"]
    return [f"{_title(obj)}: {path}: {text}" for _, path, text in find_problems(resource, obj)]


def _duplicates(catalogue: Catalogue, obj: dict[str, Any], place: str, places: dict[tuple[str, ...], str]) -> list[str]:
    metadata = obj["metadata"]
    if not metadata.get("name"):
        return []
    resource = catalogue.of(obj["apiVersion"], obj["kind"])
    namespace = (metadata.get("namespace") or "default") if resource and resource.namespaced else ""
    first = places.setdefault((obj["apiVersion"], obj["kind"], namespace, metadata["name"]), place)
    return [] if first == place else [f"{_title(obj)}: metadata.name: is taken by {first}"]


def _title(obj: dict[str, Any]) -> str:
    metadata = obj.get("metadata")
    name = metadata.get("name") or metadata.get("generateName") if isinstance(metadata, dict) else None
    return f"{obj['kind']} {name}" if name else str(obj["kind"])


def _key_text(key: Hashable) -> str:
    if isinstance(key, bool):
        return "true" if key else "false"
    return str(key)


def _one_line(error: yaml.YAMLError) -> str:
    return " ".join(str(error).split())
