"""What the verbs work with: the mirror, the runner, and what is remembered from one call to the next."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from msgspec import Raw

from extender import wire
from extender.errors import NotReadyError
from extender.framework.mirror import Mirror
from extender.framework.preemption import Preemption
from extender.framework.runner import NoRecorder, Runner
from extender.model.admission import check_admitted
from extender.model.pod import PendingPod
from extender.section import DEFAULT_SCHEDULER, ExemptSection
from extender.verbs.candidate import CandidateReader

_REMEMBERED_PODS = 1024
_REMEMBERED_BYTES = 16 * 2**20
"""How much of pods as they came may be remembered."""


class EventRecorder(Protocol):
    """Is told what became of pods, and returns at once."""

    def bound(self, namespace: str, name: str, uid: str, node: str) -> None:
        """Note that a pod was bound."""

    def bind_failed(self, namespace: str, name: str, uid: str, node: str, problem: str) -> None:
        """Note that a pod was not bound, and why."""

    def nothing_fits(
        self, namespace: str, name: str, uid: str, nodes: int, refusals: Sequence[tuple[int, Sequence[str]]]
    ) -> None:
        """Note that none of so many nodes fits a pod; ``refusals`` has numbers of nodes, each with their reasons."""


class Unrecorded:
    """Takes note of nothing."""

    def bound(self, *_: object) -> None:
        """Forget it."""

    def bind_failed(self, *_: object) -> None:
        """Forget it."""

    def nothing_fits(self, *_: object) -> None:
        """Forget it."""


@dataclass(frozen=True)
class Evaluator:
    """What judges the pods of one profile."""

    runner: Runner
    preemption: Preemption


class Service:
    """Everything a verb needs; ``missing`` says why the caches cannot be trusted yet, or returns nothing.

    ``runner``, ``named``, ``pass_unmatched`` and ``exempt`` are those of ``adopt``. ``note_passed`` is told the
    verb and what lets a pod pass through: ``namespace``, ``priorityClassName`` or ``schedulerName``.
    """

    def __init__(
        self,
        mirror: Mirror,
        runner: Runner,
        missing: Callable[[], str] = str,
        recorder: EventRecorder = Unrecorded(),  # noqa: B008 - it has no state
        *,
        named: Mapping[str, Runner] | None = None,
        pass_unmatched: bool = False,
        exempt: ExemptSection = ExemptSection(),  # noqa: B008 - it cannot be changed
        note_passed: Callable[[str, str], None] = lambda *_: None,
    ) -> None:
        self.mirror = mirror
        self.recorder = recorder
        self.candidates = CandidateReader(mirror)
        self._missing = missing
        self._note_passed = note_passed
        self._pods: OrderedDict[bytes, PendingPod] = OrderedDict()
        self._pod_bytes = 0
        self._pod_of_uid: dict[str, PendingPod] = {}
        self.adopt(runner, named or {}, pass_unmatched=pass_unmatched, exempt=exempt)

    def adopt(
        self, runner: Runner, named: Mapping[str, Runner], *, pass_unmatched: bool, exempt: ExemptSection
    ) -> None:
        """Judge pods in this way from now on.

        ``runner`` is that of the first profile; ``named`` are those of all profiles by scheduler name. A pod of a
        scheduler that none of them names is served by the first, or, with ``pass_unmatched``, passes through. So does
        one that is ``exempt``.
        """
        evaluators = {name: self._evaluator(each) for name, each in named.items()}
        self._unmatched = None if pass_unmatched else self._evaluator(runner)
        self.runner, self._evaluators, self._exempt = runner, evaluators, exempt

    def _evaluator(self, runner: Runner) -> Evaluator:
        return Evaluator(runner, Preemption(self.mirror, Runner(runner.profile.enforced, NoRecorder())))

    @property
    def reserves(self) -> bool:
        """Whether an algorithm of any profile reserves."""
        return any(each.runner.profile.reservers for each in (*self._evaluators.values(), self._unmatched) if each)

    def evaluator_of(self, pod: PendingPod) -> Evaluator | None:
        """Return what judges ``pod``, by its scheduler; None where it passes through."""
        if self._exemption(pod):
            return None
        return self._evaluators.get(pod.spec.scheduler_name or DEFAULT_SCHEDULER, self._unmatched)

    def _exemption(self, pod: PendingPod) -> str:
        """Return what exempts ``pod``, or nothing."""
        if pod.namespace in self._exempt.namespaces:
            return "namespace"
        return "priorityClassName" if pod.spec.priority_class_name in self._exempt.priority_class_names else ""

    def let_pass(self, pod: PendingPod, verb: str) -> None:
        """Note that ``pod`` passes through a verb."""
        self._note_passed(verb, self._exemption(pod) or "schedulerName")

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
            RequestError: it cannot be read, has no spec, or prefers something by less than nothing.
            QuantityError: it asks for something that is no amount, or for less than nothing.
        """
        key = bytes(raw)
        pod = self._pods.get(key)
        if pod is None:
            decoded = wire.decode_pod(raw)
            check_admitted(decoded)
            pod = PendingPod(decoded)
            self._remember(key, pod)
        return pod

    def _remember(self, key: bytes, pod: PendingPod) -> None:
        """Keep a pod, and forget the oldest ones as far as they are too many, or together too long."""
        self._pods[key] = self._pod_of_uid[pod.uid] = pod
        self._pod_bytes += len(key)
        while len(self._pods) > _REMEMBERED_PODS or self._pod_bytes > _REMEMBERED_BYTES:
            text, old = self._pods.popitem(last=False)
            self._pod_bytes -= len(text)
            if self._pod_of_uid.get(old.uid) is old:
                del self._pod_of_uid[old.uid]

    def seen_pod(self, uid: str) -> PendingPod | None:
        """Return a pod that was asked about lately."""
        return self._pod_of_uid.get(uid)
