"""The results of Filter plugins for every node, and the messages that follow from them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler.framework import PASS, SKIP, SUCCESS, Code, Diagnosis, Outcome, Outcomes, Status

if TYPE_CHECKING:
    from collections.abc import Callable

    from scheduler.snapshot import Rows

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


ALL = np.arange(12)
SMALL = Outcome(Code.UNSCHEDULABLE, ("Insufficient cpu", "Insufficient memory"))
FULL = Outcome(Code.UNSCHEDULABLE, ("Too many pods",))


def reject(diagnosis: Diagnosis, plugin: str, outcomes: Outcomes, rows: Rows) -> Rows:
    return diagnosis.reject(plugin, outcomes.table, outcomes.index[rows], rows)


def test_counts_are_sorted_as_text_so_ten_comes_before_two():
    diagnosis = Diagnosis.blank(12)
    rows = reject(diagnosis, "Cordon", Outcomes.reject(ALL >= 10, "node(s) were unschedulable"), ALL)
    reject(diagnosis, "Taints", Outcomes.reject(ALL < 10, "node(s) had taints"), rows)

    assert diagnosis.message() == (
        "0/12 nodes are available: 10 node(s) had taints, 2 node(s) were unschedulable."
    )


def test_a_node_counts_for_each_of_its_reasons():
    diagnosis = Diagnosis.blank(3)
    index = np.array([1, 1, 2], dtype=np.uint16)
    reject(diagnosis, "Fit", Outcomes(index, (PASS, SMALL, FULL)), np.arange(3))

    assert diagnosis.message() == (
        "0/3 nodes are available: 1 Too many pods, 2 Insufficient cpu, 2 Insufficient memory."
    )


def test_one_reason_of_two_plugins_is_counted_once():
    diagnosis = Diagnosis.blank(2)
    rows = reject(diagnosis, "A", Outcomes.reject(np.array([True, False]), "no"), np.arange(2))
    reject(diagnosis, "B", Outcomes.reject(np.array([True, True]), "no"), rows)

    assert diagnosis.message() == "0/2 nodes are available: 2 no."
    assert diagnosis.unschedulable_plugins == {"A", "B"}


def test_the_first_plugin_to_reject_a_node_is_recorded():
    diagnosis = Diagnosis.blank(2)
    rows = reject(diagnosis, "A", Outcomes.reject(np.array([True, False]), "no"), np.arange(2))
    left = reject(diagnosis, "B", Outcomes.reject(np.array([True, False]), "never asked"), rows)

    assert rows.tolist() == left.tolist() == diagnosis.feasible.tolist() == [1]
    assert diagnosis.outcome_of(0) == ("A", Outcome(Code.UNSCHEDULABLE, ("no",)))
    assert diagnosis.outcome_of(1) is None
    assert diagnosis.unschedulable_plugins == {"A"}


def test_results_for_rows_outside_the_search_do_not_count():
    diagnosis = Diagnosis.blank(3)

    left = reject(diagnosis, "A", Outcomes.reject(np.array([True, True, True]), "no"), np.array([1]))

    assert left.tolist() == []
    assert diagnosis.feasible.tolist() == [0, 2]


@pytest.mark.parametrize(
    ("status", "message"),
    [
        pytest.param(
            Status.unschedulable("pod affinity terms conflict", resolvable=False),
            "0/4 nodes are available: pod affinity terms conflict.",
            id="one reason",
        ),
        pytest.param(
            Status.unschedulable("one", "two"), "0/4 nodes are available: one, two.", id="two reasons"
        ),
        pytest.param(Status.unschedulable(), "0/4 nodes are available:", id="no reason"),
    ],
)
def test_a_pod_rejected_before_any_node_is_evaluated_has_that_reason(status: Status, message: str):
    diagnosis = Diagnosis.blank(4)
    diagnosis.reject_all(status.by("NodeAffinity"))

    assert diagnosis.message() == message
    assert diagnosis.unschedulable_plugins == {"NodeAffinity"}
    assert diagnosis.outcome_of(3) == ("NodeAffinity", Outcome(status.code, status.reasons))


def test_nodes_outside_the_narrowed_search_name_the_narrowing_plugins():
    diagnosis = Diagnosis.blank(3)
    diagnosis.narrow(np.array([False, True, False]), frozenset({"n1"}), ("A", "B"))
    reject(diagnosis, "Fit", Outcomes.reject(np.array([False, True, False]), "Too many pods"), np.array([1]))

    assert diagnosis.message() == (
        "0/3 nodes are available: 1 Too many pods, 2 node(s) didn't satisfy plugin(s) [A B]."
    )
    assert diagnosis.outcome_of(0) == (
        "A,B",
        Outcome(Code.UNSCHEDULABLE_AND_UNRESOLVABLE, ("node(s) didn't satisfy plugin(s) [A B]",)),
    )
    assert diagnosis.unschedulable_plugins == {"A", "B", "Fit"}


def test_the_message_of_post_filter_comes_last():
    diagnosis = Diagnosis.blank(1)
    reject(diagnosis, "A", Outcomes.reject(np.array([True]), "no"), np.array([0]))
    diagnosis.post_filter_message = "preemption: no victims."

    assert diagnosis.message() == "0/1 nodes are available: 1 no. preemption: no victims."


def test_a_cluster_without_nodes_has_its_own_message():
    assert Diagnosis.blank(0).message() == "no nodes available to schedule pods"


def test_a_pending_plugin_is_recorded_as_such():
    diagnosis = Diagnosis.blank(1)
    waiting = Outcome(Code.PENDING, ("claim is being made",))
    reject(diagnosis, "Claims", Outcomes(np.ones(1, dtype=np.uint16), (PASS, waiting)), np.array([0]))

    assert diagnosis.pending_plugins == diagnosis.unschedulable_plugins == {"Claims"}


def test_an_error_is_found_with_its_node_and_is_no_rejection():
    broken = Outcome(Code.ERROR, ("broken",))
    diagnosis = Diagnosis.blank(3)
    reject(diagnosis, "A", Outcomes(np.array([0, 0, 1], dtype=np.uint16), (PASS, broken)), np.arange(3))

    assert diagnosis.first_error() == ("A", broken, 2)
    assert diagnosis.unschedulable_plugins == set()


def test_without_an_error_none_is_found():
    diagnosis = Diagnosis.blank(1)
    reject(diagnosis, "A", Outcomes.reject(np.array([True]), "no"), np.array([0]))

    assert diagnosis.first_error() is None


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(lambda it: it.leave_out(np.array([0])), id="a node is left out"),
        pytest.param(lambda it: it.look_within(np.array([1, 2])), id="other nodes are not eligible"),
        pytest.param(lambda it: it.look_at_only(np.array([0])), id="only one node is evaluated"),
        pytest.param(lambda it: it.narrow(ALL[:3] < 2, frozenset({"n0"}), ("A",)), id="PreFilter narrows"),
        pytest.param(
            lambda it: reject(it, "B", Outcomes.reject(ALL[:3] > 1, "b"), np.array([1, 2])), id="B rejects"
        ),
        pytest.param(
            lambda it: it.take_over(
                ["C"],
                [(PASS, FULL)],
                np.zeros(3, np.int8),
                np.ones(3, np.uint8),
                np.arange(0),
                has_failures=False,
            ),
            id="a cached result",
        ),
        pytest.param(lambda it: it.reject_all(Status.unschedulable("all").by("D")), id="PreFilter rejects"),
    ],
)
def test_a_message_read_earlier_does_not_outlive_a_change(change: Callable[[Diagnosis], object]) -> None:
    unread, read = Diagnosis.blank(3), Diagnosis.blank(3)
    for each in (unread, read):
        reject(each, "A", Outcomes.reject(np.array([True, False, False]), "a"), np.arange(3))
    before = read.message(), read.unschedulable_plugins
    for each in (unread, read):
        change(each)

    assert (read.message(), read.unschedulable_plugins) == (unread.message(), unread.unschedulable_plugins)
    assert (read.message(), read.unschedulable_plugins) != before


@given(st.data())
def test_plugins_reject_across_all_nodes_as_at_selected_ones(data: st.DataObject) -> None:
    table = (PASS, *(Outcome(code, (f"{code}",)) for code in (Code.UNSCHEDULABLE, Code.ERROR)), *[FULL] * 300)
    diagnosed = [Diagnosis.blank(12) for _ in range(2)]
    rows = data.draw(
        st.sampled_from([np.arange(12), np.arange(12), np.array([1, 3, 5, 7, 8]), np.array([2])])
    )
    for number in range(data.draw(st.integers(1, 3)) * data.draw(st.sampled_from([1, 100]))):
        index = np.random.default_rng(number).choice([0, 0, 0, 1, 2, 300], 12).astype(np.uint16)
        if data.draw(st.booleans()) and len(rows):  # as if a node were looked at again
            rows = np.union1d(rows, [4])
        left = diagnosed[0].reject("A", table, index[rows], rows)
        rows = diagnosed[1].reject_across("A", table, index, rows)
        assert rows.tolist() == left.tolist()

    assert [diagnosed[1].outcome_of(row) for row in range(12)] == [
        diagnosed[0].outcome_of(row) for row in range(12)
    ]
    assert diagnosed[1].has_failures == diagnosed[0].has_failures
    assert diagnosed[1].rejections() == diagnosed[0].rejections()


def test_a_change_of_a_diagnosis_leaves_the_arrays_that_it_shares_as_they_are() -> None:
    kept, numbers = np.full(3, -1, dtype=np.int8), np.zeros(3, dtype=np.uint8)
    first, second = Diagnosis.blank(3), Diagnosis.blank(3)
    for each in (first, second):
        each.take_over([], [], kept, numbers, np.arange(3), has_failures=False)

    first.reject_across("A", (PASS, FULL), np.array([0, 1, 0], dtype=np.uint16), np.arange(3))
    first.leave_out(np.array([2]))

    assert [first.outcome_of(row) is None for row in range(3)] == [True, False, True]
    assert second.feasible.tolist() == [0, 1, 2]
    assert kept.tolist() == [-1] * 3
    assert Diagnosis.blank(3).feasible.tolist() == [0, 1, 2]
