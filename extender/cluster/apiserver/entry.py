"""Objects as the server keeps them: encoded once, with what selectors look at beside the bytes.

``body`` is the object's JSON without ``apiVersion``, ``kind`` and its opening brace, metadata first. List items, single
objects and watch events all are some prefix, the body, and some suffix: nothing is encoded twice, whoever asks.
"""

from __future__ import annotations

from typing import Any

import msgspec

from extender.cluster.apiserver.resource import Resource

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder().decode


class Entry(msgspec.Struct, frozen=True, gc=False):
    """One version of one object; ``fields`` are in the order of ``Resource.selectable``."""

    key: str
    uid: str
    resource_version: int
    body: bytes
    fields: tuple[str, ...]
    labels: dict[str, str]

    @property
    def name(self) -> str:
        """The object's name."""
        return self.fields[0]

    @property
    def namespace(self) -> str:
        """The object's namespace, empty outside namespaces."""
        return self.fields[1]

    def at_version(self, resource_version: int) -> Entry:
        """Return the same object under another resource version."""
        body = self.body.replace(_version_field(self.resource_version), _version_field(resource_version), 1)
        return Entry(self.key, self.uid, resource_version, body, self.fields, self.labels)


class Event(msgspec.Struct, frozen=True, gc=False):
    """One change: the object after it (for a deletion: its last state), and the object before."""

    type: str
    entry: Entry
    previous: Entry | None


def encode_entry(resource: Resource, obj: dict[str, Any], resource_version: int) -> Entry:
    """Encode an object whose metadata has name, uid and, where it belongs in one, namespace."""
    given = obj["metadata"]
    # Identity leads, as in the real server's answers: readers may look only at the first bytes, and at_version finds
    # the object's own resource version before anything of the same spelling.
    metadata = {name: given[name] for name in ("name", "generateName", "namespace", "uid") if given.get(name)}
    metadata["resourceVersion"] = ""
    metadata |= given
    metadata["resourceVersion"] = str(resource_version)
    content = {"metadata": metadata} | obj | {"metadata": metadata}
    content.pop("apiVersion", None)
    content.pop("kind", None)
    namespace = metadata.get("namespace") or ""
    values = [_value(obj, path, absent) for path, absent in resource.paths]
    return Entry(
        key=resource.key(namespace, metadata["name"]),
        uid=metadata["uid"],
        resource_version=resource_version,
        body=_encode(content)[1:],
        fields=(metadata["name"], namespace, *values),
        labels=metadata.get("labels") or {},
    )


def object_prefix(resource: Resource) -> bytes:
    """Return what turns a body into an object of its own."""
    return f'{{"kind":"{resource.kind}","apiVersion":"{resource.api_version}",'.encode()


def decode_entry(resource: Resource, entry: Entry) -> dict[str, Any]:
    """Return a fresh copy of the object."""
    decoded: dict[str, Any] = _decode(object_prefix(resource) + entry.body)
    return decoded


def _version_field(resource_version: int) -> bytes:
    return b'"resourceVersion":"%d"' % resource_version


def _value(obj: dict[str, Any], path: tuple[str, ...], absent: str) -> str:
    """Return the text of the value at a path, such as ``true`` for a boolean."""
    value: Any = obj
    for step in path:
        if not isinstance(value, dict):
            return absent
        value = value.get(step)
    if value is None:
        return absent
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)
