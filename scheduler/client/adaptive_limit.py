"""How many requests to have under way at a time, found out by trying."""

from __future__ import annotations

_QUEUED_TIMES = 2.0
_QUEUED_SECONDS = 0.005
_FORGETTING = 1.0002
"""By how much the quickest answer counts as slower with each answer after it: the server, or the way to it, may be another."""
_LEARNING = 0.05
"""The share of a new answer in what is quick, while so little is under way that others make the server slow, not it."""


class AdaptiveLimit:
    """Grows while answers are quick, at first as fast as they come; shrinks where requests queue, or answers are slow.

    There is no fixed rate: a small server is spared and a large one used. Where answers take much longer than the
    quickest ones do, requests queue at the server: as many at a time lengthen that queue, which the events of pods that
    were bound then stand in too, and keep more connections, and nothing else. So the limit goes back, to where it began at
    the least. What is quick is learnt there: a server that others keep busy is slow however little is asked of it, and
    who asked for less and less would get nothing. No I/O, no clock; the caller tells when each request began and how it
    ended.
    """

    def __init__(self, *, initial: int = 8, maximum: int = 128, slow_seconds: float = 1.0) -> None:
        """Start somewhere in the middle.

        Args:
            initial: the first limit, and the least where requests queue.
            maximum: where growing ends: what a connection pool and a server's queue bear.
            slow_seconds: an answer that took longer is a sign that too much is under way.
        """
        self._value = self._initial = float(initial)
        self._maximum = float(maximum)
        self._slow_seconds = slow_seconds
        self._shrunk_at = float("-inf")
        self._quick_seconds = float("inf")  # of late
        self._is_new = True  # nothing has queued yet

    @property
    def value(self) -> int:
        """At least 1."""
        return int(self._value)

    def answered(self, *, started: float, now: float, all_used: bool) -> None:
        """Take note of an answer.

        Args:
            started: when the request was sent, in seconds of any one clock.
            now: the same clock.
            all_used: whether the limit held anything back; one that nobody reaches does not grow.
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
        """Say whether an answer that took so long had to wait for others."""
        return seconds > _QUEUED_TIMES * self._quick_seconds + _QUEUED_SECONDS

    def overloaded(self, *, started: float, now: float) -> None:
        """Take note that the server said it has too much to do, or did not answer in time."""
        self._shrink(0.5, started, now)

    def _shrink(self, factor: float, started: float, now: float) -> None:
        # What was sent before the last shrinking tells nothing of the limit since then.
        self._is_new = False
        if started > self._shrunk_at:
            self._value = max(1.0, self._value * factor)
            self._shrunk_at = now
