"""What fulfils the capabilities of a profile's plugins in the daemon."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from scheduler.framework import (
    HttpGet,
    PodActivator,
    PodBinder,
    PodEvents,
    Sleep,
    WaitForEvent,
    WaitingPods,
)
from scheduler.framework.preemption import Preemptions, VictimReview

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    import aiohttp

    from scheduler.cycle.event_bus import EventBus
    from scheduler.queue.scheduling_queue import SchedulingQueue
    from scheduler.runtime.waiting_pods import WaitingPodsMap


class LoopSleep:
    """Waits on the daemon's loop."""

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


class WebClient:
    """Asks web servers through one pool of connections, opened when first used."""

    def __init__(self) -> None:
        self._session: aiohttp.ClientSession | None = None

    async def http_get(
        self, url: str, *, headers: Mapping[str, str] | None = None, timeout_seconds: float = 5.0
    ) -> bytes:
        import aiohttp  # half of what `explain` would take to start, and few profiles ask the web

        if self._session is None:
            self._session = aiohttp.ClientSession()
        timeout = aiohttp.ClientTimeout(total=timeout_seconds)
        try:
            async with self._session.get(url, headers=headers, timeout=timeout) as answer:
                body = await answer.read()
                if not answer.ok:
                    raise OSError(f"GET {url}: {answer.status} {answer.reason}: {body[:256]!r}")
                return body
        except (aiohttp.ClientError, TimeoutError) as error:
            raise OSError(f"GET {url}: {type(error).__name__}: {error}") from error

    async def close(self) -> None:
        """Close the pool."""
        if self._session is not None:
            await self._session.close()


class QueueActivator:
    """Wakes pods in the queue, and the loop that takes them."""

    def __init__(self, queue: SchedulingQueue, bus: EventBus) -> None:
        self._queue = queue
        self._bus = bus

    def activate(self, uids: Iterable[str]) -> None:
        self._queue.activate(uids)
        self._bus.wake()


def capabilities(
    *,
    binder: PodBinder,
    queue: SchedulingQueue,
    bus: EventBus,
    waiting_pods: WaitingPodsMap,
    web: WebClient,
    events: PodEvents,
    preemptions: Preemptions,
    review: VictimReview,
) -> Mapping[type, object]:
    """Return everything one profile's plugins may ask for: Protocol -> what fulfils it."""
    return {
        PodBinder: binder,
        PodActivator: QueueActivator(queue, bus),
        PodEvents: events,
        WaitForEvent: bus,
        WaitingPods: waiting_pods,
        Sleep: LoopSleep(),
        HttpGet: web,
        Preemptions: preemptions,
        VictimReview: review,
    }
