"""A choice is looked at once more, right before its Binding goes out: the cluster may have moved on meanwhile.

Permit and PreBind may have taken minutes. What our own other choices did to the node is no reason, since each of them
was judged with this one counted; what others did is: the node is cordoned, smaller or gone, or somebody else put a pod
there. Only then is the node judged again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from scheduler.framework.cycle_state import CycleState
from scheduler.framework.diagnosis import Diagnosis
from scheduler.framework.status import SUCCESS, Status
from scheduler.runtime.calls import PluginError

if TYPE_CHECKING:
    from scheduler.cycle.attempt import AssumedPod
    from scheduler.objects.pod import PodInfo
    from scheduler.state.cache import Cache


def is_ours(assumed: AssumedPod, newest: PodInfo | None) -> bool:
    """Say whether a pod, as the API server last showed it, is still there, still the same, and still to be bound."""
    return (
        newest is not None
        and newest.uid == assumed.pod.uid
        and not newest.node_name
        and not newest.is_terminating
    )


def last_look(cache: Cache, assumed: AssumedPod) -> Status:
    """Return a success if the node can still run the pod, else a rejection by nobody: another node may do.

    What a plugin does wrong is returned as its error.
    """
    name = assumed.node_name
    if cache.disturbances(name) == assumed.disturbances:
        return SUCCESS
    snapshot = cache.snapshot()
    row = snapshot.row_of(name)
    if row is None:
        return Status.unschedulable(f"node {name} is gone")
    filtering = assumed.attempt.framework.filtering
    counted = cache.pod(assumed.pod.uid)
    without = snapshot.overlay(remove=[(row, counted)] if counted is not None else [])
    state, diagnosis = CycleState(), Diagnosis.blank(snapshot.n_nodes)
    status = filtering.run_pre_filter(state, assumed.pod, without, diagnosis)
    rows = np.array([row], dtype=np.intp)
    try:
        if status.is_success and filtering.run_filters(state, assumed.pod, without, rows, diagnosis).size:
            return SUCCESS
    except PluginError as error:
        return error.status
    refusal = diagnosis.outcome_of(row)
    reasons = ", ".join(refusal[1].reasons) if refusal else status.message
    return Status.unschedulable(f"node {name} changed before the pod was bound: {reasons}")
