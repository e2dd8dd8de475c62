"""How many nodes kube-scheduler looks at for a pod. Source: numFeasibleNodesToFind of schedule_one.go, 1.36."""

from __future__ import annotations

from collections.abc import Iterator

from extender.registration.entry import SchedulerConfiguration
from extender.registration.finding import Finding, note

_LEAST_NODES = 100
_LEAST_PERCENT = 5


def sample_size(nodes: int, percentage: int) -> int:
    """Return after how many nodes that fit kube-scheduler looks no further; ``percentage`` 0 leaves it the choice."""
    if nodes < _LEAST_NODES:
        return nodes
    percentage = percentage or max(50 - nodes // 125, _LEAST_PERCENT)
    return min(nodes, max(nodes * percentage // 100, _LEAST_NODES))


def check_sampling(configuration: SchedulerConfiguration, nodes: int | None) -> Iterator[Finding]:
    """Yield a note for each profile whose filter calls see a part of the ``nodes``; None if their number is unknown."""
    if not any("filter" in entry.verbs for entry in configuration.entries):
        return
    top = configuration.tree.get("percentageOfNodesToScore")
    own = {place: profile.get("percentageOfNodesToScore") for place, profile in enumerate(configuration.profiles)}
    settings = {f"profiles[{place}].": top if value is None else value for place, value in own.items()} or {"": top}
    if len(set(settings.values())) == 1 and all(value is None for value in own.values()):
        settings = {"": top}
    for place, value in settings.items():
        percentage = value if isinstance(value, int) and value in range(101) else 0
        size = sample_size(nodes, percentage) if nodes is not None else None
        if percentage == 100 or (nodes is not None and size == nodes):
            continue
        seen = "a part of the nodes" if size is None else f"{size} of the {nodes} nodes"
        is_policy = configuration.dialect.is_policy
        yield note(
            "" if is_policy else f"{place}percentageOfNodesToScore",
            f"an extender sees {seen} for a pod: if it refuses all of them, the pod is called unschedulable although "
            "another node may fit",
            "set percentageOfNodesToScore: 100 if the extender is selective"
            + (", in a KubeSchedulerConfiguration" if is_policy else ""),
        )


def check_requeue(configuration: SchedulerConfiguration) -> Iterator[Finding]:
    """Yield a note on when a pod that an extender refused is tried again."""
    for entry in configuration.entries:
        if "filter" in entry.verbs:
            yield note(
                f"{entry.path}.filterVerb",
                "a pod it refuses is tried again when anything in the cluster changes, otherwise after five minutes",
                "an extender with state outside the API server should touch an object, say an annotation of a node, "
                "when that state changes",
            )
