"""GCEPDLimits: a node takes no more GCE persistent disks than can be attached to it."""

from typing import Final

from extender.framework import GCE_PD, InTreeLimits, NodeTable

MOST_DISKS: Final = 16
"""What a node takes that does not tell (source: plugins/nodevolumelimits/non_csi.go of 1.29)."""


class GCEPDLimits(InTreeLimits):
    """Refuses nodes where the pod's GCE persistent disks would be too many, unless they are handled through CSI."""

    plugin = GCE_PD

    def known_limits(self, table: NodeTable) -> int:  # noqa: ARG002 - alike for all nodes
        """Return what every node takes."""
        return MOST_DISKS
