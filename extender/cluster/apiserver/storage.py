"""All objects of the embedded API server, under one increasing resource version.

Methods that take a plural are for tests and other users in the same process: ``pods``, or, where a plural alone is not
enough, ``events.events.k8s.io``. They take and return plain dicts, copies both ways, and watchers hear of a change as
soon as the caller lets the event loop run. Storage belongs to that loop's thread.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from extender.cluster.apiserver.check import find_problems
from extender.cluster.apiserver.default import complete_object
from extender.cluster.apiserver.entry import Entry, decode_entry, encode_entry
from extender.cluster.apiserver.resource import Catalogue, Resource
from extender.cluster.apiserver.status import (
    StatusError,
    already_exists,
    conflict,
    forbidden,
    invalid,
    not_found,
    stale,
    wrong_uid,
)
from extender.cluster.apiserver.table import Table
from extender.errors import ConfigurationError

_SYSTEM_PRIORITIES = {"system-cluster-critical": 2_000_000_000, "system-node-critical": 2_000_001_000}


class _Lasting(msgspec.Struct, gc=False, rename="camel"):
    """Metadata that an update without it leaves as it was."""

    creation_timestamp: str | None = None
    generation: int | None = None


class _Kept(msgspec.Struct, gc=False):
    metadata: _Lasting


class Storage:
    """Objects of all resources; ``resource_version`` is that of the last change to any of them."""

    def __init__(
        self,
        objects: Iterable[Mapping[str, Any]] = (),
        catalogue: Catalogue | None = None,
        history_events: int = 100_000,
    ) -> None:
        """Load objects with no history; raise ``ConfigurationError`` naming those that cannot be kept."""
        self.catalogue = catalogue or Catalogue()
        self.resource_version = 1
        self._tables = {resource: Table(resource, history_events) for resource in self.catalogue}
        self._load(objects)
        self.compact()

    # --- by plural, for users in the same process --------------------------------------------------------------------

    def create(self, plural: str, obj: Mapping[str, Any]) -> dict[str, Any]:
        """Create an object and return it as stored; raise ``StatusError`` 409 if there is one, 422 if it is bad."""
        resource = self.catalogue.named(plural)
        return decode_entry(resource, self.insert(resource, obj))

    def update(self, plural: str, obj: Mapping[str, Any]) -> dict[str, Any]:
        """Replace an object, status included, and return it as stored.

        Raises ``StatusError`` 404 if there is none, 409 if it has another uid or resource version than ``obj`` says.
        """
        resource = self.catalogue.named(plural)
        return decode_entry(resource, self.replace(resource, obj))

    def delete(self, plural: str, name: str, namespace: str = "default") -> dict[str, Any]:
        """Remove an object at once and return its last state; raise ``StatusError`` 404 if there is none."""
        resource = self.catalogue.named(plural)
        return decode_entry(resource, self.remove(resource, namespace, name))

    def get(self, plural: str, name: str, namespace: str = "default") -> dict[str, Any]:
        """Return an object; raise ``StatusError`` 404 if there is none."""
        resource = self.catalogue.named(plural)
        return decode_entry(resource, self.find(resource, namespace, name))

    def list(self, plural: str, namespace: str | None = None) -> list[dict[str, Any]]:
        """Return all objects of a resource, or those of one namespace, sorted by namespace and name."""
        resource = self.catalogue.named(plural)
        return [
            decode_entry(resource, entry)
            for entry in self.table(resource).at(self.resource_version)
            if namespace is None or entry.namespace == namespace
        ]

    def compact(self) -> None:
        """Forget all history: resource versions older than the present one expire."""
        for table in self._tables.values():
            table.compact(self.resource_version)

    # --- by resource, for the server ---------------------------------------------------------------------------------

    def table(self, resource: Resource) -> Table:
        """Return the table of a resource."""
        return self._tables[resource]

    def find(self, resource: Resource, namespace: str, name: str) -> Entry:
        """Return an object's entry; raise ``StatusError`` 404 if there is none."""
        entry = self._tables[resource].entries.get(resource.key(namespace, name))
        if entry is None:
            raise not_found(resource, name)
        return entry

    def insert(self, resource: Resource, obj: Mapping[str, Any]) -> Entry:
        """Create an object; see ``create``."""
        completed = self._fill_in(resource, self._checked(resource, obj))
        metadata = completed["metadata"]
        if resource.key(metadata.get("namespace", ""), metadata["name"]) in self._tables[resource].entries:
            raise already_exists(resource, metadata["name"])
        entry = encode_entry(resource, completed, self._next_version())
        self._tables[resource].put(entry)
        return entry

    def replace(self, resource: Resource, obj: Mapping[str, Any]) -> Entry:
        """Replace an object; see ``update``. Nothing happens if nothing differs."""
        content = self._checked(resource, obj)
        given = {name: value for name, value in content["metadata"].items() if value is not None}
        old = self.find(resource, given.get("namespace") or "default", given.get("name") or "")
        if given.get("uid") and given["uid"] != old.uid:
            raise wrong_uid(resource, old.key, given["uid"], old.uid)
        if given.get("resourceVersion") and int(given["resourceVersion"]) != old.resource_version:
            raise stale(resource, old.name)
        given["uid"] = old.uid
        if resource.namespaced:
            given["namespace"] = old.namespace
        if "creationTimestamp" not in given or "generation" not in given:
            given = _lasting_metadata(old) | given
        completed = self._fill_in(resource, {**content, "metadata": given})
        entry = encode_entry(resource, completed, old.resource_version)
        if entry.body == old.body:
            return old
        entry = entry.at_version(self._next_version())
        self._tables[resource].put(entry)
        return entry

    def remove(
        self, resource: Resource, namespace: str, name: str, preconditions: Mapping[str, Any] | None = None
    ) -> Entry:
        """Remove an object; raise ``StatusError`` 409 if it has another uid or resource version than asked for."""
        old = self.find(resource, namespace, name)
        self.check_preconditions(resource, old, preconditions or {})
        last = old.at_version(self._next_version())
        self._tables[resource].remove(last)
        return last

    def check_preconditions(self, resource: Resource, entry: Entry, preconditions: Mapping[str, Any]) -> None:
        """Raise ``StatusError`` 409 if a deletion means another object or another version of it."""
        uid, version = preconditions.get("uid"), preconditions.get("resourceVersion")
        if uid and uid != entry.uid:
            why = (
                f"the UID in the precondition ({uid}) does not match the UID in record ({entry.uid}). "
                "The object might have been deleted and then recreated"
            )
            raise conflict(resource, entry.name, why)
        if version and version != str(entry.resource_version):
            why = (
                f"the ResourceVersion in the precondition ({version}) does not match the ResourceVersion in record "
                f"({entry.resource_version}). The object might have been modified"
            )
            raise conflict(resource, entry.name, why)

    # --- inner parts -------------------------------------------------------------------------------------------------

    def _next_version(self) -> int:
        self.resource_version += 1
        return self.resource_version

    def _fill_in(self, resource: Resource, content: dict[str, Any]) -> dict[str, Any]:
        pod_name = _name_of(content)
        return complete_object(resource, content, lambda wanted: self._priority_of(wanted, resource, pod_name))

    def _checked(self, resource: Resource, obj: Mapping[str, Any]) -> dict[str, Any]:
        content = dict(obj)
        problems = find_problems(resource, content)
        if problems:
            raise invalid(resource.kind, _name_of(content), problems, resource.group)
        return content

    def _priority_of(self, wanted: str, resource: Resource, pod_name: str) -> dict[str, Any]:
        """Return priority, class and preemption policy of a pod, as the Priority admission plug-in sets them."""
        if wanted in _SYSTEM_PRIORITIES:
            return {"priority": _SYSTEM_PRIORITIES[wanted], "preemptionPolicy": "PreemptLowerPriority"}
        classes = self.catalogue.named("priorityclasses")
        for entry in self._tables[classes].entries.values():
            found = decode_entry(classes, entry)
            if entry.name == wanted or (not wanted and found.get("globalDefault")):
                return {
                    "priorityClassName": entry.name,
                    "priority": found.get("value") or 0,
                    "preemptionPolicy": found.get("preemptionPolicy") or "PreemptLowerPriority",
                }
        if wanted:
            raise forbidden(resource, pod_name, f"no PriorityClass with name {wanted} was found")
        return {"priority": 0, "preemptionPolicy": "PreemptLowerPriority"}

    def _load(self, objects: Iterable[Mapping[str, Any]]) -> None:
        problems: dict[int, str] = {}
        classified_pods: dict[int, dict[str, Any]] = {}
        for number, obj in enumerate(objects, start=1):
            content = dict(obj)
            spec = content.get("spec")
            # Pods that name a priority class wait for the classes, which may come later.
            if content.get("kind") == "Pod" and isinstance(spec, dict) and spec.get("priorityClassName"):
                classified_pods[number] = content
            else:
                self._load_one(number, content, problems)
        for number, content in classified_pods.items():
            self._load_one(number, content, problems)
        if problems:
            raise ConfigurationError(f"object {number}: {problem}" for number, problem in sorted(problems.items()))

    def _load_one(self, number: int, content: dict[str, Any], problems: dict[int, str]) -> None:
        """Take one object with the identity it says it has, or note what is wrong with it."""
        resource = self.catalogue.of(str(content.get("apiVersion")), str(content.get("kind")))
        if resource is None:
            problems[number] = f"kind {content.get('kind')} is not served in {content.get('apiVersion')}"
            return
        try:
            completed = self._fill_in(resource, self._checked(resource, content))
        except StatusError as error:
            problems[number] = error.message
            return
        version = int(completed["metadata"].get("resourceVersion") or 0) or self._next_version()
        self.resource_version = max(self.resource_version, version)
        entry = encode_entry(resource, completed, version)
        table = self._tables[resource]
        if entry.key in table.entries:
            problems[number] = f"{resource.kind} {entry.key} is there twice"
        table.load(entry)


def _lasting_metadata(entry: Entry) -> dict[str, Any]:
    lasting = msgspec.json.decode(b"{" + entry.body, type=_Kept).metadata
    found = {"creationTimestamp": lasting.creation_timestamp, "generation": lasting.generation}
    return {name: value for name, value in found.items() if value is not None}


def _name_of(content: Mapping[str, Any]) -> str:
    metadata = content.get("metadata")
    return str(metadata.get("name") or "") if isinstance(metadata, dict) else ""
