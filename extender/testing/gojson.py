"""Go's JSON decoder, as far as an extender's replies meet it: ``json.NewDecoder(body).Decode(&result)``.

The first JSON value is read and whatever follows it is ignored. Keys match without regard to case, unknown keys are
skipped, ``null`` leaves a text or a number as it was and empties a pointer, list or mapping. A value of the wrong type
is an error, named as Go names it by the innermost struct and the path of fields.

Source: encoding/json of the Go standard library, ``stream.go`` and ``decode.go``. Two of its traits are
left out: of a key given twice in the same spelling only the last value counts, where Go lays mappings over each other,
and the limit on nesting is the interpreter's (about a thousand levels) and not 10,000.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, NoReturn, Protocol

from extender.testing.failure import DecodeError
from extender.testing.goscanner import SPACE, raise_fault

INT64 = range(-(2**63), 2**63)
"""The values of Go's int64."""


class Where(NamedTuple):
    """The place of a value: the innermost struct's Go name and the names of the fields that lead to it."""

    struct: str = ""
    path: tuple[str, ...] = ()


class Shape(Protocol):
    """A Go type: its name, the value it starts from, whether null resets it, and how it reads a JSON value."""

    @property
    def go(self) -> str:
        """The type's name in messages."""

    @property
    def nilable(self) -> bool:
        """Whether ``null`` puts the zero value back; otherwise it changes nothing."""

    def zero(self) -> Any:
        """Return the value of a variable of this type that nothing was decoded into."""

    def read(self, value: Any, where: Where, held: Any) -> Any:
        """Return ``value`` decoded over ``held``; raises ``DecodeError`` when the type does not fit."""


@dataclass(frozen=True)
class Text:
    """A Go string."""

    go: str = "string"
    nilable: bool = False

    def zero(self) -> str:
        """Return the empty text."""
        return ""

    def read(self, value: Any, where: Where, held: Any) -> str:  # noqa: ARG002 - the protocol's signature
        """Return ``value`` if it is a text."""
        return value if isinstance(value, str) else _mismatch(value, self.go, where)


@dataclass(frozen=True)
class Integer:
    """A Go int64: a JSON number without fraction and exponent, in range."""

    go: str = "int64"
    nilable: bool = False

    def zero(self) -> int:
        """Return 0."""
        return 0

    def read(self, value: Any, where: Where, held: Any) -> int:  # noqa: ARG002 - the protocol's signature
        """Return ``value`` if it is an integer of 64 bits."""
        if isinstance(value, bool) or not isinstance(value, int | float):
            _mismatch(value, self.go, where)
        if isinstance(value, float) or value not in INT64:
            _refuse(f"number {value}", self.go, where)
        return value


@dataclass(frozen=True)
class Sequence:
    """A Go slice of ``item``; nil and empty are both the empty list."""

    item: Shape
    go: str
    nilable: bool = True

    def zero(self) -> list[Any]:
        """Return the empty list."""
        return []

    def read(self, value: Any, where: Where, held: Any) -> list[Any]:  # noqa: ARG002 - the protocol's signature
        """Return the decoded items."""
        if not isinstance(value, list):
            _mismatch(value, self.go, where)
        return [decode_over(self.item, item, where) for item in value]


@dataclass(frozen=True)
class Table:
    """A Go map from strings to ``item``; nil and empty are both the empty dictionary."""

    item: Shape
    go: str
    nilable: bool = True

    def zero(self) -> dict[str, Any]:
        """Return the empty dictionary."""
        return {}

    def read(self, value: Any, where: Where, held: Any) -> dict[str, Any]:
        """Return the decoded items laid over those of an earlier spelling of the key."""
        if not isinstance(value, dict):
            _mismatch(value, self.go, where)
        return {**held, **{key: decode_over(self.item, item, where) for key, item in value.items()}}


@dataclass(frozen=True)
class Struct:
    """A Go struct; ``open`` keeps undeclared keys as they stand and adds no key the JSON did not have."""

    go: str
    fields: Mapping[str, Shape]
    open: bool = False
    nilable: bool = False
    _folded: Mapping[str, str] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_folded", {name.casefold(): name for name in self.fields})

    def zero(self) -> dict[str, Any]:
        """Return every field's zero value; nothing when ``open``."""
        return {} if self.open else {name: shape.zero() for name, shape in self.fields.items()}

    def read(self, value: Any, where: Where, held: Any) -> dict[str, Any]:
        """Return the fields under their declared names."""
        if not isinstance(value, dict):
            _mismatch(value, self.go, where)
        struct = dict(held)
        for key, member in value.items():
            name = key if key in self.fields else self._folded.get(key.casefold())
            if name is None:
                if self.open:
                    struct[key] = member
                continue
            place = Where(self.go.rpartition(".")[2], (*where.path, name))
            struct[name] = decode_over(self.fields[name], member, place, struct.get(name))
        return struct


@dataclass(frozen=True)
class Pointer:
    """A Go pointer to ``target``, ``None`` when nil."""

    target: Shape
    nilable: bool = True

    @property
    def go(self) -> str:
        """The name of the type pointed to: Go follows pointers before it complains."""
        return self.target.go

    def zero(self) -> None:
        """Return ``None``."""

    def read(self, value: Any, where: Where, held: Any) -> Any:
        """Return the decoded target."""
        return decode_over(self.target, value, where, held)


def decode_over(shape: Shape, value: Any, where: Where, held: Any = None) -> Any:
    """Return ``value`` decoded as ``shape`` over ``held``, where ``None`` stands for the shape's zero value."""
    current = shape.zero() if held is None else held
    if value is None:
        return shape.zero() if shape.nilable else current
    return shape.read(value, where, current)


def decode_reply(body: bytes, shape: Shape) -> Any:
    """Return the first JSON value of ``body`` as ``shape``; raises ``DecodeError`` in Go's words."""
    return decode_over(shape, _first_value(body), Where())


class _Fraction(float):
    """A number with fraction or exponent; prints as it stood in the body."""

    def __init__(self, literal: str) -> None:
        self.literal = literal

    def __str__(self) -> str:
        return self.literal


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(name)


_DECODER = json.JSONDecoder(parse_float=_Fraction, parse_constant=_refuse_constant)


def _first_value(body: bytes) -> Any:
    text = body.decode("utf-8", "replace").lstrip(SPACE)
    if not text:
        raise DecodeError("EOF")
    try:
        value, _ = _DECODER.raw_decode(text)
    except (ValueError, RecursionError) as error:
        # Python tells that the text is not JSON; only a second reading tells it in Go's words.
        raise_fault(body)
        raise DecodeError(str(error)) from error
    if isinstance(value, int | float):
        raise_fault(body)  # Python takes the 5 of ``5.`` for the value and leaves the rest
    return value


def _mismatch(value: Any, go: str, where: Where) -> NoReturn:
    kinds: dict[type, str] = {dict: "object", list: "array", str: "string", bool: "bool"}
    _refuse(kinds.get(type(value), "number"), go, where)


def _refuse(kind: str, go: str, where: Where) -> NoReturn:
    place = f"struct field {where.struct}.{'.'.join(where.path)} of type" if where.struct else "value of type"
    raise DecodeError(f"json: cannot unmarshal {kind} into Go {place} {go}")
