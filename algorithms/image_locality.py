"""ImageLocality: prefers nodes that hold the pod's images already."""

from collections.abc import Iterator
from typing import Any, Final

import numpy as np

from extender.framework import (
    MAX_NODE_SCORE,
    NODES,
    Cache,
    IntArray,
    NodeInfo,
    Nodes,
    NodeTable,
    PendingPod,
    Priority,
    RowBag,
    uses,
)

LEAST_BYTES: Final = 23 * 2**20
"""At or below this many bytes a node scores 0 (source: plugins/imagelocality of 1.36, as are all figures here)."""

MOST_BYTES_PER_CONTAINER: Final = 1000 * 2**20
"""At or above this many bytes for each of the pod's containers a node scores 100."""


class ImageStates(Cache):
    """Which rows hold an image, by each of its names, and its size in bytes there."""

    kinds = (NODES,)

    def __init__(self, table: NodeTable) -> None:
        super().__init__(table)
        self._bags: dict[str, RowBag] = {}

    def add_node(self, row: int, node: NodeInfo) -> None:
        """Note the images of a node."""
        for name, size_bytes in _sizes(node).items():
            self._bags.setdefault(name, RowBag()).add(row, size_bytes)

    def remove_node(self, row: int, node: NodeInfo) -> None:
        """Undo ``add_node``."""
        for name in _sizes(node):
            bag = self._bags[name]
            bag.remove(row)
            if not len(bag):
                del self._bags[name]

    def holders(self, name: str) -> RowBag | None:
        """Return the rows that hold an image, with its size there, or None where no node does."""
        return self._bags.get(name)

    def dump(self) -> Any:
        """Return the sizes in bytes by image and node name."""
        return {
            image: {
                self.table.name(row): size for row, size in zip(bag.rows.tolist(), bag.numbers.tolist(), strict=True)
            }
            for image, bag in self._bags.items()
        }


class ImageLocality(Priority):
    """Scores the bytes of the pod's images that a node holds, those that are on many nodes higher.

    An image counts by the share of all nodes that hold it, lest every pod go to the one node that had it first.
    """

    images = uses(ImageStates)

    def prioritize(self, pod: PendingPod, nodes: Nodes) -> IntArray:
        """Sum the images of all containers and volumes, and place the sum between the two thresholds."""
        table = nodes.table
        total = len(table)
        held: IntArray = np.zeros(table.capacity, np.int64)
        for name in _image_names(pod):
            holders = self.images.holders(name)
            if holders is not None:
                # Upstream truncates the bytes of each image, not their sum.
                held[holders.rows] += (holders.numbers * (len(holders) / total)).astype(np.int64)
        # Images of volumes count, but raise the upper threshold only from 1.37 on.
        containers = len(pod.spec.init_containers or ()) + len(pod.spec.containers or ())
        most = MOST_BYTES_PER_CONTAINER * max(containers, 1)
        scores: IntArray = nodes.take(held).clip(LEAST_BYTES, most)
        return (scores - LEAST_BYTES) * MAX_NODE_SCORE // (most - LEAST_BYTES)


def normalize_image_name(name: str) -> str:
    """Return the name as nodes report it: with the tag that is used where none is given."""
    return name if name.rfind(":") > name.rfind("/") else f"{name}:latest"


def _image_names(pod: PendingPod) -> Iterator[str]:
    """Yield the image of every container, init containers included, and volume, as often as it is used."""
    for containers in (pod.spec.init_containers, pod.spec.containers):
        for container in containers or ():
            yield normalize_image_name(container.image or "")
    for volume in pod.spec.volumes or ():
        if volume.image is not None:
            yield normalize_image_name(volume.image.reference or "")


def _sizes(node: NodeInfo) -> dict[str, int]:
    """Return the size in bytes of each image by name; the last entry counts where a name is reported twice."""
    return {name: image.size_bytes or 0 for image in node.images for name in image.names or ()}
