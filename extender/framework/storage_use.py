"""How much of the storage that nodes offer a pod's claims would use, as scores see it."""

from __future__ import annotations

import numpy as np

from extender.framework.utilization import UtilizationShape, WeightedMean
from extender.model.column import BoolArray, IntArray


class StorageUse:
    """Bytes by storage class and row: what claims ask for, and what there is for them.

    Source: plugins/volumebinding/scorer.go and volume_binding.go of 1.36, with StorageCapacityScoring on.
    """

    def __init__(self, capacity: int) -> None:
        """Start with nothing on ``capacity`` rows."""
        self._capacity = capacity
        self._asked: dict[str, IntArray] = {}
        self._offered: dict[str, IntArray] = {}
        self._counts: dict[str, BoolArray] = {}

    def add(self, class_name: str, asked_bytes: int, offered: IntArray, *, shared: bool = False) -> None:
        """Count a claim where ``offered``, shape (capacity,), is not negative.

        Claims that have their storage for themselves add theirs up; that which is ``shared`` is there once for all.
        """
        here: BoolArray = offered >= 0
        nothing = np.zeros(self._capacity, np.int64)
        before = self._offered.get(class_name, nothing)
        self._asked[class_name] = self._asked.get(class_name, nothing) + here * asked_bytes
        self._offered[class_name] = np.where(here, offered if shared else before + offered, before)
        self._counts[class_name] = self._counts.get(class_name, np.zeros(self._capacity, np.bool_)) | here

    def rate(self, shape: UtilizationShape) -> tuple[IntArray, BoolArray]:
        """Return the mean score of the classes on each row, 0 to 100, and where there are any; shapes (capacity,)."""
        mean, anything = WeightedMean(self._capacity), np.zeros(self._capacity, np.bool_)
        for class_name, counts in self._counts.items():
            asked, offered = self._asked[class_name], self._offered[class_name]
            percents = np.where(asked > offered, 100, np.minimum(asked, offered) * 100 // np.maximum(offered, 1))
            percents[offered == 0] = 100
            mean.add(shape.scores[percents] * counts, counts, 1)
            anything |= counts
        return mean.round(), anything
