"""Nodes whose kubelets rejected this scheduler's pods recently: they are paused, since the kubelet knows more.

Another scheduler may be filling the node, or deleted pods still use its capacity. A pause only changes the choice among
feasible nodes: if no other node can run the pod, a paused node does.
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
    """The paused nodes, with duration and reason.

    A node that rejects a pod again, at most the longest pause after its last pause, is paused twice as long as before.
    Rejections during a pause do not lengthen it: these pods were bound before, or had no other node.

    Args:
        initial_seconds: the first pause; 0 disables pauses.
        max_seconds: the longest pause.
    """

    def __init__(self, *, initial_seconds: float = 5.0, max_seconds: float = 60.0) -> None:
        self._initial_seconds = initial_seconds
        self._max_seconds = max_seconds
        self._pauses: dict[str, _Pause] = {}  # node name -> its last pause, kept for a while after its end

    def configure(self, *, initial_seconds: float, max_seconds: float) -> None:
        """Change the duration of pauses that begin from now on; 0 ends the current ones."""
        self._initial_seconds, self._max_seconds = initial_seconds, max_seconds
        if not initial_seconds:
            self._pauses.clear()

    def rejected(self, node_name: str, why: str, *, at: float) -> float:
        """Record that a node's kubelet rejected a pod; return for how many more seconds the node is paused."""
        if not self._initial_seconds:
            return 0.0
        last = self._remembered(at).get(node_name)
        if last is not None and last.holds(at):
            return last.until - at
        seconds = self._initial_seconds if last is None else min(2 * last.seconds, self._max_seconds)
        self._pauses[node_name] = _Pause(at + seconds, seconds, why)
        return seconds

    def end(self, node_name: str) -> None:
        """End a node's pause because the node changed; another rejection soon after still doubles the pause."""
        pause = self._pauses.get(node_name)
        if pause is not None:
            pause.is_over = True

    def forget(self, node_name: str) -> None:
        """Forget a deleted node."""
        self._pauses.pop(node_name, None)

    def kept(self) -> list[tuple[str, float, float, str, bool]]:
        """Return the remembered pauses: node, end time, duration, reason, and whether it was ended early."""
        return [
            (name, pause.until, pause.seconds, pause.why, pause.is_over)
            for name, pause in self._pauses.items()
        ]

    def resume(self, name: str, until: float, seconds: float, why: str, is_over: bool) -> None:
        """Restore a pause that `kept` returned."""
        self._pauses[name] = _Pause(until, seconds, why, is_over)

    def names(self) -> list[str]:
        """Return the nodes with a remembered pause."""
        return list(self._pauses)

    def rows(self, snapshot: Snapshot, *, at: float) -> Mapping[int, str]:
        """Return row -> reason of the nodes of a snapshot that are paused now."""
        if not self._pauses:
            return _NONE
        paused = {
            snapshot.row_of(name): pause.why
            for name, pause in self._remembered(at).items()
            if pause.holds(at)
        }
        return {row: why for row, why in paused.items() if row is not None}

    def paused(self, *, at: float) -> int:
        """Return the number of nodes that are paused now."""
        return sum(pause.holds(at) for pause in self._pauses.values())

    def _remembered(self, at: float) -> Mapping[str, _Pause]:
        """Drop pauses that are too old to count, and return the rest."""
        for name in [name for name, pause in self._pauses.items() if at >= pause.until + self._max_seconds]:
            del self._pauses[name]
        return self._pauses
