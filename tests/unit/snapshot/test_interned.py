"""A rule for strings is evaluated once per distinct value."""

from __future__ import annotations

import numpy as np
import pytest

from scheduler.snapshot import Interned


def interned(codes: list[int], values: list[str]) -> Interned[str]:
    return Interned(np.array(codes, dtype=np.int32), values)


def test_values_are_spread_to_the_nodes_that_hold_them():
    zones = interned([0, 2, 1, 2], ["a", "b", "c"])

    assert zones.spread([10, 20, 30]).tolist() == [10, 30, 20, 30]


@pytest.mark.parametrize(
    ("codes", "asked"),
    [
        pytest.param([0, 1, 2, 0, 1, 2, 0], 3, id="all values, where nodes are many"),
        pytest.param([2], 1, id="those present, where nodes are few"),
        pytest.param([], 0, id="none, where there are no nodes"),
    ],
)
def test_a_rule_is_evaluated_once_per_distinct_value(codes: list[int], asked: int):
    questions = []

    def is_b(value: str) -> bool:
        questions.append(value)
        return value == "b"

    found = interned(codes, ["a", "b", "c"]).judge(is_b)

    assert found.tolist() == [code == 1 for code in codes]
    assert found.dtype == np.bool_
    assert len(questions) == asked


def test_numbers_are_int64_for_equal_and_different_values():
    zones = interned([0, 1, 1], ["a", "bbb"])

    assert zones.measure(len).tolist() == [1, 3, 3]
    assert zones.measure(lambda _: 7).tolist() == [7, 7, 7]
    assert zones.measure(lambda _: 7).dtype == np.int64


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        pytest.param({"b"}, [False, True, False, True], id="one"),
        pytest.param({"a", "b"}, [True, True, False, True], id="several"),
        pytest.param({"gone"}, [False] * 4, id="a value without nodes"),
        pytest.param({"elsewhere"}, [False] * 4, id="one that none ever held"),
        pytest.param(set(), [False] * 4, id="none"),
    ],
)
@pytest.mark.parametrize("is_kept", [True, False], ids=["by its place", "by looking at all"])
def test_the_nodes_with_one_of_several_values(wanted: set[str], expected: list[bool], is_kept: bool):
    places = {"a": 0, "b": 1, "c": 3} if is_kept else None
    values = ["a", "b", "gone" if is_kept else "-", "c"]
    found = Interned(np.array([0, 1, 3, 1], dtype=np.int32), values, places)

    assert found.among(wanted).tolist() == expected
    assert found.take(np.array([3, 2], dtype=np.intp)).among(wanted).tolist() == [expected[3], expected[2]]


@pytest.mark.parametrize("number", [0, 1, 4, 5, 50, 95, 96, 100])
def test_values_are_found_on_nodes_whether_few_or_most_are_marked(number: int) -> None:
    codes = np.random.default_rng(number).integers(0, 100, 1000).astype(np.int32)
    marked = np.arange(100) < number

    assert Interned(codes, [*range(100)]).where(marked).tolist() == marked[codes].tolist()
