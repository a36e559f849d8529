"""DefaultPreemption: its arguments, candidates and their ranking."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from plugins.node_resources.fit import NodeResourcesFit
from plugins.preemption import candidates, ranking
from plugins.preemption.candidates import (
    NEVER,
    VICTIMS_ARE_LEAVING,
    rows_to_try,
    search,
    why_not_eligible,
)
from plugins.preemption.default_preemption import DefaultPreemptionArgs
from plugins.preemption.disruption_budgets import DisruptionBudgets
from plugins.preemption.preempting import _not_found
from plugins.preemption.ranking import PreemptionCandidate, best, by_importance
from scheduler.engine.runtime.dry_run import DryRun
from scheduler.engine.runtime.equivalence_classes import AttemptState
from scheduler.framework import Code, Diagnosis, Status
from scheduler.framework.reasons import Cause
from scheduler.loop_work import run_to_end
from scheduler.snapshot import ObjectStore
from tests.support.builders import node, pod
from tests.support.scripted_plugins import framework_of
from tests.support.snapshots import snapshot_of
from tests.unit.plugins.plugin_calls import made

if TYPE_CHECKING:
    from collections.abc import Sized

    from plugins.preemption.candidates import VictimSearch
    from scheduler.objects.pod import PodInfo
    from scheduler.snapshot import Snapshot


def args(percentage: int, absolute: int) -> DefaultPreemptionArgs:
    return DefaultPreemptionArgs(
        min_candidate_nodes_percentage=percentage, min_candidate_nodes_absolute=absolute
    )


@pytest.mark.parametrize(
    ("percentage", "absolute", "paths"),
    [
        (0, 1, []),
        (100, 0, []),
        (101, 1, ["minCandidateNodesPercentage"]),
        (-1, 1, ["minCandidateNodesPercentage"]),
        (1, -1, ["minCandidateNodesAbsolute"]),
        (0, 0, ["minCandidateNodesPercentage", "minCandidateNodesAbsolute"]),
    ],
)
def test_settings_outside_their_ranges_are_errors(percentage: int, absolute: int, paths: list[str]) -> None:
    assert [fault.path for fault in args(percentage, absolute).faults()] == paths


@pytest.mark.parametrize(
    ("n_nodes", "enough"), [(50, 50), (500, 100), (5000, 500)], ids=["all", "the absolute", "the share"]
)
def test_the_larger_minimum_counts_up_to_the_number_of_nodes(n_nodes: int, enough: int) -> None:
    assert DefaultPreemptionArgs().enough(n_nodes) == enough


NODES = [node(f"n{row}", cpu="2") for row in range(4)]
POD = pod("p", cpu="2", priority=5)


def searched(
    snapshot: Snapshot, rows: list[int], enough: int, budgets: DisruptionBudgets | None = None
) -> VictimSearch:
    fit = made(NodeResourcesFit)
    filtering, state = framework_of(fit).filtering, AttemptState()
    filtering.run_pre_filter(state, POD, snapshot, Diagnosis.blank(snapshot.n_nodes))
    dry_run = DryRun()
    dry_run.filtering = filtering
    return run_to_end(
        search(
            dry_run,
            state,
            POD,
            snapshot,
            rows,
            budgets=budgets or DisruptionBudgets(),
            nominated={},
            enough=enough,
        )
    )


@pytest.mark.parametrize(
    ("enough", "found"), [(1, [2]), (2, [2, 3]), (9, [2, 3, 0])], ids=["one", "two", "all there are"]
)
def test_the_search_ends_with_enough_candidates_in_the_given_order(enough: int, found: list[int]) -> None:
    victims = [pod(f"v{row}", cpu="1", node=f"n{row}") for row in (0, 2, 3)]
    result = searched(snapshot_of(*NODES, pods=victims), [2, 3, 0, 1], enough)

    assert [candidate.row for candidate in result.candidates] == found


@pytest.mark.parametrize("together", [1, 2, 3])
def test_the_number_of_nodes_per_step_does_not_change_the_result(
    together: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    nodes = [node(f"n{row}", cpu="2") for row in range(12)]
    victims = [
        pod(f"v{row}", cpu=str(1 + row % 2), node=f"n{row}", priority=row % 4, labels={"app": "db"})
        for row in range(12)
        if row % 5
    ]
    snapshot, rows = snapshot_of(*nodes, pods=victims), [*range(7, 12), *range(7)]
    store, budgets = ObjectStore(), DisruptionBudgets()
    store["default/none"] = {
        "metadata": {"name": "none", "namespace": "default"},
        "spec": {"selector": {"matchLabels": {"app": "db"}}},
    }
    budgets.look_at(store)
    expected = [searched(snapshot, rows, enough, budgets).candidates for enough in range(1, 12)]
    monkeypatch.setattr("plugins.preemption.candidates._ROWS_TOGETHER", together)
    monkeypatch.setattr("plugins.preemption.candidates._PODS_A_STEP", 2)
    monkeypatch.setattr("scheduler.engine.runtime.dry_run._PODS_A_STEP", 1)

    assert [searched(snapshot, rows, enough, budgets).candidates for enough in range(1, 12)] == expected


def test_pods_of_the_same_priority_are_not_victims() -> None:
    peers = [pod("peer", cpu="2", node="n0", priority=5)]
    result = searched(snapshot_of(*NODES, pods=peers), [0], 9)

    assert result.message(4) == (
        "0/4 nodes are available: 1 No preemption victims found for incoming pod, "
        "3 Preemption is not helpful for scheduling."
    )


def test_the_nodes_where_preemption_does_not_help_are_counted_by_code() -> None:
    """What still rejects the pod without its victims is one code: the reasons of the rejection have codes of their own."""
    small = [node("small", cpu="1"), node("smaller", cpu="1"), node("other", cpu="4"), node("last", cpu="4")]
    victims = [pod(f"v{name}", cpu="1", node=name, priority=1) for name in ("small", "smaller")]
    result = searched(snapshot_of(*small, pods=victims), [0, 1, 2], 9)

    status = _not_found(result, 4, "DefaultPreemption").status
    assert status.message == f"preemption: {result.message(4)}"
    assert status.causes == (
        Cause("PreemptionInsufficient", "DefaultPreemption", 2),
        Cause("NoPreemptionVictims", "DefaultPreemption", 1),
        Cause("PreemptionNotHelpful", "DefaultPreemption", 1),
    )


def test_a_pod_with_preemption_policy_never_does_not_preempt() -> None:
    never = pod("p", priority=5, preemption_policy="Never")
    assert why_not_eligible(never, snapshot_of(*NODES), Diagnosis.blank(4)) == NEVER


@pytest.mark.parametrize(
    ("reason", "expected"), [("PreemptionByScheduler", VICTIMS_ARE_LEAVING), ("Other", None)]
)
def test_a_pod_waits_for_victims_of_preemption(reason: str, expected: str | None) -> None:
    condition = {"type": "DisruptionTarget", "status": "True", "reason": reason}
    leaving = pod("v", node="n0", status={"conditions": [condition]})
    metadata = type(leaving.pod.metadata)(
        name="v", namespace="default", uid="v", deletion_timestamp="2026-03-01T08:00:00Z"
    )
    leaving = type(leaving)(type(leaving.pod)(metadata, leaving.pod.spec, leaving.pod.status))
    nominated = pod("p", priority=5, status={"nominatedNodeName": "n0"})

    assert why_not_eligible(nominated, snapshot_of(*NODES, pods=[leaving]), Diagnosis.blank(4)) == expected


def test_all_nodes_without_victims_are_named() -> None:
    """This happens after an extender rejected nodes where the pod fits anyway."""
    victims = [pod(f"v{name}", cpu="1", node=name, priority=1) for name in ("a", "b")]
    found = searched(snapshot_of(node("a", cpu="4"), node("b", cpu="4"), pods=victims), [0, 1], 9)

    assert _not_found(found, 2, "DefaultPreemption").status.message == (
        'preemption: [expected at least one victim pod on node "a", '
        'expected at least one victim pod on node "b"]'
    )


def most_in_a_step(handled: Sized, *, cpu: str) -> int:
    """Search 60 nodes with 30 possible victims each; return how many pods were handled in one step at most."""
    nodes = [node(f"m{row}", cpu="2") for row in range(60)]
    victims = [pod(f"v{row}-{number}", cpu=cpu, node=f"m{row}") for row in range(60) for number in range(30)]
    snapshot, state, dry_run = snapshot_of(*nodes, pods=victims), AttemptState(), DryRun()
    dry_run.filtering = framework_of(made(NodeResourcesFit)).filtering
    dry_run.filtering.run_pre_filter(state, POD, snapshot, Diagnosis.blank(snapshot.n_nodes))

    most = before = 0
    for _ in search(
        dry_run, state, POD, snapshot, range(60), budgets=DisruptionBudgets(), nominated={}, enough=60
    ):
        most, before = max(most, len(handled) - before), len(handled)
    return max(most, len(handled) - before)


def test_the_pods_of_few_nodes_are_evaluated_in_one_step(monkeypatch: pytest.MonkeyPatch) -> None:
    looked_at = []
    real = candidates.split
    monkeypatch.setattr(
        candidates, "split", lambda pods, budgets: looked_at.extend(pods) or real(pods, budgets)
    )
    most = most_in_a_step(looked_at, cpu="10m")

    assert len(looked_at) == 60 * 30
    assert most <= 130


def test_many_victims_are_sorted_in_several_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    sorted_pods = []
    real = candidates.by_importance
    monkeypatch.setattr(
        candidates, "by_importance", lambda pods: sorted_pods.extend(found := real(pods)) or found
    )
    most = most_in_a_step(sorted_pods, cpu="60m")

    assert len(sorted_pods) == 2 * 60 * 30  # as possible victims, and as victims
    assert most <= 260


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


def test_a_pod_that_pre_filter_rejected_preempts_only_on_the_nodes_to_which_its_attempt_is_limited():
    diagnosis = Diagnosis.blank(4)
    diagnosis.reject_all(Status.unschedulable("it may fit without others"))
    assert rows_to_try(diagnosis).tolist() == [0, 1, 2, 3]

    diagnosis.look_within(np.array([1, 3]))
    assert rows_to_try(diagnosis).tolist() == [1, 3]
    diagnosis.reject_all(Status(Code.UNSCHEDULABLE_AND_UNRESOLVABLE, ("it fits nowhere",)))
    assert rows_to_try(diagnosis).size == 0
