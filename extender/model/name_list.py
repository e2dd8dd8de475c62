"""Lists of names as they stand in JSON, taken apart by column: thousands of names and no text object for any."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec
import numpy as np

from extender.model.column import IntArray

_QUOTE, _COMMA = ord('"'), ord(",")
_SEPARATOR = b'","'
_MANY_PARTS = 16
"""Lists are cut into more parts than this in another way."""

_encode = msgspec.json.Encoder().encode


class NameList:
    """Names as a JSON array without white space, and where in it each of them stands.

    ``starts`` and ``lengths``, shape (names,), are the offset and the number of the bytes between the quotes of each
    name in ``text``, where it is escaped as msgspec does it: equal names are equal bytes.
    """

    __slots__ = ("lengths", "starts", "text")

    def __init__(self, text: bytes, starts: IntArray, lengths: IntArray) -> None:
        self.text = text
        self.starts = starts
        self.lengths = lengths

    def __len__(self) -> int:
        """Return the number of names."""
        return len(self.lengths)

    @classmethod
    def of(cls, names: Iterable[str]) -> NameList:
        """Return a list of the given names."""
        given = list(names)
        plain = cls.read(_encode(given))
        if plain is not None:
            return plain
        parts = [_encode(name) for name in given]
        lengths = np.fromiter(map(len, parts), np.int64, len(parts)) - 2
        return cls(b"[%b]" % b",".join(parts), _starts(lengths), lengths)

    @classmethod
    def read(cls, text: bytes) -> NameList | None:
        """Return what a JSON array says, or None where it is not as Go writes names: no white space, no escapes.

        That the names are UTF-8 is not looked at.
        """
        if text == b"[]":
            return EMPTY
        if b"\\" in text or not (text.startswith(b'["') and text.endswith(b'"]')):
            return None
        array = np.frombuffer(text, np.uint8)
        quotes = np.flatnonzero(array == _QUOTE)
        if len(quotes) % 2:
            return None
        starts, ends = quotes[0::2] + 1, quotes[1::2]
        if (starts[1:] - ends[:-1] != len(_SEPARATOR)).any() or (array.take(ends[:-1] + 1) != _COMMA).any():
            return None
        return cls(text, starts, ends - starts)

    def split(self, codes: IntArray, count: int) -> list[NameList]:
        """Return ``count`` lists, each of the names whose code, 0 to ``count - 1``, is its place.

        ``codes`` has shape (names,).
        """
        sizes = np.bincount(codes, minlength=count).tolist()
        if max(sizes) == len(self):  # all of them, or none at all
            return [self if size else EMPTY for size in sizes]
        if count > _MANY_PARTS:
            return list(self._cut(codes, sizes))
        after_bracket = np.frombuffer(self.text, np.uint8)[1:]
        by_byte = np.repeat(codes.astype(np.min_scalar_type(count)), self.lengths + len(_SEPARATOR))
        found = []
        for code, size in enumerate(sizes):
            if not size:
                found.append(EMPTY)
                continue
            lengths = self.lengths[codes == code]
            text = after_bracket[by_byte == code][:-1].tobytes()
            found.append(NameList(b"[%b]" % text, _starts(lengths), lengths))
        return found

    def _cut(self, codes: IntArray, sizes: list[int]) -> Iterator[NameList]:
        """Yield the same lists, from the names sorted by their codes, in place of a look at all names for each list."""
        order = np.argsort(codes, kind="stable")
        lengths, starts = self.lengths[order], self.starts[order].tolist()
        names = (self.text[start : start + length] for start, length in zip(starts, lengths.tolist(), strict=True))
        text = b'"%b"' % _SEPARATOR.join(names)
        ends = np.append(0, np.cumsum(lengths + len(_SEPARATOR)))  # each with its quotes and a comma
        lasts = np.cumsum(sizes)
        begins = ends[lasts - sizes]
        offsets = ends[1:] - lengths - 1 - np.repeat(begins, sizes)
        first = 0
        for last, begin, end in zip(lasts.tolist(), begins.tolist(), ends[lasts].tolist(), strict=True):
            if first == last:
                yield EMPTY
            else:
                yield NameList(b"[%b]" % text[begin : end - 1], offsets[first:last], lengths[first:last])
            first = last

    def spliced(self, before: bytes, between: bytes, after: bytes) -> bytes:
        """Return all names, of which there is at least one, without their quotes and with these texts around them."""
        return before + self.text[2:-2].replace(_SEPARATOR, between) + after


EMPTY = NameList(b"[]", np.zeros(0, np.int64), np.zeros(0, np.int64))


def _starts(lengths: IntArray) -> IntArray:
    """Return where names of these lengths stand in an array of nothing else; shape (names,)."""
    return np.cumsum(lengths + len(_SEPARATOR)) - lengths - 1
