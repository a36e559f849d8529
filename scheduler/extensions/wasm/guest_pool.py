"""The instances of a guest, the attempts that use them, and calls that take longer than a time slice.

wasmtime lets other threads run while a guest runs. The two threads alternate only in functions of the host.

A guest keeps the state of a pod in its memory, so all calls for one attempt go to one instance. The instance is free
again after the attempt.

A call on the event loop must be short. A longer call is stopped, and from then on that function is called in a thread,
until a call is short again. Between two calls the attempt yields if the calls together took long. In both cases it ends
with NeedsTime and begins again; the guest's results so far are cached for it.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from dataclasses import dataclass
from math import ceil, inf
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Final, Generic, TypeVar
from weakref import ref

from scheduler.extensions.wasm.call_context import CallContext, UnfinishedError, at_once
from scheduler.extensions.wasm.guest import GuestError, GuestTimeError
from scheduler.extensions.wasm.instance import bare
from scheduler.framework.sliced_work import NeedsTime

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from scheduler.extensions.wasm.call_context import Answers
    from scheduler.extensions.wasm.instance import Instance
    from scheduler.framework.capabilities import TimeSlice
    from scheduler.objects.pod import PodInfo

T = TypeVar("T")

_WAIT_SECONDS: Final = 0.002
"""How long one step waits for the thread."""
_MORE_SECONDS: Final = 0.1
"""The grace period after a guest's time limit."""
_LOOK_SECONDS: Final = 0.1
"""The interval at which a thread that waits for the event loop checks whether its call was abandoned."""


class Beside(Generic[T]):
    """One call in a thread.

    Args:
        call: called in the thread, with a function as `Scene.in_loop`.
    """

    def __init__(self, call: Callable[[Callable[[Callable[[], bytes]], bytes]], T]) -> None:
        self._call = call
        self._asked: SimpleQueue[_Question | None] = SimpleQueue()  # None: the call has ended
        self._has_ended = self._is_given_up = False
        self._result: list[T] = []
        self._error: BaseException | None = None

    def steps(self, seconds: float) -> Generator[None, None, T]:
        """Make the call; return its result, or raise its error.

        The number of steps depends only on `seconds`, and not on the speed of the machine.

        Args:
            seconds: the longest time of the call.
        """
        threading.Thread(target=self._run, name="wasm-guest", daemon=True).start()
        try:
            for _ in range(ceil((seconds + _MORE_SECONDS) / _WAIT_SECONDS)):
                self._serve()
                yield
            while not self._has_ended:
                self._serve()
        finally:
            self._is_given_up = True
            error, self._error = self._error, None  # its frames refer to this object
        if error is not None:
            raise error
        return self._result[0]

    def _serve(self) -> None:
        """Wait briefly for the thread, and call a function in the event loop if it requests one."""
        if self._has_ended:
            return
        try:
            question = self._asked.get(timeout=_WAIT_SECONDS)
        except Empty:
            return
        if question is None:
            self._has_ended = True
        else:
            question.answer()

    # In the thread.

    def _run(self) -> None:
        try:
            self._result.append(self._call(self._in_loop))
        except BaseException as error:  # noqa: BLE001  # raised in the event loop
            if not self._is_given_up:
                self._error = error
        finally:
            self._asked.put(None)

    def _in_loop(self, function: Callable[[], bytes]) -> bytes:
        question = _Question(function)
        self._asked.put(question)
        while not question.is_answered.wait(_LOOK_SECONDS):
            if self._is_given_up:
                raise GuestError("the attempt is over")
        if question.error is not None:
            raise question.error
        return question.result


class _Question:
    """A function that a thread wants called in the event loop."""

    def __init__(self, function: Callable[[], bytes]) -> None:
        self._function = function
        self.is_answered = threading.Event()
        self.result = b""
        self.error: Exception | None = None

    def answer(self) -> None:
        try:
            self.result = self._function()
        except Exception as error:  # noqa: BLE001  # raised in the thread
            self.error = error
        self.is_answered.set()


CALL_SECONDS: Final = 0.05
"""The longest time of a call on the event loop that can also be made in a thread."""
LAST_CALL_SECONDS: Final = 0.1
"""The longest time of each call from Reserve on; those calls are made on the event loop."""
_SLICES: Final = 8
"""After this many time slices of calls the attempt yields: beginning it again takes about one."""
_MOST_IDLE: Final = 16
"""The number of free instances that are kept."""
_MOST_CYCLES: Final = 64
"""The number of attempts before Reserve that may hold an instance; older ones have ended and are only referenced."""
_MOST_KEEPING: Final = 16
"""The number of attempts whose results are cached."""


@dataclass(frozen=True, slots=True)
class _Kept:
    """A cached result of the guest.

    Attributes:
        about: the input of the call, beside the pod and the node's name.
        result: the returned number.
        answers: the guest's other output.
        error: the error that was raised instead.
    """

    about: object
    result: int
    answers: Answers
    error: GuestError | None = None


class GuestAttempt:
    """One attempt at one pod.

    It ends when it is no longer referenced.

    Args:
        pod: the pod.
        pool: provides and takes back the instance.
        stopped: functions of which a call for this pod was stopped; they are called in a thread.

    Attributes:
        scene: input and output of the next call.
    """

    def __init__(self, pod: PodInfo, pool: GuestPool, stopped: frozenset[str] = frozenset()) -> None:
        self.scene = CallContext(pod=pod)
        self._pool = pool
        self._stopped = stopped
        self._instance: Instance | None = None  # until the first call
        self._spent_seconds = 0.0
        self._is_begun = self._is_binding = self._is_over = False
        # (export, node, digest of notifications) -> result
        self._kept: dict[tuple[str, str, int], _Kept] = {}
        self._told = 0
        self._until = inf
        self._attempt = 0

    @property
    def is_open(self) -> bool:
        """Whether the guest can still be called."""
        return not self._is_over

    @property
    def goes_on(self) -> bool:
        """Whether an attempt that begins again can continue with this object."""
        return bool(self._kept or self._stopped)

    def begin(self, attempt: int) -> None:
        """Begin the attempt, or begin it again: its calls share a time slice until it yields."""
        self._attempt = attempt
        self.scene.node_name, self._told = "", 0
        self._until = self._pool.limit.seconds() + _SLICES * self._pool.limit.slice_seconds

    def call(self, export: str, about: object = None) -> int:
        """Call the guest with the scene; `prefilter` is called before any other function, because it resets the guest.

        Args:
            export: the function.
            about: the input of the result, beside the pod, the node's name and the guest's notifications.

        Raises:
            GuestError: the call failed, or exceeded the time limit; the next pod gets a new instance.
            NeedsTime: the call takes longer than a time slice of the event loop, or the slice is over.
        """
        if not self._is_begun:
            self._is_begun = True
            if export != "prefilter" and "prefilter" in self._pool.exports:
                self._answered("prefilter", None)
        return self._answered(export, about)

    def tell(self, export: str, node_name: str, pod: PodInfo) -> int:
        """Notify the guest of a pod added to a node or removed from it; raises the errors of `call`."""
        self.scene.node_name, self.scene.target = node_name, pod
        try:
            result = self.call(export, pod.uid)
        finally:
            self.scene.target = None
        self._told = hash((self._told, export, node_name, pod.uid))
        return result

    def call_last(self, export: str) -> int:
        """Call the guest with the scene from Reserve on, where no attempt can begin again.

        Raises:
            GuestError: the call failed, or took longer than a call on the event loop may.
        """
        try:
            if not self._is_begun:
                self._is_begun = True
                if "prefilter" in self._pool.exports:
                    self._timed("prefilter", LAST_CALL_SECONDS)
            return self._timed(export, LAST_CALL_SECONDS)
        except UnfinishedError as error:
            raise GuestTimeError(f"wasm: {export} error: stopped: {error}") from error

    def chosen(self) -> None:
        """Record that a node is chosen: the attempt continues until the end of its binding."""
        self._kept.clear()
        self._pool.drop(self)
        self._pool.left_cycle(self)

    def binds(self) -> None:
        """Record the end of the scheduling cycle: from here on each call has the full time limit."""
        self._is_binding = True

    def forget(self) -> None:
        """Drop the cached results, if the attempt is unlikely to begin again."""
        self._kept.clear()

    def end(self) -> None:
        """Return the instance to the pool."""
        self._is_over = True
        self._kept.clear()
        instance, self._instance = self._instance, None
        if instance is not None:
            self._pool.take_back(instance)

    def _answered(self, export: str, about: object) -> int:
        """Return the guest's cached result from before NeedsTime, or call it."""
        pool, key = self._pool, (export, self.scene.node_name, self._told)
        kept = self._kept.get(key)
        if kept is not None and kept.about == about:
            if kept.error is not None:
                raise kept.error
            self.scene.answers = kept.answers
            return kept.result
        if pool.limit.slice_seconds == inf:
            return self._timed(export, inf)
        if (export in pool.long or export in self._stopped) and not self._is_over:
            raise NeedsTime(self._beside(key, about))
        result, is_cut, may_have_more = 0, False, self._left() > CALL_SECONDS
        try:
            result = self._timed(export, CALL_SECONDS)
        except UnfinishedError:
            is_cut = True
        except GuestTimeError:
            is_cut = may_have_more
            if not is_cut:
                raise
        if pool.limit.measured(is_cut):
            pool.long.add(export)
            raise NeedsTime(self._start_again(export))
        self._kept[key] = _Kept(about, result, self.scene.answers)
        pool.keep(self, self._attempt)  # another plugin may raise NeedsTime
        if pool.limit.measured(pool.limit.seconds() >= self._until):
            raise NeedsTime(_one_turn())
        return result

    def _start_again(self, export: str) -> Generator[None, None, None]:
        """Begin the attempt again with another instance."""
        assert self.scene.pod is not None, "it is an attempt at a pod"
        self._pool.keep(GuestAttempt(self.scene.pod, self._pool, self._stopped | {export}), self._attempt)
        yield

    def _beside(self, key: tuple[str, str, int], about: object) -> Generator[None, None, None]:
        """Return the steps of a call in a thread; at the end its result is cached."""
        scene, seconds = self.scene.copied(), self._left()

        def call(in_loop: Callable[[Callable[[], bytes]], bytes]) -> int:
            scene.in_loop = in_loop
            try:
                return self._started_and_called(key[0], scene, inf)
            finally:
                scene.in_loop = at_once  # removes a reference cycle

        return self._go_through(Beside(call).steps(seconds), scene, key, about)

    def _go_through(
        self, steps: Generator[None, None, int], scene: CallContext, key: tuple[str, str, int], about: object
    ) -> Generator[None, None, None]:
        result, error, spent = 0, None, self._spent_seconds
        try:
            result = yield from steps
        except GuestError as raised:
            error = raised
            bare(error)  # its frames refer to this object and to the instance
            self._is_over, self._instance = True, None
        except BaseException:
            self._is_over, self._instance = True, None  # the thread may still use it
            raise
        self._kept[key] = _Kept(about, result, scene.answers, error)
        is_short = error is None and self._spent_seconds - spent < CALL_SECONDS / 2
        if self._pool.limit.measured(is_short):
            self._pool.long.discard(key[0])
        self._pool.keep(self, self._attempt)

    def _timed(self, export: str, most_seconds: float) -> int:
        """Call the guest on the event loop.

        Raises:
            GuestError: the call failed, or exceeded the time limit.
            UnfinishedError: a function of the host took longer.
        """
        if self._is_over:
            raise GuestError(f"wasm: {export} error: the guest failed earlier in this attempt, or it is over")
        self.scene.until = time.perf_counter() + most_seconds
        try:
            return self._started_and_called(export, self.scene, most_seconds)
        except (GuestError, UnfinishedError):
            self._is_over, self._instance = True, None  # the state of its memory is unknown
            raise

    def _started_and_called(self, export: str, scene: CallContext, most_seconds: float) -> int:
        """Call the guest, after its start if necessary; the time is charged to the attempt."""
        begin = time.perf_counter()
        seconds = min(self._left(), most_seconds)
        try:
            instance = self._instance
            if instance is None and seconds > 0:
                instance = self._instance = self._pool.take(seconds)
                seconds -= time.perf_counter() - begin
            if instance is None or seconds <= 0:
                spent = self._spent_seconds + time.perf_counter() - begin
                raise GuestTimeError(f"wasm: {export} error: stopped: its calls took {spent:.1f}s together")
            return instance.call(export, scene, seconds)
        finally:
            self._spent_seconds += time.perf_counter() - begin

    def _left(self) -> float:
        return self._pool.cycle_seconds - (0.0 if self._is_binding else self._spent_seconds)

    def __del__(self) -> None:
        self.end()


def _one_turn() -> Generator[None, None, None]:
    yield


class GuestPool:
    """The instances of one guest in one profile.

    Args:
        make: creates an instance within the given seconds, or raises GuestError.
        exports: the guest's exports.
        cycle_seconds: the limit of all calls of one scheduling cycle together.
        limit: the longest time that one call may hold the event loop.

    Attributes:
        exports: the guest's exports.
        cycle_seconds: the limit of all calls of one scheduling cycle together.
        limit: the longest time that one call may hold the event loop.
        long: functions whose last call took longer than a call on the event loop may.
    """

    def __init__(
        self,
        make: Callable[[float], Instance],
        exports: frozenset[str],
        cycle_seconds: float,
        limit: TimeSlice,
    ) -> None:
        self.exports, self.cycle_seconds, self.limit = exports, cycle_seconds, limit
        self.long: set[str] = set()
        self._make = make
        self._idle = [make(cycle_seconds)]  # at once, so that a guest that cannot run fails with its profile
        self._in_cycle: OrderedDict[int, ref[GuestAttempt]] = OrderedDict()  # id -> flight, oldest first
        # Pod uid -> an attempt that may start again, and its number; the oldest first.
        self._waiting: OrderedDict[str, tuple[GuestAttempt, int]] = OrderedDict()
        self._keeping: OrderedDict[int, ref[GuestAttempt]] = OrderedDict()  # id -> flight, oldest first

    def begin(self, pod: PodInfo, attempt: int) -> GuestAttempt:
        """Begin an attempt, or continue one that starts again because a plugin raised NeedsTime."""
        known = self._waiting.pop(pod.uid, None)
        flight = known[0] if known is not None and known[1] == attempt and known[0].goes_on else None
        if flight is None or flight.scene.pod is not pod:
            flight = self._new(pod)
        self._keep_answers(flight)
        flight.begin(attempt)
        if flight.goes_on:
            self.keep(flight, attempt)
        return flight

    def keep(self, flight: GuestAttempt, attempt: int) -> None:
        """Keep what was answered in an attempt that may start again."""
        assert flight.scene.pod is not None, "it is an attempt at a pod"
        self._waiting[flight.scene.pod.uid] = flight, attempt
        self._waiting.move_to_end(flight.scene.pod.uid)
        if len(self._waiting) > _MOST_KEEPING:
            self._waiting.popitem(last=False)

    def drop(self, flight: GuestAttempt) -> None:
        """Drop what was answered in an attempt that does not start again."""
        if flight.scene.pod is not None:
            self._waiting.pop(flight.scene.pod.uid, None)

    def call_once(self, export: str, scene: CallContext) -> int:
        """Call a function that concerns no pod.

        Raises:
            GuestError: the call failed.
        """
        instance = self.take(self.cycle_seconds)
        result = instance.call(export, scene, self.cycle_seconds)
        self.take_back(instance)
        return result

    def left_cycle(self, flight: GuestAttempt) -> None:
        """Record that an attempt continues until the end of its binding."""
        self._in_cycle.pop(id(flight), None)

    def take(self, seconds: float) -> Instance:
        """Return a free instance, or create one within the given seconds; may be called by a thread.

        Raises:
            GuestError: no further instance can be created.
        """
        try:
            return self._idle.pop()
        except IndexError:
            return self._make(seconds)

    def take_back(self, instance: Instance) -> None:
        """Keep an instance for the next pod."""
        if len(self._idle) < _MOST_IDLE:
            self._idle.append(instance)

    def _new(self, pod: PodInfo) -> GuestAttempt:
        while len(self._in_cycle) >= _MOST_CYCLES:
            _, oldest = self._in_cycle.popitem(last=False)
            known = oldest()
            if known is not None:
                known.end()
        flight = GuestAttempt(pod, self)
        key = id(flight)
        self._in_cycle[key] = ref(flight, lambda _: self._in_cycle.pop(key, None))
        return flight

    def _keep_answers(self, flight: GuestAttempt) -> None:
        """Cache the guest's results of this attempt, and drop those of attempts that began long ago."""
        key = id(flight)
        self._keeping.pop(key, None)
        self._keeping[key] = ref(flight)
        while len(self._keeping) > _MOST_KEEPING:
            _, oldest = self._keeping.popitem(last=False)
            known = oldest()
            if known is not None:
                known.forget()
