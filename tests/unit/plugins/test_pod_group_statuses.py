"""The statuses of thousands of PodGroups are computed in many time slices."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import TYPE_CHECKING, Any

from plugins import coscheduling_pod_groups
from plugins.coscheduling_pod_groups import PodGroupStatuses
from scheduler.objects.pod_group import VOLCANO_POD_GROUPS
from tests.support.builders import pod
from tests.support.status_access import FakeStatusAccess
from tests.support.virtual_time_test import virtually

if TYPE_CHECKING:
    import pytest

N_GROUPS = 500


class Groups:
    """A cluster with groups and without nodes."""

    def objects(self, kind: str) -> Any:
        return self

    def typed(self, kind: type, key: str) -> Any:
        return kind()

    def snapshot(self) -> Any:
        return None


@virtually
async def test_statuses_of_many_groups_are_computed_in_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    turn, found_in = 0, Counter[int]()
    count = coscheduling_pod_groups.counted

    def next_turn() -> None:
        nonlocal turn
        turn += 1

    def counting(pods: Any) -> Any:
        found_in[turn] += 1
        if found_in[turn] == 1:
            asyncio.get_running_loop().call_soon(next_turn)
        return count(pods)

    monkeypatch.setattr(coscheduling_pod_groups, "counted", counting)
    monkeypatch.setattr(coscheduling_pod_groups, "resource_gap", lambda *_: {})
    statuses = PodGroupStatuses(VOLCANO_POD_GROUPS, FakeStatusAccess({"default/p": pod("p")}, Groups()))
    objects: Any = {f"default/g{number}": {"metadata": {"uid": str(number)}} for number in range(N_GROUPS)}

    status_of = await statuses.status_of(objects)
    assert (
        found_in.total() == sum(status_of(key, obj) is not None for key, obj in objects.items()) == N_GROUPS
    )
    assert max(found_in.values()) <= 64
