"""The test kit: a stand-in for kube-scheduler, builders of pods and nodes, and a server of canned replies."""

from extender.testing.canned import CannedServer, Reply
from extender.testing.failure import DecodeError, ExtenderCallError, SchedulerPanic
from extender.testing.maker import make_node, make_pod
from extender.testing.reply import FilterOutcome, HostScore, PrioritizeOutcome, Victims
from extender.testing.scheduler import SchedulerClient

__all__ = [
    "CannedServer",
    "DecodeError",
    "ExtenderCallError",
    "FilterOutcome",
    "HostScore",
    "PrioritizeOutcome",
    "Reply",
    "SchedulerClient",
    "SchedulerPanic",
    "Victims",
    "make_node",
    "make_pod",
]
