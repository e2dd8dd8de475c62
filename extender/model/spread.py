"""Topology spread constraints, compiled once for the pod that has them.

Source of the rules: kube-scheduler ``plugins/podtopologyspread/common.go``, 1.36.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from extender.model.object import TopologySpreadConstraint
from extender.model.selector import LabelMatcher, compile_label_selector

DO_NOT_SCHEDULE: Final = "DoNotSchedule"
"""What a constraint that must be met says under ``whenUnsatisfiable``."""

SCHEDULE_ANYWAY: Final = "ScheduleAnyway"
"""What a constraint that is only preferred says."""

_HONOR: Final = "Honor"


@dataclass(frozen=True, slots=True)
class SpreadConstraint:
    """The pods that are to lie evenly over the values of a node label, and the nodes that count for that.

    ``honors_affinity`` leaves out nodes that the pod's own rules exclude, ``honors_taints`` those with taints that it
    does not tolerate. With fewer domains than ``min_domains``, the least count is taken to be 0.
    """

    topology_key: str
    max_skew: int
    min_domains: int
    selector: LabelMatcher
    honors_affinity: bool
    honors_taints: bool


def compile_spread_constraints(
    constraints: Iterable[TopologySpreadConstraint] | None, action: str, labels: Mapping[str, str]
) -> tuple[SpreadConstraint, ...]:
    """Compile those constraints of a pod with ``labels`` that say ``action`` under ``whenUnsatisfiable``.

    Raises:
        SelectorError: a selector of one of them is refused by Kubernetes; the message names the expression.
    """
    return tuple(_compile(each, labels) for each in constraints or () if each.when_unsatisfiable == action)


def _compile(constraint: TopologySpreadConstraint, labels: Mapping[str, str]) -> SpreadConstraint:
    # The API server has merged matchLabelKeys into the selector since 1.34; for pods that are older it is done here.
    own = {key: labels[key] for key in constraint.match_label_keys or () if key in labels}
    return SpreadConstraint(
        topology_key=constraint.topology_key or "",
        max_skew=constraint.max_skew or 0,
        min_domains=1 if constraint.min_domains is None else constraint.min_domains,
        selector=compile_label_selector(constraint.label_selector).with_labels(own),
        honors_affinity=constraint.node_affinity_policy in (None, _HONOR),
        honors_taints=constraint.node_taints_policy == _HONOR,
    )
