"""Whether the tolerations of a pod put up with the taints of a node.

Source of the rules: ``core/v1/toleration.go`` and component-helpers ``scheduling/corev1/helpers.go``, 1.36, with the
feature gate ``TaintTolerationComparisonOperators`` off, as it is by default: ``Gt`` and ``Lt`` tolerate nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from extender.model.object import Taint, Toleration

NO_SCHEDULE = "NoSchedule"
"""The effect that keeps pods off a node."""

PREFER_NO_SCHEDULE = "PreferNoSchedule"
"""The effect that only lowers the score of a node."""

NO_EXECUTE = "NoExecute"
"""The effect that keeps pods off a node and evicts those that are there."""


def tolerates(toleration: Toleration, taint: Taint) -> bool:
    """Tell whether ``toleration`` puts up with ``taint``.

    An empty effect stands for every effect, an empty key for every key, an empty operator for ``Equal``.
    """
    if toleration.effect and toleration.effect != (taint.effect or ""):
        return False
    if toleration.key and toleration.key != (taint.key or ""):
        return False
    if toleration.operator == "Exists":
        return True
    return toleration.operator in (None, "", "Equal") and (toleration.value or "") == (taint.value or "")


def find_untolerated(
    taints: Iterable[Taint] | None, tolerations: Collection[Toleration] | None, effects: Collection[str]
) -> Taint | None:
    """Return the first taint with one of ``effects`` that no toleration puts up with, or ``None``."""
    for taint in taints or ():
        if taint.effect in effects and not _is_tolerated(taint, tolerations or ()):
            return taint
    return None


def count_intolerable_prefer_no_schedule(
    taints: Iterable[Taint] | None, tolerations: Collection[Toleration] | None
) -> int:
    """Return how many ``PreferNoSchedule`` taints are not tolerated; the raw score of taint toleration, less is better.

    Upstream first drops tolerations for other effects; they tolerate no such taint, so that changes nothing.
    """
    return sum(
        taint.effect == PREFER_NO_SCHEDULE and not _is_tolerated(taint, tolerations or ()) for taint in taints or ()
    )


def _is_tolerated(taint: Taint, tolerations: Iterable[Toleration]) -> bool:
    return any(tolerates(toleration, taint) for toleration in tolerations)
