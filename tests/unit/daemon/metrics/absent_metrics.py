"""Metrics of kube-scheduler that this scheduler does not have, each with its reason; any other missing one is a bug."""

from __future__ import annotations

_NO_BATCHING = "opportunistic batching does not exist here: pods alike share kept verdicts instead"

_NO_TRANSPORT_CACHE = "client-go shares transports between clients; here there is one connection pool"
_EXEC_PLUGINS = (
    "what a credential plugin gives is asked for again when it expires; no certificate's age is kept"
)

FAMILIES = {
    "rest_client_exec_plugin_certificate_rotation_age": _EXEC_PLUGINS,
    "rest_client_exec_plugin_ttl_seconds": _EXEC_PLUGINS,
    "rest_client_transport_cache_entries": _NO_TRANSPORT_CACHE,
    "rest_client_transport_cert_rotation_gc_calls_total": _NO_TRANSPORT_CACHE,
    "rest_client_transport_create_calls_total": _NO_TRANSPORT_CACHE,
    "kube_pod_resource_request": "it is at /metrics/resources",
    "scheduler_batch_attempts_total": _NO_BATCHING,
    "scheduler_batch_cache_flushed_total": _NO_BATCHING,
    "scheduler_get_node_hint_duration_seconds": _NO_BATCHING,
    "scheduler_store_schedule_results_duration_seconds": _NO_BATCHING,
}
"""Family -> why. Of those that only feature gates bring, none that is off by default is looked for."""

NEW_IN_1_37 = {
    "informer_processing_latency_seconds": "scheduler_event_handling_duration_seconds has the time of each event",
    "informer_queued_items": "events are handled when they arrive, or after the running decision; there is no queue by kind",
    "scheduler_batch_rescore_attempts_total": _NO_BATCHING,
    "scheduler_batch_rescore_duration_seconds": _NO_BATCHING,
    "scheduler_pre_queueing_hint_evaluations_total": "waiting pods are found by keys, without a call of a plugin",
}
"""Family that is new in 1.37 -> why it does not exist here."""

VALUES = {
    ("scheduler_event_handling_duration_seconds", "event"): {
        "UnschedulablePodDelete": "a pod that is bound is one event here, AssignedPodAdd",
    },
    ("scheduler_framework_extension_point_duration_seconds", "extension_point"): {
        "Sign": "signing is no extension point of its own here",
        "PreBindPreFlight": "the runtime does not time it",
    },
    ("scheduler_framework_extension_point_duration_seconds", "status"): {
        "Skip": "the status of PreBindPreFlight",
    },
    ("scheduler_goroutines", "operation"): {
        "Filter": "all nodes are filtered at once, not by goroutines",
        "InterPodAffinity": "all nodes are looked at at once, not by goroutines",
    },
    ("scheduler_plugin_evaluation_total", "extension_point"): {
        "PreFilter": "the runtime counts whom it asks about nodes: at Filter and Score",
        "PreScore": "the runtime counts whom it asks about nodes: at Filter and Score",
    },
    ("scheduler_plugin_execution_duration_seconds", "extension_point"): {
        "Sign": "signing is no extension point of its own here",
    },
    ("scheduler_plugin_execution_duration_seconds", "status"): {
        "Unschedulable": "what Sign says of pods that share nothing",
    },
}
"""(family, label) -> value -> why no series has it."""
