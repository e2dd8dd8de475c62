"""Quantities: the reported faults of B32, and exactness against fractions."""

import json
import math
import re
from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from extender.errors import QuantityError
from extender.model.quantity import (
    MAX_INT64,
    MIN_INT64,
    parse,
    round_to_millis,
    round_to_units,
    to_millis,
    to_units,
)

CASES = Path(__file__).parents[1] / "data" / "cases"
INPUT = json.loads((CASES / "B32-quantities.json").read_text())
EXPECTED_LINE = re.compile(r'^"(.*)": (?:REJECT|value=(-?\d+) milli=(-?\d+)) ?', re.MULTILINE)
SUM_LINE = re.compile(r"^sum (.*): value=(\d+) milli=(\d+) ", re.MULTILINE)
EXPECTED_TEXT = (CASES / "B32-quantities.expected.txt").read_text()
EXPECTED = {text: (value, milli) for text, value, milli in EXPECTED_LINE.findall(EXPECTED_TEXT)}
EXPECTED_SUMS = {text: (int(value), int(milli)) for text, value, milli in SUM_LINE.findall(EXPECTED_TEXT)}

# Where upstream's int64 wraps around, the right outcome is the nearest int64.
SATURATED = {
    "1E": (10**18, MAX_INT64),
    "1Ei": (2**60, MAX_INT64),
    "7Ei": (7 * 2**60, MAX_INT64),
    "8Ei": (MAX_INT64, MAX_INT64),
    "1000E": (MAX_INT64, MAX_INT64),
    "9223372036854775807": (MAX_INT64, MAX_INT64),
    "9223372036854775808": (MAX_INT64, MAX_INT64),
}
REJECTED = [text for text in INPUT["quantities"] if not EXPECTED[text][0]]
ACCEPTED = [text for text in INPUT["quantities"] if EXPECTED[text][0]]


def test_the_expected_file_covers_every_input():
    assert set(EXPECTED) == set(INPUT["quantities"])
    assert set(EXPECTED_SUMS) == {"+".join(terms) for terms in INPUT["sums"]}
    assert len(REJECTED) == 13


@pytest.mark.parametrize("text", ACCEPTED, ids=lambda text: f"{text} is rounded away from zero")
def test_accepted(text):
    value, milli = SATURATED.get(text) or map(int, EXPECTED[text])
    assert (to_units(text), to_millis(text)) == (value, milli)


@pytest.mark.parametrize("text", REJECTED, ids=lambda text: f"{text!r} is rejected by name and with a remedy")
def test_rejected(text):
    with pytest.raises(QuantityError) as caught:
        parse(text)
    assert repr(text) in str(caught.value)
    assert "write a number" in str(caught.value)


@pytest.mark.parametrize("terms", INPUT["sums"], ids=lambda terms: f"{' + '.join(terms)} is exact before rounding")
def test_sum(terms):
    total = sum(parse(term) for term in terms)
    assert (round_to_units(total), round_to_millis(total)) == EXPECTED_SUMS["+".join(terms)]


@pytest.mark.parametrize(
    ("value", "millis"),
    [
        pytest.param(2, 2000, id="a bare integer"),
        pytest.param(0.5, 500, id="a bare fraction"),
        pytest.param(1e22, MAX_INT64, id="a bare number that Python writes with an exponent"),
        pytest.param("-0.0001", -1, id="a negative trifle goes away from zero"),
        pytest.param("-9e30", MIN_INT64, id="a negative giant stays at the smallest int64"),
        pytest.param("m", 0, id="a suffix without digits is zero as upstream scans it"),
        pytest.param("1e999999999999", MAX_INT64, id="a giant exponent costs nothing and saturates"),
        pytest.param("1e-999999999999", 1, id="a tiny exponent costs nothing and is one nano"),
        pytest.param("0e999999999999", 0, id="zero stays zero under any exponent"),
    ],
)
def test_other_forms(value, millis):
    assert to_millis(value) == millis


@pytest.mark.parametrize(
    "value",
    [
        pytest.param(float("nan"), id="not a number"),
        pytest.param(float("inf"), id="infinity"),
        pytest.param(True, id="a boolean"),
        pytest.param("1\n", id="a line break at the end"),
        pytest.param("١", id="a digit of another script"),
        pytest.param("1" * 5000, id="a text of thousands of digits"),
    ],
)
def test_other_rejections(value):
    with pytest.raises(QuantityError):
        parse(value)


@given(
    digits=st.from_regex(r"[0-9]{1,12}(\.[0-9]{0,12})?", fullmatch=True),
    suffix=st.sampled_from(["", "n", "u", "m", "k", "M", "G", "Ki", "Mi", "Gi", "e2", "E-4", "e+3"]),
    negative=st.booleans(),
)
def test_every_quantity_is_exact_to_the_nano(digits, suffix, negative):
    powers = {"n": -9, "u": -6, "m": -3, "k": 3, "M": 6, "G": 9, "e2": 2, "E-4": -4, "e+3": 3}
    binary = {"Ki": 2**10, "Mi": 2**20, "Gi": 2**30}
    exact = Fraction(digits.rstrip(".")) * binary.get(suffix, 1) * Fraction(10) ** powers.get(suffix, 0)
    nanos = math.ceil(exact * 10**9)
    assert parse(f"{'-' if negative else ''}{digits}{suffix}") == (-nanos if negative else nanos)
