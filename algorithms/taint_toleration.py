"""TaintToleration: keeps pods off nodes whose taints they do not tolerate."""

from typing import Final

from extender.framework import (
    NO_EXECUTE,
    NO_SCHEDULE,
    IntArray,
    Nodes,
    PendingPod,
    Predicate,
    Priority,
    Refusal,
    count_intolerable_prefer_no_schedule,
    decide_taints,
    normalize_to_best,
    select_untolerated_rows,
)

REASON: Final = "node(s) had untolerated taint(s)"
"""Why a node is refused; no eviction can help (source: plugins/tainttoleration of 1.36)."""

HARD_EFFECTS: Final = (NO_SCHEDULE, NO_EXECUTE)
"""The effects that keep pods off; the third one only lowers the score."""


class TaintToleration(Predicate, Priority):
    """Refuses nodes with an untolerated taint, and prefers those with few untolerated ``PreferNoSchedule`` taints."""

    mandatory = True

    def filter(self, pod: PendingPod, nodes: Nodes) -> list[Refusal]:
        """Decide once for each distinct set of taints."""
        refused = select_untolerated_rows(nodes.table, pod.tolerations, HARD_EFFECTS)
        return [Refusal(nodes.take(refused), REASON, resolvable=False)]

    def prioritize(self, pod: PendingPod, nodes: Nodes) -> IntArray:
        """Count the untolerated ``PreferNoSchedule`` taints of each node; fewer is better."""
        counts = decide_taints(
            nodes.table, lambda taints: count_intolerable_prefer_no_schedule(taints, pod.tolerations)
        )
        return nodes.take(counts)

    def normalize(self, pod: PendingPod, nodes: Nodes, scores: IntArray) -> IntArray:  # noqa: ARG002
        """Give 100 to nodes without such taints, 0 to those with the most."""
        return normalize_to_best(scores, reverse=True)
