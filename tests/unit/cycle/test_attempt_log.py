from __future__ import annotations

from datetime import UTC, datetime
from random import Random

from scheduler.cycle.attempt_log import AttemptLog
from scheduler.cycle.decision import Decision
from scheduler.framework.cycle_state import CycleState
from scheduler.framework.diagnosis import Diagnosis
from scheduler.framework.status import Status
from scheduler.state.cache import Cache
from tests.builders import node, pod

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


def test_the_latest_attempt_replaces_the_one_before_whatever_became_of_them() -> None:
    log, snapshot = AttemptLog(), cluster(3).snapshot()

    log.note(decision("web", 3), snapshot, number=1, at=NOW)
    log.note(decision("web", 3, "n1"), snapshot, number=2, at=NOW)

    last = log.last("default/web")
    assert last is not None
    assert (last.number, last.decision.node_name) == (2, "n1")


def test_what_plugins_told_themselves_is_not_kept() -> None:
    log, snapshot = AttemptLog(), cluster(1).snapshot()

    log.note(decision("web", 1), snapshot, number=1, at=NOW)

    last = log.last("default/web")
    assert last is not None
    assert "large" not in last.decision.state


def test_memory_stays_within_the_budget_and_the_oldest_goes_first() -> None:
    log, snapshot = AttemptLog(budget_bytes=100_000), cluster(1000).snapshot()

    for number in range(100):
        log.note(decision(f"pod-{number}", 1000), snapshot, number=1, at=NOW)
        assert log.kept_bytes <= 100_000

    assert log.last("default/pod-0") is None
    assert log.last("default/pod-99") is not None


def test_a_burst_of_placements_does_not_push_out_why_others_wait() -> None:
    log, snapshot = AttemptLog(budget_bytes=100_000), cluster(1000).snapshot()

    log.note(decision("waiting", 1000), snapshot, number=1, at=NOW)
    for number in range(100):
        log.note(decision(f"placed-{number}", 1000, "n1"), snapshot, number=1, at=NOW)

    assert log.last("default/waiting") is not None


def test_names_stay_with_their_rows_when_nodes_come_and_go() -> None:
    log, cache = AttemptLog(), cluster(3)
    log.note(decision("web", 3), cache.snapshot(), number=1, at=NOW)

    for name in Random(1).sample(["n0", "n1", "n2"], 3):
        cache.remove_node(name)

    last = log.last("default/web")
    assert last is not None
    assert list(last.names) == ["n0", "n1", "n2"]
