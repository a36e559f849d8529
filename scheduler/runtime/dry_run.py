"""The dry run of preemption: all nodes are tried together wherever the plugins can tell them apart."""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING

import numpy as np

from scheduler.framework.diagnosis import Diagnosis
from scheduler.framework.status import Status

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from scheduler.framework.cycle_state import CycleState
    from scheduler.objects.pod import PodInfo
    from scheduler.runtime.filtering import Filtering
    from scheduler.snapshot import Snapshot

    Pods = Mapping[int, Sequence[PodInfo]]


class DryRun:
    """Fulfils `PreemptionDryRun` with the filters of one profile.

    Source:
        kube-scheduler v1.36, framework/plugins/defaultpreemption/default_preemption.go, SelectVictimsOnNode.
    """

    def __init__(self) -> None:
        self.filtering: Filtering | None = None
        """Set once the profile is built: the plugin that asks is part of it."""

    def dry_run(
        self, state: CycleState, pod: PodInfo, snapshot: Snapshot, removable: Pods, nominated: Pods
    ) -> Mapping[int, Status | tuple[PodInfo, ...]]:
        """Find who must go; see `PreemptionDryRun.dry_run`.

        Raises:
            PluginError: a plugin failed as a whole.
        """
        assert self.filtering is not None, "asked before the profile was built"
        found: dict[int, Status | tuple[PodInfo, ...]] = {}
        for together in self.filtering.apart(state, pod, list(removable)):
            group = {row: removable[row] for row in together}
            found.update(_try(self.filtering, state.clone(), pod, snapshot, group, nominated))
        return found


def _try(
    filtering: Filtering,
    state: CycleState,
    pod: PodInfo,
    snapshot: Snapshot,
    removable: Pods,
    nominated: Pods,
) -> Mapping[int, Status | tuple[PodInfo, ...]]:
    gone = _pairs(removable)
    expected = {row: nominated[row] for row in removable if row in nominated}
    without = snapshot.overlay(remove=gone)
    filtering.run_remove_pods(state, pod, gone, without)
    diagnosis = Diagnosis.blank(snapshot.n_nodes)
    rows = np.array(sorted(removable), dtype=np.intp)
    fits = set(filtering.passing(state, pod, without, diagnosis, rows=rows, nominated=expected).tolist())
    found: dict[int, Status | tuple[PodInfo, ...]] = {
        row: _refusal(diagnosis, row) for row in removable if row not in fits
    }
    back: dict[int, list[PodInfo]] = {row: [] for row in removable}
    away: dict[int, list[PodInfo]] = {row: [] for row in fits}
    for turn in range(max((len(removable[row]) for row in fits), default=0)):
        tried = [(row, removable[row][turn]) for row in sorted(fits) if turn < len(removable[row])]
        # All go first and some come back, so that a host port two pods share is held while one is there.
        beside = snapshot.overlay(remove=gone, add=[*_pairs(back), *tried])
        filtering.run_add_pods(state, pod, tried, beside)
        rows = np.array([row for row, _ in tried], dtype=np.intp)
        trial = Diagnosis.blank(snapshot.n_nodes)
        passing = set(filtering.passing(state, pod, beside, trial, rows=rows, nominated=expected).tolist())
        for row, victim in tried:
            (back if row in passing else away)[row].append(victim)
        failed = [(row, victim) for row, victim in tried if row not in passing]
        if failed:
            again = snapshot.overlay(remove=gone, add=_pairs(back))
            filtering.run_remove_pods(state, pod, failed, again)
    found.update((row, tuple(victims)) for row, victims in away.items())
    return found


def _pairs(pods: Pods) -> list[tuple[int, PodInfo]]:
    return list(chain.from_iterable(((row, pod) for pod in its) for row, its in pods.items()))


def _refusal(diagnosis: Diagnosis, row: int) -> Status:
    found = diagnosis.outcome_of(row)
    assert found is not None, f"row {row} is refused by nobody"
    plugin, outcome = found
    return Status(outcome.code, outcome.reasons, plugin)
