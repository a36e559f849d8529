from __future__ import annotations

import weakref
from dataclasses import replace
from datetime import UTC, datetime
from random import Random
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler.engine.cycle.attempt import Decision
from scheduler.engine.cycle.attempt_log import PLACED_BYTES, AttemptLog
from scheduler.engine.cycle.explanation import explain
from scheduler.engine.runtime.scoring import PluginScores, Scores
from scheduler.engine.state.cache import Cache
from scheduler.framework.cycle_state import CycleState
from scheduler.framework.diagnosis import FEASIBLE, NOT_EXAMINED, PASS, Diagnosis, Outcome
from scheduler.framework.preemption import REPORT, PreemptionReport, PreemptionSummary, Protected
from scheduler.framework.status import SUCCESS, Code, Status
from scheduler.objects.pod import PodInfo
from tests.support.builders import node, pod

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def cluster(size: int) -> Cache:
    cache = Cache()
    for number in range(size):
        cache.add_node(node(f"n{number}"))
    return cache


def decision(name: str, size: int, node_name: str = "") -> Decision:
    status = Status.unschedulable("no")
    state = CycleState()
    state.write("large", bytearray(10_000_000))
    return Decision(pod(name), state, Diagnosis.blank(size), node_name, status=status)


def test_the_latest_attempt_replaces_the_previous_one_for_any_result() -> None:
    log, snapshot = AttemptLog(), cluster(3).snapshot()

    log.note(decision("web", 3), snapshot, number=1, at=NOW)
    log.note(decision("web", 3, "n1"), snapshot, number=2, at=NOW)

    last = log.last("default/web")
    assert last is not None
    assert (last.number, last.decision.node_name) == (2, "n1")


def test_cycle_state_of_plugins_is_not_stored() -> None:
    log, snapshot = AttemptLog(), cluster(1).snapshot()

    log.note(decision("web", 1), snapshot, number=1, at=NOW)

    last = log.last("default/web")
    assert last is not None
    assert "large" not in last.decision.state


def test_memory_stays_within_the_budget_and_the_oldest_attempt_is_dropped_first() -> None:
    log, snapshot = AttemptLog(placed_bytes=100_000, waiting_bytes=100_000), cluster(1000).snapshot()

    for number in range(100):
        log.note(decision(f"pod-{number}", 1000), snapshot, number=1, at=NOW)
        assert log.kept_bytes <= 100_000

    assert log.last("default/pod-0") is None
    assert log.last("default/pod-99") is not None


def test_the_preemption_report_is_stored_and_counted_in_bytes() -> None:
    log, snapshot = AttemptLog(), cluster(100).snapshot()
    log.note(decision("web", 100), snapshot, number=1, at=NOW)
    before = log.kept_bytes
    searched = decision("web", 100)
    candidates = {row: ([pod(f"{row}-{number}") for number in range(100)], 0) for row in range(100)}
    searched.state.write(REPORT, PreemptionReport(candidates, [7]))

    log.note(searched, snapshot, number=2, at=NOW)

    last = log.last("default/web")
    assert last is not None
    assert explain(last.decision, last.names) == explain(searched, snapshot.names)
    assert isinstance(last.decision.state.read(REPORT, object), PreemptionSummary), "names, and no pods"
    assert log.kept_bytes - before > 100 * 100 * len("default/99-99")
    with_victims = log.kept_bytes
    protected = {row: Protected("default/v", 0.0, "PriorityClass batch", "") for row in range(100)}
    searched.state.write(REPORT, PreemptionReport(candidates, [7], protected))
    log.note(searched, snapshot, number=3, at=NOW)
    assert log.kept_bytes - with_victims > with_victims - before + 100 * len("default/v")


def test_a_burst_of_placements_does_not_drop_the_attempts_of_pending_pods() -> None:
    log, snapshot = AttemptLog(placed_bytes=100_000, waiting_bytes=100_000), cluster(1000).snapshot()

    log.note(decision("waiting", 1000), snapshot, number=1, at=NOW)
    for number in range(100):
        log.note(decision(f"placed-{number}", 1000, "n1"), snapshot, number=1, at=NOW)

    assert log.last("default/waiting") is not None


def test_earlier_attempts_are_kept_newest_first() -> None:
    log, snapshot = AttemptLog(), cluster(3).snapshot()

    for number in range(1, 30):
        node_name = "n1" if number == 29 else ""
        log.note(decision("web", 3, node_name), snapshot, number=number, at=NOW, seconds=number / 1000)

    past = log.of("default/web")
    assert [each.number for each in past] == list(range(29, 13, -1))
    assert (past[0].decision.node_name, past[0].seconds) == ("n1", 0.029)
    assert log.of("default/other") == []


def test_attempts_of_an_earlier_pod_of_the_same_name_are_not_included() -> None:
    log, snapshot = AttemptLog(), cluster(1).snapshot()
    before = Decision(
        pod("web", uid="before"), CycleState(), Diagnosis.blank(1), status=Status.unschedulable("no")
    )

    log.note(before, snapshot, number=1, at=NOW)
    log.note(decision("web", 1), snapshot, number=1, at=NOW)

    assert [each.decision.pod.uid for each in log.of("default/web")] == [pod("web").uid]


def test_pods_that_are_retried_constantly_drop_earlier_attempts_only() -> None:
    log = AttemptLog(placed_bytes=100_000, waiting_bytes=100_000, earlier_bytes=50_000)
    snapshot = cluster(1000).snapshot()
    names = [f"pod-{number}" for number in range(10)]

    for number in range(1, 200):
        for name in names:
            log.note(decision(name, 1000), snapshot, number=number, at=NOW)
            assert log.kept_bytes <= 250_000

    assert all(log.last(f"default/{name}") for name in names)
    assert [each.number for each in log.of("default/pod-9")][:2] == [199, 198]


def test_new_attempts_are_listed_in_order_with_the_last_of_each_pod() -> None:
    log, snapshot = AttemptLog(), cluster(1).snapshot()
    for name, node_name in (("a", ""), ("b", "n1"), ("a", ""), ("c", ""), ("b", "")):
        log.note(decision(name, 1, node_name), snapshot, number=1, at=NOW)

    reported = [(each.serial, each.decision.pod.name) for each in log.since(2, 10)]

    assert reported == [(3, "a"), (4, "c"), (5, "b")]
    assert [each.serial for each in log.since(0, 2)] == [4, 5]
    assert log.since(log.noted, 10) == []


@st.composite
def decisions(draw: st.DrawFn, size: int = 40) -> Decision:
    """Return random results: few or many plugins and outcomes, with rejected, avoided, excluded or unexamined nodes."""
    plugins = draw(st.sampled_from([1, 3, 127, 128, 129, 300]))
    outcomes = draw(st.sampled_from([2, 255, 256, 257, 600]))
    diagnosis = Diagnosis.blank(size)
    diagnosis.plugins = [f"Plugin{number}" for number in range(plugins)]
    table = (PASS, *(Outcome(Code.UNSCHEDULABLE, (f"reason {number}",)) for number in range(1, outcomes)))
    diagnosis.tables = [table] * plugins
    verdict = st.one_of(st.just(FEASIBLE), st.integers(NOT_EXAMINED, plugins - 1))
    rejected_by = draw(st.one_of(st.just([FEASIBLE] * size), st.lists(verdict, min_size=size, max_size=size)))
    diagnosis.rejected_by = np.array(rejected_by, dtype=np.int16)
    index = draw(st.lists(st.integers(1, outcomes - 1), min_size=size, max_size=size))
    diagnosis.index = np.array(index, dtype=np.uint16)
    diagnosis.narrowing_plugins = ("NodeName",)
    feasible = diagnosis.feasible
    scores = None
    if feasible.size:
        left = draw(st.one_of(st.just(len(feasible)), st.integers(1, len(feasible))))
        diagnosis.avoided = {int(row): "rests" for row in feasible[left:]}
        values = np.array(draw(st.lists(st.integers(0, 100), min_size=size, max_size=size)), dtype=np.uint8)
        rows = feasible[:left]
        others = {"extender": np.arange(left, dtype=np.int64)}
        scores = Scores(rows, rows[:1], (PluginScores("A", 2, values), PluginScores("B", 1, 50)), others, 1)
    node_name = "n1" if scores is not None else ""
    status = SUCCESS if scores is not None else Status.unschedulable("no")
    return Decision(pod("web"), CycleState(), diagnosis, node_name, scores, status)


@given(decisions())
def test_a_stored_attempt_is_explained_as_at_its_time(decided: Decision) -> None:
    log, snapshot = AttemptLog(), cluster(40).snapshot()

    log.note(decided, snapshot, number=1, at=NOW)

    last = log.last("default/web")
    assert last is not None
    assert explain(last.decision, last.names) == explain(decided, snapshot.names)
    assert last.decision.diagnosis.reason_counts() == decided.diagnosis.reason_counts()


def ranked(name: str, size: int, rows: NDArray[np.intp], refused: Sequence[int] = ()) -> Decision:
    """Return a decision in which one plugin scored `rows` and rejected other nodes."""
    diagnosis = Diagnosis.blank(size)
    diagnosis.plugins, diagnosis.tables = ["A"], [(PASS, Outcome(Code.UNSCHEDULABLE, ("no",)))]
    diagnosis.rejected_by = np.where(np.isin(np.arange(size), refused), 0, FEASIBLE)
    diagnosis.index = np.isin(np.arange(size), refused).astype(np.uint16)
    scores = Scores(rows, rows.copy(), (PluginScores("A", 1, np.zeros(size, dtype=np.uint8)),))
    return Decision(pod(name), CycleState(), diagnosis, "n0", scores)


@pytest.mark.parametrize(
    ("refused", "expected"),
    [
        pytest.param([], 5_000, id="the scores alone, where all nodes fit"),
        pytest.param([7], 15_000, id="two short numbers more, where some do not"),
    ],
)
def test_an_attempt_needs_little_more_memory_than_the_scores_of_its_nodes(
    refused: Sequence[int], expected: int
) -> None:
    log, snapshot = AttemptLog(), cluster(5_000).snapshot()
    rows = np.setdiff1d(np.arange(5_000), refused)
    log.note(ranked("first", 5_000, rows, refused), snapshot, number=1, at=NOW)
    before = log.kept_bytes

    log.note(ranked("second", 5_000, rows, refused), snapshot, number=1, at=NOW)

    assert expected <= log.kept_bytes - before < expected + 4_000


def test_decompressed_scores_do_not_stay_in_memory() -> None:
    log, snapshot = AttemptLog(), cluster(100).snapshot()
    log.note(ranked("web", 100, np.arange(100)), snapshot, number=1, at=NOW)

    last = log.last("default/web")
    assert last is not None
    explain(last.decision, last.names)
    asked = weakref.ref(last.decision.scores)
    del last

    assert asked() is None


def test_the_traceback_of_a_failed_plugin_does_not_stay_in_memory() -> None:
    log, snapshot = AttemptLog(), cluster(3).snapshot()
    large = np.zeros(3)
    held = weakref.ref(large)

    def fail(_: object) -> None:
        raise ValueError("a mistake")

    try:
        fail(large)
    except ValueError as error:
        status = Status.failed("a mistake", error)
    failed = Decision(pod("web"), CycleState(), Diagnosis.blank(3), status=status)
    log.note(failed, snapshot, number=1, at=NOW)
    del large, failed, status

    last = log.last("default/web")
    assert last is not None
    assert (last.decision.status.code, last.decision.status.message) == (Code.ERROR, "a mistake")
    assert held() is None


def test_the_node_names_of_a_changed_cluster_are_counted() -> None:
    log, cache = AttemptLog(), cluster(5_000)
    log.note(decision("first", 5_000), cache.snapshot(), number=1, at=NOW)
    before = log.kept_bytes

    cache.remove_node("n7")
    log.note(decision("second", 4_999), cache.snapshot(), number=1, at=NOW)

    assert log.kept_bytes - before > 4_999 * (8 + 2)


def test_names_stay_with_their_rows_when_nodes_are_added_and_deleted() -> None:
    log, cache = AttemptLog(), cluster(3)
    log.note(decision("web", 3), cache.snapshot(), number=1, at=NOW)

    for name in Random(1).sample(["n0", "n1", "n2"], 3):
        cache.remove_node(name)

    last = log.last("default/web")
    assert last is not None
    assert list(last.names) == ["n0", "n1", "n2"]


def test_a_huge_pod_counts_with_the_memory_of_its_objects() -> None:
    log, snapshot = AttemptLog(), cluster(3).snapshot()
    for number in range(100):
        made = decision(f"huge-{number}", 3, "n1")
        log.note(replace(made, pod=PodInfo(made.pod.pod, b" " * 2**20)), snapshot, number=1, at=NOW)

    assert log.kept_bytes < PLACED_BYTES
    assert sum(log.last(f"default/huge-{number}") is not None for number in range(100)) == 1


def test_very_many_reasons_count_in_bytes() -> None:
    log, snapshot = AttemptLog(), cluster(3).snapshot()
    for name, count in (("few", 1), ("many", 20_000)):
        before = log.kept_bytes
        made = decision(name, 3)
        reasons = tuple(f"Insufficient x.io/{number}" for number in range(count))
        table = (PASS, Outcome(Code.UNSCHEDULABLE, reasons))
        made.diagnosis.reject("Fit", table, np.ones(3, dtype=np.uint16), np.arange(3))
        log.note(made, snapshot, number=1, at=NOW)
        assert (log.kept_bytes - before > 20_000 * 100) == (name == "many")
