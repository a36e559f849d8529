"""PlacementGenerate and PlacementScore: the possible placements of a pod group, and their scores.

Source:
    kube-scheduler v1.36, framework/runtime/framework.go, RunPlacementGeneratePlugins and RunPlacementScorePlugins.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from scheduler.engine.runtime.calls import PluginError, PointTiming, invalid_score
from scheduler.framework.group_plugins import MAX_PLACEMENT_SCORE, Placement
from scheduler.framework.interface import ExtensionCall, ExtensionPoint
from scheduler.framework.status import Code, Status

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from scheduler.engine.runtime.calls import PluginCalls
    from scheduler.framework.group_plugins import PlacementGeneratePlugin, PlacementScorePlugin
    from scheduler.framework.pod_groups import PodGroup
    from scheduler.objects.pod import PodInfo
    from scheduler.snapshot import Snapshot

    Assigned = Sequence[tuple[Placement, Sequence[PodInfo]]]


class Placing:
    """Runs the placement plugins of one profile.

    Args:
        call: calls the plugins.
        generators: the PlacementGenerate plugins, at most one.
        scorers: the PlacementScore plugins, in order.
        weights: name of a PlacementScore plugin -> its weight.

    Attributes:
        generators: the names of the PlacementGenerate plugins.
    """

    def __init__(
        self,
        call: PluginCalls,
        generators: Sequence[PlacementGeneratePlugin],
        scorers: Sequence[PlacementScorePlugin],
        weights: Mapping[str, int],
    ) -> None:
        self.generators = [plugin.name for plugin in generators]
        self._call = call
        self._generators = generators
        self._scorers = scorers
        self._weights = weights

    def generate(
        self, group: PodGroup, members: Sequence[PodInfo], snapshot: Snapshot
    ) -> Sequence[Placement] | None:
        """Return the possible placements of a group, without placements that have no nodes; None means all nodes.

        Raises:
            PluginError: the plugin failed or returned a rejection.
        """
        for plugin in self._generators:
            with PointTiming(self._call, ExtensionPoint.PLACEMENT_GENERATE):
                answer = self._call.guarded(
                    plugin,
                    ExtensionPoint.PLACEMENT_GENERATE,
                    plugin.generate_placements,
                    group,
                    members,
                    snapshot,
                    expects=_is_placements,
                )
                if isinstance(answer, Status):
                    raise PluginError(answer)
                return None if answer is None else [each for each in answer if each.rows.size]
        return None

    def foresee(
        self,
        group: PodGroup,
        placements: Sequence[Placement],
        members: Sequence[PodInfo],
        snapshot: Snapshot,
    ) -> Sequence[int] | None:
        """Return the total score of each placement if it had all members; None if a plugin cannot predict it.

        Raises:
            PluginError: a plugin failed.
        """
        totals = [0] * len(placements)
        for plugin in self._scorers:
            scores = [
                self._call.raising(
                    plugin, ExtensionPoint.PLACEMENT_SCORE, plugin.foresee, group, each, members, snapshot
                )
                for each in placements
            ]
            if any(score is None for score in scores):
                return None
            self._add(totals, plugin, group, [score for score in scores if score is not None])
        return totals

    def totals(self, group: PodGroup, assigned: Assigned, snapshot: Snapshot) -> Sequence[int]:
        """Return the weighted sum of all plugins' scores of each placement.

        Args:
            group: the pod group.
            assigned: each placement, with the members that would be placed there.
            snapshot: the cluster without these members.

        Raises:
            PluginError: a plugin failed or returned an invalid score.
        """
        totals = [0] * len(assigned)
        with PointTiming(self._call, ExtensionPoint.PLACEMENT_SCORE):
            for plugin in self._scorers:
                scores = [
                    self._call.raising(
                        plugin, ExtensionPoint.PLACEMENT_SCORE, plugin.score_placement, group, *each, snapshot
                    )
                    for each in assigned
                ]
                self._add(totals, plugin, group, scores)
        return totals

    def _add(
        self, totals: list[int], plugin: PlacementScorePlugin, group: PodGroup, scores: Sequence[int]
    ) -> None:
        call = ExtensionCall.NORMALIZE_PLACEMENT
        scores = self._call.raising(plugin, call, plugin.normalize_placement_scores, group, scores)
        for place, score in enumerate(scores):
            if not (isinstance(score, int) and 0 <= score <= MAX_PLACEMENT_SCORE):
                message = f'plugin "{plugin.name}" {invalid_score(score, MAX_PLACEMENT_SCORE)}'
                reason = f"applying score defaultWeights on PlacementScore plugins: {message}"
                raise PluginError(Status(Code.ERROR, (reason,), plugin.name))
            totals[place] += score * self._weights[plugin.name]


def _is_placements(answer: object) -> bool:
    """Accept the values that PlacementGenerate may return besides a status."""
    return answer is None or (
        isinstance(answer, list | tuple) and all(isinstance(each, Placement) for each in answer)
    )
