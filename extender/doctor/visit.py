"""The checks of one extender: on the way to it, its paths, its replies, its connections."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

from extender.config import ServerSection
from extender.doctor import verdict
from extender.doctor.call import Answer, Caller
from extender.doctor.idle import check_keep_alive, watch_idle
from extender.doctor.reach import Reach, check_reach, consequence
from extender.doctor.target import Target
from extender.model.pod import PROBE_UID
from extender.registration.entry import VERBS, Entry
from extender.registration.finding import Finding, error, note, warning
from extender.testing.reply import Json

TITLE = "kube-scheduler-extender"
"""The title of this service's OpenAPI document, by which it is told from other extenders."""

Judge: TypeAlias = Callable[[bytes], Iterator[Finding]]

_PROBE = "scheduler-extender-doctor"
_PATHS = ("/scheduler", "")
"""Where else verbs may be served."""
_SLOW_SHARE = 2


@dataclass(frozen=True)
class Scene:
    """What extenders are asked about: nodes that exist, and the pods on them; nothing where that cannot be known."""

    nodes: Sequence[Json] = ()
    pods: Mapping[str, Sequence[Json]] = field(default_factory=dict)


@dataclass
class Visit:
    """What was found at one extender; ``is_ours`` is None where it could not be told."""

    entry: Entry
    findings: list[Finding] = field(default_factory=list)
    is_ours: bool | None = None
    asked: list[str] = field(default_factory=list)
    """The URLs that were called and answered."""


def visit(target: Target, scene: Scene, server: ServerSection, idle_seconds: float) -> Visit:
    """Call the verbs of an extender except bind, about the nodes of ``scene``, or made-up ones if it has none."""
    reach = check_reach(target)
    found = Visit(target.entry, list(reach.findings))
    if reach.is_open:
        _call(found, target, reach, scene, idle_seconds)
    if found.is_ours or not found.asked:  # what cannot be reached may be ours
        found.findings += _check_deadline(target.entry, server)
    return found


def _call(found: Visit, target: Target, reach: Reach, scene: Scene, idle_seconds: float) -> None:
    with Caller(target, reach.context) as caller:
        found.is_ours = _is_ours(caller)
        _ask(found, caller, scene)
    if found.asked and idle_seconds > 0 and not any("idle connections" in item.problem for item in found.findings):
        found.findings += watch_idle(target, reach.context, idle_seconds)


def _is_ours(caller: Caller) -> bool | None:
    answer = caller.get(f"{caller.target.origin}/openapi.json")
    if answer.status not in (200, 404):
        return None
    try:
        return bool(json.loads(answer.body)["info"]["title"] == TITLE)
    except (ValueError, KeyError, TypeError, RecursionError):
        return False


def _check_deadline(entry: Entry, server: ServerSection) -> Iterator[Finding]:
    limit = entry.timeout_seconds
    if limit is None:
        return
    for key, seconds in (
        ("deadlineSeconds", server.deadline_seconds),
        ("bodyTimeoutSeconds", server.body_timeout_seconds),
    ):
        if limit <= seconds:
            yield warning(
                f"{entry.path}.httpTimeout",
                f"{limit:g} s is not above server.{key} of the service, {seconds:g} s: kube-scheduler gives up first, "
                "and a late answer tells nobody why",
                f"raise httpTimeout, or lower server.{key}",
            )


# --- the verbs -------------------------------------------------------------------------------------------------------


def _ask(found: Visit, caller: Caller, scene: Scene) -> None:
    entry = found.entry
    offered = list(scene.nodes) or [_made_up(f"{_PROBE}-{number}") for number in (1, 2)]
    judges: dict[str, Judge] = {
        "filter": lambda body: verdict.judge_filter(entry, body, offered),
        "prioritize": lambda body: verdict.judge_prioritize(entry, body, offered),
        "preempt": lambda body: verdict.judge_preempt(entry, body, scene.pods),
    }
    if not scene.nodes and {"filter", "prioritize"} & entry.verbs.keys():
        found.findings.append(note(entry.path, "was asked about nodes that do not exist, for want of an API server"))
    for verb, judge in judges.items():
        if verb not in entry.verbs:
            continue
        url, args = caller.target.url(entry.verbs[verb]), _arguments(entry, verb, offered, scene.pods)
        answer = caller.post(url, args)
        if answer.failure:
            found.findings.append(_no_answer(caller, verb, answer))
            continue
        found.asked.append(url)
        wrong = verdict.judge_status(entry, verb, answer.status, answer.excerpt, answer.headers.get("Location", ""))
        if wrong is not None:
            better = _elsewhere(caller, verb, args) if answer.status in (404, 405) else ""
            found.findings.append(replace(wrong, remedy=better) if better else wrong)
            continue
        found.findings += judge(answer.body)
        found.findings += _check_pace(entry, verb, answer)
        found.findings += [
            item for item in check_keep_alive(caller.target, answer.headers) if item not in found.findings
        ]
    found.findings += _check_bind(caller)


def _no_answer(caller: Caller, verb: str, answer: Answer) -> Finding:
    entry = caller.target.entry
    what = f"no answer within {answer.seconds:.1f} s" if answer.is_late else f"no answer: {answer.failure}"
    remedy = "see the log of the extender"
    if not caller.target.is_https and not answer.is_late:
        remedy += f", or write https://{caller.target.named.netloc}{caller.target.named.path} if it speaks TLS"
    about = "its scores are left out, in silence" if verb == "prioritize" else consequence(entry)
    return error(f"{entry.path}.{verb}Verb", f"{entry.url(verb)}: {what}: {about}", remedy)


def _elsewhere(caller: Caller, verb: str, args: Mapping[str, Any]) -> str:
    """Return what to write because the verb is served elsewhere, if that is one of the usual places."""
    target = caller.target
    own = target.named.path.rstrip("/")
    for path in dict.fromkeys((own, *_PATHS)):
        for word in dict.fromkeys((verb, target.entry.verbs[verb].strip("/"))):
            if (path, word) == (own, target.entry.verbs[verb]):
                continue
            if caller.post(target.url(word, path), args).status == 200:
                prefix = f"{target.named.scheme}://{target.named.netloc}{path}"
                return f"{prefix}/{word} answers: write urlPrefix: {prefix} and {verb}Verb: {word}"
    return ""


def _check_pace(entry: Entry, verb: str, answer: Answer) -> Iterator[Finding]:
    limit = entry.timeout_seconds
    if limit is not None and answer.seconds > limit / _SLOW_SHARE:
        yield warning(
            f"{entry.path}.httpTimeout",
            f"{verb} took {answer.seconds:.1f} s for a few nodes, of {limit:g} s that kube-scheduler waits",
            "find out what is slow, or raise httpTimeout",
        )


def _check_bind(caller: Caller) -> Iterator[Finding]:
    """Yield a finding if bind is not served: it is never called, but a GET tells, where it tells of other verbs."""
    entry = caller.target.entry
    others = [verb for verb in VERBS if verb != "bind" and verb in entry.verbs]
    if "bind" not in entry.verbs or not others:
        return
    known = caller.get(caller.target.url(entry.verbs[others[0]])).status
    asked = caller.get(caller.target.url(entry.verbs["bind"])).status
    if asked == 404 and known not in (0, 404):
        yield error(
            f"{entry.path}.bindVerb",
            f"nothing is served at {entry.url('bind')}: every pod's binding fails",
            "correct the verb, or remove bindVerb if the extender does not bind",
        )


# --- what is sent ----------------------------------------------------------------------------------------------------


def _arguments(entry: Entry, verb: str, nodes: Sequence[Json], pods: Mapping[str, Sequence[Json]]) -> Json:
    pod = _probe(entry)
    if verb == "preempt":
        return {"Pod": pod, **_victims(pods, by_name=entry.node_cache_capable)}
    if entry.node_cache_capable:
        return {"Pod": pod, "Nodes": None, "NodeNames": [node["metadata"]["name"] for node in nodes]}
    return {"Pod": pod, "Nodes": {"metadata": {}, "items": list(nodes)}, "NodeNames": None}


def _victims(pods: Mapping[str, Sequence[Json]], *, by_name: bool) -> Json:
    """Return all ``pods`` as victims, whole or by their UIDs; candidates without pods are none."""
    proposed = {
        node: {
            "Pods": [{"UID": pod["metadata"]["uid"]} for pod in items] if by_name else list(items),
            "NumPDBViolations": 0,
        }
        for node, items in pods.items()
        if items
    }
    return {"NodeNameToVictims": None if by_name else proposed, "NodeNameToMetaVictims": proposed if by_name else None}


def _probe(entry: Entry) -> Json:
    """Return a pod that exists nowhere, may evict any other, and asks for nothing but what the extender manages."""
    resources = {resource.name: "1" for resource in entry.managed_resources[:1]}
    container: Json = {"name": _PROBE, "image": _PROBE, "resources": {"requests": resources, "limits": resources}}
    meta = {"name": _PROBE, "namespace": "default", "uid": PROBE_UID}
    created = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    return {
        "metadata": {**meta, "creationTimestamp": created},
        "spec": {"containers": [container], "schedulerName": "default-scheduler", "priority": 1_000_000_000},
        "status": {"phase": "Pending"},
    }


def _made_up(name: str) -> Json:
    amounts = {"cpu": "4", "memory": "8Gi", "pods": "110"}
    return {
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}},
        "spec": {},
        "status": {"capacity": amounts, "allocatable": amounts},
    }
