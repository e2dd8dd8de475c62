"""``/filter``: which nodes a pod fits, and why not the others."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from itertools import compress

import numpy as np

from extender import journal, wire
from extender.framework.nomination import filter_with_nominated
from extender.framework.outcome import Filtered
from extender.model.name_list import NameList
from extender.model.pod import PROBE_UID
from extender.verbs.candidate import Asked
from extender.verbs.service import Service
from extender.wire import FilterRequest

UNKNOWN_NODE = "node(s) not known to the extender"
"""Why a name without a node object is refused; no eviction can help."""


def answer(service: Service, body: bytes, deadline_seconds: float | None = None) -> bytes:
    """Return the reply to a request; every node asked about is kept or named in exactly one map.

    A pod that passes through keeps them all.

    Raises:
        RequestError: the request cannot be understood.
        NotReadyError: the caches are not complete.
        AlgorithmError: a predicate failed.
        DeadlineExceeded: kube-scheduler would not have waited for the answer.
    """
    request = wire.decode_filter(body)
    pod = service.read_pod(request.pod)
    journal.about(pod.key, pod.uid)
    evaluator = service.evaluator_of(pod)
    if evaluator is None:
        service.let_pass(pod, "filter")
        return _keep_all(service, request)
    service.check_ready()
    with service.candidates.read(request) as asked, _without(service, pod.uid):
        journal.enter("evaluate")
        judged = filter_with_nominated(service.mirror, evaluator.runner, pod, asked.nodes, deadline_seconds)
        filtered = Filtered(asked.in_order(judged.codes), judged.outcomes)
    journal.enter("encode")
    fitting = int(np.count_nonzero(filtered.fits))
    journal.counted(len(asked.names), fitting)
    if len(asked.names) and not fitting and pod.uid != PROBE_UID:
        service.recorder.nothing_fits(pod.namespace, pod.name, pod.uid, len(asked.names), _summary(asked, filtered))
    if asked.replied is None or not asked.replied[0].same_as(filtered):
        asked.replied = filtered, _reply(service, asked, filtered)
    return asked.replied[1]


def _without(service: Service, uid: str) -> AbstractContextManager[None]:
    """Leave out what the pod itself takes where it is assumed: its bind may have come to nothing."""
    assumed = service.mirror.assumed.get(uid)
    return nullcontext() if assumed is None else service.mirror.what_if(without=[assumed.info])


def _reply(service: Service, asked: Asked, filtered: Filtered) -> bytes:
    codes = asked.over_all(filtered.codes)
    if asked.known is not None:
        codes[~asked.known] = len(filtered.outcomes) + 1
    kept, *refused, unknown = asked.names.split(codes, len(filtered.outcomes) + 2)
    failed: list[tuple[NameList, str]] = []
    unresolvable = [(unknown, UNKNOWN_NODE)]
    for names, outcome in zip(refused, filtered.outcomes, strict=True):
        (failed if outcome.resolvable else unresolvable).append((names, outcome.text))
    if asked.raws is not None:
        return wire.encode_filter_nodes(list(compress(asked.raws, (codes == 0).tolist())), failed, unresolvable)
    if kept is not asked.names:
        service.candidates.remember(asked.kept(kept, filtered.fits))
    return wire.encode_filter_names(kept, failed, unresolvable)


def _keep_all(service: Service, request: FilterRequest) -> bytes:
    """Return the reply for a pod that passes through, from caches in whatever state."""
    with service.candidates.read(request) as asked:
        journal.counted(len(asked.names), len(asked.names))
        if asked.raws is not None:
            return wire.encode_filter_nodes(asked.raws, (), ())
        return wire.encode_filter_names(asked.names, (), ())


def _summary(asked: Asked, filtered: Filtered) -> list[tuple[int, tuple[str, ...]]]:
    """Return how many nodes were refused for which reasons."""
    counts = np.bincount(filtered.codes, minlength=len(filtered.outcomes) + 1).tolist()
    summary = [(count, outcome.reasons) for count, outcome in zip(counts[1:], filtered.outcomes, strict=True) if count]
    unknown = len(asked.names) - len(asked.nodes)
    return [*summary, (unknown, (UNKNOWN_NODE,))] if unknown else summary
