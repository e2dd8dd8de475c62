"""AzureDiskLimits: a node takes no more Azure disks than can be attached to it."""

from typing import Final

from extender.framework import AZURE_DISK, InTreeLimits, NodeTable

MOST_DISKS: Final = 16
"""What a node takes that does not tell (source: plugins/nodevolumelimits/non_csi.go of 1.29)."""


class AzureDiskLimits(InTreeLimits):
    """Refuses nodes where the pod's Azure disks would be too many, unless they are handled through CSI."""

    plugin = AZURE_DISK

    def known_limits(self, table: NodeTable) -> int:  # noqa: ARG002 - alike for all nodes
        """Return what every node takes."""
        return MOST_DISKS
