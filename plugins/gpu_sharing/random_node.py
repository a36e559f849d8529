"""RandomNode: what is chosen among the nodes that fit is left to chance."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scheduler.framework import ScorePlugin

if TYPE_CHECKING:
    from collections.abc import Hashable

    from scheduler.framework import CycleState
    from scheduler.objects.pod import PodInfo
    from scheduler.snapshot import Rows, Snapshot


class RandomNode(ScorePlugin):
    """Scores all nodes alike: any of the best is taken. Without a Score plugin the first that fits is taken, in turn."""

    name = "RandomNode"
    api_version = 1
    reads_pods = False

    def signature(self, pod: PodInfo) -> Hashable:
        return ""

    def score(self, state: CycleState, pod: PodInfo, snapshot: Snapshot, feasible: Rows) -> int:
        return 0
