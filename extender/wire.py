"""The extender/v1 wire format: bytes to requests, results to bytes.

Source of the types: k8s.io/kube-scheduler/extender/v1 of 1.36. They have no JSON tags, so Go writes their field names
and reads any casing; releases before 1.16 wrote lower-case ones. Both usual spellings are declared and cost nothing;
any other casing is folded when a field is missed, and within Pods and Nodes when a key shows it. Node objects and name
lists stay raw bytes until somebody asks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import msgspec
import numpy as np
from msgspec import UNSET, Raw, UnsetType
from numpy.typing import NDArray

from extender.errors import RequestError
from extender.model.document import ObjectReader, decode, folded, is_null
from extender.model.name_list import NameList
from extender.model.object import Int64, Node, Pod

MAX_EXTENDER_SCORE = 10
"""The best score on the wire (source: extender/v1 MaxExtenderPriority)."""


class _Request(msgspec.Struct, gc=False):
    """Root of the requests as they stand in JSON."""


class _NodeList(_Request):
    items: list[Raw] | None = None


class _FilterArgs(_Request):
    """ExtenderArgs, in both usual spellings."""

    Pod: Raw | UnsetType = UNSET
    Nodes: _NodeList | UnsetType | None = UNSET
    NodeNames: Raw | UnsetType = UNSET
    pod: Raw | UnsetType = UNSET
    nodes: _NodeList | UnsetType | None = UNSET
    nodenames: Raw | UnsetType = UNSET


class _BindArgs(_Request):
    """ExtenderBindingArgs, in both usual spellings."""

    PodName: str | UnsetType | None = UNSET
    PodNamespace: str | UnsetType | None = UNSET
    PodUID: str | UnsetType | None = UNSET
    Node: str | UnsetType | None = UNSET
    podName: str | UnsetType | None = UNSET
    podNamespace: str | UnsetType | None = UNSET
    podUID: str | UnsetType | None = UNSET
    node: str | UnsetType | None = UNSET


class _PreemptArgs(_Request):
    """ExtenderPreemptionArgs with its two maps still raw."""

    Pod: Raw | UnsetType = UNSET
    NodeNameToVictims: Raw | UnsetType = UNSET
    NodeNameToMetaVictims: Raw | UnsetType = UNSET
    pod: Raw | UnsetType = UNSET
    nodeNameToVictims: Raw | UnsetType = UNSET
    nodeNameToMetaVictims: Raw | UnsetType = UNSET


class FilterRequest(msgspec.Struct, frozen=True, gc=False):
    """What ``/filter`` and ``/prioritize`` are asked.

    Exactly one of ``names`` (the JSON array as it came) and ``nodes`` (each Node as it came) is given.
    """

    pod: Raw
    names: Raw | None
    nodes: list[Raw] | None


class BindRequest(msgspec.Struct, frozen=True, gc=False):
    """What ``/bind`` is asked."""

    name: str
    namespace: str
    uid: str
    node: str


class Victims(msgspec.Struct, frozen=True, gc=False):
    """Pods to be evicted from one node, most important first."""

    uids: list[str]
    violations: int


class PreemptRequest(msgspec.Struct, frozen=True, gc=False):
    """What ``/preempt`` is asked: candidate nodes and the victims kube-scheduler picked on each."""

    pod: Raw
    victims: dict[str, Victims]


_filter_args = msgspec.json.Decoder(_FilterArgs)
_bind_args = msgspec.json.Decoder(_BindArgs)
_preempt_args = msgspec.json.Decoder(_PreemptArgs)
_victims_by_node = msgspec.json.Decoder(dict[str, dict[str, Raw] | None])
_pods = msgspec.json.Decoder(list[dict[str, Raw] | None] | None)
_text = msgspec.json.Decoder(str | None)
_count = msgspec.json.Decoder(Int64 | None)
_names = msgspec.json.Decoder(list[str])
_nodes = msgspec.json.Decoder(list[Raw] | None)
_fields = msgspec.json.Decoder(dict[str, Raw])
_pod_reader = ObjectReader(Pod)
_node_reader = ObjectReader(Node)
_encoder = msgspec.json.Encoder()

_NULL = Raw(b"null")


# --- requests --------------------------------------------------------------------------------------------------------


def decode_filter(body: bytes) -> FilterRequest:
    """Read the request of ``/filter`` or ``/prioritize``.

    Raises:
        RequestError: it is not ExtenderArgs; names the field and the remedy.
    """
    args = decode(_filter_args, body, "ExtenderArgs")
    pod, nodes, names = (
        _given(args.Pod, args.pod),
        _either(args.Nodes, args.nodes),
        _given(args.NodeNames, args.nodenames),
    )
    if pod is None or (nodes is None and names is None):
        args = decode(_filter_args, _recase(body, ("Pod", "Nodes", "NodeNames")), "ExtenderArgs")
        pod, nodes, names = _given(args.Pod), _either(args.Nodes), _given(args.NodeNames)
    if pod is None:
        raise RequestError("Pod: is missing; send the whole Pod object")
    if nodes is not None:
        return FilterRequest(pod, None, nodes.items or _find_items(body))
    if names is not None:
        return FilterRequest(pod, names, None)
    raise RequestError("Nodes, NodeNames: both are missing; send one (NodeNames with nodeCacheCapable: true)")


def decode_bind(body: bytes) -> BindRequest:
    """Read the request of ``/bind``.

    Raises:
        RequestError: it is not ExtenderBindingArgs, or it does not name pod, namespace and node.
    """
    given = _bind_fields(decode(_bind_args, body, "ExtenderBindingArgs"))
    if not all(given.values()):
        given = _bind_fields(decode(_bind_args, _recase(body, given), "ExtenderBindingArgs"))
    for field in ("PodName", "PodNamespace", "Node"):
        if not given[field]:
            raise RequestError(f"{field}: is missing; send PodName, PodNamespace, PodUID and Node")
    return BindRequest(given["PodName"], given["PodNamespace"], given["PodUID"], given["Node"])


def decode_preempt(body: bytes) -> PreemptRequest:
    """Read the request of ``/preempt``, with victims as pod identities or as whole pods.

    A ``null`` in place of victims or of a pod is left out. Nodes keep their order.

    Raises:
        RequestError: it is not ExtenderPreemptionArgs, or a victim has no UID; names the field and the remedy.
    """
    names = ("Pod", "NodeNameToVictims", "NodeNameToMetaVictims")
    args = decode(_preempt_args, body, "ExtenderPreemptionArgs")
    pod = _given(args.Pod, args.pod)
    meta, whole = (
        _given(args.NodeNameToMetaVictims, args.nodeNameToMetaVictims),
        _given(args.NodeNameToVictims, args.nodeNameToVictims),
    )
    if pod is None or (meta is None and whole is None):
        args = decode(_preempt_args, _recase(body, names), "ExtenderPreemptionArgs")
        pod, meta, whole = _given(args.Pod), _given(args.NodeNameToMetaVictims), _given(args.NodeNameToVictims)
    if pod is None:
        raise RequestError("Pod: is missing; send the whole Pod object")
    if meta is not None:
        return PreemptRequest(pod, _read_victims(meta, "NodeNameToMetaVictims", _read_identity))
    if whole is not None:
        return PreemptRequest(pod, _read_victims(whole, "NodeNameToVictims", _read_whole))
    raise RequestError("NodeNameToVictims, NodeNameToMetaVictims: both are missing; send one")


def decode_names(names: Raw) -> list[str]:
    """Read the value of ``NodeNames``.

    Raises:
        RequestError: it is not a list of strings.
    """
    return decode(_names, names, "NodeNames", "NodeNames")


def decode_pod(pod: Raw) -> Pod:
    """Read the value of ``Pod``.

    Raises:
        RequestError: a field that scheduling needs has the wrong type; names it.
    """
    return _pod_reader.read(pod, "Pod")


def decode_node(node: Raw) -> Node:
    """Read one of ``Nodes.items``.

    Raises:
        RequestError: a field that scheduling needs has the wrong type; names it.
    """
    return _node_reader.read(node, "Nodes.items[]")


def _find_items(body: bytes) -> list[Raw]:
    """Return the nodes of a list whose items stand under a key in another casing, or nowhere."""
    nodes = folded(decode(_fields, body, "ExtenderArgs"))["nodes"]
    items = folded(decode(_fields, nodes, "NodeList", "Nodes")).get("items", _NULL)
    return decode(_nodes, items, "NodeList", "Nodes.items") or []


def _bind_fields(args: _BindArgs) -> dict[str, str]:
    return {
        "PodName": _either(args.PodName, args.podName) or "",
        "PodNamespace": _either(args.PodNamespace, args.podNamespace) or "",
        "PodUID": _either(args.PodUID, args.podUID) or "",
        "Node": _either(args.Node, args.node) or "",
    }


def _read_victims(raw: Raw, field: str, read_uid: Callable[[dict[str, Raw], str], str]) -> dict[str, Victims]:
    """Read one of the two maps, in which keys of any casing may stand as well."""
    found: dict[str, Victims] = {}
    for node, victims in decode(_victims_by_node, raw, field, field).items():
        if victims is not None:
            place, members = f"{field}[{node!r}]", folded(victims)
            pods = decode(_pods, members.get("pods", _NULL), "Pods", f"{place}.Pods") or ()
            uids = [read_uid(folded(pod), f"{place}.Pods[{n}]") for n, pod in enumerate(pods) if pod is not None]
            violations = members.get("numpdbviolations", _NULL)
            count = decode(_count, violations, "NumPDBViolations", f"{place}.NumPDBViolations")
            found[node] = Victims(list(dict.fromkeys(uids)), count or 0)
    return found


def _read_identity(fields: dict[str, Raw], place: str, key: str = "UID") -> str:
    """Return a pod's UID; to leave out a victim that has none would be to spare it."""
    uid = decode(_text, fields.get("uid", _NULL), key, f"{place}.{key}")
    if not uid:
        raise RequestError(f"{place}.{key}: is missing; send every victim with its UID")
    return uid


def _read_whole(fields: dict[str, Raw], place: str) -> str:
    metadata = fields.get("metadata", _NULL)
    found = {} if is_null(metadata) else decode(_fields, metadata, "Pod", f"{place}.metadata")
    return _read_identity(folded(found), f"{place}.metadata", "uid")


def _either(*values: Any) -> Any:
    for value in values:
        if value is not UNSET and value is not None:
            return value
    return None


def _given(*values: Raw | UnsetType) -> Raw | None:
    for value in values:
        if isinstance(value, Raw) and not is_null(value):
            return value
    return None


def _recase(body: bytes, names: Iterable[str]) -> bytes:
    """Return ``body`` with its top-level keys in Go's spelling, whatever their casing was."""
    fields = folded(decode(_fields, body, "one JSON object"))
    return _encoder.encode({name: fields[name.casefold()] for name in names if name.casefold() in fields})


# --- replies ---------------------------------------------------------------------------------------------------------


class _FilterResult(msgspec.Struct):
    """ExtenderFilterResult as it is written."""

    Nodes: Any
    NodeNames: Any
    FailedNodes: Raw
    FailedAndUnresolvableNodes: Raw
    Error: str


class _WireMetaPod(msgspec.Struct, gc=False):
    UID: str


class _WireMetaVictims(msgspec.Struct, gc=False):
    Pods: list[_WireMetaPod]
    NumPDBViolations: int


Refused = Iterable[tuple[NameList, str]]
"""Names of nodes, each with why they were refused; no name is in two of the lists."""


def encode_filter_names(kept: NameList, failed: Refused, unresolvable: Refused) -> bytes:
    """Write the reply of ``/filter`` in names mode."""
    reply = _FilterResult(None, Raw(kept.text), _encode_reasons(failed), _encode_reasons(unresolvable), "")
    return _encoder.encode(reply)


def encode_filter_nodes(kept: Sequence[Raw], failed: Refused, unresolvable: Refused) -> bytes:
    """Write the reply of ``/filter`` in nodes mode; every kept node goes back byte for byte."""
    nodes = {"metadata": {}, "items": kept}
    return _encoder.encode(_FilterResult(nodes, None, _encode_reasons(failed), _encode_reasons(unresolvable), ""))


def encode_filter_error(text: str) -> bytes:
    """Write the reply of a ``/filter`` that failed."""
    return _encoder.encode(_FilterResult(None, None, Raw(b"{}"), Raw(b"{}"), text or "unknown error"))


def _encode_reasons(refused: Refused) -> Raw:
    parts = []
    for names, reason in refused:
        if len(names):
            said = b'":%b' % _encoder.encode(reason)
            parts.append(names.spliced(b'"', said + b',"', said))
    return Raw(b"{%b}" % b",".join(parts))


_BEFORE_HOST, _BEFORE_SCORE, _AFTER_SCORE = b'{"Host":"', b'","Score":', b"}"
_SCORE_WIDTH = len(str(MAX_EXTENDER_SCORE))
_SCORE_DIGITS = np.array([list(b"%*d" % (_SCORE_WIDTH, score)) for score in range(MAX_EXTENDER_SCORE + 1)], np.uint8)
"""How each score is written, right-aligned; shape (scores, width)."""


class HostScores:
    """The reply of ``/prioritize`` for some hosts, to be filled with scores."""

    def __init__(self, hosts: NameList) -> None:
        after = _BEFORE_SCORE + b" " * _SCORE_WIDTH + _AFTER_SCORE
        between = b"%b,%b" % (after, _BEFORE_HOST)
        self._text = hosts.spliced(b"[" + _BEFORE_HOST, between, after + b"]") if len(hosts) else b"[]"
        ends = np.cumsum(hosts.lengths + len(between)) - len(between) + len(b"[" + _BEFORE_HOST)
        self._places = ends + len(_BEFORE_SCORE)

    def filled(self, scores: NDArray[np.int64]) -> bytes:
        """Return the reply with ``scores``, 0 to 10, shape (hosts,)."""
        text = np.frombuffer(self._text, np.uint8).copy()
        for place in range(_SCORE_WIDTH):
            text[self._places + place] = _SCORE_DIGITS[:, place].take(scores)
        return text.tobytes()


def encode_bind(error: str = "") -> bytes:
    """Write the reply of ``/bind``; an empty ``error`` means that the pod is bound."""
    return _encoder.encode({"Error": error})


def encode_preempt(victims: Mapping[str, Victims]) -> bytes:
    """Write the reply of ``/preempt``.

    A node without victims is left out, because kube-scheduler treats it as an error; nothing here can become null,
    because that would crash kube-scheduler.
    """
    nodes = {
        node: _WireMetaVictims([_WireMetaPod(uid) for uid in found.uids], found.violations)
        for node, found in victims.items()
        if found.uids
    }
    return _encoder.encode({"NodeNameToMetaVictims": nodes})
