"""What pods bring to nodes that take so many disks of one driver, whichever it is."""

from typing import NamedTuple

import pytest

from extender.framework import SKIP
from extender.framework.in_tree_limit import REASON
from extender.framework.runner import Outcome
from extender.testing.lab import Lab
from extender.testing.maker import make_node, make_pod
from tests.algorithms.storage import claim, csi_node, storage_class, volume

FOREIGN = {"name": "v", "awsElasticBlockStore": {"volumeID": "vol"}}

CASES = [
    pytest.param([], SKIP, id="a pod without volumes has no opinion asked of it"),
    pytest.param([FOREIGN], SKIP, id="nor has one with others"),
    pytest.param(["new"], {"full"}, id="a disk must fit beside those that are there"),
    pytest.param(["claim bound", "disk-1"], set(), id="disks that are there already cost nothing"),
    pytest.param(["claim bound", "claim waiting"], {"full"}, id="a disk that is yet to be made counts"),
    pytest.param(["claim waiting", "new"], {"full", "large"}, id="what a node says it takes counts first"),
]
"""Disks and claims by name, or a volume as it stands in a pod, and the nodes that are refused."""


class Disks(NamedTuple):
    """The disks of a built-in driver that a node takes ``most`` of, or what it says under ``resource``."""

    algorithm: type
    plugin: str
    resource: str
    most: int
    source: str
    key: str

    def filter(self, volumes, args=None):
        return self.lab().filter(self.algorithm, self.pod("p", None, *volumes), args)

    def expected(self, refused):
        full = Outcome((REASON,), resolvable=True, algorithm=self.algorithm.__name__)
        return SKIP if refused is SKIP else dict.fromkeys(refused, full)

    def lab(self):
        """A node without disks, one that is full, one that takes one more, and one that CSI looks after."""
        return Lab(
            [
                make_node("empty"),
                make_node("full"),
                make_node("large", allocatable={self.resource: self.most + 1}),
                make_node("moved"),
                csi_node("moved", migrated=[self.plugin]),
                storage_class("made", self.plugin),
                claim("waiting", "made"),
                claim("bound", volume="v"),
                volume("v", source=self.disk("disk-0")),
                *(
                    self.pod(f"{node}-{place}", node, f"disk-{place}")
                    for node in ("full", "large", "moved")
                    for place in range(self.most)
                ),
            ]
        )

    def pod(self, name, node, *volumes):
        return make_pod(name, node=node, volumes=[self._volume(one) for one in volumes])

    def disk(self, name):
        return {self.source: {self.key: name}}

    def _volume(self, one):
        if isinstance(one, dict):
            return one
        claimed = one.removeprefix("claim ")
        return {"name": "v", **self.disk(one)} if claimed == one else claimed
