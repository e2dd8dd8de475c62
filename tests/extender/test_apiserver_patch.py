"""The three kinds of patch, as values in and out."""

import pytest

from extender.cluster.apiserver.patch import json_patch, merge_patch, strategic_merge
from extender.cluster.apiserver.status import StatusError


@pytest.mark.parametrize(
    ("target", "patch", "expected"),
    [
        pytest.param({"a": "b"}, {"a": "c"}, {"a": "c"}, id="replaces a value"),
        pytest.param({"a": "b", "b": "c"}, {"a": None}, {"b": "c"}, id="null deletes"),
        pytest.param({"a": {"b": "c"}}, {"a": {"d": None, "e": 1}}, {"a": {"b": "c", "e": 1}}, id="merges objects"),
        pytest.param({"a": [{"b": "c"}]}, {"a": [1]}, {"a": [1]}, id="replaces lists"),
        pytest.param({}, {"a": {"bb": {"ccc": None}}}, {"a": {"bb": {}}}, id="nulls inside new objects leave nothing"),
    ],
)
def test_merge_patch(target, patch, expected):
    assert merge_patch(target, patch) == expected


CONDITIONS = [{"type": "Ready", "status": "True"}, {"type": "PodScheduled", "status": "False", "reason": "x"}]


@pytest.mark.parametrize(
    ("target", "patch", "expected"),
    [
        pytest.param(
            {"conditions": CONDITIONS},
            {
                "$setElementOrder/conditions": [{"type": "PodScheduled"}],
                "conditions": [{"type": "PodScheduled", "status": "True", "reason": None}],
            },
            {"conditions": [CONDITIONS[0], {"type": "PodScheduled", "status": "True"}]},
            id="merges conditions by type",
        ),
        pytest.param(
            {"taints": [{"key": "a"}, {"key": "b"}]},
            {"taints": [{"$patch": "delete", "key": "a"}, {"key": "c"}]},
            {"taints": [{"key": "b"}, {"key": "c"}]},
            id="deletes and adds taints by key",
        ),
        pytest.param(
            {"finalizers": ["a", "b"]},
            {"$deleteFromPrimitiveList/finalizers": ["a"], "finalizers": ["c"]},
            {"finalizers": ["b", "c"]},
            id="takes from and adds to finalizers",
        ),
        pytest.param({"args": ["a"]}, {"args": ["b"]}, {"args": ["b"]}, id="replaces lists without a key"),
        pytest.param(
            {"spec": {"a": 1, "b": 2}},
            {"spec": {"$patch": "replace", "c": 3}},
            {"spec": {"c": 3}},
            id="replaces objects",
        ),
    ],
)
def test_strategic_merge(target, patch, expected):
    assert strategic_merge(target, patch) == expected


@pytest.mark.parametrize(
    ("operations", "expected"),
    [
        ([{"op": "add", "path": "/a/b~1c", "value": 1}], {"a": {"x": 0, "b/c": 1}, "l": [1, 2]}),
        ([{"op": "add", "path": "/l/-", "value": 3}], {"a": {"x": 0}, "l": [1, 2, 3]}),
        ([{"op": "add", "path": "/l/0", "value": 3}], {"a": {"x": 0}, "l": [3, 1, 2]}),
        ([{"op": "remove", "path": "/l/0"}], {"a": {"x": 0}, "l": [2]}),
        ([{"op": "replace", "path": "/l/1", "value": 9}], {"a": {"x": 0}, "l": [1, 9]}),
        ([{"op": "move", "from": "/a/x", "path": "/y"}], {"a": {}, "l": [1, 2], "y": 0}),
        ([{"op": "copy", "from": "/a", "path": "/b"}], {"a": {"x": 0}, "b": {"x": 0}, "l": [1, 2]}),
        ([{"op": "test", "path": "/l", "value": [1, 2]}, {"op": "remove", "path": "/a"}], {"l": [1, 2]}),
    ],
    ids=str,
)
def test_json_patch(operations, expected):
    target = {"a": {"x": 0}, "l": [1, 2]}
    assert json_patch(target, operations) == expected
    assert target == {"a": {"x": 0}, "l": [1, 2]}


@pytest.mark.parametrize(
    "operations",
    [
        [{"op": "test", "path": "/a", "value": 2}],
        [{"op": "remove", "path": "/none"}],
        [{"op": "replace", "path": "/none", "value": 1}],
        [{"op": "fly", "path": "/a"}],
        [{"path": "/a"}],
        ["remove"],
    ],
    ids=str,
)
def test_json_patch_that_cannot_be_applied(operations):
    with pytest.raises(StatusError) as caught:
        json_patch({"a": 1}, operations)
    assert (caught.value.code, caught.value.reason) == (422, "Invalid")
