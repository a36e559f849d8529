"""A failure of a plugin's background work affects nothing else."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from scheduler.daemon.app.capabilities import BackgroundTasks
from scheduler.daemon.app.tasks import Tasks
from scheduler.errors import ApiError

if TYPE_CHECKING:
    from collections.abc import Coroutine
    from typing import Any


async def raises(error: BaseException) -> None:
    await asyncio.sleep(1)
    raise error


async def cancelled() -> None:
    asked = asyncio.ensure_future(asyncio.sleep(10))
    asked.cancel()
    await asked


@pytest.mark.parametrize(
    "work",
    [
        lambda: raises(ApiError(500, "InternalError", "lost")),
        lambda: raises(KeyError("lost")),
        lambda: raises(SystemExit(3)),
        cancelled,
    ],
    ids=["the server refuses", "a mistake", "an exit", "an await is cancelled"],
)
async def test_a_failed_task_is_logged_and_ends_nothing_else(
    work: Any, caplog: pytest.LogCaptureFixture
) -> None:
    failing: Coroutine[Any, Any, None] = work()
    async with Tasks() as tasks:
        background = BackgroundTasks(tasks)
        background.start(failing, "giving back")
        await background.drain(5)
    assert [record.getMessage() for record in caplog.records] == ["Background work failed"]
    assert vars(caplog.records[0])["work"] == "giving back"


async def test_a_task_cancelled_with_the_daemon_has_not_failed(caplog: pytest.LogCaptureFixture) -> None:
    async with Tasks() as tasks:
        background = BackgroundTasks(tasks)
        background.start(raises(KeyError("late")), "giving back")
        await background.drain(0.5)
    assert not caplog.records
