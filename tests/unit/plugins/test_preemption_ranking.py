"""The importance of victims, and the candidate with the least harm."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from plugins.preemption import ranking
from plugins.preemption.ranking import PreemptionCandidate, best, by_importance
from tests.support.builders import pod

if TYPE_CHECKING:
    from scheduler.objects.pod import PodInfo


def victim(name: str, priority: int = 0, started: str = "") -> PodInfo:
    return pod(name, node="n", priority=priority, status={"startTime": started} if started else {})


EARLY, LATE = "2026-03-01T08:00:00Z", "2026-03-01T09:00:00Z"


def test_priority_precedes_running_time_and_a_pod_not_yet_started_is_last() -> None:
    pods = [victim("new"), victim("late", 0, LATE), victim("early", 0, EARLY), victim("high", 1, LATE)]

    assert [each.name for each in by_importance(pods)] == ["high", "early", "late", "new"]


@pytest.mark.parametrize(
    ("winner", "loser"),
    [
        pytest.param(([victim("a", 9)], 0), ([victim("b", 1)], 1), id="fewer broken budgets"),
        pytest.param(
            ([victim("a", 1), victim("b", 1)], 0), ([victim("c", 2)], 0), id="lower highest priority"
        ),
        pytest.param(
            ([victim("a", 2), victim("b", 0)], 0),
            ([victim("c", 2), victim("d", 1)], 0),
            id="lower sum of priorities",
        ),
        pytest.param(
            ([victim("a", -5)], 0), ([victim("b", -5), victim("c", -5)], 0), id="negative priorities"
        ),
        pytest.param(([victim("a", 0, LATE)], 0), ([victim("b", 0, EARLY)], 0), id="later start"),
        pytest.param(
            ([victim("a", 1, LATE), victim("b", 0, EARLY)], 0),
            ([victim("c", 1, EARLY), victim("d", 0, LATE)], 0),
            id="start of the highest priority only",
        ),
    ],
)
def test_the_best_candidate_has_the_least_important_victims(
    winner: tuple[list[PodInfo], int], loser: tuple[list[PodInfo], int]
) -> None:
    better, worse = (
        PreemptionCandidate(0, tuple(winner[0]), winner[1]),
        PreemptionCandidate(1, tuple(loser[0]), loser[1]),
    )

    assert best([worse, better]) == [better]


def test_equal_candidates_all_win() -> None:
    twins = [PreemptionCandidate(row, (victim("a", 0, EARLY),), 0) for row in range(2)]

    assert best(twins) == twins
    assert best([]) == []


def test_the_start_of_only_one_victim_of_each_candidate_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    read = []
    real = ranking.started
    monkeypatch.setattr(ranking, "started", lambda pod: read.append(pod.name) or real(pod))
    victims = tuple(victim(f"v{number}", started=EARLY) for number in range(9))

    best([PreemptionCandidate(row, victims, 0) for row in range(3)])

    assert read == ["v0"] * 3
