"""Protects pods on nodes from preemption: for a time after their start, by priority, and by limits for each hour.

All plugins that preempt ask here, before they choose victims, whether pods are protected now, until when and by what.

Source:
    scheduler-plugins, pkg/preemptiontoleration, for the annotations of PriorityClasses that begin with
    `preemption-toleration`. It counts from the condition PodScheduled, and this module from `status.startTime`: the
    conditions of pods on nodes are kept without times.
"""

from __future__ import annotations

import logging
import re
from collections import Counter
from enum import Enum
from functools import lru_cache
from math import inf
from typing import TYPE_CHECKING, ClassVar, Final, NamedTuple

from plugins.preemption.ranking import started
from scheduler.errors import FieldError
from scheduler.framework import PluginArgs, Reason, Status
from scheduler.framework.preemption import MOST_EVICTIONS, Protected, RecentEvictions
from scheduler.objects.wording import Duration

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
    from typing import Any, Self

    from scheduler.framework import Clock, PluginMetrics, QueuedPods
    from scheduler.framework.preemption import Preemptions
    from scheduler.objects.pod import PodInfo
    from scheduler.snapshot import Objects, Snapshot

logger = logging.getLogger(__name__)

PRIORITY_CLASSES: Final = "scheduling.k8s.io/v1/priorityclasses"
MIN_RUN_TIME: Final = "custom-scheduler.io/min-run-time"
"""The annotation for all causes, as in `10m`."""
_MINIMUM_PRIORITY: Final = "preemption-toleration.scheduling.x-k8s.io/minimum-preemptable-priority"
_TOLERATION_SECONDS: Final = "preemption-toleration.scheduling.x-k8s.io/toleration-seconds"
_INTEGER: Final = re.compile(r"[+-]?[0-9]{1,19}")
_LONGEST: Final = 100
"""The longest text of a duration: texts of pods are cached."""

ROUNDING_SECONDS: Final = 0.001
"""A protection ends this much earlier: the two clocks are not exact, and a pod is tried again when the protection ends."""

PROTECTED: Final = Status.unschedulable(
    Reason("Pods that could be preempted are protected", "PreemptionProtected"), resolvable=False
)


class Cause(Enum):
    """Why a pod is preempted.

    Attributes:
        text: the cause in a sentence.
        field: the name of its argument.
        annotation: the annotation for this cause only.
    """

    PREEMPTION = ("preemption by priority", "preemption", "custom-scheduler.io/min-run-time-preemption")
    QUOTA_RECLAIM = ("reclaim of quota", "quotaReclaim", "custom-scheduler.io/min-run-time-quota-reclaim")
    FAIR_SHARE_RECLAIM = (
        "reclaim of fair share",
        "fairShareReclaim",
        "custom-scheduler.io/min-run-time-fair-share-reclaim",
    )

    def __init__(self, text: str, field: str, annotation: str) -> None:
        self.text, self.field, self.annotation = text, field, annotation


class MinRunTime(PluginArgs, frozen=True, kw_only=True):
    """How long a pod runs at least before it may be preempted, by cause."""

    preemption: Duration = Duration()
    quota_reclaim: Duration = Duration()
    fair_share_reclaim: Duration = Duration()

    def by_cause(self) -> dict[Cause, float]:
        """Return the seconds of each cause."""
        return {
            Cause.PREEMPTION: self.preemption.seconds,
            Cause.QUOTA_RECLAIM: self.quota_reclaim.seconds,
            Cause.FAIR_SHARE_RECLAIM: self.fair_share_reclaim.seconds,
        }


class EvictionsPerHour(PluginArgs, frozen=True, kw_only=True):
    """How many pods are preempted in an hour at most; None is no limit.

    Attributes:
        pod: of pods with one namespace and name, which a StatefulSet creates again.
        controller: of the pods of one controller.
        total: of all pods.
    """

    pod: int | None = None
    controller: int | None = None
    total: int | None = None


class ProtectionArgs(PluginArgs, frozen=True, kw_only=True):
    """How pods are protected; with it, the annotations of PriorityClasses count.

    Attributes:
        min_run_time: for pods without a time of their PriorityClass or queue.
        max_pod_min_run_time: the limit of the times in annotations of pods; 0 ignores them.
        delay: how long a pod or a group waits after its first attempt before it preempts.
        evictions_per_hour: the limits.
    """

    min_run_time: MinRunTime = MinRunTime()
    max_pod_min_run_time: MinRunTime = MinRunTime()
    delay: Duration = Duration()
    evictions_per_hour: EvictionsPerHour = EvictionsPerHour()

    def faults_of(self, causes: Iterable[Cause]) -> Iterator[FieldError]:
        """Yield the errors of a plugin that preempts for these causes."""
        for name, times in (
            ("minRunTime", self.min_run_time),
            ("maxPodMinRunTime", self.max_pod_min_run_time),
        ):
            for cause, seconds in times.by_cause().items():
                path = f"protection.{name}.{cause.field}"
                if seconds < 0:
                    yield FieldError(path, f"at least 0s is expected, was {Duration(int(seconds * 1e9))}")
                elif seconds and cause not in causes:
                    yield FieldError(path, "this plugin does not preempt for this cause")
        if self.delay < Duration():
            yield FieldError("protection.delay", f"at least 0s is expected, was {self.delay}")
        limits = self.evictions_per_hour
        for name, limit in (("pod", limits.pod), ("controller", limits.controller), ("total", limits.total)):
            if limit is not None and not 1 <= limit <= MOST_EVICTIONS:
                path = f"protection.evictionsPerHour.{name}"
                yield FieldError(path, f"1 to {MOST_EVICTIONS} is expected, was {limit}")


class PreemptingArgs(PluginArgs, frozen=True, kw_only=True):
    """The arguments of all plugins that preempt.

    Attributes:
        protection: how pods are protected; None for not at all.
    """

    CAUSES: ClassVar[tuple[Cause, ...]] = (Cause.PREEMPTION,)

    protection: ProtectionArgs | None = None

    def faults(self) -> Iterable[FieldError]:
        return () if self.protection is None else self.protection.faults_of(self.CAUSES)


def _seconds_in(text: str) -> float | None:
    """Return the seconds of a duration, at least 0; None if the text is none."""
    return _parsed(text) if len(text) <= _LONGEST else None


@lru_cache(maxsize=4096)
def _parsed(text: str) -> float | None:
    try:
        return max(0.0, Duration.parse(text).seconds)
    except ValueError:
        return None


def min_run_times(annotations: Mapping[str, str]) -> dict[Cause, float]:
    """Return the seconds in annotations, by cause; invalid ones are left out."""
    found = {}
    for cause in Cause:
        text = annotations.get(cause.annotation, annotations.get(MIN_RUN_TIME))
        seconds = None if text is None else _seconds_in(text)
        if seconds is not None:
            found[cause] = seconds
    return found


class AnnotationFaults:
    """Logs each invalid annotation of the objects of administrators once, until it changes.

    Args:
        holder: the field of the log line that has the name of the object.
    """

    def __init__(self, holder: str) -> None:
        self._holder = holder
        self._known: dict[str, Mapping[str, str]] = {}

    def note(self, name: str, annotations: Mapping[str, str]) -> None:
        """Log the new invalid annotations of an object. An object without annotations is forgotten."""
        keys = (MIN_RUN_TIME, *(cause.annotation for cause in Cause))
        found = {
            key: annotations[key]
            for key in keys
            if key in annotations and _seconds_in(annotations[key]) is None
        }
        known = self._known.pop(name, {})
        for key, text in found.items():
            if known.get(key) != text:
                _warn(key, text, **{self._holder: name})
        if found:
            self._known[name] = found


def _warn(key: str, text: str, **holder: str) -> None:
    logger.warning(
        "Annotation is invalid and is ignored", extra={**holder, "annotation": key, "value": text[:80]}
    )


class _Class(NamedTuple):
    """The fields of a PriorityClass that are read.

    Attributes:
        obj: the object.
        seconds: the minimum run times by cause.
        minimum_priority: the least priority of a preemptor to which the toleration does not apply.
        toleration_seconds: how long pods tolerate preemption; negative without end.
    """

    obj: Mapping[str, Any]
    seconds: Mapping[Cause, float]
    minimum_priority: int = 0
    toleration_seconds: int = 0


def _read_class(name: str, obj: Mapping[str, Any]) -> _Class:
    annotations = obj["metadata"].get("annotations") or {}
    seconds = min_run_times(annotations)
    minimum, toleration = annotations.get(_MINIMUM_PRIORITY), annotations.get(_TOLERATION_SECONDS)
    for key, text, bits in ((_MINIMUM_PRIORITY, minimum, 32), (_TOLERATION_SECONDS, toleration, 64)):
        if text is not None and not _is_integer(text, bits):
            _warn(key, text, priority_class=name)
            return _Class(obj, seconds)  # as in scheduler-plugins, no toleration at all
    least = int(obj.get("value", 0)) + 1 if minimum is None else int(minimum)
    return _Class(obj, seconds, least, int(toleration or 0))


def _is_integer(text: str, bits: int) -> bool:
    """Return whether Go reads a text as an integer of this size."""
    return _INTEGER.fullmatch(text) is not None and -(1 << bits - 1) <= int(text) < 1 << bits - 1


class Protection:
    """The protection of pods by one plugin of a profile.

    Args:
        args: the settings.
        causes: why the plugin preempts.
        clock: the time.
        queued: the pending pods.
        preemptions: has the recent evictions.
        metrics: declares the metric.
    """

    def __init__(
        self,
        args: ProtectionArgs,
        causes: Sequence[Cause],
        clock: Clock,
        queued: QueuedPods,
        preemptions: Preemptions,
        metrics: PluginMetrics,
    ) -> None:
        self._clock, self._queued, self.causes = clock, queued, causes
        self.recent, self._may_wait = preemptions.recent, preemptions.may_wait
        self.seconds = args.min_run_time.by_cause()
        self.most_of_pods = args.max_pod_min_run_time.by_cause()
        self.reads_pods = any(self.most_of_pods.values())
        self._delay = args.delay
        self.limits = args.evictions_per_hour
        self.has_limits = self.limits != EvictionsPerHour()
        self._classes: dict[str, _Class] = {}
        self._faults = AnnotationFaults("priority_class")
        self._prevented = metrics.counter(
            "custom_scheduler_preemptions_prevented_total",
            "Attempts to preempt that found no victims while pods were protected, or while the preemptor waited: "
            "min_run_time, toleration, evictions_per_hour, delay.",
            "protection",
        )

    @classmethod
    def of(
        cls,
        args: PreemptingArgs,
        clock: Clock,
        queued: QueuedPods,
        preemptions: Preemptions,
        metrics: PluginMetrics,
    ) -> Self | None:
        """Return the protection by a plugin's arguments; None if they have none."""
        if args.protection is None:
            return None
        return cls(args.protection, args.CAUSES, clock, queued, preemptions, metrics)

    def version(self, snapshot: Snapshot) -> Hashable:
        """Return a value that changes with all that protects pods, besides the pods and the time."""
        return snapshot.objects(PRIORITY_CLASSES).changes, self.recent.count if self.has_limits else 0

    def check(
        self,
        priority: int,
        snapshot: Snapshot,
        time_of_queue: Callable[[PodInfo, Cause], tuple[float, str] | None],
        leaving_with: Callable[[Sequence[PodInfo]], Sequence[PodInfo]],
    ) -> ProtectionCheck:
        """Return the check for one search for victims.

        Args:
            priority: the priority of the preemptor.
            snapshot: the cluster.
            time_of_queue: returns the minimum run time of a pod's queue for a cause, and the title of the queue.
            leaving_with: returns all pods that leave with victims.
        """
        return ProtectionCheck(
            self, priority, snapshot.objects(PRIORITY_CLASSES), time_of_queue, leaving_with, self._clock
        )

    def why_wait(self, pods: Sequence[PodInfo]) -> Reason | None:
        """Return why a pod, or the pods of a group, do not preempt yet; None if they may. They are tried again in time."""
        if not self._may_wait:
            return None
        queued = [self._queued.get(pod.uid) for pod in pods]
        times = [inf if each is None else each.initial_attempt_timestamp for each in queued]
        first = min((at for at in times if at is not None), default=inf)
        end = first + self._delay.seconds
        if not self._clock.monotonic() < end < inf:
            return None
        self._prevented.add("delay")
        self._try_at(pods, end)
        text = f"not eligible until {self._delay} after the first attempt, since a node may be added."
        return Reason(text, "PreemptionDelayed")

    def found_none(self, pods: Sequence[PodInfo], protected: Iterable[Protected]) -> Protected | None:
        """Record that a search found no victims for pods; they are tried again when the first protection ends.

        Returns:
            That protection; None if there is none.
        """
        first = min(protected, key=lambda each: each.until, default=None)
        if first is None:
            return None
        self._prevented.add(first.kind)
        if first.until < inf:
            left = first.until - self._clock.utc_now().timestamp()
            self._try_at(pods, self._clock.monotonic() + left)
        return first

    def _try_at(self, pods: Sequence[PodInfo], at: float) -> None:
        for pod in pods:
            self._queued.try_at(pod.uid, at)

    def class_of(self, pod: PodInfo, classes: Objects) -> _Class | None:
        """Return the PriorityClass of a pod."""
        name = pod.pod.spec.priority_class_name
        obj = classes.get(name) if name else None
        if obj is None:
            return None
        known = self._classes.get(name)
        if known is None or known.obj is not obj:
            if len(self._classes) > len(classes):
                self._classes.clear()  # some of them do not exist any more
            self._faults.note(name, obj["metadata"].get("annotations") or {})
            known = self._classes[name] = _read_class(name, obj)
        return known


class ProtectionCheck:
    """Says which pods are protected now, for one search for victims.

    Attributes:
        now: the time of the search, in seconds since 1970.
        monotonic: the same time on the monotonic clock.
        found: row -> the protection there that ends first; -1 for pods of any node.
    """

    def __init__(
        self,
        protection: Protection,
        priority: int,
        classes: Objects,
        time_of_queue: Callable[[PodInfo, Cause], tuple[float, str] | None],
        leaving_with: Callable[[Sequence[PodInfo]], Sequence[PodInfo]],
        clock: Clock,
    ) -> None:
        self.monotonic = clock.monotonic()
        self.now = clock.utc_now().timestamp()
        self.found: dict[int, Protected] = {}
        self._protection, self._priority, self._classes = protection, priority, classes
        self._time_of_queue, self._leaving_with = time_of_queue, leaving_with

    def protects(self, pods: Sequence[PodInfo], cause: Cause, row: int = -1) -> bool:
        """Return whether pods that leave together are protected.

        Args:
            pods: a pod, or the pods of a group that leaves as a whole: one run time counts for all of them.
            cause: the cause of the preemption.
            row: the node of the search.
        """
        return self._noted(row, self.protection_of(pods, cause))

    def unprotected(self, units: Iterable[Sequence[PodInfo]], cause: Cause, row: int) -> set[str]:
        """Return the uids of the pods of those units that are not protected."""
        return {pod.uid for unit in units if not self.protects(unit, cause, row) for pod in unit}

    def exceeds_limit(self, victims: Sequence[PodInfo], row: int = -1) -> bool:
        """Return whether the eviction of victims exceeds a limit, with all pods that leave with them."""
        if not self._protection.has_limits:
            return False
        leaving = [pod for pod in self._leaving_with(victims) if not pod.is_terminating]
        return self._noted(row, self._last(leaving, self._limits(leaving)))

    def protection_of(self, pods: Sequence[PodInfo], cause: Cause) -> Protected | None:
        """Return the protection of pods that leave together which ends last; None if they are not protected."""
        staying = [pod for pod in pods if not pod.is_terminating]
        if not staying:
            return None
        # A pod whose kubelet has not reported its start begins to run now.
        began = min(self.now, *map(started, staying))
        ends = [
            (began + seconds, by, kind) for pod in staying for seconds, by, kind in self._times(pod, cause)
        ]
        if self._protection.has_limits and (len(staying) > 1 or self._protection.recent):
            ends += self._limits(staying)
        return self._last(staying, ends)

    def least_priority(self, pods: Iterable[PodInfo]) -> int:
        """Return the least priority of a preemptor that no pod tolerates now; the least integer if none tolerates any."""
        found = [-(1 << 31)]
        for pod in pods:
            its_class = self._protection.class_of(pod, self._classes)
            seconds = 0 if its_class is None else its_class.toleration_seconds
            if its_class and (seconds < 0 or min(self.now, started(pod)) + seconds > self.now):
                found.append(its_class.minimum_priority)
        return max(found)

    def _noted(self, row: int, protected: Protected | None) -> bool:
        if protected is None:
            return False
        known = self.found.get(row)
        if known is None or protected.until < known.until:
            self.found[row] = protected
        return True

    def _last(self, pods: Sequence[PodInfo], ends: Iterable[tuple[float, str, str]]) -> Protected | None:
        until, by, kind = max(ends, default=(0.0, "", ""))
        return None if until <= self.now + ROUNDING_SECONDS else Protected(pods[0].key, until, by, kind)

    def _times(self, pod: PodInfo, cause: Cause) -> Iterator[tuple[float, str, str]]:
        """Yield the seconds for which a pod is protected from its start, by what, and the kind."""
        protection = self._protection
        its_class = protection.class_of(pod, self._classes)
        if its_class is not None and cause in its_class.seconds:
            yield (
                its_class.seconds[cause],
                f"PriorityClass {pod.pod.spec.priority_class_name}",
                "min_run_time",
            )
        elif (found := self._time_of_queue(pod, cause)) is not None:
            yield *found, "min_run_time"
        else:
            yield protection.seconds[cause], f"minRunTime.{cause.field} of the profile", "min_run_time"
        most = protection.most_of_pods[cause]
        if most:
            own = min(most, min_run_times(pod.annotations).get(cause, 0.0))
            yield own, "the annotation of the pod", "min_run_time"
        if its_class is not None and cause is Cause.PREEMPTION:
            seconds = its_class.toleration_seconds
            if seconds and self._priority < its_class.minimum_priority:
                by = f"the preemption toleration of PriorityClass {pod.pod.spec.priority_class_name}"
                yield inf if seconds < 0 else seconds, by, "toleration"

    def _limits(self, pods: Sequence[PodInfo]) -> Iterator[tuple[float, str, str]]:
        """Yield until when limits protect pods that would be evicted together, by what, and the kind."""
        limits, recent = self._protection.limits, self._protection.recent
        for name, limit, keys in (
            ("pod", limits.pod, map(RecentEvictions.by_pod, pods)),
            ("controller", limits.controller, map(RecentEvictions.by_controller, pods)),
            ("total", limits.total, (RecentEvictions.IN_ALL for _ in pods)),
        ):
            if limit is None:
                continue
            for key, number in Counter(keys).items():
                at = recent.allowed_at(key, limit, number, self.monotonic)
                if at:
                    until = self.now + at - self.monotonic
                    yield until, f"evictionsPerHour.{name} of the profile", "evictions_per_hour"
