"""Sends changes to connected clients as server-sent events; without clients nothing runs.

All clients receive the same messages, which are computed once. A new client receives the whole state first.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from typing import TYPE_CHECKING, Any, Final

import msgspec

from scheduler.tools.board.active_configuration import active_configuration
from scheduler.tools.board.pending_pods import PendingPods
from scheduler.tools.board.rates import Rates
from scheduler.tools.board.tiles import Tiles
from scheduler.version import VERSION

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Iterable, Iterator

    from scheduler.tools.board.subject import Subject

logger = logging.getLogger(__name__)

_TICK_SECONDS: Final = 1.0
_WAITING_SECONDS: Final = 2.0
_LEAST_REST: Final = 20
"""Grouping pending pods may take one part in this number of the time."""
_CONFIGURATION_SECONDS: Final = 5.0
_MOST_DECISIONS: Final = 200
_SAMPLES: Final = 300
_NODES_A_MESSAGE: Final = 500
_BEHIND: Final = 120
"""Number of queued messages after which a client is disconnected; it reconnects and receives the whole state again."""
_SECONDS_OF_A_STREAM: Final = 300.0
"""Duration of a stream; then the client reconnects and is authorized again."""
_RETRY: Final = b"retry: 1000\n\n"
_END: Final = object()


def event(name: str, content: Any) -> bytes:
    """Return a server-sent event with JSON, which has no line breaks."""
    return b"event: %b\ndata: %b\n\n" % (name.encode(), msgspec.json.encode(content))


class Hub:
    """The connected clients, and the state that they received.

    Args:
        subject: the subject of the board.
    """

    def __init__(self, subject: Subject) -> None:
        self._subject = subject
        self._viewers: set[asyncio.Queue[bytes | None]] = set()
        self._task: asyncio.Task[None] | None = None
        self._forget()

    def _forget(self) -> None:
        subject = self._subject
        self._tiles = Tiles(subject.parts.cache, subject.clock)
        self._rates = Rates(subject)
        self._samples: deque[dict[str, Any]] = deque(maxlen=_SAMPLES)
        self._waiting = PendingPods(subject)
        self._told_waiting = b""
        self._configuration: Any = None
        self._decided = max(0, subject.decisions.noted - _MOST_DECISIONS)
        self._decisions: deque[dict[str, Any]] = deque(maxlen=_MOST_DECISIONS)

    async def stream(self) -> AsyncGenerator[bytes, None]:
        """Yield the events for one client, for five minutes."""
        queue: asyncio.Queue[bytes | None] = asyncio.Queue(_BEHIND)
        self._begin()
        everything = (
            self._everything()
        )  # the state that the other clients have; all receive the same changes from now on
        self._viewers.add(queue)
        end = asyncio.get_running_loop().time() + _SECONDS_OF_A_STREAM
        try:
            yield _RETRY
            for message in everything:
                yield message
            while (fresh := await _next(queue, end)) is not None:
                yield fresh
        finally:
            self._viewers.discard(queue)
            await self._end_without_viewers()

    async def waiting(self) -> PendingPods:
        """Return the groups of pending pods: the last ones sent, or computed now if there are no clients."""
        return self._waiting if self._told_waiting else (await self._looked_through())[0]

    def _begin(self) -> None:
        if self._task is None:
            self._forget()
            self._task = asyncio.create_task(self._run(), name="board")

    async def _end_without_viewers(self) -> None:
        task = self._task
        if task is not None and not self._viewers:
            self._task = None
            task.cancel()
            await asyncio.wait({task})
            if self._task is None:  # no client connected meanwhile
                self._forget()

    def _everything(self) -> list[bytes]:
        subject = self._subject
        tiles = list(self._tiles.sent.values())
        messages = [
            event("hello", {"kind": subject.kind.value, "version": VERSION}),
            event("nodes", {"resources": self._tiles.resources, "all": True, "changed": [], "gone": []}),
            *self._messages_of(tiles),
            event("decisions", list(self._decisions)),
            event("rates", list(self._samples)),
        ]
        if self._told_waiting:
            messages.append(self._told_waiting)
        if self._configuration is not None:
            messages.append(event("configuration", self._configuration))
        return messages

    def _messages_of(self, tiles: list[Any], gone: Iterable[str] = ()) -> Iterable[bytes]:
        for start in range(0, len(tiles), _NODES_A_MESSAGE):
            yield event("nodes", {"changed": tiles[start : start + _NODES_A_MESSAGE], "gone": []})
        if gone:
            yield event("nodes", {"changed": [], "gone": gone})

    def _tell(self, message: bytes) -> None:
        for queue in list(self._viewers):
            if queue.full():
                self._viewers.discard(queue)
                queue.get_nowait()
                queue.put_nowait(None)
            else:
                queue.put_nowait(message)

    async def _run(self) -> None:
        """Send changes once a second, as long as there are clients."""
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._look_at_nodes())
                tasks.create_task(self._look_at_what_waits())
                tasks.create_task(self._follow_configuration())
        except* Exception:
            logger.exception("The board failed")
            self._task = None
            for queue in self._viewers:
                while not queue.empty():
                    queue.get_nowait()
                queue.put_nowait(None)

    async def _look_at_nodes(self) -> None:
        while True:
            await self._tell_nodes()
            sample = self._rates.sample()
            self._samples.append(sample)
            self._tell(event("rates", [sample]))
            self._tell_decisions()
            await asyncio.sleep(_TICK_SECONDS)

    async def _tell_nodes(self) -> None:
        before = self._tiles.resources
        for number, changed in enumerate(self._tiles.changes()):
            if not number and self._tiles.resources != before:
                self._tell(
                    event(
                        "nodes", {"resources": self._tiles.resources, "all": True, "changed": [], "gone": []}
                    )
                )
            for message in self._messages_of(changed):
                self._tell(message)
            await asyncio.sleep(0)
        for message in self._messages_of([], self._tiles.gone()):
            self._tell(message)

    def _tell_decisions(self) -> None:
        decisions = self._subject.decisions
        fresh = decisions.since(self._decided, _MOST_DECISIONS)
        if decisions.noted != self._decided:
            self._decided = decisions.noted
            self._decisions.extend(fresh)
            self._tell(event("decisions", fresh))

    async def _look_at_what_waits(self) -> None:
        while True:
            waiting, looked = await self._looked_through()
            told, wrote = await self._in_turns(waiting.as_json())
            self._waiting = waiting
            message = event("waiting", told)
            if message != self._told_waiting:
                self._told_waiting = message
                self._tell(message)
            await asyncio.sleep(max(_WAITING_SECONDS, _LEAST_REST * (looked + wrote)))

    async def _looked_through(self) -> tuple[PendingPods, float]:
        """Return the pending pods now, and the seconds that this took."""
        waiting = PendingPods(self._subject)
        _, seconds = await self._in_turns(waiting.steps())
        return waiting, seconds

    async def _in_turns(self, steps: Iterator[Any]) -> tuple[list[Any], float]:
        """Return the results of steps, and their total seconds; yields to other tasks between steps."""
        now, seconds = self._subject.clock.monotonic, 0.0
        found: list[Any] = []
        while True:
            began = now()
            step = next(steps, _END)
            seconds += now() - began
            if step is _END:
                return found, seconds
            found.append(step)
            await asyncio.sleep(0)

    async def _follow_configuration(self) -> None:
        while True:
            configuration = active_configuration(self._subject)
            if configuration != self._configuration:
                self._configuration = configuration
                self._tell(event("configuration", configuration))
            await asyncio.sleep(_CONFIGURATION_SECONDS)


async def _next(queue: asyncio.Queue[bytes | None], end: float) -> bytes | None:
    try:
        async with asyncio.timeout_at(end):
            return await queue.get()
    except TimeoutError:
        return None
