"""The API versions of kube-scheduler's configuration: who reads them, how they spell, what their defaults weigh.

Sources: k8s.io/kube-scheduler ``config/*/types.go`` of 1.17 to 1.36, and the ``default_plugins.go`` of each version in
kube-scheduler's ``pkg/scheduler/apis/config``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

GROUP: Final = "kubescheduler.config.k8s.io"
CONFIGURATION: Final = "KubeSchedulerConfiguration"
POLICY: Final = "Policy"

AVOID_PODS = "NodePreferAvoidPods"
"""Weighs 10000 where it exists: all nodes have its points, but for those that ask to be avoided."""

POINTS_PER_WEIGHT = 100
"""What a score plug-in, or an extender, can add at most for each unit of its weight."""

_KEYS = frozenset(
    {
        *("apiVersion", "kind", "parallelism", "leaderElection", "clientConnection", "profiles", "extenders"),
        *("enableProfiling", "enableContentionProfiling", "percentageOfNodesToScore"),
        *("podInitialBackoffSeconds", "podMaxBackoffSeconds"),
    }
)
_ADDRESSES = frozenset({"healthzBindAddress", "metricsBindAddress"})
_PROFILE = frozenset({"schedulerName", "plugins", "pluginConfig"})
_POLICY_KEYS = frozenset(
    {
        *("apiVersion", "kind", "predicates", "priorities", "extenders"),
        *("hardPodAffinitySymmetricWeight", "alwaysCheckAllPredicates"),
    }
)

_WEIGHTS_1_25 = {
    "TaintToleration": 3,
    "NodeAffinity": 2,
    "PodTopologySpread": 2,
    "InterPodAffinity": 2,
    "NodeResourcesFit": 1,
    "NodeResourcesBalancedAllocation": 1,
    "ImageLocality": 1,
}
_WEIGHTS_1_22 = {**dict.fromkeys(_WEIGHTS_1_25, 1), "PodTopologySpread": 2}
_WEIGHTS_1_19 = {
    **{name: weight for name, weight in _WEIGHTS_1_22.items() if name != "NodeResourcesFit"},
    "NodeResourcesLeastAllocated": 1,
    AVOID_PODS: 10_000,
}


@dataclass(frozen=True)
class Dialect:
    """One API version; ``first`` and ``last`` are the minor numbers of the Kubernetes releases that read it.

    ``weights`` are those of the score plug-ins that run unless a profile says otherwise.
    """

    name: str
    api_version: str
    first: int
    last: int | None
    keys: frozenset[str]
    profile_keys: frozenset[str]
    weights: Mapping[str, int]

    @property
    def is_policy(self) -> bool:
        """Whether this is the old form: nanoseconds, ``enableHttps``, keys in any case, unknown ones overlooked."""
        return self.name == "policy"

    @property
    def kind(self) -> str:
        """The ``kind`` of a document."""
        return POLICY if self.is_policy else CONFIGURATION

    @property
    def https_key(self) -> str:
        """How the key for HTTPS is spelt."""
        return "enableHttps" if self.is_policy else "enableHTTPS"

    @property
    def flag(self) -> str:
        """The flag of kube-scheduler that takes a document."""
        return "--policy-config-file" if self.is_policy else "--config"

    @property
    def releases(self) -> str:
        """The releases in words."""
        if self.last is None:
            return f"1.{self.first} and later"
        return f"1.{self.first} to 1.{self.last}" if self.first else f"up to 1.{self.last}"

    def serves(self, minor: int) -> bool:
        """Tell whether kube-scheduler 1.``minor`` reads this version."""
        return self.first <= minor and (self.last is None or minor <= self.last)

    @property
    def in_tree_points(self) -> int:
        """What all score plug-ins together can add, but for the one that avoids nodes."""
        return POINTS_PER_WEIGHT * sum(weight for name, weight in self.weights.items() if name != AVOID_PODS)


DIALECTS: Final = (
    Dialect(
        "v1",
        f"{GROUP}/v1",
        25,
        None,
        _KEYS | {"delayCacheUntilActive"},
        _PROFILE | {"percentageOfNodesToScore"},
        _WEIGHTS_1_25,
    ),
    Dialect("v1beta3", f"{GROUP}/v1beta3", 23, 28, _KEYS, _PROFILE, _WEIGHTS_1_25),
    Dialect("v1beta2", f"{GROUP}/v1beta2", 22, 27, _KEYS | _ADDRESSES, _PROFILE, _WEIGHTS_1_22),
    Dialect("v1beta1", f"{GROUP}/v1beta1", 19, 22, _KEYS | _ADDRESSES, _PROFILE, _WEIGHTS_1_19),
    Dialect("policy", "v1", 0, 22, _POLICY_KEYS, frozenset(), _WEIGHTS_1_19),
)
"""All versions that have extenders, newest first."""

OLDEST_RELEASE: Final = 17
"""The minor number of the first release whose extenders are known here; the wire has had other forms before."""

BY_NAME: Final = {dialect.name: dialect for dialect in DIALECTS}


def of(api_version: object, kind: object) -> Dialect | None:
    """Return the version of a document by what stands in it."""
    for dialect in DIALECTS:
        # A Policy may name the group as well.
        versions = {dialect.api_version, f"{GROUP}/v1"} if dialect.is_policy else {dialect.api_version}
        if kind == dialect.kind and api_version in versions:
            return dialect
    return None


def newest(minor: int) -> Dialect:
    """Return the best version that kube-scheduler 1.``minor`` reads."""
    return next(dialect for dialect in DIALECTS if dialect.serves(minor))


def parse_release(text: str) -> int:
    """Return the minor number of ``1.36``, ``v1.36.2`` or ``v1.36.2+k3s1``. Raises ValueError."""
    found = re.match(r"v?1\.(\d{1,3})(?![\d])", text, re.ASCII)
    if found is None:
        raise ValueError(f"{text!r} is no release of Kubernetes; write it as 1.36")
    return int(found[1])
