"""Keys of JSON objects in a casing other than the usual one, which Go's decoder takes for the same at every level.

A text has none if all of its keys are known as they are spelled: those that are decoded, and others that were seen
before. That is found out in one pass, which takes no longer than decoding; a key that is new is looked at, and is known
from then on. Source: encoding/json of Go, which takes a key that differs from a field in nothing but case for it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import msgspec
from msgspec import Raw
from msgspec.inspect import DictType, Field, ListType, StructType, Type, UnionType, type_info

_MOST_OTHERS: Final = 1024
"""How many keys that are not decoded may be known; the API has some hundred for a pod."""

_UNKNOWN: Final = "Object contains unknown field"
"""How the decoder begins to tell of such a key."""

_anything = msgspec.json.Decoder()


class Casing:
    """The usual casing of the keys of a type, and of the types within it.

    Keys of maps, such as the names of labels and resources, are no keys of a type: they mean what they are.
    """

    def __init__(self, kind: type[msgspec.Struct]) -> None:
        self._kind = type_info(kind)
        self._others: dict[type, set[str]] = {}
        self._only_known = self._decoder()

    def is_usual(self, text: bytes | Raw) -> bool:
        """Say whether a JSON text has no key of the type in another casing; other faults of it are left alone."""
        try:
            self._only_known.decode(text)
        except msgspec.ValidationError as error:
            return not str(error).startswith(_UNKNOWN) or self._get_to_know(text)
        except (msgspec.DecodeError, RecursionError):
            return True
        return True

    def restore(self, value: Any) -> Any:
        """Return a decoded JSON value of the type with all its keys in the usual casing; of two the last one counts."""
        return _restore(value, self._kind)

    def _get_to_know(self, text: bytes | Raw) -> bool:
        """Note the keys of a text that are not decoded, if all of them could be of the API, and in the usual casing."""
        others = {kind: set(keys) for kind, keys in self._others.items()}
        try:
            for struct, key in _keys(_anything.decode(text), self._kind):
                field = _fields(struct).get(key.casefold())
                if field is None and key.isascii() and key.isidentifier():
                    others.setdefault(struct.cls, set()).add(key)
                elif field is None or field.encode_name != key:
                    return False
        except (msgspec.DecodeError, RecursionError):
            return False  # who restores it tells why it cannot be read
        if sum(map(len, others.values())) > _MOST_OTHERS:
            return False  # which costs time, and nothing else
        self._others = others
        self._only_known = self._decoder()
        return True

    def _decoder(self) -> msgspec.json.Decoder[Any]:
        return msgspec.json.Decoder(self._strict(self._kind))

    def _strict(self, kind: Type) -> Any:
        """Return a type that takes known keys only, and does not look at anything but keys."""
        match kind:
            case UnionType():
                return next((strict for each in kind.types if (strict := self._strict(each)) is not Raw), Raw)
            case ListType():
                item = self._strict(kind.item_type)
                return Raw if item is Raw else list[item] | None  # type: ignore[valid-type]  # made here
            case StructType():
                types = {field.encode_name: self._strict(field.type) for field in kind.fields}
                types |= dict.fromkeys(self._others.get(kind.cls, ()), Raw)
                names = {f"field_{number}": key for number, key in enumerate(types)}
                fields = [(name, types[key], None) for name, key in names.items()]
                made = msgspec.defstruct(kind.cls.__name__, fields, rename=names, forbid_unknown_fields=True, gc=False)
                return made | None
            case _:
                return Raw


def _fields(struct: StructType) -> dict[str, Field]:
    return {field.encode_name.casefold(): field for field in struct.fields}


def _keys(value: Any, kind: Type) -> Iterator[tuple[StructType, str]]:
    """Yield every key of a type's own in a decoded JSON value, with the type that it stands in."""
    match kind:
        case UnionType():
            for member in kind.types:
                yield from _keys(value, member)
        case ListType() if isinstance(value, list):
            for item in value:
                yield from _keys(item, kind.item_type)
        case StructType() if isinstance(value, dict):
            fields = _fields(kind)
            for key, item in value.items():
                yield kind, key
                if key.casefold() in fields:
                    yield from _keys(item, fields[key.casefold()].type)


def _restore(value: Any, kind: Type) -> Any:
    match kind:
        case UnionType():
            for member in kind.types:
                value = _restore(value, member)
        case ListType() if isinstance(value, list):
            return [_restore(item, kind.item_type) for item in value]
        case DictType() if isinstance(value, dict):
            return {key: _restore(item, kind.value_type) for key, item in value.items()}
        case StructType() if isinstance(value, dict):
            fields, restored = _fields(kind), {}
            for key, item in value.items():
                field = fields.get(key.casefold())
                if field is None:
                    restored[key] = item
                else:
                    restored[field.encode_name] = _restore(item, field.type)
            return restored
    return value
