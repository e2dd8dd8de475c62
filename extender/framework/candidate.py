"""The nodes one request asks about, as a view on the node table."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from extender.model.column import BoolArray, IntArray
from extender.model.node import NodeInfo
from extender.model.table import NodeTable

Cells = TypeVar("Cells", bound=np.generic)


class Nodes:
    """Candidates in the order they were asked about; every one of them has a node object.

    ``rows`` are their rows in the node table, shape (candidates,), int64. Columns of the table and of caches have one
    entry a row; ``take`` picks the candidates' entries.
    """

    __slots__ = ("_span", "rows", "table")

    def __init__(self, table: NodeTable, rows: IntArray) -> None:
        self.table = table
        self.rows = rows
        self._span = _span(rows)

    def __len__(self) -> int:
        """Return the number of candidates."""
        return len(self.rows)

    def take(self, column: NDArray[Cells]) -> NDArray[Cells]:
        """Return the candidates' entries along the last axis of ``column``; shape (..., candidates), not to be written.

        Candidates that are neighbours in the table cost nothing: the answer is then a view.
        """
        return column[..., self._span] if self._span is not None else column.take(self.rows, axis=-1)

    def where(self, keep: BoolArray) -> Nodes:
        """Return the candidates for which ``keep``, shape (candidates,), is true."""
        return Nodes(self.table, self.rows[keep])

    def infos(self) -> Iterator[NodeInfo]:
        """Return the parsed node objects, one a candidate."""
        infos = self.table.infos
        for row in self.rows.tolist():
            info = infos[row]
            assert info is not None  # noqa: S101 - candidates have node objects by construction
            yield info

    def names(self) -> list[str]:
        """Return the candidates' names."""
        return [self.table.name(row) for row in self.rows.tolist()]


def _span(rows: IntArray) -> slice | None:
    """Return ``rows`` as a slice where they are consecutive."""
    if not len(rows):
        return slice(0, 0)
    first, last = int(rows[0]), int(rows[-1])
    if len(rows) == 1:
        return slice(first, first + 1)
    if last - first + 1 != len(rows) or not bool((np.diff(rows) == 1).all()):
        return None
    return slice(first, last + 1)
