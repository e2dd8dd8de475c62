"""Columns of the node table whose cells are interned, so that equal cells are decided once."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Generic, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from extender.model.selector import Operator, Requirement

BoolArray: TypeAlias = NDArray[np.bool_]
IntArray: TypeAlias = NDArray[np.int64]

V = TypeVar("V", bound=Hashable)
Cells = TypeVar("Cells", bound=np.generic)


def lengthen(array: NDArray[Cells], length: int) -> NDArray[Cells]:
    """Return a copy of ``array`` whose last axis has ``length`` entries, the new ones zero."""
    longer: NDArray[Cells] = np.zeros((*array.shape[:-1], length), array.dtype)
    longer[..., : array.shape[-1]] = array
    return longer


class Interned(Generic[V]):
    """A column of hashable cells: a code per row, and each distinct value once.

    ``codes`` has shape (capacity,); ``values[code]`` is the cell. Code 0 is the empty cell and always exists; codes of
    values that no row has any more are given to other values.
    """

    def __init__(self, capacity: int, *, empty: V) -> None:
        self.codes: NDArray[np.int32] = np.zeros(capacity, np.int32)
        self.values: list[V] = [empty]
        self._code_of: dict[V, int] = {empty: 0}
        self._uses: list[int] = [1]
        self._free: list[int] = []

    def set(self, row: int, value: V) -> None:
        """Put ``value`` into ``row``."""
        code = self._code_of.get(value)
        if code is None:
            code = self._new_code(value)
        before = int(self.codes[row])
        if code == before:
            return
        self.codes[row] = code
        self._uses[code] += 1
        self._release(before)

    def code(self, value: V) -> int | None:
        """Return the code of ``value``, or None where no row has it."""
        return self._code_of.get(value)

    def grow(self, capacity: int) -> None:
        """Make room for ``capacity`` rows."""
        self.codes = lengthen(self.codes, capacity)

    def _new_code(self, value: V) -> int:
        if self._free:
            code = self._free.pop()
            self.values[code] = value
        else:
            code = len(self.values)
            self.values.append(value)
            self._uses.append(0)
        self._code_of[value] = code
        return code

    def _release(self, code: int) -> None:
        if code == 0:
            return
        self._uses[code] -= 1
        if not self._uses[code]:
            del self._code_of[self.values[code]]
            self.values[code] = self.values[0]
            self._free.append(code)


class LabelColumn(Interned[str | None]):
    """The values of one label key; code 0 means that the node does not have it."""

    def __init__(self, capacity: int) -> None:
        super().__init__(capacity, empty=None)

    def matching(self, requirement: Requirement) -> BoolArray:
        """Return which rows meet ``requirement``, whose key is this column's; shape (capacity,)."""
        accepted = np.zeros(len(self.values), np.bool_)
        match requirement.operator:
            case Operator.IN | Operator.NOT_IN:
                named = [code for value in requirement.values if (code := self.code(value)) is not None]
                accepted[named] = True
                if requirement.operator is Operator.NOT_IN:
                    accepted = ~accepted
            case Operator.EXISTS | Operator.DOES_NOT_EXIST:
                accepted[0] = True
                if requirement.operator is Operator.EXISTS:
                    accepted = ~accepted
            case _:
                accepted[:] = [requirement.accepts(value) for value in self.values]
        result: BoolArray = accepted[self.codes]
        return result
