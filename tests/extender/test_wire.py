"""The wire format: requests in every spelling that Go's decoder would take, and replies that it takes in turn."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from extender import schema, wire
from extender.errors import RequestError
from extender.model.name_list import NameList
from extender.model.object import ObjectMeta

POD = {"metadata": {"name": "web-1", "namespace": "default", "uid": "u-1"}, "spec": {"containers": []}}
NODE = {"metadata": {"name": "n1", "resourceVersion": "7"}, "spec": {}, "status": {}}

FILTER_KEYS = ("Pod", "Nodes", "NodeNames")
BIND = {"PodName": "web-1", "PodNamespace": "default", "PodUID": "u-1", "Node": "n1"}
META_VICTIMS = {"n1": {"Pods": [{"UID": "a"}, {"UID": "b"}], "NumPDBViolations": 2}}
WHOLE_VICTIMS = {"n1": {"Pods": [{"metadata": {"uid": "a"}}, {"metadata": {"uid": "b"}}], "NumPDBViolations": 2}}

names = st.lists(st.text(min_size=1).filter(lambda name: name.isprintable()))


def encode(value: Any) -> bytes:
    return json.dumps(value).encode()


def respell(value: Any, spell: Callable[[str], str], keys: frozenset[str]) -> Any:
    """Spell the given keys otherwise, wherever they stand."""
    if isinstance(value, dict):
        return {spell(key) if key in keys else key: respell(item, spell, keys) for key, item in value.items()}
    return [respell(item, spell, keys) for item in value] if isinstance(value, list) else value


@st.composite
def spellings(draw: st.DrawFn) -> Callable[[str], str]:
    """A way of casing keys, another one for every key."""
    random = draw(st.randoms(use_true_random=False))
    return lambda key: "".join(random.choice((letter.lower(), letter.upper())) for letter in key)


SPELLINGS = {
    "exact": str,
    "lower": str.lower,
    "upper": str.upper,
    "camel": lambda key: key[0].lower() + key[1:],
}


def in_every_spelling(test: Any) -> Any:
    return pytest.mark.parametrize("spell", SPELLINGS.values(), ids=[f"keys in {name} case" for name in SPELLINGS])(
        test
    )


def check_filter(spell: Callable[[str], str]) -> None:
    keys = frozenset((*FILTER_KEYS, "items"))
    by_name = wire.decode_filter(encode(respell({"Pod": POD, "Nodes": None, "NodeNames": ["n1", "n2"]}, spell, keys)))
    assert by_name.nodes is None
    assert by_name.names is not None
    assert wire.decode_names(by_name.names) == ["n1", "n2"]
    assert wire.decode_pod(by_name.pod).metadata == ObjectMeta(name="web-1", namespace="default", uid="u-1")
    whole = {"Pod": POD, "Nodes": {"metadata": {}, "items": [NODE]}, "NodeNames": None}
    by_node = wire.decode_filter(encode(respell(whole, spell, keys)))
    assert by_node.names is None
    (node,) = map(wire.decode_node, by_node.nodes or ())
    assert node.metadata == ObjectMeta(name="n1", resource_version="7")


def check_bind(spell: Callable[[str], str]) -> None:
    asked = {spell(key): value for key, value in BIND.items()}
    assert wire.decode_bind(encode(asked)) == wire.BindRequest("web-1", "default", "u-1", "n1")


def check_preempt(spell: Callable[[str], str]) -> None:
    keys = frozenset(
        ("Pod", "NodeNameToVictims", "NodeNameToMetaVictims", "Pods", "UID", "NumPDBViolations", "metadata", "uid")
    )
    expected = {"n1": wire.Victims(["a", "b"], 2)}
    meta = {"Pod": POD, "NodeNameToVictims": None, "NodeNameToMetaVictims": META_VICTIMS}
    assert wire.decode_preempt(encode(respell(meta, spell, keys))).victims == expected
    whole = {"Pod": POD, "NodeNameToVictims": WHOLE_VICTIMS, "NodeNameToMetaVictims": None}
    assert wire.decode_preempt(encode(respell(whole, spell, keys))).victims == expected


# --- casing ----------------------------------------------------------------------------------------------------------


@in_every_spelling
def test_a_filter_request_is_read_in_both_modes(spell: Callable[[str], str]) -> None:
    check_filter(spell)


@in_every_spelling
def test_a_bind_request_is_read(spell: Callable[[str], str]) -> None:
    check_bind(spell)


@in_every_spelling
def test_a_preempt_request_is_read_with_identities_and_with_whole_pods(spell: Callable[[str], str]) -> None:
    check_preempt(spell)


@given(spellings())
def test_keys_match_whatever_the_casing_of_each(spell: Callable[[str], str]) -> None:
    check_filter(spell)
    check_bind(spell)
    check_preempt(spell)


def test_keys_that_are_absent_are_as_good_as_null() -> None:
    request = wire.decode_filter(encode({"Pod": POD, "NodeNames": []}))
    assert request.nodes is None
    assert request.names is not None
    assert wire.decode_names(request.names) == []


@pytest.mark.parametrize("nodes", [{"items": None}, {}, {"metadata": {}, "items": []}], ids=str)
def test_a_node_list_without_items_is_empty(nodes: dict[str, Any]) -> None:
    assert wire.decode_filter(encode({"Pod": POD, "Nodes": nodes, "NodeNames": None})).nodes == []


@pytest.mark.parametrize("key", ["Items", "ITEMS", "iTems"])
@pytest.mark.parametrize("field", ["Nodes", "nodes", "NODES"])
def test_items_in_any_casing_are_found_too(field: str, key: str) -> None:
    for nodes in ({key: [NODE]}, {"items": None, key: [NODE]}, {key: [NODE], "metadata": {}}):
        request = wire.decode_filter(encode({"Pod": POD, field: nodes, "NodeNames": None}))
        assert [json.loads(bytes(node)) for node in request.nodes or ()] == [NODE]


def test_fields_of_the_future_are_skipped() -> None:
    asked = {"Pod": {**POD, "futurePart": [1, {"a": None}]}, "NodeNames": ["n1"], "FutureArg": True}
    request = wire.decode_filter(encode(asked))
    assert wire.decode_pod(request.pod).metadata == wire.decode_pod(wire.decode_filter(encode(asked)).pod).metadata
    assert wire.decode_bind(encode({**BIND, "FutureArg": {}})).node == "n1"
    victims = {"n1": {**META_VICTIMS["n1"], "Reason": {"deep": 1}}}
    assert wire.decode_preempt(encode({"Pod": POD, "NodeNameToMetaVictims": victims})).victims["n1"].uids == ["a", "b"]


def test_of_a_key_given_twice_the_last_one_counts() -> None:
    body = b'{"Pod":{"spec":{}},"NodeNames":["a"],"Pod":{"spec":{},"metadata":{"name":"second"}}}'
    metadata = wire.decode_pod(wire.decode_filter(body).pod).metadata
    assert metadata is not None
    assert metadata.name == "second"


def test_nulls_and_repeats_among_victims_are_left_out() -> None:
    victims = {
        "n1": {"Pods": [{"UID": "a"}, None, {"UID": "a"}, {"UID": "b"}]},
        "n2": None,
        "n3": {"Pods": None, "NumPDBViolations": None},
    }
    found = wire.decode_preempt(encode({"Pod": POD, "NodeNameToMetaVictims": victims})).victims
    assert found == {"n1": wire.Victims(["a", "b"], 0), "n3": wire.Victims([], 0)}
    whole = {"n1": {"Pods": [None, {"metadata": {"uid": "a"}}]}}
    assert wire.decode_preempt(encode({"Pod": POD, "NodeNameToVictims": whole})).victims["n1"].uids == ["a"]


# --- refusals --------------------------------------------------------------------------------------------------------

DEEP = b"[" * 100_000 + b"]" * 100_000

NO_JSON = {
    "an empty body": b"",
    "a body cut short": b'{"Pod":',
    "text": b"hello",
    "a byte order mark": b"\xef\xbb\xbf" + encode({"Pod": POD, "NodeNames": ["n1"]}),
    "UTF-16": encode({"Pod": POD, "NodeNames": ["n1"]}).decode().encode("utf-16"),
    "NaN": b'{"Pod":{"spec":{"priority":NaN}},"NodeNames":["n1"]}',
    "bytes that are not UTF-8 in a key": b'{"Pod\xff":1}',
    "something after the object": encode({"Pod": POD, "NodeNames": ["n1"]}) + b"{}",
    "a list": b"[]",
    "null": b"null",
    "nesting without end": b'{"future":' + DEEP + b"}",
}


@pytest.mark.parametrize("body", NO_JSON.values(), ids=[f"{what} is refused" for what in NO_JSON])
@pytest.mark.parametrize("decode", [wire.decode_filter, wire.decode_bind, wire.decode_preempt])
def test_what_is_no_json_object(decode: Callable[[bytes], object], body: bytes) -> None:
    with pytest.raises(RequestError, match="send "):
        decode(body)


MISSING: list[tuple[Callable[[bytes], object], Any, str]] = [
    (wire.decode_filter, {}, "Pod: is missing; send"),
    (wire.decode_filter, {"Pod": None, "NodeNames": ["n1"]}, "Pod: is missing; send"),
    (wire.decode_filter, {"Pod": POD}, "Nodes, NodeNames: both are missing; send"),
    (wire.decode_filter, {"Pod": POD, "Nodes": None, "NodeNames": None}, "Nodes, NodeNames: both are missing; send"),
    (wire.decode_filter, {"Pod": POD, "node_names": ["n1"]}, "Nodes, NodeNames: both are missing; send"),
    (
        wire.decode_filter,
        {"Pod": POD, "Nodes": [NODE]},
        "Expected `object | null`, got `array` - at `ExtenderArgs.Nodes`",
    ),
    (wire.decode_bind, {**BIND, "PodName": ""}, "PodName: is missing; send"),
    (wire.decode_bind, {**BIND, "PodNamespace": None}, "PodNamespace: is missing; send"),
    (wire.decode_bind, {**BIND, "Node": ""}, "Node: is missing; send"),
    (
        wire.decode_bind,
        {**BIND, "Node": NODE},
        "Expected `str | null`, got `object` - at `ExtenderBindingArgs.Node`; send",
    ),
    (wire.decode_preempt, {"NodeNameToMetaVictims": {}}, "Pod: is missing; send"),
    (wire.decode_preempt, {"Pod": POD}, "NodeNameToVictims, NodeNameToMetaVictims: both are missing; send"),
    (wire.decode_preempt, {"Pod": POD, "NodeNameToMetaVictims": []}, "got `array` - at `NodeNameToMetaVictims`; send"),
    (
        wire.decode_preempt,
        {"Pod": POD, "NodeNameToMetaVictims": {"n1": {"Pods": [{"UID": 5}]}}},
        "got `int` - at `NodeNameToMetaVictims['n1'].Pods[0].UID`; send",
    ),
    (
        wire.decode_preempt,
        {"Pod": POD, "NodeNameToVictims": {"n1": {"Pods": [{"metadata": {"uid": 5}}]}}},
        "got `int` - at `NodeNameToVictims['n1'].Pods[0].metadata.uid`; send",
    ),
    (
        wire.decode_preempt,
        {"Pod": POD, "NodeNameToMetaVictims": {"n1": {"NumPDBViolations": "many"}}},
        "got `str` - at `NodeNameToMetaVictims['n1'].NumPDBViolations`; send",
    ),
    *(
        (
            wire.decode_preempt,
            {"Pod": POD, "NodeNameToMetaVictims": {"n1": {"Pods": [{"UID": "a"}], "NumPDBViolations": number}}},
            f"Expected `int` {bound} - at `NodeNameToMetaVictims['n1'].NumPDBViolations`; send",
        )
        for number, bound in ((2**70, "<= 9223372036854775807"), (-(2**64), ">= -9223372036854775808"))
    ),
    *(
        (
            wire.decode_preempt,
            {"Pod": POD, "NodeNameToMetaVictims": {"n1": {"Pods": [{"UID": "a"}, pod]}}},
            "NodeNameToMetaVictims['n1'].Pods[1].UID: is missing; send every victim with its UID",
        )
        for pod in ({}, {"UID": None}, {"UID": ""})
    ),
    *(
        (
            wire.decode_preempt,
            {"Pod": POD, "NodeNameToVictims": {"n1": {"Pods": [{"metadata": {"uid": "a"}}, pod]}}},
            "NodeNameToVictims['n1'].Pods[1].metadata.uid: is missing; send every victim with its UID",
        )
        for pod in ({}, {"metadata": None}, {"metadata": {"name": "p"}}, {"metadata": {"uid": ""}})
    ),
]


@pytest.mark.parametrize(
    ("decode", "asked", "text"), MISSING, ids=[f"{text} {number}" for number, (*_, text) in enumerate(MISSING)]
)
def test_a_refusal_names_the_field_and_the_remedy(decode: Callable[[bytes], object], asked: Any, text: str) -> None:
    with pytest.raises(RequestError) as refusal:
        decode(encode(asked))
    assert text in str(refusal.value)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (5, "Expected `array`, got `int` - at `NodeNames`"),
        (["n1", None], "Expected `str`, got `null` - at `NodeNames[1]`"),
        ({"n1": True}, "Expected `array`, got `object` - at `NodeNames`"),
    ],
    ids=str,
)
def test_names_that_are_no_list_of_texts_are_refused(value: Any, text: str) -> None:
    request = wire.decode_filter(encode({"Pod": POD, "NodeNames": value}))
    assert request.names is not None
    with pytest.raises(RequestError) as refusal:
        wire.decode_names(request.names)
    assert text in str(refusal.value)


def test_a_wrong_type_deep_in_the_pod_is_named() -> None:
    request = wire.decode_filter(encode({"Pod": {"spec": {"tolerations": "all"}}, "NodeNames": []}))
    with pytest.raises(RequestError, match=r"got `str` - at `Pod\.spec\.tolerations`; send Pod"):
        wire.decode_pod(request.pod)


def test_bytes_that_are_not_utf8_inside_the_pod_are_named() -> None:
    request = wire.decode_filter(b'{"Pod":{"metadata":{"name":"\xff"}},"NodeNames":["n1"]}')
    with pytest.raises(RequestError, match="Pod is not JSON"):
        wire.decode_pod(request.pod)


# --- replies ---------------------------------------------------------------------------------------------------------

reasons = st.dictionaries(st.text(min_size=1), st.text())


def refused(reasons: dict[str, str]) -> list[tuple[NameList, str]]:
    return [
        (NameList.of(name for name, given in reasons.items() if given == reason), reason)
        for reason in [*dict.fromkeys(reasons.values()), "a reason of no node"]
    ]


@given(names, reasons, reasons)
def test_a_filter_reply_by_name_has_all_five_fields_of_its_type(
    kept: list[str], failed: dict[str, str], unresolvable: dict[str, str]
) -> None:
    body = wire.encode_filter_names(NameList.of(kept), refused(failed), refused(unresolvable))
    reply = msgspec.json.decode(body, type=schema.ExtenderFilterResult, strict=True)
    assert reply == schema.ExtenderFilterResult(None, kept, failed, unresolvable, "")
    assert list(json.loads(body)) == ["Nodes", "NodeNames", "FailedNodes", "FailedAndUnresolvableNodes", "Error"]


def test_a_filter_reply_echoes_nodes_byte_for_byte() -> None:
    odd = b'{ "metadata":{"name":"n1" , "x":"\\u00e9\xc3\xa9"},"future":[1.0,1e1, null] }'
    request = wire.decode_filter(b'{"Pod":{},"Nodes":{"items":[' + odd + b',{"metadata":{"name":"n2"}}]}}')
    assert request.nodes is not None
    body = wire.encode_filter_nodes(request.nodes, (), ())
    assert b"[" + odd + b',{"metadata":{"name":"n2"}}]' in body
    assert json.loads(body)["NodeNames"] is None
    assert json.loads(wire.encode_filter_nodes([], refused({"n1": "why"}), ()))["Nodes"]["items"] == []


@pytest.mark.parametrize("text", ["boom", 'quotes "and" \\ lines\n', ""], ids=repr)
def test_a_failed_filter_never_has_an_empty_error(text: str) -> None:
    reply = msgspec.json.decode(wire.encode_filter_error(text), type=schema.ExtenderFilterResult)
    assert reply.Error == (text or "unknown error")
    assert (reply.Nodes, reply.NodeNames) == (None, None)


@given(st.lists(st.tuples(st.text(), st.integers(0, wire.MAX_EXTENDER_SCORE))))
def test_a_prioritize_reply_is_a_bare_list_of_hosts_with_integers(scored: list[tuple[str, int]]) -> None:
    hosts = wire.HostScores(NameList.of(host for host, _ in scored))
    body = hosts.filled(np.array([score for _, score in scored], np.int64))
    reply = json.loads(body, parse_float=pytest.fail)
    assert reply == [{"Host": host, "Score": score} for host, score in scored]


@given(st.text())
def test_a_bind_reply_carries_its_error(text: str) -> None:
    assert msgspec.json.decode(wire.encode_bind(text), type=schema.ExtenderBindingResult).Error == text


victims = st.builds(wire.Victims, st.lists(st.text(min_size=1)), st.integers(0, 2**63 - 1))


@given(st.dictionaries(st.text(), victims))
def test_a_preempt_reply_has_no_null_and_no_node_without_victims(proposed: dict[str, wire.Victims]) -> None:
    body = wire.encode_preempt(proposed)
    assert json.loads(body) == {
        "NodeNameToMetaVictims": {
            node: {"Pods": [{"UID": uid} for uid in found.uids], "NumPDBViolations": found.violations}
            for node, found in proposed.items()
            if found.uids
        }
    }
