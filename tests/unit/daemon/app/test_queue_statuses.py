"""The statuses of thousands of Queues are computed in steps."""

from __future__ import annotations

import asyncio
from collections import Counter
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from plugins.fair_queues.report import QueueReport
from scheduler.daemon.app import queue_statuses
from scheduler.daemon.app.queue_statuses import QueueStatuses
from tests.support.virtual_time_test import virtually

if TYPE_CHECKING:
    import pytest

N_QUEUES = 500


@virtually
async def test_statuses_of_many_queues_are_worded_in_many_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    turn, worded_in = 0, Counter[int]()
    told = queue_statuses.status_of_report

    def next_turn() -> None:
        nonlocal turn
        turn += 1

    def counting(*arguments: Any) -> Any:
        worded_in[turn] += 1
        if worded_in[turn] == 1:
            asyncio.get_running_loop().call_soon(next_turn)
        return told(*arguments)

    def reports(_parts: object) -> Any:
        yield
        return {f"q{number}": QueueReport() for number in range(N_QUEUES)}

    monkeypatch.setattr(queue_statuses, "status_of_report", counting)
    monkeypatch.setattr(queue_statuses, "queue_reports", reports)
    objects: Any = {f"q{number}": {"spec": {}} for number in range(N_QUEUES)}
    found = await QueueStatuses(SimpleNamespace()).wanted(objects)  # type: ignore[arg-type]

    assert len(found) == worded_in.total() == N_QUEUES
    assert max(worded_in.values()) <= 64
