"""Records the steps of a scheduler: their inputs, with the answers of calls and a constant clock."""

from __future__ import annotations

from datetime import UTC, datetime
from math import ceil
from random import Random
from typing import TYPE_CHECKING, Any, Final, Generic, Protocol, TypeVar

import msgspec

from scheduler.configuration.write import to_recorded
from scheduler.daemon.app.daemon import BUCKETS, REJECTIONS, SCHEDULING
from scheduler.daemon.app.generation import REFRESH
from scheduler.daemon.recording.ports import ObservedPorts
from scheduler.daemon.recording.recording_files import SECOND, Note, ObjectEvent
from scheduler.daemon.recording.state import is_quiet, state_notes
from scheduler.errors import ApiError, NotLeadingError, ObjectError, SchedulerError
from scheduler.extensions.extender_wire import ExtenderError
from scheduler.framework.sliced_work import resumed
from scheduler.objects.decode import decode_pod, outline_pod
from scheduler.objects.node import NodeObject
from scheduler.objects.pod import PodInfo
from scheduler.snapshot import object_key

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Generator, Iterable, Sequence

    from scheduler.clock import Clock
    from scheduler.configuration.load import Configuration
    from scheduler.daemon.app.daemon import Daemon
    from scheduler.daemon.app.ports import ChangeBuckets
    from scheduler.daemon.recording.recording_files import AnyNote, Header
    from scheduler.kube.client.store import Handler
    from scheduler.kube.client.wire import ObjectIdentity

_MESSAGES: Final = {
    error.__name__: error for error in (SchedulerError, ExtenderError, OSError, TimeoutError, ValueError)
}
"""Errors with a message as their only argument."""


def packed(value: Any) -> Any:
    """Return an answer as a recordable value; None for an object that is never read."""
    if isinstance(value, PodInfo):
        return value.pod
    return value if isinstance(value, (bytes, int, dict)) else None


def unpacked(value: Any, kind: type[object]) -> Any:
    """Return a recorded answer of a kind."""
    if kind is PodInfo:
        return None if value is None else decode_pod(msgspec.json.encode(value))
    return value


def packed_error(error: BaseException) -> tuple[Any, ...]:
    """Return an error as a recordable value."""
    match error:
        case NotLeadingError():
            return ("NotLeadingError", error.message)
        case ApiError():
            return ("ApiError", error.status, error.reason, error.message, error.retry_after_seconds)
        case ObjectError():
            return ("ObjectError", error.kind, error.key, error.path, error.problem)
    known = next((each.__name__ for each in type(error).__mro__ if each.__name__ in _MESSAGES), "")
    return (known, str(error)) if known else ("", repr(error))


def unpacked_error(encoded: tuple[Any, ...]) -> Exception:
    """Return a recorded error; an unknown one becomes a RuntimeError."""
    name, *rest = encoded
    match name:
        case "ApiError":
            status, reason, message, seconds = rest
            return ApiError(status, reason, message, retry_after_seconds=seconds)
        case "NotLeadingError":
            error = NotLeadingError("")
            error.message = rest[0]
            error.args = (rest[0],)
            return error
        case "ObjectError":
            return ObjectError(*rest)
    return _MESSAGES.get(name, RuntimeError)(rest[0])


LATE_SECONDS = 1.0
"""A step that takes longer reads the time again, so that time limits still work."""


class StepClock:
    """The time of the current step.

    Args:
        base: monotonic seconds at the beginning of the recording.
        wall: seconds since 1970 at the beginning of the recording.
        look: returns the current time in microseconds since the beginning, to read it again within a step;
            None to keep the step's time.

    Attributes:
        us: when the current step began, in microseconds since the beginning.
    """

    def __init__(self, base: float, wall: float, look: Callable[[], int | None] = lambda: None) -> None:
        self._base, self._wall = base, wall
        self._look = look
        self.us = 0

    def monotonic(self) -> float:
        late = self._look()
        if late is not None:
            self.us = late
        return self._base + self.us / SECOND

    def utc_now(self) -> datetime:
        return datetime.fromtimestamp(self._wall + self.us / SECOND, UTC)


T = TypeVar("T")
H = TypeVar("H")


class NoteWriter(Protocol):
    """Receives notes.

    Attributes:
        wants_state: whether the next file is due, as soon as the state can be recorded.
    """

    wants_state: bool

    def put(self, note: AnyNote) -> None:
        """Take a note; its contents must not change afterwards."""
        ...

    def begin_file(self, state: Sequence[AnyNote]) -> None:
        """Begin the next file with the current state."""
        ...


class Recorder(ObservedPorts):
    """Ports that record the steps of one scheduler, from its start.

    Args:
        clock: the real time.
        tape: receives notes.
        header: header of the first file.

    Attributes:
        header: header of the first file.
        present: the task of the current step; None outside of tasks.
        is_telling: whether the current step handles a watch event.
        running: number -> task that began and has not ended.
        fresh: number of tasks that have not begun yet.
        daemon: the recorded daemon; None until it is known.
    """

    def __init__(self, clock: Clock, tape: NoteWriter, header: Header) -> None:
        self._tape = tape
        self.daemon: Daemon | None = None
        self.header = header
        self._base = header.base
        self._step_clock = StepClock(header.base, header.wall, self._look)
        super().__init__(self._step_clock, Random(header.seed))
        self._now = self.stopwatch = clock.monotonic
        self._put = tape.put
        self._observations: dict[str, int] = {}  # of this step
        self._readings = 0  # of this step
        self._late_at = 0.0  # when this step must read the clock again
        self._calls = 0
        self._tasks = 0
        self.present: _RecordedTask[Any] | None = None
        self.is_telling = False
        self.running: dict[int, _RecordedTask[Any]] = {}
        self.fresh = 0  # tasks that have not begun yet
        self._waiting: set[int] = set()  # numbers of unanswered external calls

    # Time.

    def begin(self) -> int:
        """Begin a step; return its time, rounded up, so that a timer that has fired is over."""
        now = self._now()
        us = self._step_clock.us = ceil((now - self._base) * SECOND)
        self._late_at = now + LATE_SECONDS
        self._observations.clear()
        self._readings = 0
        return us

    def _look(self) -> int | None:
        now = self._now()
        if self.present is None and not self.is_telling:
            return ceil((now - self._base) * SECOND)  # a reader outside of any step
        self._readings += 1
        if now < self._late_at:
            return None
        us = ceil((now - self._base) * SECOND)
        self._late_at = now + LATE_SECONDS
        self._put((Note.READ, self._readings, us))
        return us

    def measured(self, is_so: bool, what: str = "") -> bool:
        if self.present is None and not self.is_telling:
            return is_so  # a reader outside of any step, such as an HTTP endpoint
        number = self._observations[what] = self._observations.get(what, 0) + 1
        if is_so:
            self._put((Note.OBSERVED, what, number) if what else (Note.OBSERVED, number))
        return is_so

    def has_slices(self) -> bool:
        self._put((Note.NEEDED_TIME,))
        return True

    def end(self) -> None:
        self._put = _ignore

    # Inputs.

    @property
    def is_frozen(self) -> bool:
        """Whether changes are deferred. Each deferred change takes time in a later slice, even a change without effect."""
        return self.daemon is not None and self.daemon.parts.freeze.is_on

    def event_handler(self, kind: str, handler: H) -> H:
        given: Any = handler
        recorded: Any = RecordedHandler(self, kind, given)
        return recorded  # type: ignore[no-any-return]  # a handler of the given type

    def tell(
        self, kind: str, word: int, key: str, obj: object, hand_on: Callable[..., None], *objects: object
    ) -> None:
        """Record a watch event, and pass it on. A file may begin after the event, because the store has the change already."""
        self._put((Note.TOLD, self.begin(), kind, word, key, obj))
        self.is_telling = True
        try:
            hand_on(*objects)
        finally:
            self.is_telling = False
        if self._tape.wants_state and all(task.name != SCHEDULING for task in self.running.values()):
            self._note_state()

    def buckets(self, change: ChangeBuckets) -> ChangeBuckets:
        def changed(in_use: Iterable[int], releasing: Iterable[int]) -> None:
            self._put((Note.BUCKETS, self.begin(), sorted(in_use), sorted(releasing)))
            change(in_use, releasing)

        return changed

    def configured(self, stage: str, configuration: Configuration) -> None:
        folder = str(configuration.folder.absolute())
        self._put((Note.CONFIGURED, self.begin(), stage, to_recorded(configuration), folder))

    def repaired(self, what: str) -> None:
        self._put((Note.REPAIRED, self.begin(), what))
        self._tape.wants_state = True

    def stopped(self) -> None:
        self._put((Note.STOPPED,))
        self._tape.wants_state = True

    def decided(self, uid: str, node_name: str, message: str, nominated_node_name: str | None) -> None:
        self._put((Note.DECIDED, uid, node_name, message, nominated_node_name))

    # Tasks.

    def task(self, work: Coroutine[Any, Any, T], name: str) -> Coroutine[Any, Any, T]:
        self.fresh += 1
        return _run(_RecordedTask(self, work, name))

    def goes_on(self, task: _RecordedTask[Any]) -> None:
        """Record that a task begins or continues."""
        if self._tape.wants_state and task.name == SCHEDULING and not task.is_outside:
            self._note_state()
        us = self.begin()
        if task.number is None:
            self._tasks += 1
            task.number = self._tasks
            self.running[task.number] = task
            if task.is_fresh:
                task.is_fresh = False
                self.fresh -= 1
            self._put((Note.STARTED, us, task.number, task.name))
        else:
            self._put((Note.RESUMED, us, task.number))

    def _note_state(self) -> None:
        """Begin the next file with the current state, if nothing is in progress."""
        daemon = self.daemon
        if daemon is None or self._waiting or self.fresh or self._put is _ignore or not is_quiet(daemon):
            return
        if not all(task.begins_anew for task in self.running.values()):
            return
        self._tape.begin_file(list(state_notes(daemon, self._random.getstate(), self.begin())))
        for task in self.running.values():
            task.number = None
        self.running.clear()

    # External calls.

    async def call(self, what: str, ask: Callable[[], Awaitable[T]], kind: type[object]) -> T:
        self._calls += 1
        number = self._calls
        self._put((Note.ASKED, number, what))
        self._waiting.add(number)
        task = self.present
        if task is not None:
            task.is_outside = True  # its waits during the call are not recorded
        try:
            answer = await ask()
        except Exception as error:
            self._answered(task, number, packed_error(error), None)
            raise
        except BaseException:
            self._given_up(task, number)
            raise
        self._answered(task, number, None, packed(answer))
        return answer

    def _answered(
        self, task: _RecordedTask[Any] | None, number: int, error: tuple[Any, ...] | None, value: Any
    ) -> None:
        self._came_back(task, number)
        us = self._step_clock.us if task is not None else self.begin()
        self._put((Note.ANSWERED, us, number, error, value))

    def _given_up(self, task: _RecordedTask[Any] | None, number: int) -> None:
        self._came_back(task, number)
        self._put((Note.GAVE_UP, number))

    def _came_back(self, task: _RecordedTask[Any] | None, number: int) -> None:
        self._waiting.discard(number)
        if task is not None:
            self.goes_on(task)
            task.is_outside = False


def _ignore(note: AnyNote) -> None:
    """Ignore a note after the end of the recording."""


async def _run(task: _RecordedTask[T]) -> T:
    return await task


class _RecordedTask(Generic[T]):
    """Work whose every continuation is recorded, except those during an external call."""

    def __init__(self, recorder: Recorder, work: Coroutine[Any, Any, T], name: str) -> None:
        self._recorder = recorder
        self._work = work
        self.name = name
        self.number: int | None = None
        self.is_fresh = True
        self.is_outside = False

    def __del__(self) -> None:
        if self.is_fresh:  # ended before its first step
            self._recorder.fresh -= 1

    @property
    def begins_anew(self) -> bool:
        """Whether the task returns to its initial state after each wait."""
        return self.name in {SCHEDULING, REJECTIONS, BUCKETS} or self.name.startswith(REFRESH)

    def __await__(self) -> Generator[Any, Any, T]:
        recorder, work = self._recorder, self._work
        step: Callable[..., Any] = work.send
        value: Any = None
        try:
            while True:
                if not self.is_outside:
                    recorder.goes_on(self)
                before, recorder.present = recorder.present, self
                try:
                    waits_for = step(value)
                except StopIteration as end:
                    result: T = end.value
                    return result
                finally:
                    recorder.present = before
                step, value = yield from resumed(work, waits_for)
        finally:
            if self.number is not None:
                recorder.running.pop(self.number, None)


class RecordedHandler(Generic[T]):
    """Records the watch events of one kind, and passes them on; a `client.store.Handler`."""

    def __init__(self, recorder: Recorder, kind: str, handler: Handler[T]) -> None:
        self._recorder = recorder
        self._kind = kind
        self._handler = handler

    def on_add(self, obj: T) -> None:
        self._recorder.tell(self._kind, ObjectEvent.ADDED, key_of(obj), obj, self._handler.on_add, obj)

    def on_update(self, old: T, new: T) -> None:
        recorder = self._recorder
        is_heartbeat = (
            isinstance(old, NodeObject) and isinstance(new, NodeObject) and new.is_heartbeat_of(old)
        )
        if is_heartbeat and not recorder.is_frozen:
            self._handler.on_update(old, new)  # has no effect on decisions
        else:
            recorder.tell(
                self._kind, ObjectEvent.UPDATED, key_of(new), new, self._handler.on_update, old, new
            )

    def on_delete(self, old: T) -> None:
        self._recorder.tell(self._kind, ObjectEvent.DELETED, key_of(old), None, self._handler.on_delete, old)

    def on_undecodable(self, identity: ObjectIdentity, error: ObjectError) -> None:
        outline = None if error.found is None else outline_pod(error.found)
        found = None if outline is None else outline.pod
        encoded = (identity.uid, identity.resource_version, error.kind, error.path, error.problem, found)
        hand_on = self._handler.on_undecodable
        self._recorder.tell(
            self._kind, ObjectEvent.UNREADABLE, identity.key, encoded, hand_on, identity, error
        )


def key_of(obj: Any) -> str:
    """Return the key of an object: `namespace/name`, or `name`."""
    if isinstance(obj, PodInfo):
        return obj.key
    return obj.name if isinstance(obj, NodeObject) else object_key(obj)
