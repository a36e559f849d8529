"""The interface through which the cycles report measurements."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

from scheduler.engine.queue.ports import QueueObserver
from scheduler.engine.runtime.calls import Instruments, NoInstruments
from scheduler.framework import PluginMetrics

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from scheduler.engine.cycle.attempt import Decision
    from scheduler.framework import Code, Counter, Features, Gauge, Histogram
    from scheduler.framework.preemption import Evaluation
    from scheduler.framework.queued_pod import QueuedPodInfo


class CycleObserver(QueueObserver, Instruments, PluginMetrics, Protocol):
    """Receives measurements of attempts, events and failures.

    Implementations must not raise and must not change any state. Times are in seconds.
    """

    def follow(self, features: Features) -> None:
        """Report the features of the configuration that is active from now on."""
        ...

    def decided(self, queued: QueuedPodInfo, decision: Decision, seconds: float) -> None:
        """Report a decision of a scheduling cycle, successful or not, and its duration."""
        ...

    def attempted(self, profile: str, result: str, seconds: float) -> None:
        """Report the end of an attempt: "scheduled", "unschedulable" or "error", and its duration."""
        ...

    def group_decided(self, seconds: float) -> None:
        """Report a decision about a group, successful or not, and its duration."""
        ...

    def group_searched(self, result: str, decisions: int) -> None:
        """Report a search for other orders of a group's members: "found" or "not_found", and the number of decisions."""
        ...

    def group_attempted(self, profile: str, result: str, seconds: float) -> None:
        """Report the end of an attempt at a group: "scheduled", "unschedulable", "waiting_on_preemption" or "error"."""
        ...

    def over_budget(self, profile: str, plugin: str) -> None:
        """Report an attempt over its budget, and the plugin that used the time."""
        ...

    def long_attempt_ended(self, profile: str, plugin: str, result: str, seconds: float) -> None:
        """Report the end of a long attempt and its CPU time: "decided", "over_budget", "failed", or "dropped".

        The plugin is the last one that needed time.
        """
        ...

    def bound(self, queued: QueuedPodInfo, seconds_since_first_attempt: float) -> None:
        """Report a bound pod."""
        ...

    def event_handled(self, event: str, seconds: float) -> None:
        """Report a handled watch event with this label, after the updates of the cache and the queue."""
        ...

    def undecodable(self, kind: str) -> None:
        """Report an object that cannot be decoded."""
        ...

    def extender_failed(self, extender: str, verb: str) -> None:
        """Report a failed call of an extender: `filter`, `prioritize`, `preempt` or `bind`."""
        ...

    def preemption_attempted(self) -> None:
        """Report an attempt to find victims."""
        ...

    def group_preemption_attempted(self, code: Code) -> None:
        """Report an attempt to find victims for a group that is one entity, and its result."""
        ...

    def preemption_evaluated(self, preemptor: str, evaluation: Evaluation, seconds: float) -> None:
        """Report the end of a search for victims, for a "pod" or a "podgroup"."""
        ...

    def preempted(self, preemptor: str, victims: int) -> None:
        """Report a preemption for a "pod", or for a "podgroup" that is one entity, and the number of its victims."""
        ...

    def preemption_ended(self, preemptor: str, result: str, seconds: float) -> None:
        """Report the end of a preemption, after all requests for its victims; `result` is `success` or `error`."""
        ...

    def placements_generated(self, profile: str, number: int) -> None:
        """Report the number of placements that a group may have."""
        ...

    def placement_evaluated(self, profile: str, *, is_feasible: bool, seconds: float) -> None:
        """Report whether a group fits in a placement, and how long the try took."""
        ...

    def counted_late(self) -> None:
        """Report a bound pod whose many affinity terms are counted in slices."""
        ...

    def rejected_by_kubelet(self, reason: str) -> None:
        """Report that a kubelet rejected a pod, with a reason such as `OutOfcpu`."""
        ...


class _Discarded:
    """A metric that is not shown; implements `Counter`, `Gauge` and `Histogram`."""

    def add(self, *labels: str, amount: float = 1.0) -> None: ...
    def replace(self, numbers: Mapping[tuple[str, ...], float]) -> None: ...
    def observe(self, number: float, *labels: str) -> None: ...


_DISCARDED: Final = _Discarded()


class NoObserver(NoInstruments):
    """Discards all measurements."""

    def follow(self, features: Features) -> None: ...
    def incoming(self, queue: str, event: str) -> None: ...
    def incoming_member(self, queue: str, event: str, *, with_group: bool) -> None: ...
    def hint_asked(self, plugin: str, event: str, result: str, seconds: float) -> None: ...
    def decided(self, queued: QueuedPodInfo, decision: Decision, seconds: float) -> None: ...
    def attempted(self, profile: str, result: str, seconds: float) -> None: ...
    def group_decided(self, seconds: float) -> None: ...
    def group_searched(self, result: str, decisions: int) -> None: ...
    def group_attempted(self, profile: str, result: str, seconds: float) -> None: ...
    def over_budget(self, profile: str, plugin: str) -> None: ...
    def long_attempt_ended(self, profile: str, plugin: str, result: str, seconds: float) -> None: ...
    def bound(self, queued: QueuedPodInfo, seconds_since_first_attempt: float) -> None: ...
    def event_handled(self, event: str, seconds: float) -> None: ...
    def undecodable(self, kind: str) -> None: ...
    def extender_failed(self, extender: str, verb: str) -> None: ...
    def preemption_attempted(self) -> None: ...
    def group_preemption_attempted(self, code: Code) -> None: ...
    def preemption_evaluated(self, preemptor: str, evaluation: Evaluation, seconds: float) -> None: ...
    def preempted(self, preemptor: str, victims: int) -> None: ...
    def preemption_ended(self, preemptor: str, result: str, seconds: float) -> None: ...
    def placements_generated(self, profile: str, number: int) -> None: ...
    def placement_evaluated(self, profile: str, *, is_feasible: bool, seconds: float) -> None: ...
    def counted_late(self) -> None: ...
    def rejected_by_kubelet(self, reason: str) -> None: ...

    def counter(self, name: str, text: str, labels: str = "") -> Counter:
        return _DISCARDED

    def gauge(self, name: str, text: str, labels: str = "") -> Gauge:
        return _DISCARDED

    def histogram(self, name: str, text: str, labels: str = "", *, bounds: Sequence[float]) -> Histogram:
        return _DISCARDED
