"""Replays a segment of a recording with the daemon itself, in an event loop without I/O."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from math import inf
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any, NoReturn, Self

import msgspec

from scheduler.configuration.load import parse
from scheduler.daemon.app.consistency.checker import RESTORED
from scheduler.daemon.app.daemon import BUCKETS, REJECTIONS, SCHEDULING, Daemon
from scheduler.daemon.app.in_tree import IN_TREE
from scheduler.daemon.app.needs import trimmed
from scheduler.daemon.app.watches import NODE_KIND, POD_KIND
from scheduler.daemon.recording.recorded_objects import unpacked_node, unpacked_object, unpacked_pod
from scheduler.daemon.recording.recording_files import SECOND, Note, ObjectEvent
from scheduler.daemon.recording.state import State, forget_cached_results, resume
from scheduler.engine.sharding.shards import OwnShard
from scheduler.errors import ObjectError
from scheduler.kube.client.discovery import ServedVersions
from scheduler.kube.client.wire import ObjectIdentity
from scheduler.loop_work import run_to_end
from scheduler.tools.whatif.replay.replayed_ports import ReplayedPorts

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from scheduler.configuration.load import Configuration
    from scheduler.daemon.app.generation import Generation
    from scheduler.daemon.recording.recording_files import Header
    from scheduler.framework import Plugin
    from scheduler.kube.http.request import Request
    from scheduler.tools.whatif.replay.replayed_ports import Difference
    from scheduler.tools.whatif.replay.script import Script


class ReplayLoop(asyncio.SelectorEventLoop):
    """An event loop for tasks that wait only for each other and for timers.

    Attributes:
        now: the time, in seconds; timers that are due are called.
    """

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        poll: Any = self._selector  # type: ignore[attr-defined]  # the loop waits in it
        poll.select = lambda _timeout: ()  # there is no I/O

    def time(self) -> float:
        return self.now

    async def settle(self) -> None:
        """Run all tasks until each waits for a later event; called by one of the tasks."""
        ready: Any = self._ready  # type: ignore[attr-defined]  # there is no public API
        timers: Any = self._scheduled  # type: ignore[attr-defined]
        await asyncio.sleep(0)
        while ready or (timers and timers[0].when() <= self.now):  # noqa: ASYNC110  # this yields to the other tasks
            await asyncio.sleep(0)


_SLACK_SECONDS = 0.001
"""asyncio calls timers a little before their time; so does the replay."""


class Replay:
    """One replay of a recorded run.

    Args:
        header: the header of the first file.
        script: the entries, from the beginning of the run or from a saved state.

    Attributes:
        decisions: number of decisions that were identical to the recording.
        n_steps: number of steps.
        difference: the first difference from the recording, if there is one.
        ended: why the replay ended before the recording, if it did.
        daemon: the replayed daemon.
        us: the time, in microseconds since the beginning of the recording.
    """

    def __init__(self, header: Header, script: Script, in_tree: Mapping[str, type[Plugin]] = IN_TREE) -> None:
        self._in_tree = in_tree
        self.n_steps = self.us = 0
        self.ended = ""
        self._header = header
        self._script = script
        self._told = ReplayedPorts(script, header, Random(header.seed))
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
        """Replay to the end, to the first difference, or until `until` returns true, which is called after each step."""
        with asyncio.Runner(loop_factory=ReplayLoop) as runner:
            loop = runner.get_loop()
            assert isinstance(loop, ReplayLoop)
            runner.run(self._run(loop, until))

    async def _run(self, loop: ReplayLoop, until: Callable[[Replay], bool]) -> None:
        async with AsyncExitStack() as stack:
            try:
                await self._go_through(loop, until, stack)
            finally:
                self._told.has_ended = True  # tasks that wait for their step cannot end otherwise

    async def _go_through(
        self, loop: ReplayLoop, until: Callable[[Replay], bool], stack: AsyncExitStack
    ) -> None:
        while (note := self._script.peek()) is not None and self.difference is None and not self.ended:
            if note[0] == Note.READ:  # code outside the replay read the clock
                self._script.take()
                continue
            if note[0] == Note.STOPPED:
                self.ended = "an attempt exceeded its time budget"
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
            self.n_steps += 1
            if until(self):
                break

    def _excuse_stopped(self) -> None:
        """Ignore a difference in a step in which an attempt exceeded its time budget: that depends on the machine."""
        if self.difference is not None and self._script.has_stopped():
            self._told.difference = None
            self.ended = "an attempt exceeded its time budget"

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
            case Note.REPAIRED:
                if note[2] == "restored":
                    self.daemon.parts.bus.happened(RESTORED, None, None)
                else:
                    self.ended = "the scheduler found errors in its cache and repaired them"
            case Note.STATE:
                await self._resume(note, stack)
            case Note.BUCKETS:
                self._told.change_buckets(*note[2:])
            case Note.LOST:
                self.ended = f"{note[2] or 'some'} entries are missing"

    async def _resume(self, note: list[Any], stack: AsyncExitStack) -> None:
        """Begin or continue at a saved state, which begins every file but the first."""
        if self._daemon is not None:  # the saved state follows
            self._told.begin_file()
            forget_cached_results(self._daemon)
            while self._script.take_if(Note.OBJECT) is not None:
                pass
            return
        state = msgspec.convert(note[2], State)
        version, numbers, gauss = state.random
        self._told.random(Random()).setstate((version, tuple(numbers), gauss))
        daemon = await self._begin(state.configuration, state.folder, stack)
        known: dict[str, dict[str, Any]] = {}
        while (entry := self._script.peek()) is not None and entry[0] == Note.OBJECT:
            _, kind, key, obj = self._script.take()
            known.setdefault(kind, {})[key] = self._unpacked(kind, obj)
        for kind, objects in known.items():
            daemon.told_of(kind)[1].update(objects)
        resume(daemon, state, known)

    async def _begin(self, text: str, folder: str, stack: AsyncExitStack) -> ReplayedDaemon:
        configuration = parse(text, "the recording", Path(folder))
        self._daemon = ReplayedDaemon(
            configuration, self._told, self._header.max_in_unschedulable_seconds, self._in_tree
        )
        return await stack.enter_async_context(self._daemon)

    async def _configure(self, stack: AsyncExitStack, stage: str, text: str, folder: str) -> None:
        if self._daemon is None:
            await self._begin(text, folder, stack)
            self._script.take_if(Note.CONFIGURED)  # it is active at once
            return
        generations = self._daemon.generations
        if stage == "built":
            self._built = self._daemon.build(parse(text, "the recording", Path(folder)))
            self._built.start_refreshing(self._daemon.spawn, self._daemon.metrics.refreshes)
        elif self._built is not None:
            built, self._built = self._built, None
            if stage == "active":
                generations.activate(built)
                self._daemon.have_time()
            else:
                await built.close()

    async def _go_on(self, note: list[Any], loop: ReplayLoop) -> None:
        """Run one step of a task."""
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

    def _tell(self, kind: str, word: int, key: str, encoded: Any) -> None:
        """Call a handler with a recorded watch event."""
        daemon = self.daemon
        handler, objects = daemon.told_of(kind)
        if word == ObjectEvent.DELETED:
            handler.on_delete(objects.pop(key))
        elif word == ObjectEvent.UNREADABLE:
            uid, version, kind_name, path, problem, found = encoded
            namespace, _, name = key.rpartition("/")
            identity = ObjectIdentity(name, namespace, uid, version)
            handler.on_undecodable(identity, ObjectError(kind_name, key, path, problem, found=found))
        else:
            new = self._unpacked(kind, encoded)
            old = objects.get(key)
            objects[key] = new
            if word == ObjectEvent.ADDED:
                handler.on_add(new)
            else:
                handler.on_update(old, new)

    def _unpacked(self, kind: str, encoded: Any) -> Any:
        if kind == POD_KIND:
            return trimmed(unpacked_pod(encoded), self.daemon.needs)
        return unpacked_node(encoded) if kind == NODE_KIND else unpacked_object(encoded, kind)


class RecordedServer:
    """A connection without a server: the recording answers all requests."""

    observer: object = None

    def __init__(self) -> None:
        self.versions = ServedVersions(self.send)

    async def send(self, request: Request) -> NoReturn:
        raise AssertionError(f"{request.method} {request.path}: there is no API server")


class ReplayedDaemon(Daemon):
    """The daemon, whose tasks run only when a recording has a step for them."""

    def __init__(
        self,
        configuration: Configuration,
        ports: ReplayedPorts,
        max_in_unschedulable_seconds: float,
        in_tree: Mapping[str, type[Plugin]],
    ) -> None:
        connection: Any = RecordedServer()
        super().__init__(
            connection,
            configuration,
            clock=ports.clock,
            random=Random(0),
            in_tree=in_tree,
            no_bind=True,
            max_in_unschedulable_seconds=max_in_unschedulable_seconds,
            ports=ports,
        )
        self._ports = ports
        if configuration.settings.sharding.enabled:
            self._follow_buckets(OwnShard(self.parts.profiles.has_quota))
        self._objects: dict[str, dict[str, Any]] = {POD_KIND: self.parts.pods}
        self.have_time()

    async def __aenter__(self) -> Self:
        await self._tasks.__aenter__()
        self.generations.start()
        self.spawn(self.parts.time.task(self.cycles.rejections.run(), REJECTIONS), "")
        if self.shard_changes is not None:
            self.spawn(self.parts.time.task(self.shard_changes.run(), BUCKETS), "")
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._tasks.__aexit__(None, None, None)

    def spawn(self, work: Any, name: str) -> asyncio.Task[None]:
        """Start a task that ends with the replay."""
        return self._tasks.spawn(work, name)

    def build(self, configuration: Configuration) -> Generation:
        """Build a configuration of a reload."""
        return run_to_end(self._build(configuration, self.parts.registry(), self._extenders(configuration)))

    def have_time(self) -> None:
        """Remove the time budget of attempts: the recorded ones exceeded it for reasons that do not apply here."""
        self.parts.budget.seconds = inf

    def begin_scheduling(self) -> None:
        """Start scheduling, as the leader does."""
        cache_gate = self._ports.cache_gate(self.watches.cache_gate)
        self.spawn(self._ports.task(self.cycles.scheduler.run(cache_gate), SCHEDULING), "")

    def told_of(self, kind: str) -> tuple[Any, dict[str, Any]]:
        """Return the handler of a kind, and its known objects."""
        if kind not in self._ports.handlers:
            self._ports.handlers[kind] = self.parts.object_handler(kind)
        return self._ports.handlers[kind], self._objects.setdefault(kind, {})

    @property
    def needs(self) -> Any:
        """The needs of the active plugins."""
        return self.generations.active.needs
