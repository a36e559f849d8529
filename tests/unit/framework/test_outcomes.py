"""A plugin's results for all nodes, as indices of a table."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from scheduler.framework import PASS, SKIP, SUCCESS, Code, Outcome, Outcomes, Status

NO = Outcome(Code.UNSCHEDULABLE, ("no",))


def test_nodes_rejected_for_one_reason_share_an_outcome():
    outcomes = Outcomes.reject(np.array([True, False, True]), "too small")

    assert outcomes.index.tolist() == [1, 0, 1]
    assert outcomes.of(0) == Outcome(Code.UNSCHEDULABLE, ("too small",))
    assert outcomes.passing.tolist() == [False, True, False]


def test_an_unresolvable_rejection_has_a_code_of_its_own():
    outcomes = Outcomes.reject(np.array([True]), "wrong zone", resolvable=False)

    assert outcomes.of(0).code is Code.UNSCHEDULABLE_AND_UNRESOLVABLE


def test_statuses_of_some_rows_leave_the_others_passing():
    no, again = Status.unschedulable("no"), Status.unschedulable("no")

    outcomes = Outcomes.from_statuses(4, np.array([0, 1, 3]), [no, SUCCESS, again])

    assert outcomes.index.tolist() == [1, 0, 0, 1]
    assert outcomes.table == (PASS, NO)


def test_a_status_for_each_row_is_required():
    with pytest.raises(ValueError, match="shorter"):
        Outcomes.from_statuses(2, np.array([0, 1]), [SUCCESS])


def test_outcomes_of_a_part_extend_to_the_whole():
    part = Outcomes(np.array([1, 0], dtype=np.uint16), (PASS, NO))

    whole = part.spread(np.array([2, 3]), 4)

    assert whole.index.tolist() == [0, 0, 1, 0]
    assert whole.table is part.table


@pytest.mark.parametrize(
    ("table", "problem"),
    [
        pytest.param((), "first outcome", id="an empty table"),
        pytest.param((NO,), "first outcome", id="a table without PASS at the start"),
        pytest.param((PASS, PASS), "rejected with", id="a pass in a later place"),
        pytest.param((PASS, Outcome(Code.SKIP, ("x",))), "rejected with", id="a code that rejects nothing"),
        pytest.param(
            (PASS, Outcome(Code.UNSCHEDULABLE, ())), "needs a reason", id="a refusal without a reason"
        ),
        pytest.param((PASS, "no"), "is \\(code, reasons\\)", id="something else"),
        pytest.param((PASS, *[NO] * 65536), "at most 65536", id="more places than a number can name"),
    ],
)
def test_a_table_that_is_too_short_is_refused(table: tuple[Outcome, ...], problem: str):
    with pytest.raises(ValueError, match=problem):
        Outcomes(np.zeros(1, dtype=np.uint16), table)


def test_an_error_is_an_outcome():
    failed = Outcome(Code.ERROR, ("broken",))

    assert Outcomes(np.ones(1, dtype=np.uint16), (PASS, failed)).of(0) is failed


def test_a_skip_is_refused_for_a_node():
    with pytest.raises(ValueError, match="was Skip"):
        Outcomes.from_statuses(1, np.array([0]), [SKIP])


def test_more_kinds_of_rejection_than_an_index_can_hold_are_an_error():
    statuses = (Status.unschedulable(f"reason {number}") for number in range(65536))

    with pytest.raises(ValueError, match="65535 different"):
        Outcomes.from_statuses(65536, np.arange(65536), statuses)


@pytest.mark.parametrize(
    ("reasons", "expected"),
    [
        pytest.param("no room", r"write \('no room',\); was 'no room'", id="one text"),
        pytest.param(["no room"], r"a tuple of texts, write \(reason, ...\); was \['no room'\]", id="a list"),
        pytest.param((7,), r"a tuple of texts.*was \(7,\)", id="a number"),
    ],
)
def test_reasons_that_are_no_tuple_of_strings_are_refused(reasons: Any, expected: str):
    with pytest.raises(ValueError, match=expected):
        Outcomes(np.zeros(1, dtype=np.uint16), (PASS, Outcome(Code.UNSCHEDULABLE, reasons)))


def test_a_list_of_outcomes_is_refused_as_a_table():
    table: Any = [PASS]

    with pytest.raises(ValueError, match="table is a tuple, was list"):
        Outcomes(np.zeros(1, dtype=np.uint16), table)


@pytest.mark.parametrize("refused", [[True], np.array([1])], ids=["list", "numbers"])
def test_only_an_array_of_bool_can_be_rejected(refused: Any):
    with pytest.raises(TypeError, match="reject takes an array of bool, one per node"):
        Outcomes.reject(refused, "no room")
