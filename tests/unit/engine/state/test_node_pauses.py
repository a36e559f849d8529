"""How long a node is paused after its kubelet rejected pods."""

from __future__ import annotations

import pytest

from scheduler.engine.state.cache import NodePauses
from tests.support.builders import node
from tests.support.clusters import cluster

SNAPSHOT = cluster(node("n0"), node("n1")).snapshot()


@pytest.fixture
def pauses() -> NodePauses:
    return NodePauses(initial_seconds=5, max_seconds=30)


def paused(pauses: NodePauses, at: float) -> list[int]:
    rows = sorted(pauses.rows(SNAPSHOT, at=at))
    assert pauses.paused(at=at) == len(rows)
    return rows


def test_a_node_that_rejected_pauses_for_the_first_pause_and_no_longer(pauses: NodePauses):
    assert pauses.rejected("n1", "OutOfcpu", at=100) == 5

    assert pauses.rows(SNAPSHOT, at=100) == {1: "OutOfcpu"}
    assert paused(pauses, 104.9) == [1]
    assert paused(pauses, 105) == []


def test_each_further_rejection_doubles_the_pause_up_to_the_maximum(pauses: NodePauses):
    at, seconds = 0.0, []
    for _ in range(5):
        seconds.append(pauses.rejected("n1", "", at=at))
        at += seconds[-1]

    assert seconds == [5, 10, 20, 30, 30]


def test_a_rejection_during_a_pause_does_not_extend_it(pauses: NodePauses):
    pauses.rejected("n1", "", at=0)

    assert pauses.rejected("n1", "", at=3) == 2
    assert paused(pauses, 5) == []
    assert pauses.rejected("n1", "", at=5) == 10


@pytest.mark.parametrize(("later", "seconds"), [(34.9, 10), (35, 5)], ids=["soon", "long after"])
def test_a_node_that_rejects_after_a_long_time_starts_with_the_first_pause(
    pauses: NodePauses, later: float, seconds: float
):
    pauses.rejected("n1", "", at=0)

    assert pauses.rejected("n1", "", at=later) == seconds


def test_nodes_pause_separately(pauses: NodePauses):
    pauses.rejected("n0", "", at=0)
    pauses.rejected("n1", "", at=3)

    assert paused(pauses, 4) == [0, 1]
    assert paused(pauses, 6) == [1]


def test_an_ended_pause_still_counts_for_the_next_one(pauses: NodePauses):
    pauses.rejected("n1", "", at=0)
    pauses.end("n1")

    assert paused(pauses, 1) == []
    assert pauses.rejected("n1", "", at=2) == 10


def test_a_deleted_node_is_dropped(pauses: NodePauses):
    pauses.rejected("n1", "", at=0)
    pauses.forget("n1")

    assert paused(pauses, 1) == []
    assert pauses.rejected("n1", "", at=2) == 5


def test_unknown_nodes_are_accepted(pauses: NodePauses):
    pauses.end("n9")
    pauses.forget("n9")
    pauses.rejected("n9", "", at=0)

    assert pauses.rows(SNAPSHOT, at=1) == {}


def test_a_first_pause_of_zero_turns_pauses_off_at_once(pauses: NodePauses):
    pauses.rejected("n1", "", at=0)
    pauses.configure(initial_seconds=0, max_seconds=30)

    assert paused(pauses, 1) == []
    assert pauses.rejected("n1", "", at=1) == 0
    assert paused(pauses, 1) == []
