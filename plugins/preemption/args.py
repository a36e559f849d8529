"""The arguments of DefaultPreemption.

Source:
    kube-scheduler v1.36, apis/config/validation/validation_pluginargs.go, ValidateDefaultPreemptionArgs, and
    plugins/defaultpreemption/default_preemption.go, calculateNumCandidates.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from scheduler.errors import FieldError
from scheduler.framework import PluginArgs

if TYPE_CHECKING:
    from collections.abc import Iterator

_PERCENTAGE, _ABSOLUTE = "minCandidateNodesPercentage", "minCandidateNodesAbsolute"


class DefaultPreemptionArgs(PluginArgs, frozen=True):
    """How many candidates are enough.

    Attributes:
        min_candidate_nodes_percentage: of the nodes where preemption might help, 0 to 100.
        min_candidate_nodes_absolute: at least that many, if there are.
    """

    min_candidate_nodes_percentage: int = 10
    min_candidate_nodes_absolute: int = 100

    def faults(self) -> Iterator[FieldError]:
        percentage, absolute = self.min_candidate_nodes_percentage, self.min_candidate_nodes_absolute
        if not 0 <= percentage <= 100:
            yield FieldError(_PERCENTAGE, f"Invalid value: {percentage}: not in valid range [0, 100]")
        if absolute < 0:
            yield FieldError(_ABSOLUTE, f"Invalid value: {absolute}: not in valid range [0, inf)")
        if percentage == 0 and absolute == 0:
            for path, other in ((_PERCENTAGE, _ABSOLUTE), (_ABSOLUTE, _PERCENTAGE)):
                yield FieldError(path, f"Invalid value: 0: cannot be zero at the same time as {other}")

    def enough(self, n_nodes: int) -> int:
        """Return how many candidates to look for among that many nodes."""
        share = n_nodes * self.min_candidate_nodes_percentage // 100
        return min(max(share, self.min_candidate_nodes_absolute), n_nodes)
