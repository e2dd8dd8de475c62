"""``/preempt``: on which of the candidate nodes evictions make room, and which further ones that takes."""

from __future__ import annotations

import logging

from extender import journal, wire
from extender.framework.preemption import Eviction
from extender.model.pod import PodInfo
from extender.verbs.service import Service
from extender.wire import Victims

_log = logging.getLogger(__name__)


def answer(service: Service, body: bytes, deadline_seconds: float | None = None) -> bytes:
    """Return the reply to a request: the nodes where the pod fits once enough pods are gone.

    Every victim that kube-scheduler named is kept, and the least important further ones that the predicates here need
    are added. Nodes where nothing helps are left out. A proposal that names a pod not yet known here is kept as it is:
    kube-scheduler's view is ahead. A pod that must not evict others, or for which room is being made, gets no node.
    For a pod that passes through all proposals are kept.

    Raises:
        RequestError: the request cannot be understood.
        NotReadyError: the caches are not complete.
        AlgorithmError: a predicate failed.
        DeadlineExceeded: kube-scheduler would not have waited for the answer.
    """
    request = wire.decode_preempt(body)
    pod = service.read_pod(request.pod)
    journal.about(pod.key, pod.uid)
    evaluator = service.evaluator_of(pod)
    if evaluator is None:
        service.let_pass(pod, "preempt")
        return wire.encode_preempt(request.victims)
    service.check_ready()
    journal.enter("evaluate")
    kept: dict[str, Victims] = {}
    objection = evaluator.preemption.objection(pod, deadline_seconds)
    if objection:
        _log.info("pod evicts no others", extra={"pod": pod.key, "why": objection})
    for node, victims in request.victims.items() if not objection else ():
        row = service.mirror.table.index.get(node)
        if not victims.uids or row is None or not service.mirror.table.present[row]:
            continue
        placed = _placed_on(service, node, victims)
        if placed is None:
            kept[node] = victims
            continue
        eviction = evaluator.preemption.complete(pod, row, Eviction(placed, victims.violations), deadline_seconds)
        if eviction is not None:
            kept[node] = Victims([info.uid for info in eviction.victims], eviction.violations)
    journal.enter("encode")
    journal.counted(len(request.victims), len(kept))
    return wire.encode_preempt(kept)


def _placed_on(service: Service, node: str, victims: Victims) -> list[PodInfo] | None:
    """Return the victims' records, or None where one of them is not known to be on ``node``."""
    found: list[PodInfo] = []
    for uid in victims.uids:
        info = service.mirror.placed(uid)
        if info is None or info.node_name != node:
            return None
        found.append(info)
    return found
