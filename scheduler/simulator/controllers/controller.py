"""Base classes of simulated controllers: they watch the store, and act after changes.

Each run is one callback of the event loop: it reads all events, then acts. It does not wait, so nothing can change while it
decides.
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
    """A simulated controller.

    Attributes:
        resources: resources that it watches.
        store: the objects.
    """

    resources: ClassVar[Sequence[str]]

    def __init__(self, store: Store) -> None:
        self.store = store
        self._watches: dict[str, Watch] = {}
        self._timers: set[asyncio.TimerHandle] = set()
        self._turn: asyncio.Handle | None = None

    def start(self) -> None:
        """Watch, beginning with the existing objects; there must be a running loop."""
        for resource in self.resources:
            self._watches[resource] = self.store.watch(resource, self.wake)
        for resource in self.resources:
            for obj in self.store.list(resource):
                self.observe(resource, "ADDED", obj)
        self.wake()

    def stop(self) -> None:
        """Stop the watches, and cancel planned work."""
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
        """Schedule a run."""
        if self._turn is None and self._watches:
            self._turn = asyncio.get_running_loop().call_soon(self._take_turn)

    def later(self, seconds: float, act: Callable[..., None], *arguments: Any) -> None:
        """Call a function after a delay, unless stopped before."""
        loop = asyncio.get_running_loop()

        def fire() -> None:
            self._timers.discard(timer)
            act(*arguments)

        timer = loop.call_later(seconds, fire)
        self._timers.add(timer)

    @abstractmethod
    def observe(self, resource: str, type_: str, obj: Object) -> None:
        """Note a change: ADDED, MODIFIED or DELETED."""

    def act(self) -> None:
        """Act on the changes; called after all of them were observed."""

    def _take_turn(self) -> None:
        self._turn = None
        for resource, watch in self._watches.items():
            for type_, entry in watch.take():
                self.observe(resource, type_, entry.object)
        self.act()


class QueueController(Controller):
    """A controller with a queue of keys; each key is handled once per run."""

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self._queue: dict[str, None] = {}

    @abstractmethod
    def reconcile(self, key: str) -> None:
        """Reconcile one key."""

    def enqueue(self, *keys: str) -> None:
        """Add keys to the queue of the next run."""
        self._queue |= dict.fromkeys(keys)

    def look_again(self, key: str) -> None:
        """Reconcile a key soon, without a change."""
        self.enqueue(key)
        self.wake()

    def act(self) -> None:
        queue, self._queue = self._queue, {}
        for key in queue:
            self.reconcile(key)
