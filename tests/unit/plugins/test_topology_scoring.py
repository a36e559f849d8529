from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from plugins.pod_topology_spread.scoring import go_log, go_round


@pytest.mark.parametrize(
    ("number", "rounded"),
    [
        pytest.param(0.5, 1.0, id="half"),
        pytest.param(2.5, 3.0, id="half of an even number"),
        pytest.param(-2.5, -3.0, id="half below zero"),
        pytest.param(0.49999999999999994, 0.0, id="just less than half"),
        pytest.param(4503599627370497.5, 4503599627370498.0, id="half of a large number"),
        pytest.param(-0.4, 0.0, id="nearly zero"),
    ],
)
def test_halves_are_rounded_away_from_zero(number: float, rounded: float):
    assert go_round(np.array([number])).tolist() == [rounded]


@given(st.integers(2, 10**6))
def test_the_logarithm_is_exact_up_to_the_last_digit(number: int):
    assert abs(go_log(number) - math.log(number)) <= math.ulp(math.log(number))


@pytest.mark.parametrize(
    ("number", "bits"),
    [
        pytest.param(4, "3ff62e42fefa39ef", id="a power of two"),
        pytest.param(3, "3ff193ea7aad030a", id="three, where the nearest number ends in b"),
        pytest.param(14, "40051cca16d7bba8", id="fourteen, where the nearest number ends in 7"),
    ],
)
def test_the_last_digit_equals_that_of_the_series(number: int, bits: str):
    assert np.float64(go_log(number)).view(np.uint64) == int(bits, 16)
