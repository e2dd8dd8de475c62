"""Names by column: lists of them as they stand in JSON, and the index that finds their rows."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from extender.model.name_index import NameIndex
from extender.model.name_list import NameList
from extender.model.table import NodeTable

any_text = st.text(max_size=30)
dns_names = st.from_regex(r"[a-z0-9]([-a-z0-9.]{0,60}[a-z0-9])?", fullmatch=True)
few_letters = st.text("ab", max_size=17)
"""Many of them begin or end alike, about as long as one word or two."""

lists = st.one_of(*(st.lists(names, max_size=40) for names in (any_text, dns_names, few_letters)))


def said(names: NameList) -> list[str]:
    """What the columns say: each name by its place in the text."""
    ends = names.starts + names.lengths
    spans = zip(names.starts.tolist(), ends.tolist(), strict=True)
    return [json.loads(b'"%b"' % names.text[start:end]) for start, end in spans]


# --- lists -----------------------------------------------------------------------------------------------------------


@given(lists)
def test_a_list_of_names_says_them_in_json_and_by_column(given_names: list[str]) -> None:
    names = NameList.of(given_names)
    assert len(names) == len(given_names)
    assert json.loads(names.text) == said(names) == given_names


@given(lists)
def test_names_as_go_writes_them_are_read_as_they_are(given_names: list[str]) -> None:
    text = json.dumps(given_names, separators=(",", ":"), ensure_ascii=False).encode()
    names = NameList.read(text)
    if names is None:
        assert b"\\" in text
    else:
        assert names.text == text
        assert said(names) == given_names


@pytest.mark.parametrize(
    "text",
    [
        b'["a", "b"]',
        b'[ "a"]',
        b'["a" ]',
        b'["a"\n,"b"]',
        b'["\\u0061"]',
        b'["a\\"]',
        b"[ ]",
        b"null",
        b'"a"',
        b'["a",null]',
        b'["a",1,"b"]',
        b'[["a"],"b"]',
        b'["a":"b"]',
        b'["a"b"]',
        b'["a""b"]',
        b"[",
        b'["]',
        b"",
    ],
    ids=repr,
)
def test_anything_else_is_left_to_the_decoder(text: bytes) -> None:
    assert NameList.read(text) is None


@given(lists, st.integers(1, 300), st.data())
def test_names_are_split_into_lists_like_any_other(given_names: list[str], count: int, data: st.DataObject) -> None:
    of_one = st.integers(0, min(count - 1, data.draw(st.integers(0, 299))))
    codes = data.draw(st.lists(of_one, min_size=len(given_names), max_size=len(given_names)))
    wanted = [[name for name, code in zip(given_names, codes, strict=True) if code == own] for own in range(count)]
    parts = NameList.of(given_names).split(np.array(codes, np.int64), count)
    assert [said(part) for part in parts] == wanted
    assert [part.text for part in parts] == [NameList.of(names).text for names in wanted]


# --- rows ------------------------------------------------------------------------------------------------------------


@given(lists, lists)
def test_every_name_has_its_row_and_no_other_name_has_one(known: list[str], asked: list[str]) -> None:
    rows = {name: 3 * place for place, name in enumerate(dict.fromkeys(known))}
    wanted = [*asked, *reversed(known)]
    found = NameIndex(rows).rows(NameList.of(wanted))
    assert found.tolist() == [rows.get(name, -1) for name in wanted]


@pytest.mark.parametrize("count", [1, 7, 8, 9, 63, 64, 65, 253, 300])
def test_names_that_end_differently_are_told_apart_whatever_their_length(count: int) -> None:
    rows = {"x" * count: 0, "x" * (count - 1) + "y": 1, "x" * (count + 1): 2}
    wanted = [*rows, "x" * (count + 2), "x" * (count + 40), "", "y"]
    expected = [0, 1, 2, -1, -1, -1, rows.get("y", -1)]
    assert NameIndex(rows).rows(NameList.of(wanted)).tolist() == expected


def test_many_names_that_differ_little_are_all_found() -> None:
    rows = {f"node-{number:07d}.example": number for number in range(20_000)}
    wanted = [*reversed(rows), *(f"node-{number:07d}.example" for number in range(20_000, 25_000))]
    found = NameIndex(rows).rows(NameList.of(wanted))
    assert found.tolist() == [*range(19_999, -1, -1), *[-1] * 5_000]


def test_where_hashes_clash_names_are_still_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    poor = NameIndex._hashed

    def hashed(index: NameIndex, words: np.ndarray) -> np.ndarray:
        """Two bits of a hash: every name clashes with others, but no known name is quite like another."""
        full = poor(index, words)
        return np.where(words[:, 0] % 2 == 0, full >> np.uint64(62), full)

    monkeypatch.setattr(NameIndex, "_hashed", hashed)
    rows = {"b": 0, "a": 1, "c": 2}
    wanted = [f"{letter}{number}" for letter in "bdf" for number in range(50)]
    assert NameIndex(rows).rows(NameList.of([*wanted, "c", "b", "a"])).tolist() == [*[-1] * 150, 2, 0, 1]


def test_where_hashes_of_known_names_clash_others_are_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    good = NameIndex._hashed
    tried: list[int] = []

    def hashed(index: NameIndex, words: np.ndarray) -> np.ndarray:
        """At first all alike."""
        tried.append(int(index._factors[0]))
        return np.zeros(len(words), np.uint64) if len(set(tried)) < 3 else good(index, words)

    monkeypatch.setattr(NameIndex, "_hashed", hashed)
    rows = {"a": 0, "b": 1}
    assert NameIndex(rows).rows(NameList.of(["b", "c", "a"])).tolist() == [1, -1, 0]
    assert len(set(tried)) == 3


def test_the_table_knows_names_that_come_and_go() -> None:
    table = NodeTable()
    asked = NameList.of(["a", "b"])
    assert table.rows_of(asked).tolist() == [-1, -1]
    row = table.hold("a")
    assert table.rows_of(asked).tolist() == [row, -1]
    other = table.hold("b")
    assert table.rows_of(asked).tolist() == [row, other]
    table.drop(row)
    assert table.rows_of(asked).tolist() == [-1, other]
