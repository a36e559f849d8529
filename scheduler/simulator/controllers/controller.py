"""What stand-ins have in common: they watch the store and act when something changed.

Each turn is one callback of the event loop: it takes all events, then acts. Nothing waits, so nothing can
change while a turn decides.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, ClassVar

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from scheduler.simulator.apimachinery.objects import Object
    from scheduler.simulator.registry.store import Store
    from scheduler.simulator.storage.watches import Watch


class Controller(ABC):
    """A stand-in for a controller.

    Attributes:
        resources: what it watches.
        store: the objects.
    """

    resources: ClassVar[Sequence[str]]

    def __init__(self, store: Store) -> None:
        self.store = store
        self._watches: dict[str, Watch] = {}
        self._timers: set[asyncio.TimerHandle] = set()
        self._turn: asyncio.Handle | None = None

    def start(self) -> None:
        """Watch, beginning with what is there; there must be a running loop."""
        for resource in self.resources:
            self._watches[resource] = self.store.watch(resource, self.wake)
        for resource in self.resources:
            for obj in self.store.list(resource):
                self.observe(resource, "ADDED", obj)
        self.wake()

    def stop(self) -> None:
        """Watch no longer, and forget what was planned."""
        for resource, watch in self._watches.items():
            self.store.unwatch(resource, watch)
        self._watches.clear()
        for timer in self._timers:
            timer.cancel()
        self._timers.clear()
        if self._turn is not None:
            self._turn.cancel()
            self._turn = None

    def wake(self) -> None:
        """Have a turn soon."""
        if self._turn is None and self._watches:
            self._turn = asyncio.get_running_loop().call_soon(self._take_turn)

    def later(self, seconds: float, act: Callable[..., None], *arguments: Any) -> None:
        """Do something after a while, unless stopped before."""
        loop = asyncio.get_running_loop()

        def fire() -> None:
            self._timers.discard(timer)
            act(*arguments)

        timer = loop.call_later(seconds, fire)
        self._timers.add(timer)

    @abstractmethod
    def observe(self, resource: str, type_: str, obj: Object) -> None:
        """Take note of a change: ADDED, MODIFIED or DELETED."""

    def act(self) -> None:
        """Do what the changes call for; called after all of them were observed."""

    def _take_turn(self) -> None:
        self._turn = None
        for resource, watch in self._watches.items():
            for type_, entry in watch.take():
                self.observe(resource, type_, entry.object)
        self.act()


class QueueController(Controller):
    """A controller with a queue of what is to be looked at, each thing once per turn."""

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self._queue: dict[str, None] = {}

    @abstractmethod
    def reconcile(self, key: str) -> None:
        """Bring one thing closer to what it should be."""

    def enqueue(self, *keys: str) -> None:
        """Have things looked at in the next turn there is."""
        self._queue |= dict.fromkeys(keys)

    def look_again(self, key: str) -> None:
        """Have a thing looked at soon, without a change."""
        self.enqueue(key)
        self.wake()

    def act(self) -> None:
        queue, self._queue = self._queue, {}
        for key in queue:
            self.reconcile(key)
