"""FairQueues and groups: the capacity that a whole group may reclaim."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from plugins.preemption.ranking import Unit
from scheduler.framework import PodGroup
from scheduler.framework.sliced_work import run_to_end
from scheduler.objects.pod_group import GroupKey
from tests.unit.plugins.test_fair_queues import TREE, TWO, World, incoming, running

if TYPE_CHECKING:
    from scheduler.objects.pod import PodInfo

GROUP = PodGroup(GroupKey("PodGroup", "a", "g"), "uid", min_count=1)


def singles(pods: list[PodInfo]) -> list[Unit]:
    return [Unit((each,), each.priority) for each in pods]


def whole(pods: list[PodInfo]) -> list[Unit]:
    return [Unit(tuple(pods), pods[0].priority, is_group=True)]


@pytest.mark.parametrize(
    ("queues", "units", "wants", "priority", "leaving"),
    [
        pytest.param(TWO, singles(running("b", 12)), 6, 0, 6, id="borrowed pods"),
        pytest.param(TWO, singles(running("b", 12)), 7, 0, 0, id="more than its share"),
        pytest.param(TWO, whole(running("b", 12)), 6, 0, 0, id="a gang that is not borrowed as a whole"),
        pytest.param(
            TWO,
            whole(running("b", 4)) + whole(running("b", 4, first=4)) + whole(running("b", 4, first=8)),
            6,
            0,
            4,
            id="gangs, as many as are borrowed as wholes",
        ),
        pytest.param(
            TWO,
            whole(running("b", 8)) + singles(running("b", 4, first=8)),
            6,
            0,
            4,
            id="single pods if the gang is too large",
        ),
        pytest.param(
            {"a": {"max": {"cpu": 5}}, "b": {}}, singles(running("b", 12)), 6, 0, 0, id="more than its max"
        ),
        pytest.param(TWO, singles(running("a", 12)), 6, 10, 12, id="lower priorities of its own queue"),
        pytest.param(TWO, singles(running("a", 12)), 6, 0, 0, id="not its equals"),
        pytest.param(TWO, singles(running("c", 12)), 6, 10, 0, id="pods without a queue"),
        pytest.param(TREE, singles(running("a", 12)), 6, 10, 12, id="of no queue, by priority"),
    ],
)
def test_a_group_reclaims_borrowed_capacity_in_whole_units(
    queues: dict[str, dict[str, Any]], units: list[Unit], wants: int, priority: int, leaving: int
) -> None:
    world = World(queues, [pod for unit in units for pod in unit.pods])
    members = [incoming(name=f"g{number}", priority=priority) for number in range(wants)]
    world.wait(*members)

    found = run_to_end(world.plugin.removable(units, GROUP, members, world.cache.snapshot()))

    assert sum(len(unit.pods) for unit in found) == leaving
    assert all(unit in units for unit in found)
