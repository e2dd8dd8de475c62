"""What kube-scheduler makes of a reply, and what it does not say aloud about it.

Replies are read by the rules of ``extender.testing.reply``; a body here is one of status 200.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from extender.registration.entry import Entry
from extender.registration.finding import Finding, error, warning
from extender.testing import reply
from extender.testing.failure import DecodeError, ExtenderCallError, SchedulerPanic
from extender.testing.reply import FilterOutcome, Json, node_name

_SCORES = range(11)
_SHOWN = 3

_KEYS = {
    "filter": ("Nodes", "NodeNames", "FailedNodes", "FailedAndUnresolvableNodes", "Error"),
    "preempt": ("NodeNameToMetaVictims",),
}


def judge_filter(entry: Entry, body: bytes, nodes: Sequence[Json]) -> Iterator[Finding]:
    """Yield what is wrong with the reply to a filter request about ``nodes``."""
    path = f"{entry.path}.filterVerb"
    yield from _strange_keys(path, "filter", body)
    try:
        outcome = reply.read_filter(body, nodes, by_name=entry.node_cache_capable, url_prefix=entry.url_prefix)
    except DecodeError as problem:
        yield _undecodable(path, problem)
    except ExtenderCallError as problem:
        yield _failed_call(entry, path, problem)
    else:
        yield from _judge_names(entry, outcome, nodes)
        yield from _judge_reasons(entry, outcome)
        if outcome.usage_lost:
            yield from _judge_objects(entry, outcome, nodes)


def judge_prioritize(entry: Entry, body: bytes, nodes: Sequence[Json]) -> Iterator[Finding]:
    """Yield what is wrong with the reply to a prioritize request about ``nodes``."""
    path = f"{entry.path}.prioritizeVerb"
    try:
        scores = reply.read_prioritize(body, nodes, entry.weight).scores
    except ExtenderCallError as problem:
        yield error(
            path,
            f"kube-scheduler cannot read the reply and drops all its scores, in silence: {problem}",
            "answer a list of Host and Score, with whole numbers and without quotes",
        )
        return
    if outside := [f"{host} {score}" for host, score in scores if score not in _SCORES]:
        yield warning(
            path,
            f"scores are outside 0 to 10: {_some(outside)}; nothing checks them, and they distort placement",
            "bring them to 0 to 10",
        )
    offered = {node_name(node) for node in nodes}
    counted = Counter(host for host, _ in scores)
    for before, after, names in (
        ("gives no score to", "", sorted(offered - counted.keys())),
        ("scores", ", which it was not asked about: ignored", sorted(counted.keys() - offered)),
        ("scores", " more than once: the scores add up", [host for host, times in counted.items() if times > 1]),
    ):
        if names:
            yield warning(path, f"{before} {_some(names)}{after}", "answer one score for each node asked about")


def judge_preempt(entry: Entry, body: bytes, pods: Mapping[str, Sequence[Json]]) -> Iterator[Finding]:
    """Yield what is wrong with the reply to a preempt request; ``pods`` are those on the candidates, all proposed."""
    path = f"{entry.path}.preemptVerb"
    yield from _strange_keys(path, "preempt", body)
    try:
        chosen = reply.read_preempt(body, pods, url_prefix=entry.url_prefix)
    except SchedulerPanic:
        yield error(path, "a null in the reply brings kube-scheduler down", "leave out what has no victims")
    except DecodeError as problem:
        yield _undecodable(path, problem)
    except ExtenderCallError as problem:
        remedy = "answer nodes and pods of the request only"
        yield error(path, f"names what it was not asked about, and the preemption fails: {problem}", remedy)
    else:
        if empty := [node for node, victims in chosen.items() if not victims.pods]:
            yield error(
                path,
                f"leaves {_some(empty)} without victims, and the preemption fails up to 1.36",
                "leave out nodes where no eviction is needed",
            )


def judge_status(entry: Entry, verb: str, status: int, excerpt: str, location: str) -> Finding | None:
    """Return what is wrong with the status of a reply."""
    path, url = f"{entry.path}.{verb}Verb", entry.url(verb)
    if status == 200:
        return None
    if 300 <= status < 400:
        how = "each call is made twice" if status in (307, 308) else "the second request is a GET and fails"
        return error(path, f"{url} answers {status} and leads to {location or 'nowhere'}: {how}", "name that URL")
    said = f": {excerpt}" if excerpt else ""
    if status in (404, 405):
        return error(path, f"{url} answers {status}, so the path is wrong{said}", "correct urlPrefix or the verb")
    if status in (401, 403):
        return error(path, f"{url} answers {status}: kube-scheduler can present a certificate only{said}")
    silent = " (kube-scheduler leaves the scores out, in silence)" if verb == "prioritize" else ""
    return error(path, f"{url} answers {status}{silent}, and kube-scheduler throws the text away{said}", "see its log")


# --- parts of a filter reply -----------------------------------------------------------------------------------------


def _failed_call(entry: Entry, path: str, problem: ExtenderCallError) -> Finding:
    if entry.ignorable:
        return warning(
            path, f"answers with an error, which ignorable: true makes count as consent: {problem}", "mend it"
        )
    return error(path, f"the call fails: {problem}", "mend the extender, or look at what it says")


def _judge_names(entry: Entry, outcome: FilterOutcome, nodes: Sequence[Json]) -> Iterator[Finding]:
    path = f"{entry.path}.filterVerb"
    kept = set(outcome.names)
    if repeated := [name for name, times in Counter(outcome.names).items() if times > 1]:
        yield warning(path, f"names {_some(repeated)} more than once", "answer each node once")
    refused = outcome.failed.keys() | outcome.unresolvable.keys()
    silent = [name for node in nodes if (name := node_name(node)) not in kept and name not in refused]
    if silent:
        yield warning(
            path,
            f"neither keeps {_some(silent)} nor refuses with a reason: kube-scheduler takes that for a refusal that "
            "no eviction can help, and users see no reason",
            "name every refused node in FailedNodes or FailedAndUnresolvableNodes"
            + (", and kept ones in NodeNames" if entry.node_cache_capable else ", and kept ones in Nodes"),
        )
    if outcome.usage_lost and entry.node_cache_capable:
        yield warning(
            path,
            "answers whole nodes although nodeCacheCapable is true: kube-scheduler takes them for idle",
            "answer NodeNames",
        )


def _judge_reasons(entry: Entry, outcome: FilterOutcome) -> Iterator[Finding]:
    for name, reason in {**outcome.failed, **outcome.unresolvable}.items():
        if name in reason:
            yield warning(
                f"{entry.path}.filterVerb",
                f"the reason {reason!r} names its node: kube-scheduler counts equal reasons together, and with "
                "thousands of nodes the event is cut off",
                "give reasons that are the same for all nodes",
            )
            return


def _judge_objects(entry: Entry, outcome: FilterOutcome, nodes: Sequence[Json]) -> Iterator[Finding]:
    sent = {node_name(node): node for node in nodes}
    changed = [name for node in outcome.nodes if (name := node_name(node)) in sent and not _holds(node, sent[name])]
    if changed:
        yield warning(
            f"{entry.path}.filterVerb",
            f"does not send {_some(changed)} back unchanged: what is missing is lost to kube-scheduler",
            "answer node objects unchanged, or set nodeCacheCapable: true",
        )


def _holds(node: Any, sent: Any) -> bool:
    """Tell whether everything of ``sent`` is in ``node``; Go writes out empty fields, so there may be more."""
    if isinstance(sent, Mapping):
        return isinstance(node, Mapping) and all(key in node and _holds(node[key], sent[key]) for key in sent)
    return bool(node == sent)


# --- any reply -------------------------------------------------------------------------------------------------------


def _strange_keys(path: str, verb: str, body: bytes) -> Iterator[Finding]:
    known = _KEYS[verb]
    try:
        value, _ = json.JSONDecoder().raw_decode(body.decode("utf-8", "replace").lstrip())
    except (ValueError, RecursionError):
        return
    if not isinstance(value, dict):
        return
    strange = [key for key in value if key.lower() not in {name.lower() for name in known}]
    if strange:
        yield warning(
            path,
            f"the reply has keys that kube-scheduler does not read: {_some(strange)}",
            f"it reads {', '.join(known)}",
        )


def _undecodable(path: str, problem: DecodeError) -> Finding:
    return error(
        path, f"kube-scheduler cannot read the reply, and the call fails: {problem}", "mend the extender's JSON"
    )


def _some(items: Sequence[str]) -> str:
    more = len(items) - _SHOWN
    return ", ".join(items[:_SHOWN]) + (f" and {more} more" if more > 0 else "")
