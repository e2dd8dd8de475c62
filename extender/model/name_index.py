"""From names to rows, for all names of a list at once."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import count

import numpy as np
from numpy.typing import NDArray

from extender.model.column import IntArray
from extender.model.name_list import NameList

_WORD_BYTES = 8
_ROOM = 8
"""How many slots a name has on average: few names find theirs taken."""

_SPREAD = 0x9E3779B97F4A7C15
_HALF = np.uint64(32)

_Words = NDArray[np.uint64]


class NameIndex:
    """A hash table of names, asked for whole lists of names by column.

    Names are compared as words of eight bytes, shape (names, words), zero where a name ends sooner. A name has the
    first slot from that of its hash on that was free; no two known names have the same hash.
    """

    def __init__(self, rows: Mapping[str, int]) -> None:
        names = NameList.of(rows)
        width = max(1, -(-int(names.lengths.max(initial=0)) // _WORD_BYTES))
        self._masks = _masks(width)
        words = self._words_of(names)
        for seed in count(1):
            self._factors = np.array([pow(_SPREAD, seed + place, 1 << 64) for place in range(width)], np.uint64)
            hashes = self._hashed(words)
            if len(np.unique(hashes)) == len(hashes):
                break
        # One entry a name, and a last one for names that are not known.
        self._rows = np.fromiter([*rows.values(), -1], np.int64, len(rows) + 1)
        self._lengths = np.append(names.lengths, -1)
        self._words = np.append(words, np.zeros((1, width), np.uint64), axis=0)
        self._hashes = np.append(hashes, np.uint64(0))
        bits = max(len(rows) * _ROOM - 1, 1).bit_length()
        self._shift = np.uint64(64 - bits)
        self._last_slot = (1 << bits) - 1
        self._slots = self._filled(self._slots_of(hashes))

    def rows(self, names: NameList) -> IntArray:
        """Return the rows of ``names``, -1 for those that have none; shape (names,)."""
        words = self._words_of(names)
        hashes = self._hashed(words)
        slots = self._slots_of(hashes)
        places = self._slots.take(slots)
        others = np.flatnonzero((self._hashes.take(places) != hashes) & (places >= 0))
        while len(others):
            slots[others] = (slots[others] + 1) & self._last_slot
            found = self._slots.take(slots[others])
            places[others] = found
            others = others[(self._hashes.take(found) != hashes[others]) & (found >= 0)]
        unlike = self._words.take(places, axis=0) != words
        longer = self._lengths.take(places) != names.lengths
        if unlike.any() or longer.any():
            places[unlike.any(axis=1) | longer] = -1
        return self._rows.take(places)

    def _filled(self, slots: IntArray) -> IntArray:
        """Return places of names by slot, -1 where there is none; ``slots`` are those that names want first."""
        filled = np.full(self._last_slot + 1, -1, np.int64)
        waiting = np.arange(len(slots))
        while len(waiting):
            wanted = slots[waiting]
            free = filled.take(wanted) < 0
            filled[wanted[free]] = waiting[free]
            waiting = waiting[filled.take(wanted) != waiting]
            slots[waiting] = (slots[waiting] + 1) & self._last_slot
        return filled

    def _words_of(self, names: NameList) -> _Words:
        """Return the first words of names; what is longer is cut off."""
        longest, width = len(self._masks) - 1, self._masks.shape[1]
        padded = names.text + bytes(longest)
        at_byte = np.ndarray((len(names.text),), f"V{longest}", padded, strides=(1,))
        words = at_byte[names.starts].view("<u8").reshape(len(names), width)
        found: _Words = words & self._masks.take(np.minimum(names.lengths, longest), axis=0)
        return found

    def _hashed(self, words: _Words) -> _Words:
        """Return a hash a name, shape (names,)."""
        mixed: _Words = words @ self._factors
        mixed ^= mixed >> _HALF
        mixed *= np.uint64(_SPREAD)
        return mixed

    def _slots_of(self, hashes: _Words) -> IntArray:
        return (hashes >> self._shift).astype(np.int64)


def _masks(width: int) -> _Words:
    """Return, by length of a name, which bytes of its words belong to it; shape (longest + 1, width)."""
    longest = width * _WORD_BYTES
    lengths = np.arange(longest + 1)[:, np.newaxis]
    belongs = (np.arange(longest) < lengths).astype(np.uint8) * np.uint8(0xFF)
    return belongs.view("<u8")
