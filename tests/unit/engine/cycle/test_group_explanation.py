"""The log of the last attempts at pod groups is bounded."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from scheduler.engine.cycle.group_explanation import GroupLog
from scheduler.engine.cycle.group_pass import Pass
from scheduler.framework import Status
from scheduler.framework.pod_groups import PodGroup
from scheduler.objects.pod_group import POD_GROUPS, GroupKey
from tests.support.manual_clock import ManualClock


def test_groups_without_an_attempt_of_a_member_are_dropped_too() -> None:
    plugin: Any = SimpleNamespace(name="Gangs", waiting="waiting")
    log, keys = (
        GroupLog(ManualClock()),
        [GroupKey(POD_GROUPS, "ns", f"g{number}") for number in range(20_010)],
    )
    for key in keys:
        log.note(
            Pass(PodGroup(key, "uid"), plugin, placements=()),
            Status.unschedulable(),
            "unschedulable",
            seconds=0,
        )
    assert log.last(keys[0]) is None
    assert log.last(keys[-1]) is not None
