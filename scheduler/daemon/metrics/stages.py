"""The metrics of kube-scheduler by Kubernetes version: in which it has them, and how stable they are there.

Source:
    kube-scheduler v1.34, v1.35 and v1.36, metrics/metrics.go, Register and InitMetrics,
    plugins/volumebinding/metrics/metrics.go and component-base/metrics/prometheus; v1.37, metrics/metrics.go, and pull
    requests #138542 (claims), #139604 (placements) and #140511 (informers).
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

    from scheduler.framework.features import Features

_ALPHA, _BETA, _STABLE = "1.34 [ALPHA]", "1.34 [BETA]", "1.34 [STABLE]"
_BETA_SINCE_36, _BETA_SINCE_37 = "1.34 [ALPHA], 1.36 [BETA]", "1.34 [ALPHA], 1.37 [BETA]"
_SINCE_36, _SINCE_37 = "1.36 [ALPHA]", "1.37 [ALPHA]"
_REMOVED = "removed"
STAGES: Final[Mapping[str, str]] = {
    "dynamic_resource_allocation_resourceclaim_creates_total": _SINCE_37,
    "informer_store_resource_version": _SINCE_37,
    "leader_election_master_status": _ALPHA,
    "rest_client_rate_limiter_duration_seconds": _ALPHA,
    "rest_client_request_duration_seconds": _ALPHA,
    "rest_client_request_size_bytes": _ALPHA,
    "rest_client_requests_total": _ALPHA,
    "rest_client_response_size_bytes": _ALPHA,
    "scheduler_cache_size": _ALPHA,
    "scheduler_dra_bindingconditions_allocations_total": _SINCE_36,
    "scheduler_dra_bindingconditions_wait_duration_seconds": _SINCE_36,
    "scheduler_event_handling_duration_seconds": _ALPHA,
    "scheduler_framework_extension_point_duration_seconds": _STABLE,
    "scheduler_generated_placements_total": _SINCE_37,
    "scheduler_goroutines": _BETA_SINCE_36,
    "scheduler_inflight_events": _ALPHA,
    "scheduler_pending_pods": _STABLE,
    "scheduler_permit_wait_duration_seconds": _BETA_SINCE_36,
    "scheduler_placement_evaluation_duration_seconds": _SINCE_37,
    "scheduler_placement_evaluations_total": _SINCE_37,
    "scheduler_plugin_evaluation_total": _BETA_SINCE_36,
    "scheduler_plugin_execution_duration_seconds": _BETA_SINCE_37,
    "scheduler_pod_scheduled_after_flush_total": _SINCE_36,
    "scheduler_pod_scheduling_attempts": _STABLE,
    "scheduler_pod_scheduling_sli_duration_seconds": _BETA,
    "scheduler_podgroup_schedule_attempts_total": _SINCE_36,
    "scheduler_podgroup_scheduling_algorithm_duration_seconds": _SINCE_36,
    "scheduler_podgroup_scheduling_attempt_duration_seconds": _SINCE_36,
    "scheduler_preemption_attempts_total": _STABLE,
    "scheduler_preemption_evaluation_duration_seconds": _SINCE_37,
    "scheduler_preemption_execution_duration_seconds": _SINCE_37,
    "scheduler_preemption_goroutines_duration_seconds": (
        "1.34 [ALPHA], 1.37 [ALPHA] (Deprecated since 1.37.0)"
    ),
    "scheduler_preemption_goroutines_execution_total": _ALPHA,
    "scheduler_preemption_pdb_violations_total": _SINCE_37,
    "scheduler_preemption_victims": _STABLE,
    "scheduler_preemption_workload_disruptions": _SINCE_37,
    "scheduler_queue_incoming_entities_total": _SINCE_37,
    "scheduler_queue_incoming_pods_total": _STABLE,
    "scheduler_queued_entities": _SINCE_37,
    "scheduler_queueing_hint_execution_duration_seconds": _ALPHA,
    "scheduler_resourceclaim_creates_total": "1.35 [ALPHA], 1.37 removed",
    "scheduler_schedule_attempts_total": _STABLE,
    "scheduler_scheduling_algorithm_duration_seconds": _BETA_SINCE_37,
    "scheduler_scheduling_attempt_duration_seconds": _STABLE,
    "scheduler_unschedulable_pods": _BETA_SINCE_36,
    "scheduler_volume_scheduling_stage_error_total": _ALPHA,
    "scheduler_workload_preemption_attempts_total": _SINCE_37,
    "scheduler_workload_preemption_victims": _SINCE_37,
    "workqueue_adds_total": _BETA_SINCE_36,
    "workqueue_depth": _BETA_SINCE_36,
    "workqueue_longest_running_processor_seconds": _BETA_SINCE_36,
    "workqueue_queue_duration_seconds": _BETA_SINCE_36,
    "workqueue_retries_total": _BETA_SINCE_36,
    "workqueue_unfinished_work_seconds": _BETA_SINCE_36,
    "workqueue_work_duration_seconds": _BETA_SINCE_36,
}
"""Name -> the beginning of its description since each version, in ascending order; or that it is removed."""

_GROUPS, _PLACEMENTS = "GenericWorkload", "TopologyAwareWorkloadScheduling"
GATES: Final[Mapping[str, str]] = {
    "dynamic_resource_allocation_resourceclaim_creates_total": "DRAExtendedResource",
    "scheduler_dra_bindingconditions_allocations_total": "DRADeviceBindingConditions",
    "scheduler_dra_bindingconditions_wait_duration_seconds": "DRADeviceBindingConditions",
    "scheduler_generated_placements_total": _PLACEMENTS,
    "scheduler_placement_evaluation_duration_seconds": _PLACEMENTS,
    "scheduler_placement_evaluations_total": _PLACEMENTS,
    "scheduler_podgroup_schedule_attempts_total": _GROUPS,
    "scheduler_podgroup_scheduling_algorithm_duration_seconds": _GROUPS,
    "scheduler_podgroup_scheduling_attempt_duration_seconds": _GROUPS,
    "scheduler_preemption_evaluation_duration_seconds": _GROUPS,
    "scheduler_preemption_execution_duration_seconds": _GROUPS,
    "scheduler_preemption_pdb_violations_total": _GROUPS,
    "scheduler_preemption_workload_disruptions": _GROUPS,
    "scheduler_resourceclaim_creates_total": "DRAExtendedResource",
    "scheduler_workload_preemption_attempts_total": _GROUPS,
    "scheduler_workload_preemption_victims": _GROUPS,
}
"""Name -> the feature gate without which kube-scheduler does not have the metric."""


def stage_of(name: str, features: Features) -> str | None:
    """Return how the description of a metric begins; None if kube-scheduler with these features does not have it.

    It is "" for metrics of this scheduler and of its process, which are in every version.
    """
    if name not in STAGES:
        return ""
    gate = GATES.get(name)
    return None if gate is not None and not features.enabled(gate) else stage_in(name, features.version)


@cache
def stage_in(name: str, version: str) -> str | None:
    """Return how the description of a metric of `STAGES` begins in a version; None if kube-scheduler does not have it."""
    stage = None
    for change in STAGES[name].split(", "):
        since, _, text = change.partition(" ")
        if _number(since) <= _number(version):
            stage = None if text == _REMOVED else text
    return stage


def _number(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split("."))
