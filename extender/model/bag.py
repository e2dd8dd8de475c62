"""Bags of rows: which nodes have something that few or many of them have, in as little memory as it takes."""

from __future__ import annotations

from typing import Final

import numpy as np

from extender.model.column import IntArray, lengthen

_FIRST_CAPACITY: Final = 4


class RowBag:
    """Rows in no particular order, each as often as it was added, and each with a number.

    A column has an entry for every row of the table; where thousands of things are kept of which each is on few rows,
    a bag of rows for each takes less, and still selects all its rows at once.
    """

    __slots__ = ("_numbers", "_rows", "_size")

    def __init__(self) -> None:
        self._rows: IntArray = np.zeros(_FIRST_CAPACITY, np.int64)
        self._numbers: IntArray = np.zeros(_FIRST_CAPACITY, np.int64)
        self._size = 0

    def __len__(self) -> int:
        """Return how many rows there are, counting each as often as it was added."""
        return self._size

    @property
    def rows(self) -> IntArray:
        """The rows; shape (size,), a view that the next change spoils."""
        return self._rows[: self._size]

    @property
    def numbers(self) -> IntArray:
        """The number of each of ``rows``; shape (size,), a view that the next change spoils."""
        return self._numbers[: self._size]

    def add(self, row: int, number: int = 0) -> None:
        """Put a row in once more."""
        if self._size == len(self._rows):
            self._rows = lengthen(self._rows, 2 * self._size)
            self._numbers = lengthen(self._numbers, 2 * self._size)
        self._rows[self._size] = row
        self._numbers[self._size] = number
        self._size += 1

    def remove(self, row: int) -> None:
        """Undo ``add``; the row must be there, and have one and the same number wherever it is there more than once."""
        place = int(np.argmax(self.rows == row))
        self._size -= 1
        self._rows[place] = self._rows[self._size]
        self._numbers[place] = self._numbers[self._size]
