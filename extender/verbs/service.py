"""What the verbs work with: the mirror, the runner, and what is remembered from one call to the next."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable

from msgspec import Raw

from extender import wire
from extender.errors import NotReadyError
from extender.framework.mirror import Mirror
from extender.framework.preemption import Preemption
from extender.framework.runner import Runner
from extender.model.pod import PendingPod
from extender.verbs.candidate import CandidateReader

_REMEMBERED_PODS = 1024


class Service:
    """Everything a verb needs; ``missing`` says why the caches cannot be trusted yet, or returns nothing."""

    def __init__(self, mirror: Mirror, runner: Runner, missing: Callable[[], str] = str) -> None:
        self.mirror = mirror
        self.runner = runner
        self.preemption = Preemption(mirror, runner)
        self.candidates = CandidateReader(mirror)
        self._missing = missing
        self._pods: OrderedDict[bytes, PendingPod] = OrderedDict()
        self._pod_of_uid: dict[str, PendingPod] = {}

    def check_ready(self) -> None:
        """Refuse to answer from incomplete caches.

        Raises:
            NotReadyError: says what is missing.
        """
        missing = self._missing()
        if missing:
            raise NotReadyError(f"not ready: {missing}")

    def read_pod(self, raw: Raw) -> PendingPod:
        """Return the pod of a request; the same bytes, as in ``/prioritize`` after ``/filter``, are parsed once.

        Raises:
            RequestError: it cannot be read, or has no spec.
        """
        key = bytes(raw)
        pod = self._pods.get(key)
        if pod is None:
            pod = self._pods[key] = PendingPod(wire.decode_pod(raw))
            self._pod_of_uid[pod.uid] = pod
            if len(self._pods) > _REMEMBERED_PODS:
                _, old = self._pods.popitem(last=False)
                if self._pod_of_uid.get(old.uid) is old:
                    del self._pod_of_uid[old.uid]
        return pod

    def seen_pod(self, uid: str) -> PendingPod | None:
        """Return a pod that was asked about lately."""
        return self._pod_of_uid.get(uid)
