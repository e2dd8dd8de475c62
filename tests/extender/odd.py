"""Strategies for Kubernetes objects of the right shape with values that nobody expects."""

from __future__ import annotations

from typing import Any

import msgspec
from hypothesis import strategies as st

NODE_NAMES = ("n1", "n2", "ñ→", " ")
HUGE = 2**64

_names = st.sampled_from([*NODE_NAMES, "", "a/b", "\x00", "𝄞"])
_words = st.one_of(
    st.sampled_from(["", "a", "b", "In", "Exists", "Gt", "Always", "NoSchedule", "DoNotSchedule", "ScheduleAnyway"]),
    st.text(max_size=3),
)
_numbers = st.sampled_from(
    [0, 1, -1, 2, 80, 100, 2**31 - 1, -(2**31), 2**31, 2**53 + 1, 2**63 - 1, -(2**63), 2**63, HUGE, -HUGE, 10**70]
)
_quantities = st.one_of(
    st.sampled_from(
        ["0", "1", "100m", "1Gi", "-1", "-5Gi", "", "q", " 1 ", "1e500", "9223372036854775808", "1n", "Ei"]
    ),
    _numbers,
    st.sampled_from([0.5, -0.5, 1e300, None]),
)
_times = st.sampled_from(["", "now", "0001-01-01T00:00:00Z", "9999-12-31T23:59:59-14:00", "0001-01-01T00:00:00"])
_resources = st.sampled_from(["cpu", "memory", "pods", "ephemeral-storage", "example.com/x", "hugepages-2Mi", "", "ü"])

_BY_NAME: dict[str, st.SearchStrategy[Any]] = {
    "name": _names,
    "nodeName": _names,
    "nominatedNodeName": _names,
    "namespace": st.sampled_from(["default", "", "ü"]),
    "uid": st.sampled_from(["u1", "u2", "u3", ""]),
    "resourceVersion": st.sampled_from(["1", "2", "", "x"]),
    "startTime": _times,
    "creationTimestamp": _times,
    "deletionTimestamp": _times,
}


def objects(kind: type[msgspec.Struct]) -> st.SearchStrategy[dict[str, Any]]:
    """Objects of a type as they stand in JSON, with a name, and a uid that no others have."""
    named = st.fixed_dictionaries(
        {"name": st.sampled_from(NODE_NAMES), "uid": _BY_NAME["uid"], "resourceVersion": _BY_NAME["resourceVersion"]},
        optional={"labels": st.dictionaries(_words, _words, max_size=3), "annotations": st.none()},
    )

    def build(item: Any, meta: Any) -> dict[str, Any]:
        return {**item, "metadata": {**meta, "uid": f"{kind.__name__} {meta['name']} {meta['uid']}"}}

    return st.builds(build, _of(msgspec.inspect.type_info(kind)), named)


def _of(kind: msgspec.inspect.Type) -> st.SearchStrategy[Any]:
    match kind:
        case msgspec.inspect.StructType():
            fields = {field.encode_name: _field(field) for field in kind.fields}
            return st.fixed_dictionaries({}, optional=fields)
        case msgspec.inspect.UnionType():
            if any(isinstance(each, msgspec.inspect.FloatType) for each in kind.types):
                return _quantities
            return st.one_of([_of(each) for each in reversed(kind.types)])
        case msgspec.inspect.ListType():
            return st.lists(_of(kind.item_type), max_size=2)
        case msgspec.inspect.DictType():
            amounts = isinstance(kind.value_type, msgspec.inspect.UnionType)
            return st.dictionaries(_resources if amounts else _words, _of(kind.value_type), max_size=3)
        case msgspec.inspect.IntType():
            return _numbers
        case msgspec.inspect.BoolType():
            return st.booleans()
        case msgspec.inspect.NoneType():
            return st.none()
        case _:
            return _words


def _field(field: msgspec.inspect.Field) -> st.SearchStrategy[Any]:
    known = _BY_NAME.get(field.encode_name)
    return _of(field.type) if known is None else known
