"""From a document to extenders, as strictly as kube-scheduler decodes it.

A KubeSchedulerConfiguration is refused for an unknown key, also for one in the wrong case, and for a value of the
wrong type. The extenders of a Policy are decoded by Go's own package, which takes keys in any case and overlooks
unknown ones.
Source: k8s.io/kube-scheduler ``config``, and the scheme of kube-scheduler, which decodes strictly from 1.19 on.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Mapping
from typing import Any

from extender.registration.dialect import DIALECTS, Dialect, of
from extender.registration.duration import parse_duration
from extender.registration.entry import VERBS, Entry, ManagedResource, SchedulerConfiguration, TlsSettings
from extender.registration.finding import Finding, error, warning

Read = Callable[[Any], Any]
"""Takes a value that is not null; raises ValueError saying what it must be."""

_INT64 = range(-(2**63), 2**63)


def decode(tree: object) -> tuple[SchedulerConfiguration | None, list[Finding]]:
    """Return what a document holds, with all mistakes of spelling and type; None if it is of no known version."""
    if not isinstance(tree, dict):
        return None, [error("", "is no object", "the file must hold one KubeSchedulerConfiguration")]
    dialect = of(tree.get("apiVersion"), tree.get("kind"))
    if dialect is None:
        return None, [_strange_version(tree)]
    decoder = _Decoder(dialect)
    return decoder.configuration(tree), decoder.findings


def _strange_version(tree: Mapping[str, Any]) -> Finding:
    known = ", ".join(dialect.api_version for dialect in DIALECTS if not dialect.is_policy)
    given = f"{tree.get('apiVersion')!r} with kind {tree.get('kind')!r}"
    if tree.get("kind") == "ConfigMap":
        return error("kind", "is a ConfigMap", "save the text below its data in a file of its own and name that file")
    return error(
        "apiVersion", f"{given} holds no extenders", f"use KubeSchedulerConfiguration of {known}, or a Policy of v1"
    )


class _Decoder:
    def __init__(self, dialect: Dialect) -> None:
        self._dialect = dialect
        self.findings: list[Finding] = []

    def configuration(self, tree: Mapping[str, Any]) -> SchedulerConfiguration:
        self._check_keys(tree, self._dialect.keys, "", fold=False)
        for place, profile in enumerate(self._items(tree.get("profiles"), "profiles")):
            path = f"profiles[{place}]"
            if isinstance(profile, dict):
                self._check_keys(profile, self._dialect.profile_keys, path, fold=False)
            else:
                self._wrong(path, profile, "must be an object")
        entries = [
            self._entry(item, f"extenders[{place}]")
            for place, item in enumerate(self._items(tree.get("extenders"), "extenders"))
        ]
        return SchedulerConfiguration(self._dialect, tree, tuple(entries))

    def _entry(self, item: object, path: str) -> Entry:
        values = self._struct(item, self._entry_fields(), path)
        tls = self._struct(values.get("tlsConfig"), _TLS_FIELDS, f"{path}.tlsConfig")
        managed = [
            self._struct(resource, _RESOURCE_FIELDS, f"{path}.managedResources[{place}]")
            for place, resource in enumerate(self._items(values.get("managedResources"), f"{path}.managedResources"))
        ]
        return Entry(
            path,
            url_prefix=values.get("urlPrefix", ""),
            verbs={verb: word for verb in VERBS if (word := values.get(f"{verb}Verb"))},
            weight=values.get("weight", 0),
            enable_https=values.get(self._dialect.https_key, False),
            tls=TlsSettings(
                insecure=tls.get("insecure", False),
                server_name=tls.get("serverName", ""),
                ca_file=tls.get("caFile", ""),
                cert_file=tls.get("certFile", ""),
                key_file=tls.get("keyFile", ""),
                ca_data=tls.get("caData", b""),
                cert_data=tls.get("certData", b""),
                key_data=tls.get("keyData", b""),
            ),
            timeout_nanoseconds=values.get("httpTimeout"),
            node_cache_capable=values.get("nodeCacheCapable", False),
            managed_resources=tuple(
                ManagedResource(resource.get("name", ""), resource.get("ignoredByScheduler", False))
                for resource in managed
            ),
            ignorable=values.get("ignorable", False),
        )

    def _entry_fields(self) -> dict[str, Read]:
        return {
            "urlPrefix": _text,
            **{f"{verb}Verb": _text for verb in VERBS},
            "weight": _integer,
            self._dialect.https_key: _flag,
            "tlsConfig": _anything,
            "httpTimeout": _nanoseconds if self._dialect.is_policy else _duration,
            "nodeCacheCapable": _flag,
            "managedResources": _anything,
            "ignorable": _flag,
        }

    def _struct(self, item: object, fields: Mapping[str, Read], path: str) -> dict[str, Any]:
        """Return the values of ``fields`` in ``item``, without those that are null or wrong."""
        if item is None:
            return {}
        if not isinstance(item, dict):
            self._wrong(path, item, "must be an object")
            return {}
        names = self._check_keys(item, fields, path, fold=self._dialect.is_policy)
        values = {}
        for key, name in names.items():
            if item[key] is None:
                continue
            try:
                values[name] = fields[name](item[key])
            except ValueError as problem:
                self._wrong(f"{path}.{key}", item[key], str(problem))
        return values

    def _check_keys(self, item: Mapping[Any, Any], known: Any, path: str, *, fold: bool) -> dict[str, str]:
        """Return the names of the known keys of ``item``, by key, and report the others."""
        folded = {name.lower(): name for name in known}
        names = {}
        for key in item:
            name = folded.get(str(key).lower())
            if key in known or (fold and name):
                names[key] = name or key
                continue
            place = f"{path}.{key}" if path else str(key)
            remedy = f"write {name}" if name else _advice(str(key), path)
            if fold:
                self.findings.append(warning(place, "is a key that kube-scheduler overlooks", remedy))
            else:
                problem = "is a key that kube-scheduler does not know, and it does not start"
                self.findings.append(error(place, problem, remedy))
        return names

    def _items(self, value: object, path: str) -> list[Any]:
        if value is None or isinstance(value, list):
            return value or []
        self._wrong(path, value, "must be a list")
        return []

    def _wrong(self, path: str, value: object, problem: str) -> None:
        self.findings.append(error(path, f"{problem}, is {_shown(value)}: kube-scheduler does not start"))


def _advice(key: str, path: str) -> str:
    if key == "extenders" and path.startswith("profiles"):
        return "extenders stand beside profiles, not inside one"
    return "remove it or correct its spelling"


def _shown(value: object) -> str:
    if isinstance(value, str):
        return f"the text {value!r}" if len(value) <= 80 else "a text"
    if value is True or value is False:
        return str(value).lower()
    return f"{value}" if isinstance(value, int | float) else f"a {'list' if isinstance(value, list) else 'mapping'}"


def _anything(value: Any) -> Any:
    return value


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError("must be a text; put it in quotes")
    return value


def _flag(value: Any) -> bool:
    if not isinstance(value, bool):
        raise ValueError("must be true or false, without quotes")
    return value


def _integer(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value not in _INT64:
        raise ValueError("must be a whole number, without quotes")
    return value


def _duration(value: Any) -> int:
    if not isinstance(value, str):
        raise ValueError("must be a text with a unit, such as 5s")
    try:
        return parse_duration(value)
    except ValueError:
        raise ValueError("must be a duration with a unit, such as 5s") from None


def _nanoseconds(value: Any) -> int:
    try:
        return _integer(value)
    except ValueError:
        raise ValueError("must be a number of nanoseconds in a Policy, such as 5000000000 for 5 s") from None


def _data(value: Any) -> bytes:
    try:
        return base64.b64decode("".join(_text(value).split()), validate=True)
    except (ValueError, binascii.Error):
        raise ValueError("must be base64") from None


_TLS_FIELDS: Mapping[str, Read] = {
    "insecure": _flag,
    **dict.fromkeys(("serverName", "certFile", "keyFile", "caFile"), _text),
    **dict.fromkeys(("certData", "keyData", "caData"), _data),
}
_RESOURCE_FIELDS: Mapping[str, Read] = {"name": _text, "ignoredByScheduler": _flag}
