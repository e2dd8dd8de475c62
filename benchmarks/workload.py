"""The workloads as ``workloads.yaml`` declares them."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal, TypeAlias

import msgspec
import yaml

DECLARED = Path(__file__).with_name("workloads.yaml")
QUICK_DIVISOR = 100
QUICK_ROUND_SECONDS = 0.01


class _Section(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """Root of everything declared: camelCase in the file, unknown keys refused."""


class Cluster(_Section, frozen=True):
    """How big the cluster is that is measured on."""

    nodes: int
    pods: int


class _Workload(_Section, frozen=True, kw_only=True, tag_field="kind"):
    """Root of the kinds of workload; ``target`` reads ``figure <= number`` or ``figure >= number``.

    Several targets are parted by commas; all have to be met.
    """

    name: str
    target: str = ""


class Verb(_Workload, frozen=True, kw_only=True, tag="verb"):
    """One verb over HTTP, asked about ``names`` or about ``whole_nodes``."""

    verb: Literal["filter", "prioritize", "preempt", "bind"]
    names: int = 0
    whole_nodes: int = 0
    lists: int = 1
    victims: int = 0


class Codec(_Workload, frozen=True, kw_only=True, tag="codec"):
    """Decoding and encoding of requests with so many names, and with so many whole nodes."""

    names: int
    whole_nodes: int


class Evaluation(_Workload, frozen=True, kw_only=True, tag="evaluation"):
    """The algorithms of a profile, the default one unless given, for each of some pods to place."""

    pods: list[str]
    profile: dict[str, Any] = {}
    cluster: Cluster | None = None
    nominated: int = 0
    """How many pods are nominated, each to another node."""
    own_labels: bool = False
    """Whether each placed pod has a label of its own, and another such pod comes before each pod to place."""


class Event(_Workload, frozen=True, kw_only=True, tag="event"):
    """Events of placed pods, from memory or from an API server in another process."""

    events: int
    loopback: bool = False


class Memory(_Workload, frozen=True, kw_only=True, tag="memory"):
    """Resident memory at so many pods, in ascending order."""

    pods: list[int]


class Start(_Workload, frozen=True, kw_only=True, tag="start"):
    """A start against an API server in another process."""

    cluster: Cluster


class Scale(_Workload, frozen=True, kw_only=True, tag="scale"):
    """The default algorithms in a cluster, next to what a node costs them in another one."""

    pods: list[str]
    cluster: Cluster
    baseline: Cluster


class Load(_Workload, frozen=True, kw_only=True, tag="load"):
    """A filter of all nodes while an API server tells of so many changes of pods a second."""

    events_per_second: int
    seconds: int


class BindRate(_Workload, frozen=True, kw_only=True, tag="bindRate"):
    """So many binds, ``concurrent`` at a time, against an API server that takes its time with each."""

    binds: int
    concurrent: int
    latency_millis: int


class Overhead(_Workload, frozen=True, kw_only=True, tag="overhead"):
    """Filter and prioritize of ``names`` with the default algorithms: over HTTP, less what they take in process."""

    names: int


class Reload(_Workload, frozen=True, kw_only=True, tag="reload"):
    """All caches of the default algorithms, built anew as a changed configuration has new ones built."""

    cluster: Cluster | None = None


Workload: TypeAlias = Verb | Codec | Evaluation | Event | Memory | Start | Scale | Load | BindRate | Overhead | Reload


class Plan(_Section, frozen=True):
    """All workloads, and how long to measure each: the median of ``rounds``, each of ``round_seconds`` at least."""

    rounds: int
    round_seconds: float
    cluster: Cluster
    workloads: list[Workload]
    profile: dict[str, Any] = {}
    """The algorithms that answer the verbs over HTTP; the default ones unless given."""

    def chosen(self, names: list[str]) -> Plan:
        """Return a plan of the named workloads alone, of all where none are named.

        Raises:
            ValueError: there is none of such a name.
        """
        unknown = set(names).difference(workload.name for workload in self.workloads)
        if unknown:
            known = ", ".join(workload.name for workload in self.workloads)
            raise ValueError(f"no workload named {', '.join(sorted(unknown))}; there are {known}")
        kept = [workload for workload in self.workloads if not names or workload.name in names]
        return msgspec.structs.replace(self, workloads=kept)

    def quick(self) -> Plan:
        """Return a plan of the same shape that shows in seconds that everything runs."""
        small: Plan = msgspec.convert(_shrink(msgspec.to_builtins(self)), Plan)
        return msgspec.structs.replace(small, round_seconds=QUICK_ROUND_SECONDS)


def load_plan(path: Path = DECLARED) -> Plan:
    """Read a file of workloads.

    Raises:
        msgspec.ValidationError: a key is not known or has the wrong type; names the place.
    """
    return msgspec.convert(yaml.safe_load(path.read_text()), Plan)


def _shrink(declared: Any) -> Any:
    if isinstance(declared, dict):
        return {key: value if key == "profile" else _shrink(value) for key, value in declared.items()}
    if isinstance(declared, list):
        return [_shrink(value) for value in declared]
    if isinstance(declared, int) and not isinstance(declared, bool) and declared:
        return max(1, declared // QUICK_DIVISOR)
    return declared
