"""What the mirror holds against what the API server has: nodes and pods that are missing, left over, or outdated.

The two are never looked at in the same instant. A difference is therefore told only if a second look, a moment later,
finds it again, and another version only if the mirror's is the older one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Protocol

import msgspec

from extender.model.kind import NODES, PODS, Kind

MOST_LISTED: Final = 100
_PAUSE_SECONDS: Final = 1.0


@dataclass(frozen=True)
class Version:
    """One object as one side has it; ``node`` is where a pod is placed."""

    uid: str
    resource_version: str
    node: str = ""

    def is_older_than(self, other: Version) -> bool:
        """Say whether the other version came later, as far as versions can be compared."""
        mine, theirs = self.resource_version, other.resource_version
        if mine.isdecimal() and theirs.isdecimal():
            return int(mine) < int(theirs)
        return mine != theirs


Versions = Mapping[str, Version]
Fetch = Callable[[Kind, str], Awaitable[bytes]]
"""Returns a page of a list, given the token that continues it."""


class Held(Protocol):
    """What is asked of the mirror; the answers are copies."""

    async def __call__(self, kind: Kind) -> Versions:
        """Return what is held of one kind by key."""


async def compare(kinds: list[Kind], fetch: Fetch, held: Held) -> dict[str, Any]:
    """Return the differences by kind: how many, and the first of them.

    Raises:
        ApiError: the API server refuses a list.
        ApiUnreachable: it does not answer.
    """
    report: dict[str, Any] = {}
    for kind in kinds:
        first = await _differences(kind, fetch, held)
        lasting = {}
        if any(first.values()):
            await asyncio.sleep(_PAUSE_SECONDS)
            lasting = await _differences(kind, fetch, held)
        report[kind.plural] = {"same": not any(first[name].keys() & found.keys() for name, found in lasting.items())}
        for name in first:
            keys = sorted(first[name].keys() & lasting.get(name, {}).keys())
            listed = {key: lasting[name][key] for key in keys[:MOST_LISTED]}
            report[kind.plural][name] = {"count": len(keys), "objects": listed}
    return report


async def _differences(kind: Kind, fetch: Fetch, held: Held) -> dict[str, dict[str, Any]]:
    listed, mine = await _listed(kind, fetch), await held(kind)
    return {
        "missing": {key: {"listed": listed[key]} for key in listed.keys() - mine.keys()},
        "extra": {key: {"held": mine[key]} for key in mine.keys() - listed.keys()},
        "outdated": {
            key: {"listed": listed[key], "held": mine[key]}
            for key in listed.keys() & mine.keys()
            if mine[key] != listed[key] and mine[key].is_older_than(listed[key])
        },
    }


class _Meta(msgspec.Struct, gc=False, rename="camel"):
    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""


class _Spec(msgspec.Struct, gc=False, rename="camel"):
    node_name: str = ""


class _Item(msgspec.Struct, gc=False):
    metadata: _Meta
    spec: _Spec | None = None


class _ListMeta(msgspec.Struct, gc=False):
    token: str = msgspec.field(name="continue", default="")


class _Page(msgspec.Struct, gc=False):
    metadata: _ListMeta
    items: list[_Item] | None = None


_pages = msgspec.json.Decoder(_Page)


async def _listed(kind: Kind, fetch: Fetch) -> Versions:
    found: dict[str, Version] = {}
    token = ""
    while True:
        page = _pages.decode(await fetch(kind, token))
        for item in page.items or ():
            meta = item.metadata
            key = f"{meta.namespace}/{meta.name}" if meta.namespace else meta.name
            node = item.spec.node_name if item.spec and kind == PODS else ""
            found[key] = Version(meta.uid, meta.resource_version, node)
        token = page.metadata.token
        if not token:
            return found


COMPARED: Final = (NODES, PODS)
