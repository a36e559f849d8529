from __future__ import annotations

from plugins.priority_sort import PrioritySort
from scheduler.framework import QueuedPodInfo
from tests.support.builders import pod


def order(*queued: tuple[str, int, float]) -> list[str]:
    pods = [QueuedPodInfo(pod(name, priority=priority), timestamp) for name, priority, timestamp in queued]
    return [each.pod.name for each in sorted(pods, key=PrioritySort().sort_key)]


def test_higher_priority_comes_first():
    assert order(("low", -5, 1.0), ("high", 2_000_000_000, 3.0), ("none", 0, 2.0)) == ["high", "none", "low"]


def test_pods_of_equal_priority_are_ordered_by_waiting_time():
    assert order(("late", 1, 2.0), ("early", 1, 1.5)) == ["early", "late"]
