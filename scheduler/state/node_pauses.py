"""Nodes whose kubelets rejected pods of ours lately: they rest for a while, since they know something we do not.

Another scheduler may be filling the node at this moment, or pods that are gone for the API server still hold its room.
A pause only changes which feasible node is taken: where no other can run the pod, a paused one does.
"""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from scheduler.snapshot import Snapshot

_NONE: Mapping[int, str] = MappingProxyType({})


@dataclass(slots=True)
class _Pause:
    until: float  # on the monotonic clock
    seconds: float
    why: str
    is_over: bool = False

    def holds(self, at: float) -> bool:
        return at < self.until and not self.is_over


class NodePauses:
    """Which nodes rest, how long and why.

    A node that rejects again, at the latest the longest pause after its last one, rests twice as long as before.
    What it rejects while it rests was bound before, or had nowhere else to go, and lengthens nothing.

    Args:
        initial_seconds: the first pause; 0 for none ever.
        max_seconds: the longest.
    """

    def __init__(self, *, initial_seconds: float = 5.0, max_seconds: float = 60.0) -> None:
        self._initial_seconds = initial_seconds
        self._max_seconds = max_seconds
        self._pauses: dict[str, _Pause] = {}  # node name -> its last pause, also for a while after

    def configure(self, *, initial_seconds: float, max_seconds: float) -> None:
        """Give pauses that begin from now on another length; none at all ends those there are."""
        self._initial_seconds, self._max_seconds = initial_seconds, max_seconds
        if not initial_seconds:
            self._pauses.clear()

    def rejected(self, node_name: str, why: str, *, at: float) -> float:
        """Note that a node's kubelet rejected a pod, and return for how many more seconds the node rests."""
        if not self._initial_seconds:
            return 0.0
        last = self._remembered(at).get(node_name)
        if last is not None and last.holds(at):
            return last.until - at
        seconds = self._initial_seconds if last is None else min(2 * last.seconds, self._max_seconds)
        self._pauses[node_name] = _Pause(at + seconds, seconds, why)
        return seconds

    def end(self, node_name: str) -> None:
        """End a node's pause, since it changed; should it reject again soon, it still rests longer."""
        pause = self._pauses.get(node_name)
        if pause is not None:
            pause.is_over = True

    def forget(self, node_name: str) -> None:
        """Forget a node that is gone."""
        self._pauses.pop(node_name, None)

    def kept(self) -> list[tuple[str, float, float, str, bool]]:
        """Return the pauses that are remembered: node, until when, how long, why, and whether it was ended."""
        return [
            (name, pause.until, pause.seconds, pause.why, pause.is_over)
            for name, pause in self._pauses.items()
        ]

    def resume(self, name: str, until: float, seconds: float, why: str, is_over: bool) -> None:
        """Remember a pause as `kept` returned it."""
        self._pauses[name] = _Pause(until, seconds, why, is_over)

    def names(self) -> list[str]:
        """Return the nodes of which a pause is remembered."""
        return list(self._pauses)

    def rows(self, snapshot: Snapshot, *, at: float) -> Mapping[int, str]:
        """Return row -> why, of the nodes of a snapshot that rest now."""
        if not self._pauses:
            return _NONE
        resting = {
            snapshot.row_of(name): pause.why
            for name, pause in self._remembered(at).items()
            if pause.holds(at)
        }
        return {row: why for row, why in resting.items() if row is not None}

    def resting(self, *, at: float) -> int:
        """Return how many nodes rest now."""
        return sum(pause.holds(at) for pause in self._pauses.values())

    def _remembered(self, at: float) -> Mapping[str, _Pause]:
        """Drop what is too long ago to count, and return the rest."""
        for name in [name for name, pause in self._pauses.items() if at >= pause.until + self._max_seconds]:
            del self._pauses[name]
        return self._pauses
