"""Arithmetic as in Go."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler.framework import default_normalize_score, divide, divide_small
from tests.reference import go

int64s = st.one_of(
    st.integers(-(2**63), 2**63 - 1),
    st.integers(-200, 200),
    st.integers(-(2**53) - 5, -(2**53) + 5),
    st.integers(2**53 - 5, 2**53 + 5),
    st.sampled_from([-(2**63), 2**63 - 1]),
)
divisors = int64s.filter(bool)


@given(st.lists(st.tuples(int64s, divisors), max_size=8))
def test_division_truncates_toward_zero_and_wraps_as_in_go(pairs: list[tuple[int, int]]):
    dividend = np.array([pair[0] for pair in pairs], dtype=np.int64)
    divisor = np.array([pair[1] for pair in pairs], dtype=np.int64)

    assert divide(dividend, divisor).tolist() == [go.divide(*pair) for pair in pairs]


@given(st.lists(int64s, max_size=8), divisors)
def test_one_divisor_for_all_divides_the_same(dividends: list[int], divisor: int):
    found = divide(np.array(dividends, dtype=np.int64), divisor)

    assert found.tolist() == [go.divide(dividend, divisor) for dividend in dividends]


@given(st.integers(1, 2**53), st.integers(1, 2**40), st.integers(-1, 1))
def test_the_fast_division_is_exact_next_to_every_multiple(divisor: int, multiple: int, off: int):
    dividend = min(multiple * divisor + off, 2**53 - 1)

    found = divide_small(np.array([dividend]), np.array([divisor]))

    assert found.tolist() == [dividend // divisor]


@pytest.mark.parametrize(
    ("scores", "reverse", "normalized"),
    [
        pytest.param([1, 2, 3, 4], False, [25, 50, 75, 100], id="stretched to 100"),
        pytest.param([1, 2, 3, 4], True, [75, 50, 25, 0], id="turned round"),
        pytest.param([1000, 10, 20, 30], False, [100, 1, 2, 3], id="one far ahead"),
        pytest.param([1000, 10, 20, 30], True, [0, 99, 98, 97], id="one far behind"),
        pytest.param([0, 0], False, [0, 0], id="all zero"),
        pytest.param([0, 0], True, [100, 100], id="all zero, turned round"),
        pytest.param([3, 1], False, [100, 33], id="rounded toward zero"),
        pytest.param([], True, [], id="no nodes"),
    ],
)
def test_scores_are_normalized(scores: list[int], reverse: bool, normalized: list[int]):
    found = default_normalize_score(np.array(scores, dtype=np.int64), np.arange(len(scores)), reverse=reverse)

    assert found.tolist() == normalized


def test_values_at_other_rows_do_not_count():
    scores = np.array([5, 999, 10], dtype=np.int64)

    assert default_normalize_score(scores, np.array([0, 2]))[[0, 2]].tolist() == [50, 100]
