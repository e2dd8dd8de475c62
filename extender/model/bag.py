"""Bags of rows: which nodes have something that few or many of them have, in as little memory as it takes."""

from __future__ import annotations

from typing import Final

import numpy as np

from extender.model.column import BoolArray, IntArray, lengthen

_FIRST_CAPACITY: Final = 4
_FIRST_BAGS: Final = 64


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

    def retain(self, keep: BoolArray) -> None:
        """Take out all entries for which ``keep``, shape (size,), is false."""
        rows, numbers = self.rows[keep], self.numbers[keep]
        self._size = len(rows)
        self._rows[: self._size], self._numbers[: self._size] = rows, numbers


class RowBags:
    """Many bags in one array, each under a number: where most of them have few rows, each takes little more than these.

    ``sizes``, shape (bags,), int64, says how many rows each has; those of numbers that are not in use are 0.
    """

    def __init__(self) -> None:
        self.sizes: IntArray = np.zeros(_FIRST_BAGS, np.int64)
        self._starts: IntArray = np.zeros(_FIRST_BAGS, np.int64)
        self._rooms: IntArray = np.zeros(_FIRST_BAGS, np.int64)
        self._rows: IntArray = np.zeros(_FIRST_BAGS, np.int64)
        self._end = 0
        self._gaps: dict[int, list[int]] = {}
        self._unused: list[int] = list(range(_FIRST_BAGS - 1, -1, -1))
        self._look_into_arrays()

    def open(self) -> int:
        """Return the number of a new bag, empty."""
        if not self._unused:
            before = len(self.sizes)
            self._unused = list(range(2 * before - 1, before - 1, -1))
            self.sizes = lengthen(self.sizes, 2 * before)
            self._starts = lengthen(self._starts, 2 * before)
            self._rooms = lengthen(self._rooms, 2 * before)
            self._look_into_arrays()
        return self._unused.pop()

    def close(self, bag: int) -> None:
        """Give the number of a bag, and the room it has, to others; it must be empty."""
        room = self._room_cells[bag]
        if room:
            self._gaps.setdefault(room, []).append(self._start_cells[bag])
            self._room_cells[bag] = 0
        self._unused.append(bag)

    def add(self, bag: int, row: int) -> None:
        """Put a row in once more."""
        size = self._size_cells[bag]
        if size == self._room_cells[bag]:
            self._enlarge(bag, size)
        self._row_cells[self._start_cells[bag] + size] = row
        self._size_cells[bag] = size + 1

    def remove(self, bag: int, row: int) -> int:
        """Undo ``add`` and return how many rows are left; the row must be there."""
        start, left = self._start_cells[bag], self._size_cells[bag] - 1
        if left:
            last = start + left
            place = start + int(np.argmax(self._rows[start : last + 1] == row))
            self._row_cells[place] = self._row_cells[last]
        self._size_cells[bag] = left
        return left

    def rows(self, bag: int) -> IntArray:
        """Return the rows of a bag, in no particular order; shape (size,), a view that the next change spoils."""
        start = self._start_cells[bag]
        return self._rows[start : start + self._size_cells[bag]]

    def rows_of(self, bags: IntArray) -> IntArray:
        """Return the rows of many bags, one after the other; shape (sum of sizes,)."""
        sizes = self.sizes[bags]
        ends = sizes.cumsum()
        places = np.repeat(self._starts[bags] - ends + sizes, sizes)
        places += np.arange(len(places))
        return self._rows.take(places)

    def _enlarge(self, bag: int, size: int) -> None:
        """Give a bag twice its room, elsewhere."""
        before, room = self._start_cells[bag], max(1, 2 * size)
        gaps = self._gaps.get(room)
        if gaps:
            start = gaps.pop()
        else:
            start, self._end = self._end, self._end + room
            if self._end > len(self._rows):
                self._rows = lengthen(self._rows, max(self._end, 2 * len(self._rows)))
                self._look_into_arrays()
        self._rows[start : start + size] = self._rows[before : before + size]
        if size:
            self._gaps.setdefault(size, []).append(before)
        self._start_cells[bag], self._room_cells[bag] = start, room

    def _look_into_arrays(self) -> None:
        """Look at single cells as plain numbers, which takes a third of the time that arrays need for it."""
        self._size_cells, self._start_cells = self.sizes.data, self._starts.data
        self._room_cells, self._row_cells = self._rooms.data, self._rows.data
