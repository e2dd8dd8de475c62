"""Bags of rows hold what was put in, in any order, and forget what was taken out."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from extender.model.bag import RowBag


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 5))))
def test_a_bag_is_a_multiset_of_rows_with_numbers(changes):
    bag, expected = RowBag(), Counter()
    for put, row in changes:
        if put:
            bag.add(row, 10 * row)
            expected[row] += 1
        elif expected[row]:
            bag.remove(row)
            expected[row] -= 1
    assert Counter(bag.rows.tolist()) == +expected
    assert bag.numbers.tolist() == [10 * row for row in bag.rows.tolist()]
    assert len(bag) == expected.total()
