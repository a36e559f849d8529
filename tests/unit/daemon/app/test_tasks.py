"""Background tasks end with the block, and end it when they fail."""

from __future__ import annotations

import asyncio

import pytest

from scheduler.daemon.app.tasks import Tasks
from scheduler.errors import SchedulerError


async def sleep() -> None:
    await asyncio.sleep(3600)


async def fail() -> None:
    await asyncio.sleep(1)
    raise OSError("lost")


async def test_tasks_end_with_the_block() -> None:
    async with Tasks() as tasks:
        task = tasks.spawn(sleep(), "sleeper")
        await asyncio.sleep(1)

    assert task.cancelled()
    assert asyncio.get_running_loop().time() == 1


async def test_a_failing_task_ends_the_block() -> None:
    async def block() -> None:
        async with Tasks() as tasks:
            tasks.spawn(fail(), "failing")
            await asyncio.sleep(3600)

    with pytest.raises(ExceptionGroup) as raised:
        await block()

    assert asyncio.get_running_loop().time() == 1
    assert [str(error) for error in raised.value.exceptions] == ["lost"]


async def test_an_exception_of_the_block_is_raised_unchanged() -> None:
    begun: list[asyncio.Task[None]] = []

    async def block() -> None:
        async with Tasks() as tasks:
            begun.append(tasks.spawn(sleep(), "sleeper"))
            raise KeyError("x")

    with pytest.raises(KeyError):
        await block()

    assert begun[0].cancelled()


async def test_a_cancelled_block_cancels_its_tasks() -> None:
    tasks = Tasks()

    async def block() -> None:
        async with tasks:
            tasks.spawn(sleep(), "sleeper")
            await asyncio.sleep(3600)

    running = asyncio.create_task(block())
    await asyncio.sleep(1)
    running.cancel()
    await asyncio.wait({running})

    assert running.cancelled()


async def test_no_task_starts_outside_the_block() -> None:
    tasks = Tasks()
    with pytest.raises(SchedulerError, match="not running"):
        tasks.spawn(sleep(), "too early")
    async with tasks:
        pass
    with pytest.raises(SchedulerError, match="not running"):
        tasks.spawn(sleep(), "too late")
