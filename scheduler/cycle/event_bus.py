"""Something happened in the cluster: tells the queue, the plugins that wait for it, and the loop."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from scheduler.framework.events import ClusterEvent
    from scheduler.objects.pod import PodInfo
    from scheduler.queue.scheduling_queue import SchedulingQueue

    Wanted = Callable[[ClusterEvent, object, object], bool]

logger = logging.getLogger(__name__)


class EventBus:
    """Spreads cluster events, to the queue first; fulfils WaitForEvent and PodActivator."""

    def __init__(self, queue: SchedulingQueue) -> None:
        self._queue = queue
        self._waiters: dict[asyncio.Future[None], Wanted] = {}
        self._woken = asyncio.Event()

    def happened(
        self,
        event: ClusterEvent,
        old: Any,
        new: Any,
        pre_check: Callable[[PodInfo], bool] | None = None,
    ) -> None:
        """Tell of an event.

        Args:
            event: what.
            old: the object before; None for an addition.
            new: the object now; None for a deletion.
            pre_check: leaves out rejected pods for which it says False.
        """
        self._queue.move_all(event, old, new, pre_check)
        if self._waiters:
            for waiter, wanted in list(self._waiters.items()):
                if not waiter.done() and _wants(wanted, event, old, new):
                    waiter.set_result(None)
        self._woken.set()

    def activate(self, uids: Iterable[str]) -> None:
        self._queue.activate(uids)
        self._woken.set()

    def wake(self) -> None:
        """Say that the queue may have something to do."""
        self._woken.set()

    async def wait_woken(self, timeout_seconds: float | None) -> None:
        """Wait until the queue may have something to do, which counts once, or until the time is over."""
        try:
            async with asyncio.timeout(timeout_seconds):
                await self._woken.wait()
        except TimeoutError:
            return
        self._woken.clear()

    async def wait_for_event(self, wanted: Wanted, *, timeout_seconds: float) -> bool:
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters[waiter] = wanted
        try:
            async with asyncio.timeout(timeout_seconds):
                await waiter
        except TimeoutError:
            return False
        finally:
            del self._waiters[waiter]
        return True


def _wants(wanted: Wanted, event: ClusterEvent, old: object, new: object) -> bool:
    try:
        return wanted(event, old, new)
    except Exception:
        # The plugin looks again by itself; an event that is missed would leave it waiting.
        logger.exception("A plugin's question about an event failed", extra={"event": event.label})
        return True
