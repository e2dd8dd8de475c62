"""``/preempt``: on which of the candidate nodes evicting the proposed victims really makes room."""

from __future__ import annotations

import numpy as np

from extender import wire
from extender.framework.candidate import Nodes
from extender.model.pod import PendingPod, PodInfo
from extender.verbs.service import Service
from extender.wire import Victims


def answer(service: Service, body: bytes, deadline_seconds: float | None = None) -> bytes:
    """Return the reply to a request: the nodes where the pod fits once the victims are gone, victims unchanged.

    A proposal that names a pod not yet known here is kept as it is: kube-scheduler's view is ahead.

    Raises:
        RequestError: the request cannot be understood.
        NotReadyError: the caches are not complete.
        AlgorithmError: a predicate failed.
        DeadlineExceeded: kube-scheduler would not have waited for the answer.
    """
    request = wire.decode_preempt(body)
    pod = service.read_pod(request.pod)
    service.check_ready()
    kept: dict[str, Victims] = {}
    for node, victims in request.victims.items():
        row = service.mirror.table.index.get(node)
        if not victims.uids or row is None or not service.mirror.table.present[row]:
            continue
        placed = _placed_on(service, node, victims)
        if placed is None or _fits_without(service, pod, row, placed, deadline_seconds):
            kept[node] = victims
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


def _fits_without(
    service: Service, pod: PendingPod, row: int, victims: list[PodInfo], deadline_seconds: float | None
) -> bool:
    with service.mirror.what_if(without=victims):
        candidates = Nodes(service.mirror.table, np.array([row], np.int64))
        filtered = service.runner.filter(pod, candidates, deadline_seconds)
    return bool(filtered.fits[0])
