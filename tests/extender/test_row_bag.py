"""Bags of rows hold what was put in, in any order, and forget what was taken out."""

from collections import Counter

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from extender.model.bag import RowBag, RowBags


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 5))), st.sets(st.integers(0, 5)))
def test_a_bag_is_a_multiset_of_rows_with_numbers(changes, kept):
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
    bag.retain(np.isin(bag.rows, list(kept)))
    assert Counter(bag.rows.tolist()) == Counter(
        {row: times for row, times in expected.items() if row in kept and times}
    )
    assert bag.numbers.tolist() == [10 * row for row in bag.rows.tolist()]


CHANGES = st.lists(st.tuples(st.sampled_from(["open", "add", "add", "add", "remove"]), st.integers(0, 99)))


@given(CHANGES, st.integers(0, 70))
def test_bags_in_one_array_are_multisets_that_do_not_touch_each_other(changes, opened):
    bags = RowBags()
    expected = {bags.open(): Counter() for _ in range(opened)}
    for change, draw in changes:
        if change == "open" or not expected:
            expected[bags.open()] = Counter()
            continue
        bag, row = sorted(expected)[draw % len(expected)], draw % 3
        if change == "add":
            bags.add(bag, row)
            expected[bag][row] += 1
        elif expected[bag][row]:
            expected[bag][row] -= 1
            assert bags.remove(bag, row) == expected[bag].total()
        elif not expected[bag].total():
            bags.close(bag)
            del expected[bag]
    assert {bag: Counter(bags.rows(bag).tolist()) for bag in expected} == {bag: +rows for bag, rows in expected.items()}
    assert bags.sizes.sum() == sum(rows.total() for rows in expected.values())
    every = np.array([*expected, *expected], np.int64)
    assert Counter(bags.rows_of(every).tolist()) == sum((rows + rows for rows in expected.values()), Counter())
