"""Rates and quantiles of histograms."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler.daemon.metrics.families import Families
from scheduler.tools.board.hub import quantile


@pytest.mark.parametrize(
    ("share", "counts", "expected"),
    [
        pytest.param(0.5, [0, 0, 0], None, id="an empty histogram"),
        pytest.param(0.5, [4, 0, 0], 0.5, id="within the first bucket, from 0"),
        pytest.param(0.5, [0, 4, 0], 1.5, id="within a bucket, as if even"),
        pytest.param(0.99, [0, 0, 4], 2.0, id="above all bounds, the last bound"),
        pytest.param(0.5, [2, 2, 0], 1.0, id="at a bound"),
    ],
)
def test_a_quantile_is_computed_as_in_prometheus(
    share: float, counts: list[int], expected: float | None
) -> None:
    assert quantile(share, [1.0, 2.0], counts) == expected


@given(st.lists(st.floats(0, 100), min_size=1), st.floats(0.01, 1))
def test_a_quantile_is_in_the_bucket_of_its_number(numbers: list[float], share: float) -> None:
    bounds = [1.0, 5.0, 20.0, 100.0]
    family = Families().histograms("h", "text", bounds=bounds)
    for number in numbers:
        family[()].observe(number)
    wanted = sorted(numbers)[max(0, -(-int(share * len(numbers) * 1_000_000) // 1_000_000) - 1)]

    found = quantile(share, bounds, family[()].counts)

    assert found is not None
    below = max([0.0, *[bound for bound in bounds if bound < wanted]])
    above = min(bound for bound in bounds if bound >= wanted)
    assert below <= found <= above
