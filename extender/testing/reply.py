"""What kube-scheduler makes of an extender's replies, one function a verb.

The bodies given here are those of replies with status 200; any other status ends the call before its body is read.
Source: pkg/scheduler/extender.go of kube-scheduler 1.36, and prioritizeNodes in schedule_one.go for the points.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

from extender.testing import gojson
from extender.testing.failure import ExtenderCallError, SchedulerPanic
from extender.testing.goscanner import quote

Json: TypeAlias = dict[str, Any]
"""A Kubernetes object as plain JSON, in the API's own spelling."""

POINTS_PER_SCORE = 10
"""Points of the scheduler's scale (0..100) for one point of an extender's scale (0..10)."""


@dataclass(frozen=True)
class FilterOutcome:
    """The nodes an extender left, in the reply's order and as often as it named them, and its reasons for the others.

    In names mode ``nodes`` holds the very objects that were offered. ``usage_lost`` tells that they came out of the
    reply's ``Nodes`` instead: kube-scheduler then scores them as if no pod ran on them.
    """

    nodes: list[Json]
    failed: dict[str, str]
    unresolvable: dict[str, str]
    usage_lost: bool = False

    @property
    def names(self) -> list[str]:
        """The names of the nodes left."""
        return [node_name(node) for node in self.nodes]


class HostScore(NamedTuple):
    """One entry of a prioritize reply."""

    host: str
    score: int


@dataclass(frozen=True)
class PrioritizeOutcome:
    """The scores as replied, the configured weight, and the points each offered node gets from them."""

    scores: list[HostScore]
    weight: int
    points: dict[str, int]


@dataclass(frozen=True)
class Victims:
    """Pods to evict from one node, and how many of them a disruption budget protects."""

    pods: list[Json]
    num_pdb_violations: int = 0


_FAILED_NODES = gojson.Table(gojson.Text(), "v1.FailedNodesMap")
_NODE = gojson.Struct(
    "v1.Node",
    {
        "metadata": gojson.Struct(
            "v1.ObjectMeta",
            {"name": gojson.Text(), "labels": gojson.Table(gojson.Text(), "map[string]string")},
            open=True,
        )
    },
    open=True,
)
_NODE_LIST = gojson.Struct(
    "v1.NodeList",
    {"metadata": gojson.Struct("v1.ListMeta", {}), "items": gojson.Sequence(_NODE, "[]v1.Node")},
)
_FILTER_RESULT = gojson.Struct(
    "v1.ExtenderFilterResult",
    {
        "Nodes": gojson.Pointer(_NODE_LIST),
        "NodeNames": gojson.Pointer(gojson.Sequence(gojson.Text(), "[]string")),
        "FailedNodes": _FAILED_NODES,
        "FailedAndUnresolvableNodes": _FAILED_NODES,
        "Error": gojson.Text(),
    },
)
_HOST_PRIORITY_LIST = gojson.Sequence(
    gojson.Struct("v1.HostPriority", {"Host": gojson.Text(), "Score": gojson.Integer()}), "v1.HostPriorityList"
)
_BINDING_RESULT = gojson.Struct("v1.ExtenderBindingResult", {"Error": gojson.Text()})
_META_POD = gojson.Pointer(gojson.Struct("v1.MetaPod", {"UID": gojson.Text()}))
_META_VICTIMS = gojson.Struct(
    "v1.MetaVictims",
    {"Pods": gojson.Sequence(_META_POD, "[]*v1.MetaPod"), "NumPDBViolations": gojson.Integer()},
)
_PREEMPTION_RESULT = gojson.Struct(
    "v1.ExtenderPreemptionResult",
    {"NodeNameToMetaVictims": gojson.Table(gojson.Pointer(_META_VICTIMS), "map[string]*v1.MetaVictims")},
)


def read_filter(body: bytes, offered: Sequence[Json], *, by_name: bool, url_prefix: str) -> FilterOutcome:
    """Return what a filter reply leaves of the ``offered`` nodes; ``by_name`` in names mode.

    Raises ``ExtenderCallError`` for an ``Error`` in the reply, a name that was not offered, and a body that cannot be
    decoded. A reply with neither field, or with the other mode's only, leaves no node and is no error; of a node that
    came with the reply only the name and the labels are checked for their type.
    """
    result = gojson.decode_reply(body, _FILTER_RESULT)
    if result["Error"]:
        raise ExtenderCallError(result["Error"])
    nodes: list[Json] = []
    usage_lost = False
    if by_name and result["NodeNames"] is not None:
        known = {node_name(node): node for node in offered}
        for name in result["NodeNames"]:
            if name not in known:
                raise ExtenderCallError(
                    f"extender {quote(url_prefix)} claims a filtered node {quote(name)} "
                    "which is not found in the input node list"
                )
            nodes.append(known[name])
    elif result["Nodes"] is not None:
        nodes = result["Nodes"]["items"]
        usage_lost = True
    return FilterOutcome(nodes, result["FailedNodes"], result["FailedAndUnresolvableNodes"], usage_lost)


def read_prioritize(body: bytes, offered: Sequence[Json], weight: int) -> PrioritizeOutcome:
    """Return the scores of a prioritize reply and the points they give the ``offered`` nodes.

    Hosts that were not offered are ignored, those not named get no points and those named twice get both; the range
    is not checked. Raises ``DecodeError`` for a body that cannot be decoded.
    """
    result = gojson.decode_reply(body, _HOST_PRIORITY_LIST)
    return grade((HostScore(entry["Host"], entry["Score"]) for entry in result), offered, weight)


def grade(scores: Iterable[HostScore], offered: Sequence[Json], weight: int) -> PrioritizeOutcome:
    """Return ``scores`` with the points they give the ``offered`` nodes: score x weight x 10, as an int64."""
    scores = list(scores)
    points = dict.fromkeys((node_name(node) for node in offered), 0)
    for host, score in scores:
        if host in points:
            points[host] = _wrap(points[host] + score * weight * POINTS_PER_SCORE)
    return PrioritizeOutcome(scores, weight, points)


def read_bind(body: bytes) -> None:
    """Return if a bind reply says that the pod is bound; raises ``ExtenderCallError`` with its ``Error`` if not."""
    result = gojson.decode_reply(body, _BINDING_RESULT)
    if result["Error"]:
        raise ExtenderCallError(result["Error"])


def read_preempt(body: bytes, pods_by_node: Mapping[str, Sequence[Json]], *, url_prefix: str) -> dict[str, Victims]:
    """Return the victims of each node a preempt reply names, taken from ``pods_by_node`` by their UIDs.

    A node may come back without victims: the default preemption of 1.36 then fails the attempt with ``expected at
    least one victim pod on node``, later releases accept it. Raises ``ExtenderCallError`` for a node that is not in
    ``pods_by_node``, a UID of no pod on that node, and a body that cannot be decoded; ``SchedulerPanic`` for a null in
    place of victims or of a pod.
    """
    result = gojson.decode_reply(body, _PREEMPTION_RESULT)
    victims = {}
    for node, named in result["NodeNameToMetaVictims"].items():
        if node not in pods_by_node:
            raise ExtenderCallError(f"nodeinfo not found for node name {quote(node)}")
        if named is None:
            raise SchedulerPanic
        pods = [_find_pod(meta, node, pods_by_node[node], url_prefix) for meta in named["Pods"]]
        victims[node] = Victims(pods, named["NumPDBViolations"])
    return victims


def node_name(node: Json) -> str:
    """Return the name of a node, empty if it has none."""
    return str(node.get("metadata", {}).get("name", ""))


def _find_pod(meta: Json | None, node: str, pods: Sequence[Json], url_prefix: str) -> Json:
    if meta is None and pods:
        raise SchedulerPanic
    uid = meta["UID"] if meta else None
    for pod in pods:
        if pod["metadata"].get("uid", "") == uid:
            return pod
    shown = f"&{{{uid}}}" if meta else "<nil>"
    raise ExtenderCallError(
        f"extender: {url_prefix} claims to preempt pod (UID: {shown}) on node: {node}, "
        "but the pod is not found on that node"
    )


def _wrap(points: int) -> int:
    """Return ``points`` as Go's int64 keeps it: past the range it wraps around in silence."""
    return (points + 2**63) % 2**64 - 2**63
