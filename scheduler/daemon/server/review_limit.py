"""Limits reviews of unknown clients: tokens and paths can be guessed faster than the API server reviews them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from scheduler.objects.bounded_dict import BoundedDict

if TYPE_CHECKING:
    from collections.abc import Callable

_PEER_PER_SECOND, _PEER_AT_ONCE = 5.0, 10.0
_ALL_PER_SECOND, _ALL_AT_ONCE = 20.0, 40.0
"""A single busy peer thus leaves most of the rate to others."""
_UNDER_WAY = 20
"""A slow API server gets fewer requests."""
_PEERS = 1000


@dataclass(slots=True)
class _Bucket:
    """A token bucket."""

    per_second: float
    at_once: float
    left: float
    at: float

    def wait_seconds(self, now: float) -> float:
        """Return the seconds until a token is available; 0 if one is."""
        self.left = min(self.at_once, self.left + (now - self.at) * self.per_second)
        self.at = now
        return max(0.0, (1.0 - self.left) / self.per_second)


class ReviewLimit:
    """Limits the rate of reviews, and the number in flight, for each peer and in total.

    Args:
        clock: seconds.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._all = _Bucket(_ALL_PER_SECOND, _ALL_AT_ONCE, _ALL_AT_ONCE, clock())
        self._peers: BoundedDict[str, _Bucket] = BoundedDict(_PEERS)  # in order of their last review
        self._under_way = 0

    def begin(self, peer: str) -> float:
        """Count a review for a peer and return 0; or return the seconds until one is allowed.

        After 0 the caller must call `end` when the review has ended.
        """
        now = self._clock()
        of_peer = self._peers.get(peer) or _Bucket(_PEER_PER_SECOND, _PEER_AT_ONCE, _PEER_AT_ONCE, now)
        self._peers[peer] = of_peer
        if self._under_way >= _UNDER_WAY:
            return 1.0
        seconds = max(of_peer.wait_seconds(now), self._all.wait_seconds(now))
        if seconds:
            return seconds
        of_peer.left -= 1
        self._all.left -= 1
        self._under_way += 1
        return 0.0

    def end(self) -> None:
        """Record the end of a review."""
        self._under_way -= 1
