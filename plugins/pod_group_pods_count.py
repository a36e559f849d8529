"""Prefers the placement that fits the most pods of a group.

Source:
    kube-scheduler v1.36, plugins/podgrouppodscount/podgroup_pods_count.go.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from scheduler.framework import PlacementScorePlugin, PodGroupMembers  # the constructor's types are read

if TYPE_CHECKING:
    from collections.abc import Sequence

    from scheduler.framework import Placement, PodGroup
    from scheduler.objects.pod import PodInfo
    from scheduler.snapshot import Snapshot


class PodGroupPodsCount(PlacementScorePlugin):
    """Counts."""

    name = "PodGroupPodsCount"
    api_version = 1

    def __init__(self, *, members: PodGroupMembers) -> None:
        self._members = members

    def score_placement(
        self, group: PodGroup, placement: Placement, assigned: Sequence[PodInfo], snapshot: Snapshot
    ) -> int:
        return sum(len(self._members.placed(leaf.key)) for leaf in group.leaves) + len(assigned)

    def foresee(
        self, group: PodGroup, placement: Placement, members: Sequence[PodInfo], snapshot: Snapshot
    ) -> int | None:
        return self.score_placement(group, placement, members, snapshot)

    def normalize_placement_scores(self, group: PodGroup, scores: Sequence[int]) -> Sequence[int]:
        most = max(scores)
        if not most:
            raise ValueError("no pods from pod group are assigned to any of the candidate placements")
        return [score * 100 // most for score in scores]
