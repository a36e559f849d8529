"""Checks an assumed pod again right before its Binding, because the cluster may have changed.

Permit and PreBind may take minutes. Other decisions of this scheduler need no check, because they counted the assumed
pod. Other changes do: the node was cordoned, reduced or deleted, or another client placed a pod there. Only then the
node is evaluated again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from scheduler.engine.runtime.calls import PluginError
from scheduler.engine.runtime.equivalence_classes import AttemptState
from scheduler.framework.diagnosis import Diagnosis
from scheduler.framework.status import SUCCESS, Status

if TYPE_CHECKING:
    from scheduler.engine.cycle.attempt import AssumedPod
    from scheduler.engine.state.cache import Cache


def final_check(cache: Cache, assumed: AssumedPod) -> Status:
    """Evaluate a changed node again: return a success if the pod still fits, else a rejection without a plugin.

    Another node may fit then. A failure of a plugin is returned as its error.
    """
    name = assumed.node_name
    snapshot = cache.snapshot()
    row = snapshot.row_of(name)
    if row is None:
        return Status.unschedulable(f"node {name} was deleted")
    filtering = assumed.attempt.framework.filtering
    counted = cache.pod(assumed.pod.uid)
    without = snapshot.overlay(remove=[(row, counted)] if counted is not None else [])
    state, diagnosis = AttemptState(), Diagnosis.blank(snapshot.n_nodes)
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
