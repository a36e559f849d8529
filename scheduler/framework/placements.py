"""Where the members of a group may go together: a rack, a zone, or any other set of nodes.

The points run for groups, before and after their members are tried:

    PlacementGenerate  which sets of nodes are worth a try
    PlacementScore     which of those that hold the group is best

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
    """Nodes on which members of a group may go together.

    Attributes:
        name: for people, as the name of a rack.
        rows: the nodes, ascending.
    """

    name: str
    rows: Rows


class PlacementGeneratePlugin(Plugin):
    """Says where a group may go; a profile has at most one."""

    @abstractmethod
    def generate_placements(
        self, group: PodGroup, members: Sequence[PodInfo], snapshot: Snapshot
    ) -> Sequence[Placement] | Status | None:
        """Return the placements to be tried, in any order; None for all nodes together, a status if none can be told."""


class PlacementScorePlugin(Plugin):
    """Ranks placements that hold a group."""

    @abstractmethod
    def score_placement(
        self, group: PodGroup, placement: Placement, assigned: Sequence[PodInfo], snapshot: Snapshot
    ) -> int:
        """Return how good it is that these members are assigned to nodes of a placement, of which the snapshot does not know yet.

        Without `normalize_placement_scores` it must be in [0, 100].
        """

    def foresee(
        self, group: PodGroup, placement: Placement, members: Sequence[PodInfo], snapshot: Snapshot
    ) -> int | None:
        """Return what `score_placement` would say if all members were assigned; None if that depends on where.

        Where every plugin of a profile can tell, placements are tried best first, and no more of them than it takes.
        """
        return None

    def normalize_placement_scores(self, group: PodGroup, scores: Sequence[int]) -> Sequence[int]:
        """Bring the scores of all placements into [0, 100]. The default leaves them."""
        return scores
