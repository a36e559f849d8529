"""Instances and the pods they are busy with: one for every pod in flight.

A guest keeps what it knows of a pod in its own memory, so all calls for one attempt at a pod go to one instance. It is
free again when the attempt is over.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from typing import TYPE_CHECKING
from weakref import ref

from scheduler.wasm.guest import GuestError, GuestTimeError
from scheduler.wasm.scene import Scene

if TYPE_CHECKING:
    from collections.abc import Callable

    from scheduler.objects.pod import PodInfo
    from scheduler.wasm.instance import Instance

_MOST_IDLE = 16
"""How many instances are kept for later."""
_MOST_CYCLES = 64
"""How many attempts may hold an instance that have not come to Reserve; more of them are over, and only remembered."""


class Flight:
    """One attempt at one pod.

    Ends by itself when nobody refers to it any more.

    Args:
        pod: the pod.
        instance: what is called.
        pool: where the instance returns to.
        cycle_seconds: what the calls of the scheduling cycle may take together.
        spent_seconds: what of that it took to start the instance.

    Attributes:
        scene: what the next call is about.
    """

    def __init__(
        self, pod: PodInfo, instance: Instance, pool: Pool, cycle_seconds: float, spent_seconds: float = 0.0
    ) -> None:
        self.scene = Scene(pod=pod)
        self._instance: Instance | None = instance
        self._pool = pool
        self._cycle_seconds = cycle_seconds
        self._spent_seconds = spent_seconds
        self._is_begun = False
        self._is_binding = False

    @property
    def is_open(self) -> bool:
        """Whether the guest can still be called."""
        return self._instance is not None

    def call(self, export: str) -> int:
        """Call the guest about the scene; `prefilter` goes before anything else, for it makes room for a new pod.

        Raises:
            GuestError: it failed, or used up its time; the next pod gets a new instance.
        """
        if not self._is_begun:
            self._is_begun = True
            if export != "prefilter" and "prefilter" in self._pool.exports:
                self._timed("prefilter")
        return self._timed(export)

    def chosen(self) -> None:
        """Note that a node is chosen: the attempt goes on for as long as its binding takes."""
        self._pool.left_cycle(self)

    def binds(self) -> None:
        """Note that the scheduling cycle is over: from here on each call has the whole time to itself."""
        self._is_binding = True

    def end(self) -> None:
        """Give the instance back."""
        instance, self._instance = self._instance, None
        if instance is not None:
            self._pool.take_back(instance)

    def _timed(self, export: str) -> int:
        instance = self._instance
        if instance is None:
            raise GuestError(f"wasm: {export} error: the guest failed earlier in this attempt, or it is over")
        left = self._cycle_seconds - (0.0 if self._is_binding else self._spent_seconds)
        begin = time.perf_counter()
        if left <= 0:
            self._instance = None
            raise GuestTimeError(
                f"wasm: {export} error: stopped: its calls took {self._spent_seconds:.1f}s together"
            )
        try:
            return instance.call(export, self.scene, left)
        except GuestError:
            self._instance = None  # whatever its memory looks like now
            raise
        finally:
            self._spent_seconds += time.perf_counter() - begin

    def __del__(self) -> None:
        self.end()


class Pool:
    """The instances of one guest in one profile.

    Args:
        make: makes an instance within so many seconds, or raises GuestError.
        cycle_seconds: what the calls of one scheduling cycle may take together.
    """

    def __init__(
        self, make: Callable[[float], Instance], exports: frozenset[str], cycle_seconds: float
    ) -> None:
        self.exports = exports
        self._make = make
        self._cycle_seconds = cycle_seconds
        self._idle = [make(cycle_seconds)]  # at once, so that what cannot run is refused with its profile
        self._in_cycle: OrderedDict[int, ref[Flight]] = OrderedDict()  # id -> flight, oldest first

    def begin(self, pod: PodInfo) -> Flight:
        """Begin an attempt.

        Raises:
            GuestError: no further instance can be made.
        """
        while len(self._in_cycle) >= _MOST_CYCLES:
            _, oldest = self._in_cycle.popitem(last=False)
            flight = oldest()
            if flight is not None:
                flight.end()
        begin = time.perf_counter()
        instance = self._take()
        flight = Flight(pod, instance, self, self._cycle_seconds, time.perf_counter() - begin)
        key = id(flight)
        self._in_cycle[key] = ref(flight, lambda _: self._in_cycle.pop(key, None))
        return flight

    def call_once(self, export: str, scene: Scene) -> int:
        """Call a function that is about no pod.

        Raises:
            GuestError: it failed.
        """
        instance = self._take()
        result = instance.call(export, scene, self._cycle_seconds)
        self.take_back(instance)
        return result

    def left_cycle(self, flight: Flight) -> None:
        """Note that an attempt goes on for as long as its binding takes."""
        self._in_cycle.pop(id(flight), None)

    def take_back(self, instance: Instance) -> None:
        """Keep an instance for the next pod."""
        if len(self._idle) < _MOST_IDLE:
            self._idle.append(instance)

    def _take(self) -> Instance:
        return self._idle.pop() if self._idle else self._make(self._cycle_seconds)
