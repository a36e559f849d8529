"""How many requests to have under way at a time, found out by trying."""

from __future__ import annotations


class AdaptiveLimit:
    """Grows by about one per round trip while answers are quick, shrinks by a factor when they are not.

    There is no fixed rate: a small server is spared and a large one used. No I/O, no clock; the caller tells
    when each request began and how it ended.
    """

    def __init__(self, *, initial: int = 16, maximum: int = 128, slow_seconds: float = 1.0) -> None:
        """Start somewhere in the middle.

        Args:
            initial: the first limit.
            maximum: where growing ends: what a connection pool and a server's queue bear.
            slow_seconds: an answer that took longer is a sign that too much is under way.
        """
        self._value = float(initial)
        self._maximum = float(maximum)
        self._slow_seconds = slow_seconds
        self._shrunk_at = float("-inf")

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
        if now - started > self._slow_seconds:
            self._shrink(0.7, started, now)
        elif all_used and started > self._shrunk_at:
            self._value = min(self._maximum, self._value + 1 / self._value)

    def overloaded(self, *, started: float, now: float) -> None:
        """Take note that the server said it has too much to do, or did not answer in time."""
        self._shrink(0.5, started, now)

    def _shrink(self, factor: float, started: float, now: float) -> None:
        # What was sent before the last shrinking tells nothing of the limit since then.
        if started > self._shrunk_at:
            self._value = max(1.0, self._value * factor)
            self._shrunk_at = now
