"""The metrics of one scheduler.

Other packages do not know Prometheus: each measured package defines a Protocol, and `Metrics` implements them
all. Additional metrics have the prefix `custom_scheduler_`.

Source:
    kube-scheduler v1.36, metrics/metrics.go.
"""

from __future__ import annotations

import platform
from functools import cached_property
from typing import TYPE_CHECKING

from scheduler.daemon.metrics.additional import (
    ConfigurationMetrics,
    ConsistencyMetrics,
    LoopMetrics,
    RefreshMetrics,
    RestClientMetrics,
    ShardMetrics,
    WorkQueueMetrics,
)
from scheduler.daemon.metrics.families import (
    Counters,
    Families,
    Gauges,
    Histograms,
    PluginFamilies,
    ReadCounters,
    exponential_buckets,
)
from scheduler.framework.events import new_event_name
from scheduler.framework.interface import ExtensionCall, ExtensionPoint
from scheduler.framework.status import Code
from scheduler.version import VERSION

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from prometheus_client import CollectorRegistry

    from scheduler.framework.features import Features
    from scheduler.framework.preemption import Evaluation
    from scheduler.framework.queued_pod import QueuedPodInfo

_MANY_ATTEMPTS = "15+"
_ATTEMPTS = tuple(str(attempts) for attempts in range(15))  # number of attempts -> label

# Names as plain lookups, needed some thirty times for every pod: both properties compute, and the hash of an
# Enum is a Python call. Each member is one object for the lifetime of the process.
_POINT = {id(point): point.metric_name for point in (*ExtensionPoint, *ExtensionCall)}
_CODE = {id(code): code.value for code in Code}


class PreemptionMetrics:
    """Records preemptions, and tries of placements.

    Source:
        kube-scheduler v1.37, metrics/metrics.go, InitMetrics; framework/preemption/executor.go.
    """

    def __init__(self, families: Families) -> None:
        counters, histograms = families.counters, families.histograms
        self._preemptions = counters("scheduler_preemption_attempts_total", "Attempts to preempt pods.")[()]
        self._victims = histograms(
            "scheduler_preemption_victims",
            "Number of pods chosen as victims of one preemption.",
            bounds=exponential_buckets(1, 2, 7),
        )[()]
        self._preemption_seconds = histograms(
            "scheduler_preemption_goroutines_duration_seconds",
            "Duration in seconds of evicting the victims of one preemption.",
            "result",
            bounds=exponential_buckets(0.01, 2, 20),
        )
        self._preemption_runs = counters(
            "scheduler_preemption_goroutines_execution_total",
            "Number of preemptions whose victims were evicted, or could not be.",
            "result",
        )
        self._group_preemptions = counters(
            "scheduler_workload_preemption_attempts_total",
            "Attempts to preempt pods for a group as a whole, by result.",
            "result",
        )
        self._group_victims = histograms(
            "scheduler_workload_preemption_victims",
            "Number of pods chosen as victims of one preemption for a group as a whole.",
            bounds=exponential_buckets(1, 2, 11),
        )[()]
        self._disruptions = histograms(
            "scheduler_preemption_workload_disruptions",
            "Number of groups that leave as a whole, and of pods of other groups, among the victims of one preemption; "
            "preemptions without any are not counted.",
            "preemptor",
            bounds=exponential_buckets(1, 2, 11),
        )
        self._violations = counters(
            "scheduler_preemption_pdb_violations_total",
            "Number of victims that violate a PodDisruptionBudget.",
            "preemptor",
        )
        self._evaluation_seconds = histograms(
            "scheduler_preemption_evaluation_duration_seconds",
            "Duration in seconds of the search for victims, in the attempt in which it ended.",
            "preemptor result",
            bounds=exponential_buckets(0.001, 2, 16),
        )
        self._execution_seconds = histograms(
            "scheduler_preemption_execution_duration_seconds",
            "Duration in seconds of evicting the victims of one preemption, while other pods are scheduled.",
            "preemptor result",
            bounds=exponential_buckets(0.001, 2, 16),
        )
        self._placements = counters(
            "scheduler_generated_placements_total", "Placements that groups could have.", "profile"
        )
        self._tried_placements = counters(
            "scheduler_placement_evaluations_total",
            "Placements in which groups were tried, by result: feasible, infeasible.",
            "result profile",
        )
        self._placement_seconds = histograms(
            "scheduler_placement_evaluation_duration_seconds",
            "Duration in seconds of trying a group in one placement.",
            "result profile",
            bounds=exponential_buckets(0.001, 2, 15),
        )

    def preemption_attempted(self) -> None:
        """Count a PostFilter plugin's search for pods to preempt."""
        self._preemptions.add()

    def group_preemption_attempted(self, code: Code) -> None:
        self._group_preemptions[code.value].add()

    def preemption_evaluated(self, preemptor: str, evaluation: Evaluation, seconds: float) -> None:
        """Record a search for victims."""
        self._evaluation_seconds[preemptor, evaluation.code.value].observe(seconds)
        if evaluation.group_units:
            self._disruptions[preemptor].observe(evaluation.group_units)
        self._violations[preemptor].add(evaluation.violations)

    def preempted(self, preemptor: str, victims: int) -> None:
        """Record the number of victims of one preemption."""
        (self._group_victims if preemptor == "podgroup" else self._victims).observe(victims)

    def placements_generated(self, profile: str, number: int) -> None:
        self._placements[profile].add(number)

    def placement_evaluated(self, profile: str, *, is_feasible: bool, seconds: float) -> None:
        key = "feasible" if is_feasible else "infeasible", profile
        self._tried_placements[key].add()
        self._placement_seconds[key].observe(seconds)

    def preemption_ended(self, preemptor: str, result: str, seconds: float) -> None:
        """Record the end of one preemption: all victims were evicted (`success`), or not (`error`)."""
        self._execution_seconds[preemptor, result].observe(seconds)
        self._preemption_seconds[result].observe(seconds)
        self._preemption_runs[result].add()


class Metrics(PreemptionMetrics):
    """All metrics of one scheduler; several instances can exist in one process.

    All counting methods must be called in the thread of the main loop. Everything is counted in every version, and shown
    with the names of the active one.

    Attributes:
        families: all families; other packages may add theirs.
        rest_client: counts requests to the API server.
        work_queue: adds a queue of writes, and returns the observer of its items.
        configuration: counts configurations offered to the running scheduler.
        loop: records the main loop's lag.
        refreshes: counts refreshes of plugins' background data.
        consistency: counts comparisons with the API server.
    """

    def __init__(self) -> None:
        self._renames_events = False
        self.families = Families()
        super().__init__(self.families)
        self._of_plugins = PluginFamilies(self.families)
        self.rest_client = RestClientMetrics(self.families)
        self.work_queue = WorkQueueMetrics(self.families).of
        self.configuration = ConfigurationMetrics(self.families)
        self.loop = LoopMetrics(self.families)
        self.refreshes = RefreshMetrics(self.families)
        self.consistency = ConsistencyMetrics(self.families)
        self.shards = ShardMetrics(self.families)
        counters, histograms = self.families.counters, self.families.histograms
        self._attempts = counters(
            "scheduler_schedule_attempts_total",
            "Attempts to schedule pods, by result: scheduled, unschedulable (no node can run it), "
            "error (something is broken).",
            "result profile",
        )
        self._attempt_seconds = histograms(
            "scheduler_scheduling_attempt_duration_seconds",
            "Scheduling attempt latency in seconds (scheduling algorithm + binding).",
            "result profile",
            bounds=exponential_buckets(0.001, 2, 15),
        )
        self._algorithm_seconds = histograms(
            "scheduler_scheduling_algorithm_duration_seconds",
            "Scheduling algorithm latency in seconds.",
            bounds=exponential_buckets(0.001, 2, 15),
        )[()]
        self._group_attempts = counters(
            "scheduler_podgroup_schedule_attempts_total",
            "Attempts to schedule pod groups, by result: scheduled, unschedulable, waiting_on_preemption, error.",
            "result profile",
        )
        self._group_attempt_seconds = histograms(
            "scheduler_podgroup_scheduling_attempt_duration_seconds",
            "Pod group scheduling attempt latency in seconds.",
            "result profile",
            bounds=exponential_buckets(0.001, 2, 15),
        )
        self._group_algorithm_seconds = histograms(
            "scheduler_podgroup_scheduling_algorithm_duration_seconds",
            "Pod group scheduling algorithm latency in seconds.",
            bounds=exponential_buckets(0.001, 2, 15),
        )[()]
        self._group_searches = histograms(
            "custom_scheduler_podgroup_search_decisions",
            "Decisions about single pods during the search for another order of a group's members.",
            "result",
            bounds=exponential_buckets(1, 2, 12),
        )
        self._event_seconds = histograms(
            "scheduler_event_handling_duration_seconds",
            "Event handling latency in seconds.",
            "event",
            bounds=exponential_buckets(0.0001, 2, 12),
        )
        self._point_seconds = histograms(
            "scheduler_framework_extension_point_duration_seconds",
            "Latency for running all plugins of a specific extension point.",
            "extension_point status profile",
            bounds=exponential_buckets(0.0001, 2, 12),
        )
        self._plugin_seconds = histograms(
            "scheduler_plugin_execution_duration_seconds",
            "Duration for running a plugin at a specific extension point, in one cycle out of ten.",
            "plugin extension_point status",
            bounds=exponential_buckets(0.00001, 1.5, 20),
        )
        self._evaluations = counters(
            "scheduler_plugin_evaluation_total",
            "Number of times a plugin evaluated nodes, all of them at once; cached results do not count.",
            "plugin extension_point profile",
        )
        self._pod_attempts = histograms(
            "scheduler_pod_scheduling_attempts",
            "Number of attempts to successfully schedule a pod.",
            bounds=exponential_buckets(1, 2, 5),
        )[()]
        self._sli_seconds = histograms(
            "scheduler_pod_scheduling_sli_duration_seconds",
            "From a pod's first attempt until it is bound, in seconds.",
            "attempts",
            bounds=exponential_buckets(0.01, 2, 20),
        )
        self._after_flush = counters(
            "scheduler_pod_scheduled_after_flush_total",
            "Pods scheduled after they were flushed from the unschedulable pods: an event was missed.",
        )[()]
        self._permit_seconds = histograms(
            "scheduler_permit_wait_duration_seconds",
            "Duration of waiting on permit.",
            "result",
            bounds=exponential_buckets(0.001, 2, 15),
        )
        self._incoming = counters(
            "scheduler_queue_incoming_pods_total",
            "Number of pods added to scheduling queues by event and queue type.",
            "queue event",
        )
        self._incoming_members: dict[tuple[str, ...], int] = {}  # pods of groups; same labels
        self._incoming_groups: dict[tuple[str, ...], int] = {}
        self.families.append(
            ReadCounters(
                "scheduler_queue_incoming_entities_total",
                "Number of pods without a group, and of groups, added to scheduling queues by event, queue and type.",
                ("queue", "event", "type"),
                self._incoming_entities,
            )
        )
        self._hint_seconds = histograms(
            "scheduler_queueing_hint_execution_duration_seconds",
            "Duration for running a queueing hint function of a plugin.",
            "plugin event hint",
            bounds=exponential_buckets(0.00001, 1.5, 20),
        )
        self._node_loop_seconds = counters(
            "custom_scheduler_node_loop_seconds_total",
            "Time spent in plugins that evaluate nodes one by one.",
            "plugin extension_point",
        )
        self._node_loop_nodes = counters(
            "custom_scheduler_node_loop_nodes_total",
            "Nodes evaluated by plugins one by one.",
            "plugin extension_point",
        )
        self._relists = counters(
            "custom_scheduler_relists_total", "Full lists of a kind read from the API server.", "resource"
        )
        self._watch_ends = counters(
            "custom_scheduler_watch_ends_total", "Watches that ended, by reason.", "resource reason"
        )
        self._undecodable = counters(
            "custom_scheduler_undecodable_objects_total", "Objects that could not be decoded.", "kind"
        )
        self._counted_late = counters(
            "custom_scheduler_pods_counted_late_total",
            "Pods on nodes with so many affinity terms that they were counted after other work; an event names each pod.",
        )[()]
        self._passed_on = counters(
            "custom_scheduler_pods_passed_on_total",
            "Pods that another replica was to bind to one of its nodes, by what became of them: bound, returned or ended.",
            "result",
        )
        self._bind_seconds = histograms(
            "custom_scheduler_bind_duration_seconds",
            "From the request to send a Binding to its answer; code 0 is no answer.",
            "code",
            bounds=exponential_buckets(0.001, 2, 15),
        )
        self._extender_failures = counters(
            "custom_scheduler_extender_failures_total",
            "Requests to HTTP extenders that failed or had an invalid answer.",
            "extender verb",
        )
        self._over_budget = counters(
            "custom_scheduler_attempts_over_budget_total",
            "Attempts that exceeded their time budget, by the plugin that used it; the pod is quarantined.",
            "profile plugin",
        )
        self._long_attempts = counters(
            "custom_scheduler_long_attempts_ended_total",
            "Attempts that needed more than a time slice of the loop, by result: decided, over_budget (the pod is "
            "quarantined), failed (the plugin raised), or dropped (the pod was deleted or bound). The plugin is the last one "
            "that needed time.",
            "profile plugin result",
        )
        self._long_attempt_seconds = counters(
            "custom_scheduler_long_attempt_seconds_total",
            "CPU time that long attempts used, by the last plugin that needed time.",
            "profile plugin",
        )
        self._kubelet_rejections = counters(
            "custom_scheduler_kubelet_rejections_total",
            "Pods that were bound to a node whose kubelet then rejected them, by its reason.",
            "reason",
        )
        self._connection_rejected = counters(
            "custom_scheduler_connections_rejected_total",
            "Connections closed and requests rejected at the HTTP endpoints, by reason: crowded (more connections than the "
            "limit; the oldest was closed), late (no complete request came in time), no_tls, unreviewed (too many reviews of "
            "unknown clients by the API server).",
            "reason",
        )
        self._dropped = counters(
            "custom_scheduler_dropped_writes_total", "Writes dropped because their queue was full.", "queue"
        )

        self._build = self.families.gauges(
            "kubernetes_build_info",
            "Always 1; the version is that of the kube-scheduler this one decides as, followed by + and its own version.",
            "major minor git_version git_commit git_tree_state build_date go_version compiler platform",
        )

    def follow(self, features: Features) -> None:
        """Show metrics and events as the kube-scheduler with these features has them."""
        self._renames_events = features.enabled("EventNames")
        self.families.follow(features)
        version = features.version
        own = f"v{version}.0+custom-scheduler.{VERSION}"
        system = f"{platform.system().lower()}/{platform.machine()}"
        written = (*version.split("."), own, "", "", "", "", platform.python_implementation(), system)
        self._build.replace({written: 1.0})

    @cached_property
    def registry(self) -> CollectorRegistry:
        """The registry of these metrics for `prometheus_client`."""
        # Importing it takes a while, and only a process with pages needs it: `scheduler.daemon.app.pages` imports it.
        from scheduler.daemon.metrics.registry import registry_of

        return registry_of(self.families)

    @cached_property
    def _of_process(self) -> CollectorRegistry:
        """The metrics beside the families: those of the process itself."""
        from scheduler.daemon.metrics.registry import registry_of  # see `registry`

        return registry_of(())

    def text(self, accept: str = "") -> tuple[bytes, Mapping[str, str]]:
        """Return all of `pieces` at once."""
        pieces, headers = self.pieces(accept)
        return b"".join(pieces), headers

    def pieces(self, accept: str = "") -> tuple[Iterator[bytes], Mapping[str, str]]:
        """Return the body of /metrics, in pieces that take some milliseconds each, and the response headers.

        Args:
            accept: the header of the request: OpenMetrics if it is named, else the text format of Prometheus.
        """
        from prometheus_client.exposition import choose_encoder  # see `registry`

        from scheduler.daemon.metrics.registry import pieces_of

        encode, content_type = choose_encoder(accept)
        return pieces_of(self.families, self._of_process, encode), {"Content-Type": content_type}

    # Gauges read on a scrape.

    def watch_gauge(self, name: str, text: str, label: str, read: Callable[[], Mapping[str, float]]) -> None:
        """Add a gauge that is read on a scrape: label value -> number."""
        self.families.read_gauges(
            name, text, (label,), lambda: [((value,), found) for value, found in read().items()]
        )

    # Metrics of plugins.

    def counter(self, name: str, text: str, labels: str = "") -> Counters:
        """Return the counter of a plugin, as `PluginMetrics`."""
        return self._of_plugins.declared(Counters, name, text, labels)

    def gauge(self, name: str, text: str, labels: str = "") -> Gauges:
        """Return the gauge of a plugin, as `PluginMetrics`."""
        return self._of_plugins.declared(Gauges, name, text, labels)

    def histogram(self, name: str, text: str, labels: str = "", *, bounds: Sequence[float]) -> Histograms:
        """Return the histogram of a plugin, as `PluginMetrics`."""
        return self._of_plugins.declared(Histograms, name, text, labels, bounds)

    # Observations of the runtime.

    def extension_point(self, profile: str, point: ExtensionPoint, code: Code) -> Callable[[float], None]:
        return self._point_seconds[_POINT[id(point)], _CODE[id(code)], profile].observe

    def plugin(self, plugin: str, point: ExtensionPoint | ExtensionCall, code: Code, seconds: float) -> None:
        self._plugin_seconds[plugin, _POINT[id(point)], _CODE[id(code)]].observe(seconds)

    def evaluated(self, profile: str, plugin: str, point: ExtensionPoint) -> None:
        self._evaluations[plugin, _POINT[id(point)], profile].add()

    def node_loop(self, plugin: str, point: ExtensionPoint, nodes: int, seconds: float) -> None:
        self._node_loop_seconds[plugin, _POINT[id(point)]].add(seconds)
        self._node_loop_nodes[plugin, _POINT[id(point)]].add(nodes)

    def permit_wait(self, code: Code, seconds: float) -> None:
        self._permit_seconds[_CODE[id(code)]].observe(seconds)

    def over_budget(self, profile: str, plugin: str) -> None:
        """Count an attempt that exceeded its budget."""
        self._over_budget[profile, plugin].add()

    def long_attempt_ended(self, profile: str, plugin: str, result: str, seconds: float) -> None:
        """Count the end of an attempt that needed more than a time slice."""
        self._long_attempts[profile, plugin, result].add()
        self._long_attempt_seconds[profile, plugin].add(seconds)

    # Observations of the queue.

    def event_name(self, event: str, *, is_own: bool = False) -> str:
        """Return the name of an event in the emulated version; see `new_event_name`."""
        return new_event_name(event, is_own=is_own) if self._renames_events else event

    def incoming(self, queue: str, event: str) -> None:
        if self._renames_events:
            event = new_event_name(event)
        self._incoming[queue, event].add()

    def incoming_member(self, queue: str, event: str, *, with_group: bool) -> None:
        key = queue, self.event_name(event)
        self._incoming_members[key] = self._incoming_members.get(key, 0) + 1
        if with_group:
            self._incoming_groups[key] = self._incoming_groups.get(key, 0) + 1

    def _incoming_entities(self) -> Iterator[tuple[tuple[str, ...], float]]:
        for key, number in self._incoming.items():
            assert isinstance(key, tuple)
            pods, groups = (
                number.value - self._incoming_members.get(key, 0),
                self._incoming_groups.get(key, 0),
            )
            for kind, found in (("pod", pods), ("podgroup", groups)):
                if found:
                    yield (*key, kind), float(found)

    def hint_asked(self, plugin: str, event: str, result: str, seconds: float) -> None:
        if self._renames_events:
            event = new_event_name(event, is_own=True)
        self._hint_seconds[plugin, event, result].observe(seconds)

    # Observations of the cycles.

    def event_handled(self, event: str, seconds: float) -> None:
        """Record a handled watch event, by its label."""
        if self._renames_events:
            event = new_event_name(event)
        self._event_seconds[event].observe(seconds)

    def decided(self, queued: QueuedPodInfo, decision: object, seconds: float) -> None:
        self._algorithm_seconds.observe(seconds)

    def attempted(self, profile: str, result: str, seconds: float) -> None:
        key = (result, profile)
        self._attempts[key].add()
        self._attempt_seconds[key].observe(seconds)

    def group_decided(self, seconds: float) -> None:
        self._group_algorithm_seconds.observe(seconds)

    def group_searched(self, result: str, decisions: int) -> None:
        self._group_searches[result,].observe(decisions)

    def group_attempted(self, profile: str, result: str, seconds: float) -> None:
        key = (result, profile)
        self._group_attempts[key].add()
        self._group_attempt_seconds[key].observe(seconds)

    def bound(self, queued: QueuedPodInfo, seconds_since_first_attempt: float) -> None:
        attempts = queued.attempts
        self._pod_attempts.observe(attempts)
        label = _ATTEMPTS[attempts] if attempts < len(_ATTEMPTS) else _MANY_ATTEMPTS
        self._sli_seconds[label].observe(seconds_since_first_attempt)
        if queued.was_flushed_from_unschedulable:
            self._after_flush.add()

    def counted_late(self) -> None:
        self._counted_late.add()

    def passed_on(self, result: str) -> None:
        self._passed_on.add(result)

    def rejected_by_kubelet(self, reason: str) -> None:
        self._kubelet_rejections[reason].add()

    def connection_rejected(self, reason: str) -> None:
        """Count a rejected client of the HTTP endpoints."""
        self._connection_rejected[reason].add()

    def extender_failed(self, extender: str, verb: str) -> None:
        """Count a failure of an extender in `filter`, `prioritize`, `preempt` or `bind`."""
        self._extender_failures[extender, verb].add()

    def undecodable(self, kind: str) -> None:
        self._undecodable[kind].add()

    # Observations of the client.

    def listed(self, resource: object) -> None:
        self._relists[str(resource)].add()

    def watch_ended(self, resource: object, reason: str) -> None:
        self._watch_ends[str(resource), reason].add()

    def bind_answered(self, status: int, seconds: float) -> None:
        self._bind_seconds[str(status)].observe(seconds)

    def dropped(self, queue: str) -> None:
        self._dropped[queue].add()
