"""What fulfils the capabilities of a profile's plugins in the daemon."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from scheduler.client.http.request import Request
from scheduler.errors import ApiError
from scheduler.framework import (
    ApiGet,
    Clock,
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

    from scheduler.app.web_client import WebClient
    from scheduler.client.requests import Requests
    from scheduler.cycle.event_bus import EventBus
    from scheduler.queue.scheduling_queue import SchedulingQueue
    from scheduler.runtime.waiting_pods import WaitingPodsMap


class LoopSleep:
    """Waits on the daemon's loop."""

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


class ApiReads:
    """Reads from the API server over the daemon's connection.

    Args:
        requests: the connection.
    """

    def __init__(self, requests: Requests) -> None:
        self._requests = requests

    async def api_get(self, path: str, *, timeout_seconds: float = 5.0) -> bytes:
        try:
            answer = await self._requests.send(Request("GET", path, timeout_seconds=timeout_seconds))
        except ApiError as error:
            raise OSError(f"GET {path}: {error}") from error
        return answer.body


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
    api: ApiGet,
    clock: Clock,
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
        ApiGet: api,
        Clock: clock,
        Preemptions: preemptions,
        VictimReview: review,
    }
