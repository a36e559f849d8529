"""The dry run of preemption: evaluates all nodes together where the plugins evaluate each node by its own pods."""

from __future__ import annotations

from itertools import islice
from types import MappingProxyType
from typing import TYPE_CHECKING

import numpy as np

from scheduler.engine.runtime.budget import over_budget
from scheduler.engine.runtime.calls import PluginError, failed_filter
from scheduler.engine.runtime.equivalence_classes import AttemptState
from scheduler.framework.diagnosis import Diagnosis
from scheduler.framework.status import Code, Status
from scheduler.loop_work import run_to_end
from scheduler.snapshot import NominatedOthers, NominatedPods

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Hashable, Mapping, Sequence

    from scheduler.engine.runtime.filtering import Filtering
    from scheduler.framework.cycle_state import CycleState
    from scheduler.framework.preemption import VictimLimit
    from scheduler.objects.pod import PodInfo
    from scheduler.snapshot import Snapshot

    Pods = Mapping[int, Sequence[PodInfo]]
    Found = Mapping[int, Status | tuple[PodInfo, ...]]
    Placed = Sequence[tuple[int, PodInfo]]

_NONE: Mapping[str, Sequence[PodInfo]] = MappingProxyType({})
_PODS_A_STEP = 500
"""Number of pods removed in one step: a few milliseconds, also if plugins look up each pod."""


class DryRun:
    """Implements `PreemptionDryRun` with the filters of one profile.

    Source:
        kube-scheduler v1.36, framework/plugins/defaultpreemption/default_preemption.go, SelectVictimsOnNode.
    """

    def __init__(self) -> None:
        self.filtering: Filtering | None = None
        """Set after the profile is built, because the calling plugin is part of the profile."""

    def dry_run(
        self,
        state: CycleState,
        pod: PodInfo,
        snapshot: Snapshot,
        removable: Pods,
        nominated: Pods,
        limit: VictimLimit | None = None,
    ) -> Found:
        """Find the victims on each node; see `PreemptionDryRun.dry_run`.

        A row at which a plugin failed has its ERROR status.

        Raises:
            PluginError: the attempt is over budget.
        """
        return run_to_end(self.steps(state, pod, snapshot, removable, nominated, limit))

    def kind(self, state: CycleState, pod: PodInfo) -> Hashable | None:
        """Return a key of the pods with equal results for equal arguments; see `PreemptionDryRun.kind`."""
        assert self.filtering is not None, "called before the profile was built"
        assert isinstance(state, AttemptState), "a plugin passes the state that it was called with"
        return state.pod_class if self.filtering.depends_on_nodes_only(state, pod) else None

    def steps(
        self,
        state: CycleState,
        pod: PodInfo,
        snapshot: Snapshot,
        removable: Pods,
        nominated: Pods,
        limit: VictimLimit | None = None,
        has_time: Callable[[], bool] = lambda: True,
        together: Mapping[str, Sequence[PodInfo]] = _NONE,
    ) -> Generator[None, None, Found]:
        """Find the victims in steps, on at least one row and on as many as time allows; raises as `dry_run`."""
        assert self.filtering is not None, "called before the profile was built"
        assert isinstance(state, AttemptState), "a plugin passes the state that it was called with"
        found: dict[int, Status | tuple[PodInfo, ...]] = {}
        for rows in self.filtering.apart(state, pod, list(removable)):
            if found and not has_time():
                break
            group = {row: removable[row] for row in rows}
            try:
                tried = yield from _try(
                    self.filtering, state.clone(), pod, snapshot, group, nominated, limit, together
                )
            except PluginError as error:
                if over_budget(error) is not None:
                    raise
                tried = dict.fromkeys(group, error.status)
            found.update(tried)
            yield
        return found


def _with_units(pods: Placed, together: Mapping[str, Sequence[PodInfo]]) -> Placed:
    """Return pods, and the pods of the same nodes that leave with them."""
    return [
        (row, each)
        for row, pod in pods
        for each in together.get(pod.uid, (pod,))
        if each.node_name == pod.node_name
    ]


def _try(
    filtering: Filtering,
    state: AttemptState,
    pod: PodInfo,
    snapshot: Snapshot,
    removable: Pods,
    nominated: Pods,
    limit: VictimLimit | None,
    together: Mapping[str, Sequence[PodInfo]],
) -> Generator[None, None, Found]:
    expected = NominatedOthers(
        NominatedPods.of({row: nominated[row] for row in removable if row in nominated}, snapshot.n_nodes)
    )
    what_if = snapshot.overlay()
    gone = ((row, each) for row, its in removable.items() for each in its)
    while some := tuple(islice(gone, _PODS_A_STEP)):
        units = _with_units(some, together) if together else some
        what_if.remove(units)
        filtering.run_remove_pods(state, pod, units, what_if)
        yield
    diagnosis = Diagnosis.blank(snapshot.n_nodes)
    rows = np.array(sorted(removable), dtype=np.intp)
    fits = set(filtering.passing(state, pod, what_if, diagnosis, rows=rows, nominated=expected).tolist())
    refusals = {row: _refusal(diagnosis, row) for row in removable if row not in fits}
    if limit is not None:
        limited = {row: limit.refusal(state, row) for row in fits}
        refusals |= {row: refusal for row, refusal in limited.items() if refusal is not None}
        fits.difference_update(refusals)
    victims: dict[int, list[PodInfo]] = {row: [] for row in fits}
    for turn in range(max((len(removable[row]) for row in fits), default=0)):
        # One pod returns to each node; if the preemptor does not fit beside it, the pod is removed again.
        back = [(row, removable[row][turn]) for row in sorted(fits) if turn < len(removable[row])]
        units = _with_units(back, together) if together else back
        what_if.add(units)
        filtering.run_add_pods(state, pod, units, what_if)
        rows = np.array([row for row, _ in back], dtype=np.intp)
        trial = Diagnosis.blank(snapshot.n_nodes)
        passing = set(filtering.passing(state, pod, what_if, trial, rows=rows, nominated=expected).tolist())
        if limit is not None:
            passing = {row for row in passing if limit.allows(state, row)}
        again = [(row, victim) for row, victim in back if row not in passing]
        if again:
            units = _with_units(again, together) if together else again
            what_if.remove(units)
            filtering.run_remove_pods(state, pod, units, what_if)
        for row, victim in again:
            victims[row].append(victim)
        yield
    return {**refusals, **{row: tuple(its) for row, its in victims.items()}}


def _refusal(diagnosis: Diagnosis, row: int) -> Status:
    found = diagnosis.outcome_of(row)
    assert found is not None, f"no plugin rejected row {row}"
    plugin, outcome = found
    if outcome.code is Code.ERROR:
        return failed_filter(plugin, outcome)
    return Status(outcome.code, outcome.reasons, plugin)
