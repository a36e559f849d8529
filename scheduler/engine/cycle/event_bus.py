"""Dispatches cluster events to the queue, to waiting plugins and to the scheduling loop."""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from itertools import chain
from typing import TYPE_CHECKING, Any

from scheduler.framework.events import ASSIGNED_POD_DELETE, EventResource
from scheduler.objects.node import NodeObject
from scheduler.objects.pod import PodInfo
from scheduler.snapshot import object_key

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable

    from scheduler.engine.queue.scheduling_queue import SchedulingQueue
    from scheduler.framework.events import ClusterEvent
    from scheduler.snapshot.object_store import Object

    Wanted = Callable[[ClusterEvent, object, object], bool]
    Objects = Collection[tuple[EventResource, str]]

logger = logging.getLogger(__name__)

_PODS = frozenset({EventResource.ASSIGNED_POD, EventResource.UNSCHEDULABLE_POD})


class EventBus:
    """Dispatches cluster events, to the queue first; implements WaitForEvent and PodActivator."""

    def __init__(self, queue: SchedulingQueue) -> None:
        self._queue = queue
        self._waiters: dict[asyncio.Future[None], Wanted] = {}
        # (kind, key) of an object -> futures that wait for its change
        self._waiting_for: defaultdict[tuple[EventResource, str], set[asyncio.Future[None]]] = defaultdict(
            set
        )
        self._woken = asyncio.Event()

    def happened(
        self,
        event: ClusterEvent,
        old: Any,
        new: Any,
        pre_check: Callable[[PodInfo], bool] | None = None,
    ) -> None:
        """Dispatch an event.

        Args:
            event: the event.
            old: the object before; None for an addition.
            new: the object now; None for a deletion. Both are None if the event may concern any object.
            pre_check: returns False for rejected pods that the event does not concern.
        """
        self._queue.move_all(event, old, new, pre_check)
        if self._waiters:
            for waiter, wanted in list(self._waiters.items()):
                if not waiter.done() and _wants(wanted, event, old, new):
                    waiter.set_result(None)
        if self._waiting_for:
            for waiter in self._waiters_for(event.resource, old if new is None else new):
                if not waiter.done():
                    waiter.set_result(None)
        self._woken.set()

    def nomination_ended(self, pod: PodInfo, *, but: str = "") -> None:
        """Dispatch the end of a nomination: its capacity is free for pods of the same or a lower priority.

        Args:
            pod: the pod; if its status does not contain the nomination, its node name is set to the nominated node.
            but: uid of a rejected pod that is not requeued.
        """
        self.happened(
            ASSIGNED_POD_DELETE,
            pod,
            None,
            lambda other: other.priority <= pod.priority and other.uid != but,
        )

    def activate(self, uids: Iterable[str]) -> None:
        self._queue.activate(uids)
        self._woken.set()

    def wake(self) -> None:
        """Wake the scheduling loop, because the queue may have work."""
        self._woken.set()

    async def wait_woken(self, timeout_seconds: float | None) -> None:
        """Wait for a call of `wake` or for the timeout; the call is consumed."""
        timer = None
        if timeout_seconds is not None and not self._woken.is_set():
            timer = asyncio.get_running_loop().call_later(timeout_seconds, self._woken.set)
        try:
            await self._woken.wait()
        finally:
            if timer is not None:
                timer.cancel()
        self._woken.clear()

    async def wait_for_event(self, wanted: Wanted, *, timeout_seconds: float) -> bool:
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters[waiter] = wanted
        try:
            return await _is_done_in_time(waiter, timeout_seconds)
        finally:
            del self._waiters[waiter]

    async def wait_for_change_of(self, objects: Objects, *, timeout_seconds: float) -> bool:
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        for each in objects:
            self._waiting_for[each].add(waiter)
        try:
            return await _is_done_in_time(waiter, timeout_seconds)
        finally:
            for each in objects:
                self._waiting_for[each].discard(waiter)
                if not self._waiting_for[each]:
                    del self._waiting_for[each]

    def _waiters_for(
        self, kind: EventResource, obj: PodInfo | NodeObject | Object | None
    ) -> Iterable[asyncio.Future[None]]:
        if obj is None:
            return chain.from_iterable(self._waiting_for.values())
        if isinstance(obj, PodInfo):
            key = obj.key
        else:
            key = obj.name if isinstance(obj, NodeObject) else object_key(obj)
        return self._waiting_for.get((EventResource.POD if kind in _PODS else kind, key), ())


async def _is_done_in_time(waiter: asyncio.Future[None], timeout_seconds: float) -> bool:
    try:
        async with asyncio.timeout(timeout_seconds):
            await waiter
    except TimeoutError:
        return False
    return True


def _wants(wanted: Wanted, event: ClusterEvent, old: object, new: object) -> bool:
    try:
        return wanted(event, old, new)
    except Exception:
        # The plugin checks again by itself; a missed event would leave it waiting.
        logger.exception("A plugin's event filter failed", extra={"event": event.label})
        return True
