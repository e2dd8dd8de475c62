"""Where and why Go's JSON scanner stops, and how Go quotes text.

Source: encoding/json ``scanner.go`` and strconv ``quote.go`` of the Go standard library.
"""

from __future__ import annotations

import re

from extender.testing.failure import DecodeError

SPACE = " \t\r\n"
"""What JSON takes for white space."""

_DIGITS = "0123456789"
_STRING_RUN = re.compile(r'[^"\\\x00-\x1f]*')
_ESCAPES = {"\a": "\\a", "\b": "\\b", "\f": "\\f", "\n": "\\n", "\r": "\\r", "\t": "\\t", "\v": "\\v", "\\": "\\\\"}


def raise_fault(body: bytes) -> None:
    """Read one JSON value and raise ``DecodeError`` in Go's words where it is at fault; return if it is not."""
    try:
        # One character a byte: Go names the byte it stopped at, also inside a character of several bytes.
        _Scanner(body.decode("latin-1")).value()
    except RecursionError:
        raise DecodeError("exceeded max depth") from None


def quote(text: str, mark: str = '"') -> str:
    """Return ``text`` between ``mark`` as Go's ``%q`` writes it."""
    return mark + "".join(_escape(char, mark) for char in text) + mark


def _escape(char: str, mark: str) -> str:
    if char == mark:
        return "\\" + mark
    if char in _ESCAPES:
        return _ESCAPES[char]
    if char.isprintable():
        return char
    code = ord(char)
    return f"\\x{code:02x}" if code < 0x80 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


class _Scanner:
    """A reader of one JSON value that raises at the byte, and in the words, Go's scanner stops with."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0

    def value(self) -> None:
        """Pass over one value; raises ``DecodeError`` if there is none."""
        self._skip_space()
        first = self._take('{["-0123456789tfn', "looking for beginning of value")
        if first == "{":
            self._members()
        elif first == "[":
            self._items()
        elif first == '"':
            self._string()
        elif first in "tfn":
            self._literal({"t": "true", "f": "false", "n": "null"}[first])
        else:
            self._number(first)

    def _members(self) -> None:
        self._skip_space()
        context = "looking for beginning of object key string"
        if self._take('"}', context) == "}":
            return
        while True:
            self._string()
            self._skip_space()
            self._take(":", "after object key")
            self.value()
            self._skip_space()
            if self._take(",}", "after object key:value pair") == "}":
                return
            self._skip_space()
            self._take('"', context)

    def _items(self) -> None:
        self._skip_space()
        if self._peek() == "]":
            self._at += 1
            return
        while True:
            self.value()
            self._skip_space()
            if self._take(",]", "after array element") == "]":
                return

    def _string(self) -> None:
        while True:
            run = _STRING_RUN.match(self._text, self._at)
            self._at = run.end() if run else self._at
            if self._take('"\\', "in string literal") == '"':
                return
            if self._take('bfnrt\\/"u', "in string escape code") == "u":
                for _ in range(4):
                    self._take(_DIGITS + "abcdefABCDEF", "in \\u hexadecimal character escape")

    def _number(self, first: str) -> None:
        if first == "-":
            first = self._take(_DIGITS, "in numeric literal")
        if first != "0":
            self._digits()
        if self._peek() == ".":
            self._at += 1
            self._take(_DIGITS, "after decimal point in numeric literal")
            self._digits()
        if self._peek() in ("e", "E"):
            self._at += 1
            if self._peek() in ("+", "-"):
                self._at += 1
            self._take(_DIGITS, "in exponent of numeric literal")
            self._digits()

    def _literal(self, word: str) -> None:
        for char in word[1:]:
            self._take(char, f"in literal {word} (expecting '{char}')")

    def _digits(self) -> None:
        while self._peek() in (*_DIGITS,):
            self._at += 1

    def _skip_space(self) -> None:
        while self._peek() in (*SPACE,):
            self._at += 1

    def _peek(self) -> str:
        return self._text[self._at : self._at + 1]

    def _take(self, allowed: str, context: str) -> str:
        char = self._peek()
        if not char:
            raise DecodeError("unexpected EOF")
        if char not in allowed:
            shown = quote(char, "'")
            raise DecodeError(f"invalid character {shown} {context}")
        self._at += 1
        return char
