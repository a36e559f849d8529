"""Replays the steps of a recorded run: each task continues at its recorded step, with the recorded answers."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from scheduler.clock import SystemClock
from scheduler.daemon.recording.ports import ObservedPorts
from scheduler.daemon.recording.recorder import StepClock, unpacked, unpacked_error
from scheduler.daemon.recording.recording_files import Note
from scheduler.framework.sliced_work import resumed
from scheduler.urls import shown_text

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Generator
    from random import Random

    from scheduler.daemon.app.ports import ChangeBuckets
    from scheduler.daemon.recording.recording_files import Header
    from scheduler.tools.whatif.replay.script import Script

T = TypeVar("T")
H = TypeVar("H")


@dataclass(frozen=True, slots=True)
class Difference:
    """The first difference between a replay and its recording.

    Attributes:
        at: microseconds since the beginning of the recording.
        recorded: the recorded entry; None at the end of the recording.
        here: the entry of the replay.
        before: the last entries before it.
    """

    at: int
    recorded: list[Any] | None
    here: list[Any]
    before: list[Any]


class ReplayedPorts(ObservedPorts):
    """Ports that follow a script.

    Args:
        random: the random number generator that breaks ties.

    Attributes:
        difference: the first difference, if there is one.
        decisions: number of decisions.
        handlers: kind -> handler of its watch events.
        change_buckets: changes the buckets of a replica.
        clock: the time of the current step, for measurements: unlike the time of decisions, it may be read any number of
            times.
        has_ended: whether tasks end when they are cancelled, instead of at their step.
    """

    def __init__(self, script: Script, header: Header, random: Random) -> None:
        self._clock = StepClock(header.base, header.wall, self._look)
        self.clock = StepClock(header.base, header.wall)
        super().__init__(self._clock, random)
        # Work is really measured: a search without results until its time limit would be made to its end.
        self.stopwatch = SystemClock().monotonic
        self.difference: Difference | None = None
        self.handlers: dict[str, Any] = {}
        self.has_ended = False
        self.decisions = 0
        self._script = script
        self._observations: dict[str, int] = {}
        self._readings = 0
        self._asked: dict[int, asyncio.Future[tuple[Any, Any]]] = {}
        self._tasks: dict[_ReplayedTask[Any], None] = {}
        self._numbers: dict[int, _ReplayedTask[Any]] = {}

    def begin(self, us: int) -> None:
        """Begin a step."""
        self._clock.us = self.clock.us = us
        self._observations.clear()
        self._readings = 0

    def differs(self, *here: Any) -> None:
        """Note that the replay differs from the recording."""
        if self.difference is None:
            self.difference = Difference(
                self._clock.us, self._script.peek(), list(here), list(self._script.last)
            )

    def _look(self) -> int | None:
        self._readings += 1
        note = self._script.take_if(Note.READ, self._readings)
        return None if note is None else int(note[2])

    def measured(self, is_so: bool, what: str = "") -> bool:
        number = self._observations[what] = self._observations.get(what, 0) + 1
        named = (what, number) if what else (number,)
        return self._script.take_if(Note.OBSERVED, *named) is not None

    def has_slices(self) -> bool:
        return self._script.take_if(Note.NEEDED_TIME) is not None

    def event_handler(self, kind: str, handler: H) -> H:
        self.handlers[kind] = handler
        return handler

    def buckets(self, change: ChangeBuckets) -> ChangeBuckets:
        self.change_buckets = change
        return change

    def decided(self, uid: str, node_name: str, message: str, nominated_node_name: str | None) -> None:
        self.decisions += 1
        here = [Note.DECIDED, uid, node_name, message, nominated_node_name]
        if self._script.take_if(*here) is None:
            self.differs(*here)

    # Answers of external calls.

    async def call(self, what: str, ask: Callable[[], Awaitable[T]], kind: type[object]) -> T:
        if self.has_ended:
            raise asyncio.CancelledError
        note = self._script.peek()
        if note is None or note[0] != Note.ASKED or shown_text(note[2]) != what:
            self.differs(Note.ASKED, 0, what)
            await asyncio.get_running_loop().create_future()  # waits without end: the recording has no answer
            raise AssertionError
        number = self._script.take()[1]
        answered = self._asked[number] = asyncio.get_running_loop().create_future()
        try:
            error, value = await answered
        except asyncio.CancelledError:
            if not self.has_ended and self._script.take_if(Note.GAVE_UP, number) is None:
                self.differs(Note.GAVE_UP, number)
            raise
        if error is not None:
            raise unpacked_error(error)
        found: T = unpacked(value, kind)
        return found

    def answer(self, note: list[Any]) -> None:
        """Deliver an answer."""
        _, _, number, error, value = note
        answered = self._asked.pop(number, None)
        if answered is None or answered.done():
            self.differs("no call waits for this answer")
        else:
            answered.set_result((error, value))

    # Tasks.

    def task(self, work: Coroutine[Any, Any, T], name: str) -> Coroutine[Any, Any, T]:
        return _run(_ReplayedTask(self, work, name))

    def begin_file(self) -> None:
        """Reset the numbers of tasks: each file counts them again."""
        self._numbers.clear()
        for task in self._tasks:
            task.is_started = False

    def known(self, number: int, name: str | None = None) -> _ReplayedTask[Any] | None:
        """Return a task by its number; `name` is given where the number is assigned."""
        if name is not None:
            fresh = next((task for task in self._tasks if task.name == name and not task.is_started), None)
            if fresh is not None:
                fresh.is_started = True
                self._numbers[number] = fresh
        return self._numbers.get(number)

    def come(self, task: _ReplayedTask[Any]) -> None:
        """Register a task."""
        self._tasks[task] = None

    def leave(self, task: _ReplayedTask[Any]) -> None:
        """Remove a task that has ended."""
        self._tasks.pop(task, None)


async def _run(task: _ReplayedTask[T]) -> T:
    return await task


class _ReplayedTask(Generic[T]):
    """A coroutine that continues only at its recorded steps.

    Attributes:
        turn: completed to let it continue; None while it waits for something else.
    """

    def __init__(self, ports: ReplayedPorts, work: Coroutine[Any, Any, T], name: str) -> None:
        self._ports = ports
        self._work = work
        self.name = name
        self.is_started = False
        self.turn: asyncio.Future[None] | None = None

    def __del__(self) -> None:
        self._work.close()  # without this, Python warns that it was never awaited

    def __await__(self) -> Generator[Any, Any, T]:
        work = self._work
        step: Callable[..., Any] = work.send
        value: Any = None
        self._ports.come(self)
        try:
            while True:
                try:
                    yield from self._wait_for_turn()
                except asyncio.CancelledError as error:
                    step, value = work.throw, error
                    continue
                try:
                    waits_for = step(value)
                except StopIteration as end:
                    result: T = end.value
                    return result
                step, value = yield from resumed(work, waits_for)
        finally:
            self._ports.leave(self)

    def _wait_for_turn(self) -> Generator[Any, Any, None]:
        if self._ports.has_ended:
            return
        self.turn = asyncio.get_running_loop().create_future()
        try:
            yield from self.turn
        finally:
            self.turn = None
