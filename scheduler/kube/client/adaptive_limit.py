"""A limit for concurrent requests that adapts to the latency of the server."""

from __future__ import annotations

_QUEUED_TIMES = 2.0
_QUEUED_SECONDS = 0.005
_FORGETTING = 1.0002
"""Factor by which the lowest latency grows with each answer: the server, or the network to it, may have changed."""
_LEARNING = 0.05
"""Weight of a new answer in the average latency, which is measured while the limit is at its initial value."""


class AdaptiveLimit:
    """Grows while answers are quick, at first by one with each answer; shrinks while requests queue or answers are slow.

    There is no fixed rate: a small server is not overloaded and a large one is used fully. Where answers take
    much longer than the lowest latency, requests queue at the server. More concurrent requests would only
    lengthen that queue, in which the watch events of bound pods wait too, and open more connections. So the
    limit shrinks, to its initial value at the least. At the initial value, the average latency is learnt: a
    server that other clients load is slow however few requests this client sends, and without this floor the
    limit would shrink to nothing. No I/O, no clock; the caller reports when each request began and how it
    ended.
    """

    def __init__(self, *, initial: int = 8, maximum: int = 128, slow_seconds: float = 1.0) -> None:
        """Start at an intermediate limit.

        Args:
            initial: the first limit, and the lowest one while requests queue.
            maximum: the highest limit: what a connection pool and a server's queue can take.
            slow_seconds: an answer that takes longer is a sign of too many requests in flight.
        """
        self._value = self._initial = float(initial)
        self._maximum = float(maximum)
        self._slow_seconds = slow_seconds
        self._shrunk_at = float("-inf")
        self._quick_seconds = float("inf")  # recent low latency
        self._is_new = True  # nothing has queued yet

    @property
    def value(self) -> int:
        """The current limit, at least 1."""
        return int(self._value)

    def answered(self, *, started: float, now: float, all_used: bool) -> None:
        """Record an answer.

        Args:
            started: when the request was sent, in seconds of any one clock.
            now: the current time of the same clock.
            all_used: whether the limit delayed other requests; a limit that is not reached does not grow.
        """
        seconds = now - started
        quick = self._quick_seconds
        if self._value <= self._initial and not self._is_new and quick < float("inf"):
            self._quick_seconds += _LEARNING * (seconds - quick)
        else:
            self._quick_seconds = min(seconds, quick * _FORGETTING)
        if seconds > self._slow_seconds:
            self._shrink(0.7, started, now)
        elif self._queues(seconds):
            self._is_new = False
            self._value = max(min(self._initial, self._value), self._value - 1 / self._value)
        elif all_used and started > self._shrunk_at:
            self._value = min(self._maximum, self._value + (1 if self._is_new else 1 / self._value))

    def _queues(self, seconds: float) -> bool:
        """Return whether an answer that took this long waited for other requests."""
        return seconds > _QUEUED_TIMES * self._quick_seconds + _QUEUED_SECONDS

    def overloaded(self, *, started: float, now: float) -> None:
        """Record that the server reported overload, or did not answer in time."""
        self._shrink(0.5, started, now)

    def _shrink(self, factor: float, started: float, now: float) -> None:
        # A request sent before the last shrinking says nothing about the present limit.
        self._is_new = False
        if started > self._shrunk_at:
            self._value = max(1.0, self._value * factor)
            self._shrunk_at = now
