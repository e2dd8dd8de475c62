"""EBSLimits: a node takes no more EBS disks than can be attached to it."""

import re
from typing import Final

import numpy as np

from extender.framework import AWS_EBS, BoolArray, IntArray, InTreeLimits, NodeTable

MOST_DISKS: Final = 39
"""What a node takes that does not tell (source of all figures: volume/util/attach_limit.go of 1.29)."""

MOST_NITRO_DISKS: Final = 25
"""What a node of one of the newer instance types takes."""

NITRO_TYPE: Final = re.compile("^[cmr]5.*|t3|z1d")
"""Found in the names of the newer instance types."""

TYPE_LABEL: Final = "node.kubernetes.io/instance-type"
BETA_TYPE_LABEL: Final = "beta.kubernetes.io/instance-type"


class EBSLimits(InTreeLimits):
    """Refuses nodes where the pod's EBS disks would be too many, unless they are handled through CSI."""

    plugin = AWS_EBS

    def known_limits(self, table: NodeTable) -> IntArray:
        """Tell the newer instance types from the others, by the label of today where a node has both."""
        typed = table.label(TYPE_LABEL).codes != 0
        nitro = np.where(typed, _is_nitro(table, TYPE_LABEL), _is_nitro(table, BETA_TYPE_LABEL))
        return np.where(nitro, MOST_NITRO_DISKS, MOST_DISKS)


def _is_nitro(table: NodeTable, key: str) -> BoolArray:
    """Return which rows name a newer instance type under ``key``, asked once for each type; shape (capacity,)."""
    column = table.label(key)
    newer = np.fromiter((bool(value and NITRO_TYPE.search(value)) for value in column.values), np.bool_)
    nitro: BoolArray = newer[column.codes]
    return nitro
