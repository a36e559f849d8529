"""Goes through a stretch of a recording: the daemon itself, whose world is the recording."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from math import inf
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any, NoReturn, Self

import msgspec

from scheduler.app.consistency.checker import RESTORED
from scheduler.app.daemon import REJECTIONS, SCHEDULING, Daemon
from scheduler.app.in_tree import IN_TREE
from scheduler.app.needs import trimmed
from scheduler.app.watches import NODE_KIND, POD_KIND
from scheduler.client.wire import ObjectIdentity
from scheduler.configuration.load import parse
from scheduler.configuration.overrides import with_leader_election
from scheduler.errors import ObjectError
from scheduler.framework.long_work import at_once
from scheduler.recording.notes import SECOND, Note, Word
from scheduler.recording.objects import unpacked_node, unpacked_object, unpacked_pod
from scheduler.recording.state import State, resume
from scheduler.whatif.replay.loop import ReplayLoop
from scheduler.whatif.replay.steps import ReplayedSteps

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from scheduler.app.generation import Generation
    from scheduler.client.http.request import Request
    from scheduler.configuration.load import Configuration
    from scheduler.framework import Plugin
    from scheduler.recording.files import Header
    from scheduler.whatif.replay.script import Script
    from scheduler.whatif.replay.steps import Difference

_SLACK_SECONDS = 0.001
"""Timers that were called a little before their time, as asyncio does, are called here too."""


class Replay:
    """One run of the daemon on the notes of another.

    Args:
        header: of the first file.
        script: the notes, from the run's beginning or from a note of how things stand.

    Attributes:
        decisions: how many were made, each as recorded.
        steps: how many steps were made.
        difference: where it left the recording, if it did.
        ended: why it ended before the recording did, if it did.
        daemon: as it is now.
        us: the time, in microseconds since the recording began.
    """

    def __init__(self, header: Header, script: Script, in_tree: Mapping[str, type[Plugin]] = IN_TREE) -> None:
        self._in_tree = in_tree
        self.steps = self.us = 0
        self.ended = ""
        self._header = header
        self._script = script
        self._told = ReplayedSteps(script, header, Random(header.seed))
        self._daemon: ReplayedDaemon | None = None
        self._built: Generation | None = None

    @property
    def difference(self) -> Difference | None:
        return self._told.difference

    @property
    def decisions(self) -> int:
        return self._told.decisions

    @property
    def daemon(self) -> ReplayedDaemon:
        assert self._daemon is not None
        return self._daemon

    def run(self, until: Callable[[Replay], bool] = lambda _: False) -> None:
        """Go through it, to the end, the first difference, or until something holds, which is asked after each step."""
        with asyncio.Runner(loop_factory=ReplayLoop) as runner:
            loop = runner.get_loop()
            assert isinstance(loop, ReplayLoop)
            runner.run(self._run(loop, until))

    async def _run(self, loop: ReplayLoop, until: Callable[[Replay], bool]) -> None:
        async with AsyncExitStack() as stack:
            try:
                await self._go_through(loop, until, stack)
            finally:
                self._told.is_over = True  # tasks that wait for their turn end only so

    async def _go_through(
        self, loop: ReplayLoop, until: Callable[[Replay], bool], stack: AsyncExitStack
    ) -> None:
        while (note := self._script.peek()) is not None and self.difference is None and not self.ended:
            if note[0] == Note.READ:  # somebody read the clock there whose business it was not
                self._script.take()
                continue
            if note[0] == Note.STOPPED:
                self.ended = "an attempt was stopped for want of time"
                break
            if note[0] >= Note.OBSERVED and note[0] != Note.STATE:
                self._told.differs("nothing more happened")
                break
            self._script.take()
            self.us = note[1]
            self._told.begin(note[1])
            loop.now = self._header.base + note[1] / SECOND
            await self._step(note, loop, stack)
            self._excuse_stopped()
            self.steps += 1
            if until(self):
                break

    def _excuse_stopped(self) -> None:
        """What differs in a step in which an attempt was stopped for want of time is no difference."""
        if self.difference is not None and self._script.has_stopped():
            self._told.difference = None
            self.ended = "an attempt was stopped for want of time"

    async def _step(self, note: list[Any], loop: ReplayLoop, stack: AsyncExitStack) -> None:
        match note[0]:
            case Note.TOLD:
                self._tell(*note[2:])
            case Note.STARTED | Note.RESUMED:
                await self._go_on(note, loop)
            case Note.ANSWERED:
                self._told.answer(note)
            case Note.CONFIGURED:
                await self._configure(stack, *note[2:])
            case Note.MENDED:
                if note[2] == "restored":
                    self.daemon.parts.bus.happened(RESTORED, None, None)
                else:
                    self.ended = "the scheduler found what it knew to be wrong, and put it right"
            case Note.STATE:
                await self._resume(note, stack)
            case Note.LOST:
                self.ended = f"{note[2] or 'some'} notes are missing"

    async def _resume(self, note: list[Any], stack: AsyncExitStack) -> None:
        """Begin, or go on, where a file begins that is not the first."""
        if self._daemon is not None:  # how things stand here follows
            self._told.begin_file()
            while self._script.take_if(Note.OBJECT) is not None:
                pass
            return
        state = msgspec.convert(note[2], State)
        version, numbers, gauss = state.random
        self._told.random(Random()).setstate((version, tuple(numbers), gauss))
        daemon = await self._begin(state.configuration, state.folder, stack)
        known: dict[str, dict[str, Any]] = {}
        while (said := self._script.peek()) is not None and said[0] == Note.OBJECT:
            _, kind, key, obj = self._script.take()
            known.setdefault(kind, {})[key] = self._unpacked(kind, obj)
        for kind, objects in known.items():
            daemon.told_of(kind)[1].update(objects)
        resume(daemon, state, known)

    async def _begin(self, text: str, folder: str, stack: AsyncExitStack) -> ReplayedDaemon:
        configuration = with_leader_election(parse(text, "the recording", Path(folder)), leader_elect=False)
        self._daemon = ReplayedDaemon(
            configuration, self._told, self._header.max_in_unschedulable_seconds, self._in_tree
        )
        return await stack.enter_async_context(self._daemon)

    async def _configure(self, stack: AsyncExitStack, stage: str, text: str, folder: str) -> None:
        if self._daemon is None:
            await self._begin(text, folder, stack)
            self._script.take_if(Note.CONFIGURED)  # in force at once
            return
        generations = self._daemon.generations
        if stage == "built":
            self._built = self._daemon.build(parse(text, "the recording", Path(folder)))
            self._built.start_refreshing(self._daemon.spawn)
        elif self._built is not None:
            built, self._built = self._built, None
            if stage == "in force":
                generations.put_in_force(built)
                self._daemon.have_time()
            else:
                await built.close()

    async def _go_on(self, note: list[Any], loop: ReplayLoop) -> None:
        """Let a task make its step."""
        number, name = note[2], note[3] if note[0] == Note.STARTED else None
        if name == SCHEDULING:
            self.daemon.begin_scheduling()
        answer = self._script.peek()
        if answer is not None and answer[0] == Note.ANSWERED:
            self._told.answer(self._script.take())
        now, loop.now = loop.now, loop.now + _SLACK_SECONDS
        await loop.settle()
        loop.now = now
        task = self._told.known(number, name)
        if task is None or task.turn is None or task.turn.done():
            self._told.differs(note, "no such task" if task is None else f"task {task.name} still waits")
            return
        task.turn.set_result(None)
        await loop.settle()

    def _tell(self, kind: str, word: int, key: str, said: Any) -> None:
        """Tell the daemon what the watch said."""
        daemon = self.daemon
        handler, objects = daemon.told_of(kind)
        if word == Word.DELETED:
            handler.on_delete(objects.pop(key))
        elif word == Word.UNREADABLE:
            uid, version, kind_name, path, problem, found = said
            namespace, _, name = key.rpartition("/")
            identity = ObjectIdentity(name, namespace, uid, version)
            handler.on_undecodable(identity, ObjectError(kind_name, key, path, problem, found=found))
        else:
            new = self._unpacked(kind, said)
            old = objects.get(key)
            objects[key] = new
            if word == Word.ADDED:
                handler.on_add(new)
            else:
                handler.on_update(old, new)

    def _unpacked(self, kind: str, said: Any) -> Any:
        if kind == POD_KIND:
            return trimmed(unpacked_pod(said), self.daemon.needs)
        return unpacked_node(said) if kind == NODE_KIND else unpacked_object(said, kind)


class NoServer:
    """A connection to nowhere: all that is asked is answered by the recording."""

    observer: object = None

    async def send(self, request: Request) -> NoReturn:
        raise AssertionError(f"{request.method} {request.path}: there is no API server")


class ReplayedDaemon(Daemon):
    """The daemon, of which nothing runs but what a recording lets go on."""

    def __init__(
        self,
        configuration: Configuration,
        steps: ReplayedSteps,
        max_in_unschedulable_seconds: float,
        in_tree: Mapping[str, type[Plugin]],
    ) -> None:
        connection: Any = NoServer()
        super().__init__(
            connection,
            configuration,
            clock=steps.clock,
            random=Random(0),
            in_tree=in_tree,
            no_bind=True,
            max_in_unschedulable_seconds=max_in_unschedulable_seconds,
            steps=steps,
        )
        self._steps = steps
        self._objects: dict[str, dict[str, Any]] = {POD_KIND: self.parts.pods}
        self.have_time()

    async def __aenter__(self) -> Self:
        await self._tasks.__aenter__()
        self.generations.start()
        self.spawn(self.parts.steps.task(self.cycles.rejections.run(), REJECTIONS), "")
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._tasks.__aexit__(None, None, None)

    def spawn(self, work: Any, name: str) -> asyncio.Task[None]:
        """Begin a task that ends with this."""
        return self._tasks.spawn(work, name)

    def build(self, configuration: Configuration) -> Generation:
        """Build a configuration that a reload brought."""
        return at_once(self._build(configuration, self.parts.registry(), self._extenders(configuration)))

    def have_time(self) -> None:
        """Let attempts take what they take: what the recorded ones were stopped for is not so here."""
        self.parts.budget.seconds = inf

    def begin_scheduling(self) -> None:
        """Lead, from now on."""
        self.spawn(self.parts.steps.task(self.cycles.scheduler.run(self.watches.picture), SCHEDULING), "")

    def told_of(self, kind: str) -> tuple[Any, dict[str, Any]]:
        """Return who is told of the objects of a kind, and those that are known."""
        if kind not in self._steps.handlers:
            self._steps.handlers[kind] = self.parts.object_handler(kind)
        return self._steps.handlers[kind], self._objects.setdefault(kind, {})

    @property
    def needs(self) -> Any:
        """What the plugins in force need."""
        return self.generations.in_force.needs
