"""The ports of the engine: all that it sees and changes outside of its own state, except for handled watch events.

Between two waits nothing arrives, so the behaviour there follows from the state and from the answers of these ports.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar

from scheduler.clock import SystemClock

if TYPE_CHECKING:
    from collections.abc import Coroutine, Mapping
    from random import Random

    from scheduler.clock import Clock
    from scheduler.framework.pod_groups import PodGroup
    from scheduler.objects.pod import PodInfo
    from scheduler.objects.v1 import PodCondition

T = TypeVar("T")


class Time:
    """The time of an engine, and all that does not follow from its state alone; a `Clock` for decisions.

    Args:
        clock: the time.

    Attributes:
        monotonic: returns the time by which the engine decides, as `Clock.monotonic`.
        utc_now: returns the time of day by which the engine decides.
        stopwatch: returns the seconds of a clock that advances within a decision, to measure work. A decision depends on
            it only through the methods of this class.
    """

    def __init__(self, clock: Clock) -> None:
        self.monotonic, self.utc_now = clock.monotonic, clock.utc_now
        self.stopwatch = clock.monotonic

    def is_over(self, until: float) -> bool:
        """Return whether the stopwatch has reached a time."""
        return self.stopwatch() >= until

    def has_elapsed(self, since: float, seconds: float) -> bool:
        """Return whether this many seconds of the stopwatch have passed since a time."""
        return self.stopwatch() - since >= seconds

    def measured(self, is_so: bool, what: str = "") -> bool:
        """Return a condition that follows from measured work, such as used processor time.

        Args:
            is_so: the condition.
            what: counts these conditions separately, because they are frequent; "" for all others.
        """
        return is_so

    def has_slices(self) -> bool:
        """Return whether work that needs more than a time slice is divided; if not, it runs at once."""
        return True

    def task(self, work: Coroutine[Any, Any, T], name: str) -> Coroutine[Any, Any, T]:
        """Return the coroutine to run as a task of the engine, in place of `work`."""
        return work

    def random(self, random: Random) -> Random:
        """Return the source of random numbers that breaks ties, in place of `random`."""
        return random


REAL_TIME: Final = Time(SystemClock())
"""The time of this machine."""


class CacheGate(Protocol):
    """Reports whether the cache of the cluster is stale."""

    @property
    def is_stale(self) -> bool:
        """Whether to `wait` before anything is decided by it."""
        ...

    async def wait(self) -> None:
        """Wait for a moment."""
        ...


class PodReader(Protocol):
    """Reads one pod from the API server, without any cache."""

    async def read_pod(self, namespace: str, name: str) -> PodInfo | None:
        """Return the current pod, or None if it does not exist; retries until there is a response.

        Raises:
            ApiError: the request was rejected.
            ObjectError: the response cannot be decoded.
        """
        ...


class PodEventRecorder(Protocol):
    """Queues events, which are written in the background."""

    def record(
        self,
        regarding: PodInfo,
        *,
        type_: str,
        reason: str,
        action: str,
        note: str,
        related: PodInfo | PodGroup | None = None,
        annotations: Mapping[str, str] = ...,
    ) -> None:
        """Queue one event of type "Normal" or "Warning"; `related` is the event's related object."""
        ...


class PodEventRecorders(Protocol):
    """The event recorder of each profile, including removed profiles."""

    def of(self, scheduler_name: str) -> PodEventRecorder:
        """Return the event recorder of a profile."""
        ...


class PodWriter(Protocol):
    """Writes pods to the API server."""

    def patch_pod_status(
        self, pod: PodInfo, *, condition: PodCondition | None = None, nominated_node_name: str | None = None
    ) -> bool:
        """Queue a patch, if it changes anything; a nominated_node_name of "" clears it, None leaves it."""
        ...

    async def wait_pod_status_patched(
        self, pod: PodInfo, *, condition: PodCondition | None = None, nominated_node_name: str | None = None
    ) -> int:
        """Patch a pod's status as `patch_pod_status`, and wait for the response; raises ApiError.

        Returns:
            The version of the pod that has the status; 0 if nothing was written.
        """
        ...

    async def delete_pod(self, pod: PodInfo) -> object:
        """Delete a pod gracefully, if its uid is the same; raises ApiError."""
        ...
