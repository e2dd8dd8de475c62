"""The wire types as documentation: what OpenAPI shows of the requests and replies of the verbs.

``extender.wire`` reads and writes the same JSON without building these. Source: k8s.io/kube-scheduler/extender/v1.
"""

from __future__ import annotations

from typing import Annotated, Any, NamedTuple, TypeAlias

import msgspec
from msgspec import Meta

from extender.errors import (
    DISCIPLINE,
    AlgorithmError,
    BodyTimeout,
    BodyTooLarge,
    Channel,
    DeadlineExceeded,
    ExtenderError,
    NotReadyError,
    RequestError,
    SubjectNotAllowed,
)
from extender.model import object as kubernetes

Score: TypeAlias = Annotated[int, Meta(ge=0, le=10)]
Text: TypeAlias = Annotated[str, Meta(min_length=1)]


# --- what is asked ---------------------------------------------------------------------------------------------------


class NodeList(msgspec.Struct):
    """Whole nodes."""

    items: list[kubernetes.Node] | None = None


class ExtenderArgs(msgspec.Struct):
    """What filter and prioritize are asked: a pod, and nodes by name (nodeCacheCapable) or as whole objects."""

    Pod: kubernetes.Pod
    Nodes: NodeList | None = None
    NodeNames: list[str] | None = None


class MetaPod(msgspec.Struct):
    """A pod by identity."""

    UID: Text


class ProposedMetaVictims(msgspec.Struct):
    """Pods that kube-scheduler would evict from one node, most important first."""

    Pods: list[MetaPod] | None = None
    NumPDBViolations: kubernetes.Int64 = 0


class Victims(msgspec.Struct):
    """The same as whole pods, each with its uid."""

    Pods: list[kubernetes.Pod] | None = None
    NumPDBViolations: kubernetes.Int64 = 0


class ExtenderPreemptionArgs(msgspec.Struct):
    """What preempt is asked: a pod, and for each candidate node the pods kube-scheduler would evict."""

    Pod: kubernetes.Pod
    NodeNameToVictims: dict[str, Victims] | None = None
    NodeNameToMetaVictims: dict[str, ProposedMetaVictims] | None = None


class ExtenderBindingArgs(msgspec.Struct):
    """What bind is asked."""

    PodName: str
    PodNamespace: str
    PodUID: str
    Node: str


# --- what is answered ------------------------------------------------------------------------------------------------


class KeptNodes(msgspec.Struct):
    """Nodes that fit, byte for byte as they came."""

    metadata: dict[str, Any]
    items: list[kubernetes.Node]


class ExtenderFilterResult(msgspec.Struct):
    """Which nodes fit, in the field of the mode that was asked, and why each of the others does not.

    Where the request failed, neither field has a value, and the error says why.
    """

    Nodes: KeptNodes | None
    NodeNames: list[str] | None
    FailedNodes: dict[str, str]
    FailedAndUnresolvableNodes: dict[str, str]
    Error: str


class HostPriority(msgspec.Struct):
    """The score of one node."""

    Host: str
    Score: Score


class MetaVictims(msgspec.Struct):
    """Pods to be evicted from one node, most important first."""

    Pods: Annotated[list[MetaPod], Meta(min_length=1)]
    NumPDBViolations: kubernetes.Int64


class ExtenderPreemptionResult(msgspec.Struct):
    """The candidate nodes that remain, with their victims."""

    NodeNameToMetaVictims: dict[str, MetaVictims]


class ExtenderBindingResult(msgspec.Struct):
    """Whether the pod was bound: an empty error means that it was."""

    Error: str


class Failure(msgspec.Struct):
    """Why a request got no reply of its verb."""

    Error: Text


_POD = {
    "metadata": {"name": "web-1", "namespace": "default", "uid": "2ceb1ebb-c783-4415-8a4a-0cde8a966767"},
    "spec": {"containers": [{"name": "web", "resources": {"requests": {"cpu": "500m", "memory": "1Gi"}}}]},
}
_ASKED = {"Pod": _POD, "Nodes": None, "NodeNames": ["node-1", "node-2"]}
_VICTIMS = {"node-1": {"Pods": [{"UID": "8a3e4623-d5d5-46ab-af98-eb1b5d9b6e62"}], "NumPDBViolations": 0}}


class Verb(NamedTuple):
    """One verb as it is documented: its types, and an example of each."""

    summary: str
    request: Any
    reply: Any
    asked: Any
    answered: Any


VERBS = {
    "filter": Verb(
        "Which nodes a pod fits, and why not the others",
        ExtenderArgs,
        ExtenderFilterResult,
        _ASKED,
        {
            "Nodes": None,
            "NodeNames": ["node-1"],
            "FailedNodes": {"node-2": "Insufficient cpu"},
            "FailedAndUnresolvableNodes": {},
            "Error": "",
        },
    ),
    "prioritize": Verb(
        "How good each node is for a pod, 0 to 10",
        ExtenderArgs,
        list[HostPriority],
        _ASKED,
        [{"Host": "node-1", "Score": 7}, {"Host": "node-2", "Score": 3}],
    ),
    "bind": Verb(
        "Bind a pod to a node, once",
        ExtenderBindingArgs,
        ExtenderBindingResult,
        {
            "PodName": "web-1",
            "PodNamespace": "default",
            "PodUID": "2ceb1ebb-c783-4415-8a4a-0cde8a966767",
            "Node": "node-1",
        },
        {"Error": ""},
    ),
    "preempt": Verb(
        "Where evicting the proposed victims makes room",
        ExtenderPreemptionArgs,
        ExtenderPreemptionResult,
        {"Pod": _POD, "NodeNameToVictims": None, "NodeNameToMetaVictims": _VICTIMS},
        {"NodeNameToMetaVictims": _VICTIMS},
    ),
}
"""The verbs by name."""


def components() -> dict[str, Any]:
    """Return the JSON schemas of all wire types, by name."""
    types = [kind for verb in VERBS.values() for kind in (verb.request, verb.reply)]
    _, schemas = msgspec.json.schema_components([*types, Failure], ref_template="#/components/schemas/{name}")
    return schemas


_FAILURES: tuple[type[ExtenderError], ...] = (
    RequestError,
    SubjectNotAllowed,
    BodyTimeout,
    BodyTooLarge,
    AlgorithmError,
    NotReadyError,
    DeadlineExceeded,
)
"""What a request can fail with, one error a status."""


def operation(name: str) -> dict[str, Any]:
    """Return the request body and replies of a verb, for its OpenAPI operation."""
    verb = VERBS[name]
    answered, failures = {"reply": verb.answered}, {}
    if DISCIPLINE[name].channel is Channel.ERROR_FIELD:
        answered["failure"] = {field: _FAILED.get(field) for field in verb.answered}
    else:
        failures = {str(error.status): _failure(_first_line(error)) for error in _FAILURES}
    return {
        "requestBody": {"required": True, "content": _content(verb.request, {"request": verb.asked})},
        "responses": {
            "200": {"description": "The reply", "content": _content(verb.reply, answered)},
            **failures,
            "default": _failure("The request did not get as far as the verb"),
        },
    }


_FAILED = {"FailedNodes": {}, "FailedAndUnresolvableNodes": {}, "Error": "not ready: pods are not synced"}
"""The fields of a reply that tells a failure; others are null."""


def _first_line(error: type[ExtenderError]) -> str:
    return (error.__doc__ or "").partition("\n")[0]


def _failure(description: str) -> dict[str, Any]:
    example = {"failure": {"Error": "Pod: is missing; send the whole Pod object"}}
    return {"description": description, "content": _content(Failure, example)}


def _content(kind: Any, examples: dict[str, Any]) -> dict[str, Any]:
    named = {name: {"value": value} for name, value in examples.items()}
    return {"application/json": {"schema": _reference(kind), "examples": named}}


def _reference(kind: Any) -> Any:
    (schema,), _ = msgspec.json.schema_components([kind], ref_template="#/components/schemas/{name}")
    return schema
