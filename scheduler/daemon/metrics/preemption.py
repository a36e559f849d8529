"""Metrics of preemption, and of the placements of groups."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scheduler.daemon.metrics.families import exponential_buckets

if TYPE_CHECKING:
    from scheduler.daemon.metrics.families import Families
    from scheduler.framework.preemption import Evaluation
    from scheduler.framework.status import Code


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
