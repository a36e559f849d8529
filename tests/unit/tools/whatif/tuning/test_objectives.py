"""A difference counts if it is larger than the variation between seeds and between parts."""

from __future__ import annotations

from math import inf

import pytest

from scheduler.tools.whatif.simulation.simulation_measures import PartFigures
from scheduler.tools.whatif.tuning.objectives import Objective, difference, mean_of, spread_of

PART = PartFigures(
    end=60.0, arrived=9, placed=8, wait_p50=1.0, wait_p99=2.0, in_use=3.5, fragmentation=0.25, preemptions=4
)


def test_each_objective_reads_its_figure():
    assert {each.value: each.of(PART) for each in Objective} == {
        "nodes": 3.5,
        "wait-p50": 1.0,
        "wait-p99": 2.0,
        "fragmentation": 25.0,
        "preemptions": 4.0,
    }


def test_a_constant_difference_is_no_noise_and_none_is():
    ours, theirs = [[1.0, 5.0, 3.0], [2.0, 6.0, 4.0]], [[3.0, 7.0, 5.0], [4.0, 8.0, 6.0]]

    assert difference(ours, theirs) == (-2.0, 0.0)
    assert not difference(ours, theirs).is_noise
    assert difference(ours, ours).is_noise


def test_a_difference_in_one_of_four_parts_is_noise():
    found = difference([[10.0, 10.0, 10.0, 2.0]] * 3, [[10.0] * 4] * 3)

    assert found.mean == -2.0
    assert found.noise == pytest.approx(3.18 * 4.0 / 2.0)
    assert found.is_noise


def test_a_difference_with_one_of_four_seeds_is_noise():
    same = [10.0] * 6

    assert difference([same, same, same, [2.0] * 6], [same] * 4).is_noise


def test_two_seeds_do_not_count_beside_more_parts():
    ours = [[1.0, 1.1, 0.9, 1.0], [3.0, 3.1, 2.9, 3.0]]

    assert not difference(ours, [[9.0] * 4] * 2).is_noise
    assert difference(ours, [[9.0] * 4] * 2).noise < 0.2


def test_the_noise_of_a_single_value_is_unknown():
    assert difference([[1.0]], [[5.0]]) == (-4.0, inf)
    assert difference([[1.0]], [[5.0]]).is_noise


def test_the_spread_is_that_of_parts_or_else_of_seeds():
    assert mean_of([[1.0, 3.0], [3.0, 5.0]]) == 3.0
    assert spread_of([[1.0, 3.0], [3.0, 5.0]]) == pytest.approx(2.0**0.5)
    assert spread_of([[1.0], [3.0]]) == pytest.approx(2.0**0.5)
    assert spread_of([[1.0]]) == 0.0
