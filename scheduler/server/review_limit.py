"""How often the API server is asked about strangers: tokens and paths are made up faster than they are reviewed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

_PEER_PER_SECOND, _PEER_AT_ONCE = 5.0, 10.0
_ALL_PER_SECOND, _ALL_AT_ONCE = 20.0, 40.0
"""So a peer that asks all the time leaves most of it to others."""
_UNDER_WAY = 20
"""An API server that is slow is asked less."""
_PEERS = 1000


@dataclass(slots=True)
class _Bucket:
    """What is left of a rate."""

    per_second: float
    at_once: float
    left: float
    at: float

    def wait_seconds(self, now: float) -> float:
        """Return when there is one more; 0 if there is."""
        self.left = min(self.at_once, self.left + (now - self.at) * self.per_second)
        self.at = now
        return max(0.0, (1.0 - self.left) / self.per_second)


class ReviewLimit:
    """So many reviews a second, and under way at a time, for each peer and for all together.

    Args:
        clock: seconds.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._all = _Bucket(_ALL_PER_SECOND, _ALL_AT_ONCE, _ALL_AT_ONCE, clock())
        self._peers: dict[str, _Bucket] = {}  # the one that asked last at the end
        self._under_way = 0

    def begin(self, peer: str) -> float:
        """Count a review for a peer and return 0; or return after how many seconds there may be one.

        Whoever was let begin says when it has ended.
        """
        now = self._clock()
        of_peer = self._peers.pop(peer, None) or _Bucket(_PEER_PER_SECOND, _PEER_AT_ONCE, _PEER_AT_ONCE, now)
        self._peers[peer] = of_peer
        if len(self._peers) > _PEERS:
            del self._peers[next(iter(self._peers))]
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
        """Note that a review was answered."""
        self._under_way -= 1
