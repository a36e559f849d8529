"""Placements of a group's members: a rack, a zone, or any other set of nodes.

These extension points run for groups, before and after their members are tried:

    PlacementGenerate  the sets of nodes to try
    PlacementScore     which of the sets that fit the group is best

Source:
    kube-scheduler v1.36, staging/src/k8s.io/kube-scheduler/framework/interface.go, PlacementGeneratePlugin and
    PlacementScorePlugin.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING

from scheduler.framework.interface import Plugin

if TYPE_CHECKING:
    from collections.abc import Sequence

    from scheduler.framework.pod_groups import PodGroup
    from scheduler.framework.status import Status
    from scheduler.objects.pod import PodInfo
    from scheduler.snapshot import Rows, Snapshot

MAX_PLACEMENT_SCORE = 100
"""The best score a placement can have from one plugin after `normalize_placement_scores`; the worst is 0."""


@dataclass(frozen=True, slots=True, eq=False)
class Placement:
    """Nodes on which the members of a group may run together.

    Attributes:
        name: name for people, such as the name of a rack.
        rows: the nodes, ascending.
    """

    name: str
    rows: Rows


class PlacementGeneratePlugin(Plugin):
    """Generates the placements of a group; a profile has at most one."""

    @abstractmethod
    def generate_placements(
        self, group: PodGroup, members: Sequence[PodInfo], snapshot: Snapshot
    ) -> Sequence[Placement] | Status | None:
        """Return the placements to try, in any order; None for all nodes together, a status if none can be determined."""


class PlacementScorePlugin(Plugin):
    """Scores placements that fit a group."""

    @abstractmethod
    def score_placement(
        self, group: PodGroup, placement: Placement, assigned: Sequence[PodInfo], snapshot: Snapshot
    ) -> int:
        """Score the assignment of these members to nodes of a placement; the snapshot does not include the assignment.

        Without `normalize_placement_scores` the score must be in [0, 100].
        """

    def foresee(
        self, group: PodGroup, placement: Placement, members: Sequence[PodInfo], snapshot: Snapshot
    ) -> int | None:
        """Return the result of `score_placement` if all members were assigned; None if it depends on their nodes.

        If every plugin of a profile can predict it, placements are tried best first, and only as many as
        necessary.
        """
        return None

    def normalize_placement_scores(self, group: PodGroup, scores: Sequence[int]) -> Sequence[int]:
        """Bring the scores of all placements into [0, 100]. The default returns them unchanged."""
        return scores
