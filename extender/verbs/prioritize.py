"""``/prioritize``: how good each node is for a pod, 0 to 10."""

from __future__ import annotations

import numpy as np

from extender import journal, wire
from extender.framework.algorithm import MAX_NODE_SCORE
from extender.framework.runner import Profile
from extender.model.column import IntArray
from extender.verbs.service import Service


def answer(service: Service, body: bytes, deadline_seconds: float | None = None) -> bytes:
    """Return the reply to a request: one entry a node asked about, in order; nodes that are not known score 0.

    For a pod that passes through all of them do.

    Raises:
        RequestError: the request cannot be understood.
        NotReadyError: the caches are not complete.
        AlgorithmError: a priority failed.
        DeadlineExceeded: kube-scheduler would not have waited for the answer.
    """
    request = wire.decode_filter(body)
    pod = service.read_pod(request.pod)
    journal.about(pod.key, pod.uid)
    evaluator = service.evaluator_of(pod)
    if evaluator is None:
        service.let_pass(pod, "prioritize")
        with service.candidates.read(request) as asked:
            return asked.hosts.filled(np.zeros(len(asked.names), np.int64))
    service.check_ready()
    with service.candidates.read(request) as asked:
        journal.enter("evaluate")
        totals = asked.in_order(evaluator.runner.prioritize(pod, asked.nodes, deadline_seconds))
    journal.enter("encode")
    journal.counted(len(asked.names), len(asked.nodes))
    scores = asked.over_all(to_wire(evaluator.runner.profile, totals))
    return asked.hosts.filled(scores)


def to_wire(profile: Profile, totals: IntArray) -> IntArray:
    """Return the weighted mean of the enabled priorities on the scale 0..10, rounded half up; shape as ``totals``.

    0 stays 0 and the best possible total becomes 10, so the extender's weight in kube-scheduler means what it says.
    """
    best = profile.weight_sum * MAX_NODE_SCORE
    if not best:
        return np.zeros_like(totals)
    return (totals * (2 * wire.MAX_EXTENDER_SCORE) + best) // (2 * best)
