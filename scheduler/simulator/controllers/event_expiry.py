"""Deletes events an hour after their last write, like etcd's leases.

Source:
    kube-apiserver v1.36, the flag --event-ttl.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING

from scheduler.simulator.apimachinery.objects import key_of
from scheduler.simulator.controllers.controller import Controller

if TYPE_CHECKING:
    from scheduler.simulator.apimachinery.objects import Object
    from scheduler.simulator.registry.store import Store

EVENT_TTL_SECONDS = 3600.0


class EventExpiry(Controller):
    """Deletes events that were not written for the TTL."""

    resources = ("events",)

    def __init__(self, store: Store, ttl_seconds: float = EVENT_TTL_SECONDS) -> None:
        super().__init__(store)
        self._ttl_seconds = ttl_seconds
        self._due: deque[tuple[float, str, str, str]] = deque()  # due time, namespace, name, resourceVersion
        self._is_waiting = False

    def observe(self, resource: str, type_: str, obj: Object) -> None:
        if type_ != "DELETED":
            due = asyncio.get_running_loop().time() + self._ttl_seconds
            self._due.append((due, *key_of(obj), obj["metadata"]["resourceVersion"]))

    def act(self) -> None:
        now = asyncio.get_running_loop().time()
        while self._due and self._due[0][0] <= now:
            _, namespace, name, version = self._due.popleft()
            event = self.store.find("events", name, namespace)
            if event is not None and event["metadata"]["resourceVersion"] == version:
                self.store.remove(event)
        if self._due and not self._is_waiting:
            self._is_waiting = True
            self.later(self._due[0][0] - now, self._look)

    def _look(self) -> None:
        self._is_waiting = False
        self.wake()
