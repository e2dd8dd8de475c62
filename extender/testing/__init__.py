"""The test kit: builders of pods and nodes, a cluster in memory, the laws of caches, the whole service over HTTP."""

from extender.errors import AlgorithmError
from extender.framework.outcome import Outcome
from extender.testing.canned import CannedServer, Reply
from extender.testing.cluster import RunningService, running_service
from extender.testing.failure import DecodeError, ExtenderCallError, SchedulerPanic
from extender.testing.lab import Lab, Scores
from extender.testing.law import check_fold_equals_rebuild, check_inverse_leaves_no_trace
from extender.testing.maker import make_node, make_pod
from extender.testing.reply import FilterOutcome, HostScore, PrioritizeOutcome, Victims
from extender.testing.scheduler import SchedulerClient

__all__ = [
    "AlgorithmError",
    "CannedServer",
    "DecodeError",
    "ExtenderCallError",
    "FilterOutcome",
    "HostScore",
    "Lab",
    "Outcome",
    "PrioritizeOutcome",
    "Reply",
    "RunningService",
    "SchedulerClient",
    "SchedulerPanic",
    "Scores",
    "Victims",
    "check_fold_equals_rebuild",
    "check_inverse_leaves_no_trace",
    "make_node",
    "make_pod",
    "running_service",
]
