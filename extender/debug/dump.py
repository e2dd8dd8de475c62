"""The state of the service as plain values: caches, assumed pods, and the configuration without what is secret."""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import Enum
from time import monotonic
from typing import Any

import msgspec
import numpy as np
import yaml

from extender.config import ExtenderConfiguration
from extender.framework.mirror import Mirror

_SECRET = re.compile(r"password|passphrase|secret|token|credential|private_?key|api_?key", re.IGNORECASE)
_PLACE = re.compile(r"(file|path|dir)$", re.IGNORECASE)
"""Keys that say where something secret is kept, not what it is."""
_LOGIN = re.compile(r"(?<=://)[^/@\s]+@")
HIDDEN = "(hidden)"


def plain(value: Any) -> Any:
    """Return a copy of ``value`` that is made of what JSON has; keys that are no text become JSON text."""
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, Mapping):
        return {_key(key): plain(item) for key, item in value.items()}
    if isinstance(value, set | frozenset):
        return sorted((plain(item) for item in value), key=msgspec.json.encode)
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    if isinstance(value, msgspec.Struct):
        return {name: plain(getattr(value, name)) for name in value.__struct_fields__}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    return value.value if isinstance(value, Enum) else repr(value)


def _key(key: Any) -> str:
    return key if isinstance(key, str) else msgspec.json.encode(plain(key)).decode()


def mirror_state(mirror: Mirror) -> dict[str, Any]:
    """Return what the mirror itself keeps: how much there is, and the pods that are counted without being there."""
    now = monotonic()
    return {
        "version": mirror.version,
        "nodes": len(mirror.table),
        "pods": len(mirror.pods),
        "assumed": [
            {
                "pod": assumed.info.key,
                "uid": uid,
                "node": assumed.info.node_name,
                "expiresInSeconds": None if assumed.deadline_seconds is None else round(assumed.deadline_seconds - now),
            }
            for uid, assumed in mirror.assumed.items()
        ],
        "nominated": {
            node: [{"pod": info.key, "uid": info.uid, "priority": info.priority} for info in pods.values()]
            for node, pods in mirror.nominated.items()
        },
    }


def configuration_text(configuration: ExtenderConfiguration) -> str:
    """Return the configuration in force as YAML, without what could be secret."""
    tree = without_secrets(configuration.model_dump(mode="json", by_alias=True))
    return yaml.safe_dump(tree, sort_keys=False)


def without_secrets(value: Any) -> Any:
    """Return a copy of ``value`` with values hidden whose keys sound secret, and logins within addresses."""
    if isinstance(value, dict):
        return {key: HIDDEN if item and _is_secret(key, item) else without_secrets(item) for key, item in value.items()}
    if isinstance(value, list):
        return [without_secrets(item) for item in value]
    return _LOGIN.sub(f"{HIDDEN}@", value) if isinstance(value, str) else value


def _is_secret(key: str, value: Any) -> bool:
    return not isinstance(value, bool | dict) and bool(_SECRET.search(key)) and not _PLACE.search(key)
