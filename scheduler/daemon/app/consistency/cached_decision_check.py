"""Compares cached results with a new evaluation of the same decision."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from scheduler.engine.cycle.scheduling import nominated_others
from scheduler.engine.runtime.calls import PluginError
from scheduler.framework.cycle_state import CycleState
from scheduler.framework.diagnosis import Diagnosis
from scheduler.framework.sliced_work import NeedsTime
from scheduler.framework.status import Code

if TYPE_CHECKING:
    from collections.abc import Mapping

    from scheduler.engine.runtime.framework import Framework
    from scheduler.engine.state.nominator import Nominator
    from scheduler.objects.pod import PodInfo
    from scheduler.snapshot import Snapshot


class _CachedDecision(NamedTuple):
    """The result for a pod: the rejections of nodes, and the scores of the others."""

    message: str
    totals: Mapping[str, int]  # node -> its score; 0 for all if there was nothing to score


def difference(framework: Framework, pod: PodInfo, snapshot: Snapshot, nominator: Nominator) -> str:
    """Return how the result for a pod differs from one for which every plugin is called again; "" if it does not.

    No difference is reported if a plugin fails, needs more than one time slice, or returns different results for the same
    input: then nothing can be cached. No pod is preempted, and nothing is written.
    """
    try:
        kept, anew = both = _both(framework, pod, snapshot, nominator)
        if kept == anew or both != _both(framework, pod, snapshot, nominator):
            return ""
    except (PluginError, NeedsTime):
        return ""
    if kept.message != anew.message:
        return f"it is kept that {kept.message!r}, and decided that {anew.message!r}"
    nodes = sorted(
        node
        for node in kept.totals.keys() | anew.totals.keys()
        if kept.totals.get(node) != anew.totals.get(node)
    )
    node = nodes[0]
    return f"{node} and {len(nodes) - 1} more score {kept.totals.get(node)} by what is kept, {anew.totals.get(node)} anew"


def _both(
    framework: Framework, pod: PodInfo, snapshot: Snapshot, nominator: Nominator
) -> tuple[_CachedDecision, _CachedDecision]:
    """Decide with cached results, and without."""
    # A new set of rows has no log of changes, so nothing is cached for it.
    rows = snapshot.take(snapshot.all_rows)
    return _decision(framework, pod, snapshot, nominator), _decision(framework, pod, rows, nominator)


def _decision(
    framework: Framework, pod: PodInfo, snapshot: Snapshot, nominator: Nominator
) -> _CachedDecision:
    """Decide without PostFilter.

    Raises:
        PluginError: a plugin failed.
    """
    nominated = nominated_others(nominator, pod, snapshot)
    state, diagnosis = CycleState(nominated, exhaustive=True), Diagnosis.blank(snapshot.n_nodes)
    status = framework.filtering.run_pre_filter(state, pod, snapshot, diagnosis)
    if status.code is Code.ERROR:
        raise PluginError(status)
    if not status.is_success:
        return _CachedDecision(status.message, {})
    rows = snapshot.all_rows if diagnosis.narrowed_to is None else diagnosis.feasible
    feasible = framework.filtering.find_feasible(
        state, pod, snapshot, diagnosis, rows=rows, nominated=nominated
    )
    totals = [0] * len(feasible)
    if len(feasible) > 1:
        totals = framework.scoring.run(state, pod, snapshot, feasible).total.tolist()
    names = (snapshot.name_of(row) for row in feasible.tolist())
    return _CachedDecision(diagnosis.message(), dict(zip(names, totals, strict=True)))
