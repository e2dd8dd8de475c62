"""How the pods of a service lie over the nodes, and the score of lying spread over the values of node labels.

Source of the formulas: Score and NormalizeScore of plugins/serviceaffinity, 1.22, the last release that had them.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

import numpy as np

from extender.framework.algorithm import MAX_NODE_SCORE
from extender.framework.candidate import Nodes
from extender.framework.owner_selector import OwnerSelectors
from extender.framework.pod_class import PodClasses
from extender.model.column import IntArray
from extender.model.pod import PendingPod
from extender.model.selector import LabelMatcher

_EVERYTHING: Final = LabelMatcher(())


def count_service_pods(pod: PendingPod, nodes: Nodes, owners: OwnerSelectors, placed: PodClasses) -> IntArray:
    """Return how many pods of the pod's service each candidate has, 0 without a service; shape (candidates,), int64.

    Pods that are being deleted do not count. Of several services it is the first by name; upstream takes any.
    """
    services = owners.services_of(pod)
    if not services:
        return np.zeros(len(nodes), np.int64)
    matcher = _EVERYTHING.with_labels(services[min(services)])
    classes = placed.select(matcher, frozenset((pod.namespace,)), terminating=False)
    return nodes.take(placed.counts(classes))


def score_spread(nodes: Nodes, counts: IntArray, labels: Collection[str]) -> IntArray:
    """Return how small a part of ``counts`` is on nodes that share a label's value; shape (candidates,), 0 to 100.

    It is the mean over ``labels``, added up in their order in floating point and truncated. A node that lacks a label
    gets nothing for it; without any pods all others get the most.
    """
    total = int(counts.sum())
    scores = np.zeros(len(nodes))
    for label in labels:
        column = nodes.table.label(label)
        codes = nodes.take(column.codes)
        pods = np.bincount(codes, weights=counts, minlength=len(column.values))
        spread = MAX_NODE_SCORE * ((total - pods) / total) if total else np.full_like(pods, MAX_NODE_SCORE)
        spread[0] = 0
        scores += (spread / len(labels))[codes]
    return scores.astype(np.int64)
