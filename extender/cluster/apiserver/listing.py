"""Lists: which state a request asks for, in pages that stay consistent.

Sources: ``apiserver/pkg/storage/continue.go`` and ``apimachinery/pkg/apis/meta/internalversion/validation`` of
Kubernetes 1.36.
"""

from __future__ import annotations

import base64
import re
from bisect import bisect_left
from collections.abc import Mapping
from operator import attrgetter
from typing import Any, NamedTuple

import msgspec

from extender.cluster.apiserver.answer import Answer
from extender.cluster.apiserver.check import Problem
from extender.cluster.apiserver.entry import Entry
from extender.cluster.apiserver.resource import Resource
from extender.cluster.apiserver.selector import Selector, parse_selector
from extender.cluster.apiserver.status import StatusError, bad_request, expired, invalid, too_large_version
from extender.cluster.apiserver.storage import Storage

_TOKEN_VERSION = "meta.k8s.io/v1"  # noqa: S105  # a version, no secret
_INCONSISTENT = -1
"""Resource version of a token that goes on from whatever is there now."""

_TOO_OLD_TO_CONTINUE = (
    "The provided continue parameter is too old to display a consistent list result. You can start a new list without "
    "the continue parameter, or use the continue token in this response to retrieve the remainder of the results. "
    "Continuing with the provided token results in an inconsistent list - objects that were created, modified, or "
    "deleted between the time the first chunk was returned and now may show up in the list."
)


class _Token(msgspec.Struct):
    """Where a list goes on; ``start`` is a key below the listed namespace."""

    version: str = msgspec.field(name="v", default="")
    resource_version: int = msgspec.field(name="rv", default=0)
    start: str = ""


class _Page(NamedTuple):
    entries: list[Entry]
    left: int
    """How many keys come after the page."""


def answer_list(storage: Storage, resource: Resource, namespace: str, query: Mapping[str, str]) -> Answer:
    """Answer a list request; raise ``StatusError`` 400, 410, 422 or 504 for one that cannot be answered."""
    _check_options(query)
    selector = parse_selector(resource, "", query)
    limit = parse_number(query, "limit")
    start = ""
    if query.get("continue"):
        token = _decode_token(query["continue"])
        start = token.start
        version, entries = _continued(storage, resource, token, query)
    else:
        version = _wanted_version(query, storage.resource_version, limit)
        entries = storage.table(resource).at(version)
    prefix = f"{namespace}/" if namespace else ""
    page = _cut_page(entries, prefix, start, selector, limit)
    metadata: dict[str, Any] = {"resourceVersion": str(version)}
    if page.left:
        metadata["continue"] = _encode_token(version, page.entries[-1].key[len(prefix) :] + "\0")
        if not selector:
            metadata["remainingItemCount"] = page.left
    return Answer(200, _list_pieces(resource, metadata, page.entries))


def parse_number(query: Mapping[str, str], name: str) -> int:
    """Return a parameter that is a number, 0 if it is absent; raise ``StatusError`` 400 for anything else."""
    text = query.get(name) or "0"
    if not text.isdecimal():
        raise bad_request(f'{name}: Invalid value: "{text}": strconv.ParseUint: parsing "{text}": invalid syntax')
    return int(text)


def refuse_options(problems: list[Problem]) -> None:
    """Raise ``StatusError`` 422 if there are problems with list options."""
    if problems:
        raise invalid("ListOptions", "", problems, "meta.k8s.io")


def forbid_option(option: str, why: str) -> Problem:
    """Return the problem of an option that must not stand where it stands."""
    return ("FieldValueForbidden", option, f"Forbidden: {why}")


def refuse_match(match: str, supported: str) -> Problem:
    """Return the problem of a ``resourceVersionMatch`` that does not exist."""
    return ("FieldValueNotSupported", "resourceVersionMatch", f'Unsupported value: "{match}": supported: {supported}')


def _check_options(query: Mapping[str, str]) -> None:
    problems: list[Problem] = []
    option = "resourceVersionMatch"
    match = query.get(option, "")
    if match:
        if not query.get("resourceVersion"):
            problems.append(forbid_option(option, f"{option} is forbidden unless resourceVersion is provided"))
        if query.get("continue"):
            problems.append(forbid_option(option, f"{option} is forbidden when continue is provided"))
        if match not in ("Exact", "NotOlderThan"):
            problems.append(refuse_match(match, '"Exact", "NotOlderThan"'))
        if match == "Exact" and query.get("resourceVersion") == "0":
            problems.append(forbid_option(option, f'{option} "exact" is forbidden for resourceVersion "0"'))
    if "sendInitialEvents" in query:
        problems.append(forbid_option("sendInitialEvents", "sendInitialEvents is forbidden for list"))
    refuse_options(problems)


def _wanted_version(query: Mapping[str, str], current: int, limit: int) -> int:
    wanted = parse_number(query, "resourceVersion")
    if wanted > current:
        raise too_large_version(wanted, current)
    # A limited list of a given version is that very version, unless the request says otherwise.
    match = query.get("resourceVersionMatch") or ("Exact" if limit else "NotOlderThan")
    return wanted if wanted and match == "Exact" else current


def _continued(
    storage: Storage, resource: Resource, token: _Token, query: Mapping[str, str]
) -> tuple[int, list[Entry]]:
    """Return version and state that a token goes on with."""
    if parse_number(query, "resourceVersion"):
        raise bad_request("specifying resource version is not allowed when using continue")
    current = storage.resource_version
    version = current if token.resource_version == _INCONSISTENT else token.resource_version
    if version > current:
        raise too_large_version(version, current)
    try:
        return version, storage.table(resource).at(version)
    except StatusError:
        metadata = {"continue": _encode_token(_INCONSISTENT, token.start)}
        raise expired(_TOO_OLD_TO_CONTINUE, metadata) from None


def _cut_page(entries: list[Entry], prefix: str, start: str, selector: Selector, limit: int) -> _Page:
    """Return the first ``limit`` selected entries below a prefix from a key on."""
    key = attrgetter("key")
    first = bisect_left(entries, prefix + start, key=key)
    # "0" is the character after "/": the end of a namespace's keys.
    end = bisect_left(entries, f"{prefix[:-1]}0", key=key) if prefix else len(entries)
    if not selector:
        last = min(first + limit, end) if limit else end
        return _Page(entries[first:last], end - last)
    chosen: list[Entry] = []
    for index in range(first, end):
        if selector.admits(entries[index]):
            chosen.append(entries[index])
            if len(chosen) == limit:
                return _Page(chosen, end - index - 1)
    return _Page(chosen, 0)


def _list_pieces(resource: Resource, metadata: Mapping[str, Any], entries: list[Entry]) -> list[bytes]:
    head = f'{{"kind":"{resource.kind}List","apiVersion":"{resource.api_version}","metadata":'.encode()
    pieces = [head, msgspec.json.encode(metadata), b',"items":[']
    separator = b"{"
    for entry in entries:
        pieces += (separator, entry.body)
        separator = b",{"
    pieces.append(b"]}\n")
    return pieces


def _encode_token(resource_version: int, start: str) -> str:
    token = msgspec.json.encode(_Token(_TOKEN_VERSION, resource_version, start))
    return base64.urlsafe_b64encode(token).rstrip(b"=").decode()


def _decode_token(text: str) -> _Token:
    """Return what a token says; raise ``StatusError`` 400 for one that this server never gave out."""
    problem = "continue key is not valid"
    bad_character = re.search(r"[^A-Za-z0-9_-]", text)
    if bad_character or len(text) % 4 == 1:
        offset = bad_character.start() if bad_character else len(text) - 1
        raise bad_request(f"invalid continue token: {problem}: illegal base64 data at input byte {offset}")
    try:
        token = msgspec.json.decode(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)), type=_Token)
    except msgspec.DecodeError as error:
        raise bad_request(f"invalid continue token: {problem}: {error}") from error
    if token.version != _TOKEN_VERSION:
        problem += f": server does not recognize this encoded version {token.version}"
    elif token.resource_version == 0:
        problem += f": incorrect encoded start resourceVersion (version {_TOKEN_VERSION})"
    elif not token.start:
        problem += f": encoded start key empty (version {_TOKEN_VERSION})"
    else:
        return token
    raise bad_request(f"invalid continue token: {problem}")
