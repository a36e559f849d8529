"""Stopping a part of the program as SIGSTOP stops a process: time and all other parts continue.

Everything that begins inside `Freezer.inside` belongs to that freezer, with all it begins in turn: tasks, timers,
transports. While it is frozen none of its callbacks runs and nothing is read from its sockets; when it thaws, it
finds all of it at once, as a process does that wakes: first what its sockets have, then the timers that are late.
"""

from __future__ import annotations

import asyncio
from collections import deque
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, TypeVar

from tests.support.virtual_time import VirtualTimeLoop

if TYPE_CHECKING:
    from collections.abc import Coroutine, Iterator

T = TypeVar("T")

_OWNER: ContextVar[Freezer | None] = ContextVar("owner", default=None)


class Freezer:
    """One part of the program, in a `FreezableLoop`."""

    def __init__(self) -> None:
        self.is_frozen = False
        self.missed: list[asyncio.Handle] = []

    @contextmanager
    def inside(self) -> Iterator[None]:
        """Let what begins here belong to this part."""
        token = _OWNER.set(self)
        try:
            yield
        finally:
            _OWNER.reset(token)

    def freeze(self) -> None:
        self.is_frozen = True

    def thaw(self) -> None:
        if not self.is_frozen:
            return
        self.is_frozen = False
        missed, self.missed = self.missed, []
        loop = asyncio.get_running_loop()
        assert isinstance(loop, FreezableLoop)
        loop.late.extend(missed)


class FreezableLoop(VirtualTimeLoop):
    """A virtual-time loop that passes over what belongs to a frozen part.

    Attributes:
        late: callbacks of parts that have just thawed.
    """

    def __init__(self) -> None:
        super().__init__()
        self.late: list[asyncio.Handle] = []
        self._ready = _Ready(self)
        poll = type(self._selector).select  # type: ignore[attr-defined]

        def select(timeout: float | None) -> Any:
            found = poll(self._selector, 0)  # type: ignore[attr-defined]
            ready = [(key, mask) for key, mask in found if not _is_frozen_socket(key.data)]
            if ready or self.late:
                return ready
            if timeout is None:
                raise RuntimeError("deadlock: every task waits and no timer is set")
            self._now += timeout
            self._reach_next_timer()
            return ready

        self._selector.select = select  # type: ignore[attr-defined]

    def _process_events(self, event_list: list[Any]) -> None:
        super()._process_events(event_list)  # type: ignore[misc]
        self._ready.extend(self.late)  # as they are: they keep their contexts
        self.late.clear()


class _Ready(deque[asyncio.Handle]):
    """The loop's queue of callbacks; one of a frozen part is quarantined when its turn comes."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__()
        self._nothing = asyncio.Handle(lambda: None, (), loop)
        self._nothing.cancel()

    def popleft(self) -> asyncio.Handle:
        handle = super().popleft()
        owner = _owner(handle)
        if owner is None or not owner.is_frozen:
            return handle
        owner.missed.append(handle)
        return self._nothing


def _owner(handle: asyncio.Handle) -> Freezer | None:
    return handle._context.get(_OWNER)  # type: ignore[attr-defined, no-any-return]


def _is_frozen_socket(handles: tuple[asyncio.Handle | None, asyncio.Handle | None]) -> bool:
    owners = [_owner(handle) for handle in handles if handle is not None]
    return any(owner is not None and owner.is_frozen for owner in owners)


def run(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine in a freezable virtual-time loop of its own."""
    with asyncio.Runner(loop_factory=FreezableLoop) as runner:
        return runner.run(coroutine)
