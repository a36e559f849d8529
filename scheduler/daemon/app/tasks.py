"""The tasks beside the main one: watches, refreshes of plugins' data, preemptions."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Self

from scheduler.errors import SchedulerError

if TYPE_CHECKING:
    from collections.abc import Coroutine
    from types import TracebackType


class Tasks:
    """Tasks that end with the block; an async context manager, entered once.

    A failing task ends the block. An error of the block itself is raised unchanged, not in an ExceptionGroup.
    """

    def __init__(self) -> None:
        self._group: asyncio.TaskGroup | None = None
        self._running: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        self._group = await asyncio.TaskGroup().__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        assert self._group is not None
        group, self._group = self._group, None
        for task in self._running:
            task.cancel()
        if isinstance(error, asyncio.CancelledError):
            await group.__aexit__(kind, error, traceback)
        else:
            await group.__aexit__(None, None, None)

    def spawn(self, work: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
        """Start a task.

        Raises:
            SchedulerError: the block was not entered, or is about to end.
        """
        if self._group is None:
            work.close()
            raise SchedulerError("the scheduler is not running")
        task = self._group.create_task(work, name=name)
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        return task
