"""Instances and the pods they are busy with: one for every pod in flight.

A guest keeps what it knows of a pod in its own memory, so all calls for one attempt at a pod go to one instance. It is
free again when the attempt is over.

A call on the event loop may take a short time only. One that takes longer is stopped, and from then on the calls of that
function are made in a thread, until one is short again. Between two calls the attempt gives way where they have taken long
together. Either way it ends with NeedsTime and begins again; what the guest answered so far is kept for it.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING, Final
from weakref import ref

from scheduler.framework.long_work import NeedsTime
from scheduler.wasm.beside import Beside
from scheduler.wasm.guest import GuestError, GuestTimeError
from scheduler.wasm.instance import bare
from scheduler.wasm.scene import Scene, UnfinishedError, at_once

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from scheduler.framework.capabilities import TurnLimit
    from scheduler.objects.pod import PodInfo
    from scheduler.wasm.instance import Instance
    from scheduler.wasm.scene import Answers

CALL_SECONDS: Final = 0.05
"""How long a call on the event loop may take that can be made in a thread as well."""
LAST_CALL_SECONDS: Final = 0.1
"""How long each call may take from Reserve on; those are made on the event loop."""
_SLICES: Final = 8
"""After so many slices of calls the attempt gives way: to begin it again takes about one."""
_MOST_IDLE: Final = 16
"""How many instances are kept for later."""
_MOST_CYCLES: Final = 64
"""How many attempts may hold an instance that have not come to Reserve; more of them are over, and only remembered."""
_MOST_KEEPING: Final = 16
"""Of how many attempts the answers are kept."""


@dataclass(frozen=True, slots=True)
class _Kept:
    """An answer of the guest.

    Attributes:
        about: what it was asked about, beside the pod and the name of a node.
        error: raised instead.
    """

    about: object
    result: int
    said: Answers
    error: GuestError | None = None


class Flight:
    """One attempt at one pod.

    Ends by itself when nobody refers to it any more.

    Args:
        pod: the pod.
        pool: where the instance comes from, and returns to.
        stopped: functions of which a call for this pod was stopped; their calls are made in a thread.

    Attributes:
        scene: what the next call is about.
    """

    def __init__(self, pod: PodInfo, pool: Pool, stopped: frozenset[str] = frozenset()) -> None:
        self.scene = Scene(pod=pod)
        self._pool = pool
        self._stopped = stopped
        self._instance: Instance | None = None  # until the first call
        self._spent_seconds = 0.0
        self._is_begun = self._is_binding = self._is_over = False
        self._kept: dict[
            tuple[str, str, int], _Kept
        ] = {}  # export, node, what it had been told -> its answer
        self._told = 0
        self._until = inf
        self._attempt = 0

    @property
    def is_open(self) -> bool:
        """Whether the guest can still be called."""
        return not self._is_over

    @property
    def goes_on(self) -> bool:
        """Whether an attempt that begins again can go on with this."""
        return bool(self._kept or self._stopped)

    def begin(self, attempt: int) -> None:
        """Note that the attempt begins, or begins again: what it asks until it gives way shares a turn."""
        self._attempt = attempt
        self.scene.node_name, self._told = "", 0
        self._until = self._pool.limit.seconds() + _SLICES * self._pool.limit.slice_seconds

    def call(self, export: str, about: object = None) -> int:
        """Call the guest about the scene; `prefilter` goes before anything else, for it makes room for a new pod.

        Args:
            export: which function.
            about: what the answer depends on, beside the pod, the name of the node and what the guest was told.

        Raises:
            GuestError: it failed, or used up its time; the next pod gets a new instance.
            NeedsTime: the call takes longer than a turn of the event loop, or the turn is over.
        """
        if not self._is_begun:
            self._is_begun = True
            if export != "prefilter" and "prefilter" in self._pool.exports:
                self._answered("prefilter", None)
        return self._answered(export, about)

    def tell(self, export: str, node_name: str, pod: PodInfo) -> int:
        """Tell the guest of a pod that comes to a node, or leaves it; likewise."""
        self.scene.node_name, self.scene.target = node_name, pod
        try:
            result = self.call(export, pod.uid)
        finally:
            self.scene.target = None
        self._told = hash((self._told, export, node_name, pod.uid))
        return result

    def call_last(self, export: str) -> int:
        """Call the guest about the scene from Reserve on, where no attempt can begin again.

        Raises:
            GuestError: it failed, or took longer than a call on the event loop may.
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
        """Note that a node is chosen: the attempt goes on for as long as its binding takes."""
        self._kept.clear()
        self._pool.drop(self)
        self._pool.left_cycle(self)

    def binds(self) -> None:
        """Note that the scheduling cycle is over: from here on each call has the whole time to itself."""
        self._is_binding = True

    def forget(self) -> None:
        """Let go of the answers, where it is unlikely that the attempt begins again."""
        self._kept.clear()

    def end(self) -> None:
        """Give the instance back."""
        self._is_over = True
        self._kept.clear()
        instance, self._instance = self._instance, None
        if instance is not None:
            self._pool.take_back(instance)

    def _answered(self, export: str, about: object) -> int:
        """Return what the guest answered before NeedsTime, or call it."""
        pool, key = self._pool, (export, self.scene.node_name, self._told)
        kept = self._kept.get(key)
        if kept is not None and kept.about == about:
            if kept.error is not None:
                raise kept.error
            self.scene.answers = kept.said
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
        if pool.limit.observed(is_cut):
            pool.long.add(export)
            raise NeedsTime(self._start_again(export))
        self._kept[key] = _Kept(about, result, self.scene.answers)
        pool.keep(self, self._attempt)  # another plugin may raise NeedsTime
        if pool.limit.observed(pool.limit.seconds() >= self._until):
            raise NeedsTime(_one_turn())
        return result

    def _start_again(self, export: str) -> Generator[None, None, None]:
        """Begin the attempt from the beginning, with another instance."""
        assert self.scene.pod is not None, "it is an attempt at a pod"
        self._pool.keep(Flight(self.scene.pod, self._pool, self._stopped | {export}), self._attempt)
        yield

    def _beside(self, key: tuple[str, str, int], about: object) -> Generator[None, None, None]:
        """Return the steps of a call in a thread, at the end of which its answer is kept."""
        scene, seconds = self.scene.copied(), self._left()

        def call(in_loop: Callable[[Callable[[], bytes]], bytes]) -> int:
            scene.in_loop = in_loop
            try:
                return self._started_and_called(key[0], scene, inf)
            finally:
                scene.in_loop = at_once  # so that nothing here refers to itself

        return self._go_through(Beside(call).steps(seconds), scene, key, about)

    def _go_through(
        self, steps: Generator[None, None, int], scene: Scene, key: tuple[str, str, int], about: object
    ) -> Generator[None, None, None]:
        result, error, spent = 0, None, self._spent_seconds
        try:
            result = yield from steps
        except GuestError as raised:
            error = raised
            bare(error)  # whose frames refer to this, and to the instance
            self._is_over, self._instance = True, None
        except BaseException:
            self._is_over, self._instance = True, None  # the thread may still use it
            raise
        self._kept[key] = _Kept(about, result, scene.answers, error)
        is_short = error is None and self._spent_seconds - spent < CALL_SECONDS / 2
        if self._pool.limit.observed(is_short):
            self._pool.long.discard(key[0])
        self._pool.keep(self, self._attempt)

    def _timed(self, export: str, most_seconds: float) -> int:
        """Call the guest on the event loop.

        Raises:
            GuestError: it failed, or used up its time.
            UnfinishedError: a function of the host took longer.
        """
        if self._is_over:
            raise GuestError(f"wasm: {export} error: the guest failed earlier in this attempt, or it is over")
        self.scene.until = time.perf_counter() + most_seconds
        try:
            return self._started_and_called(export, self.scene, most_seconds)
        except (GuestError, UnfinishedError):
            self._is_over, self._instance = True, None  # whatever its memory looks like now
            raise

    def _started_and_called(self, export: str, scene: Scene, most_seconds: float) -> int:
        """Call the guest, after its start if it has not started yet; the time is charged to the attempt."""
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


class Pool:
    """The instances of one guest in one profile.

    Args:
        make: makes an instance within so many seconds, or raises GuestError.
        exports: what the guest exports.
        cycle_seconds: what the calls of one scheduling cycle may take together.
        limit: says how long one call may hold the event loop.

    Attributes:
        exports, cycle_seconds, limit: likewise.
        long: functions whose last call took longer than one on the event loop may.
    """

    def __init__(
        self,
        make: Callable[[float], Instance],
        exports: frozenset[str],
        cycle_seconds: float,
        limit: TurnLimit,
    ) -> None:
        self.exports, self.cycle_seconds, self.limit = exports, cycle_seconds, limit
        self.long: set[str] = set()
        self._make = make
        self._idle = [make(cycle_seconds)]  # at once, so that what cannot run is refused with its profile
        self._in_cycle: OrderedDict[int, ref[Flight]] = OrderedDict()  # id -> flight, oldest first
        # Pod uid -> an attempt that may start again, and its number; the oldest first.
        self._waiting: OrderedDict[str, tuple[Flight, int]] = OrderedDict()
        self._keeping: OrderedDict[int, ref[Flight]] = OrderedDict()  # id -> flight, oldest first

    def begin(self, pod: PodInfo, attempt: int) -> Flight:
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

    def keep(self, flight: Flight, attempt: int) -> None:
        """Keep what was answered in an attempt that may start again."""
        assert flight.scene.pod is not None, "it is an attempt at a pod"
        self._waiting[flight.scene.pod.uid] = flight, attempt
        self._waiting.move_to_end(flight.scene.pod.uid)
        if len(self._waiting) > _MOST_KEEPING:
            self._waiting.popitem(last=False)

    def drop(self, flight: Flight) -> None:
        """Drop what was answered in an attempt that does not start again."""
        if flight.scene.pod is not None:
            self._waiting.pop(flight.scene.pod.uid, None)

    def call_once(self, export: str, scene: Scene) -> int:
        """Call a function that is about no pod.

        Raises:
            GuestError: it failed.
        """
        instance = self.take(self.cycle_seconds)
        result = instance.call(export, scene, self.cycle_seconds)
        self.take_back(instance)
        return result

    def left_cycle(self, flight: Flight) -> None:
        """Note that an attempt goes on for as long as its binding takes."""
        self._in_cycle.pop(id(flight), None)

    def take(self, seconds: float) -> Instance:
        """Return an instance that is free, or that was made within so many seconds; a thread may call this.

        Raises:
            GuestError: no further instance can be made.
        """
        try:
            return self._idle.pop()
        except IndexError:
            return self._make(seconds)

    def take_back(self, instance: Instance) -> None:
        """Keep an instance for the next pod."""
        if len(self._idle) < _MOST_IDLE:
            self._idle.append(instance)

    def _new(self, pod: PodInfo) -> Flight:
        while len(self._in_cycle) >= _MOST_CYCLES:
            _, oldest = self._in_cycle.popitem(last=False)
            known = oldest()
            if known is not None:
                known.end()
        flight = Flight(pod, self)
        key = id(flight)
        self._in_cycle[key] = ref(flight, lambda _: self._in_cycle.pop(key, None))
        return flight

    def _keep_answers(self, flight: Flight) -> None:
        """Keep what a guest answers in this attempt, and not what it answered in those that began long ago."""
        key = id(flight)
        self._keeping.pop(key, None)
        self._keeping[key] = ref(flight)
        while len(self._keeping) > _MOST_KEEPING:
            _, oldest = self._keeping.popitem(last=False)
            known = oldest()
            if known is not None:
                known.forget()
