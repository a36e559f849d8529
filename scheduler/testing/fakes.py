"""Fakes of the capabilities that plugins may use; each keeps its calls for tests."""

from __future__ import annotations

from contextlib import nullcontext
from datetime import UTC, datetime, timedelta
from math import inf
from typing import TYPE_CHECKING, NamedTuple

from scheduler.configuration.feature_gates import features_of
from scheduler.framework import (
    ApiGet,
    ApiWrite,
    AssumedPods,
    Background,
    Clock,
    Features,
    HttpGet,
    KeyedLock,
    PluginMetrics,
    PodActivator,
    PodBinder,
    PodEvents,
    PodGroupMembers,
    PodGroupObjects,
    QueuedPodInfo,
    QueuedPods,
    Sleep,
    SlicedWork,
    StatusWrite,
    TimeSlice,
    WaitForEvent,
    WaitingPods,
)
from scheduler.framework.sliced_work import WithoutSlices
from scheduler.snapshot import object_key

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Coroutine, Iterable, Mapping, Sequence
    from contextlib import AbstractAsyncContextManager
    from typing import Any

    from scheduler.framework import ClusterEvent, EventResource, PodGroup, WantedStatus
    from scheduler.objects.pod import PodInfo
    from scheduler.objects.pod_group import GroupKey

_EPOCH = datetime(2026, 3, 1, 8, tzinfo=UTC)


class ManualClock:
    """Implements `scheduler.clock.Clock`; the test sets or advances `now`."""

    def __init__(self, now: float = 0.0) -> None:
        self.now = now

    def advance(self, seconds: float) -> None:
        self.now += seconds

    def monotonic(self) -> float:
        return self.now

    def utc_now(self) -> datetime:
        return _EPOCH + timedelta(seconds=self.now)


class FakeBinder:
    """Implements `PodBinder`; `bound` contains (key of the pod, node) of every call."""

    def __init__(self) -> None:
        self.bound: list[tuple[str, str]] = []

    async def bind(self, pod: PodInfo, node_name: str) -> None:
        self.bound.append((pod.key, node_name))


class FakeSleep:
    """Implements `Sleep` without waiting: it advances a clock."""

    def __init__(self, clock: ManualClock) -> None:
        self._clock = clock

    async def sleep(self, seconds: float) -> None:
        self._clock.advance(seconds)


class FakeKeyedLock:
    """Implements `KeyedLock` without contention."""

    def lock(self, what: str) -> AbstractAsyncContextManager[object]:
        return nullcontext()


class FakeTimeSlice:
    """Implements `TimeSlice`: by default without a limit, on a clock that stands still.

    Attributes:
        slice_seconds: maximum duration of one call.
        each_reading: seconds that pass between two readings of the clock.
    """

    def __init__(self) -> None:
        self.slice_seconds = inf
        self.each_reading = 0.0
        self._now = 0.0

    def seconds(self) -> float:
        self._now += self.each_reading
        return self._now

    def measured(self, is_so: bool, what: str = "") -> bool:
        return is_so


class FakeWeb:
    """Implements `HttpGet` and `ApiGet`.

    Args:
        pages: URL or path -> body of the answer; an OSError is raised. An unknown URL raises one too.

    Attributes:
        pages: the same; may be changed.
        asked: requested URLs and paths, oldest first.
    """

    def __init__(self, pages: Mapping[str, bytes | OSError] | None = None) -> None:
        self.pages = dict(pages or {})
        self.asked: list[str] = []

    async def http_get(self, url: str, **_options: Any) -> bytes:
        return self._answer(url)

    async def api_get(self, path: str, *, timeout_seconds: float = 5.0) -> bytes:
        return self._answer(path)

    def _answer(self, where: str) -> bytes:
        self.asked.append(where)
        found = self.pages.get(where, OSError(f"GET {where}: 404"))
        if isinstance(found, OSError):
            raise found
        return found


class FakeApi:
    """Implements `ApiWrite` and `StatusWrite`: every write succeeds and returns its body, or the status.

    Attributes:
        written: (method, path, body) of every call, oldest first.
        statuses: (kind, key, status) of every status, oldest first.
        refusals: exceptions that the next calls raise, in order; None for success.
    """

    def __init__(self) -> None:
        self.written: list[tuple[str, str, Mapping[str, Any] | None]] = []
        self.statuses: list[tuple[str, str, Mapping[str, Any]]] = []
        self.refusals: list[Exception | None] = []

    async def write_status(
        self, kind: str, key: str, uid: str, wanted: WantedStatus, **_options: Any
    ) -> Mapping[str, Any]:
        self._refuse()
        self.statuses.append((kind, key, wanted.status()))
        return {"metadata": {"uid": uid}, "status": wanted.status()}

    def _refuse(self) -> None:
        refusal = self.refusals.pop(0) if self.refusals else None
        if refusal is not None:
            raise refusal

    async def api_write(
        self, method: str, path: str, body: Mapping[str, Any] | None = None, **_options: Any
    ) -> Mapping[str, Any]:
        self._refuse()
        self.written.append((method, path, body))
        return body or {}


class FakeBackground:
    """Implements `Background`: keeps the work for the test to run."""

    def __init__(self) -> None:
        self.started: list[Coroutine[Any, Any, None]] = []

    def start(self, work: Coroutine[Any, Any, None], name: str) -> None:
        self.started.append(work)

    async def carry_out(self) -> None:
        """Run the work, in order."""
        while self.started:
            await self.started.pop(0)


class FakeEvent(NamedTuple):
    """An event that a plugin recorded; `pod` is the pod's key."""

    pod: str
    type_: str
    reason: str
    action: str
    note: str


class FakeEvents:
    """Implements `PodEvents`; `recorded` contains the events, oldest first."""

    def __init__(self) -> None:
        self.recorded: list[FakeEvent] = []

    def record(self, regarding: PodInfo, *, type_: str, reason: str, action: str, note: str) -> None:
        self.recorded.append(FakeEvent(regarding.key, type_, reason, action, note))


class FakeMetrics:
    """Implements `PluginMetrics`; `calls` contains (name, labels, number) of every call, oldest first.

    The number of a counter is the amount; a gauge has one call for each number that it shows.
    """

    def __init__(self) -> None:
        self.calls: list[tuple[str, tuple[str, ...], float]] = []

    def counter(self, name: str, text: str, labels: str = "") -> FakeMetric:
        return FakeMetric(name, labels, self.calls)

    def gauge(self, name: str, text: str, labels: str = "") -> FakeMetric:
        return FakeMetric(name, labels, self.calls)

    def histogram(self, name: str, text: str, labels: str = "", *, bounds: Sequence[float]) -> FakeMetric:
        return FakeMetric(name, labels, self.calls)


class FakeMetric:
    """One metric of `FakeMetrics`."""

    def __init__(self, name: str, labels: str, calls: list[tuple[str, tuple[str, ...], float]]) -> None:
        self._name, self._labels, self._calls = name, labels.split(), calls

    def add(self, *labels: str, amount: float = 1.0) -> None:
        self._call(labels, amount)

    def observe(self, number: float, *labels: str) -> None:
        self._call(labels, number)

    def replace(self, numbers: Mapping[tuple[str, ...], float]) -> None:
        for labels, number in numbers.items():
            self._call(labels, number)

    def _call(self, labels: tuple[str, ...], number: float) -> None:
        assert len(labels) == len(self._labels), f"{self._name} has the labels {self._labels}, was {labels}"
        self._calls.append((self._name, labels, number))


class FakeAssumedPods:
    """Implements `AssumedPods`; `replaced` contains the pods."""

    def __init__(self) -> None:
        self.replaced: list[PodInfo] = []

    def replace(self, pod: PodInfo) -> None:
        self.replaced.append(pod)


class FakeActivator:
    """Implements `PodActivator`; `activated` contains the uids."""

    def __init__(self) -> None:
        self.activated: list[str] = []

    def activate(self, uids: Iterable[str]) -> None:
        self.activated.extend(uids)


class FakeWaitForEvent:
    """Implements `WaitForEvent`: the test sets the events that will happen; the timeout passes at once."""

    def __init__(self) -> None:
        self.coming: list[tuple[ClusterEvent, Any, Any]] = []

    async def wait_for_event(
        self, wanted: Callable[[ClusterEvent, object, object], bool], *, timeout_seconds: float
    ) -> bool:
        return any(wanted(*happening) for happening in self.coming)

    async def wait_for_change_of(
        self, objects: Collection[tuple[EventResource, str]], *, timeout_seconds: float
    ) -> bool:
        return any(
            event.resource is kind and object_key(old if new is None else new) == key
            for event, old, new in self.coming
            for kind, key in objects
        )


class FakeQueuedPods:
    """Implements `QueuedPods`; `waiting` contains the pods, and `times` when they are tried again."""

    def __init__(self) -> None:
        self.waiting: dict[str, QueuedPodInfo] = {}  # uid -> pod
        self.times: dict[str, float] = {}  # uid -> seconds of the monotonic clock

    def put(self, pod: PodInfo, *, since: float = 0.0) -> None:
        """Add a pending pod with the time of its first attempt, on the monotonic clock."""
        self.waiting[pod.uid] = QueuedPodInfo(pod, since, initial_attempt_timestamp=since)

    def get(self, uid: str) -> QueuedPodInfo | None:
        return self.waiting.get(uid)

    def try_at(self, uid: str, at: float) -> None:
        self.times[uid] = at


class FakeWaitingPods:
    """Implements `WaitingPods`; `allowed` and `rejected` contain the decisions about the pods in `held`."""

    def __init__(self) -> None:
        self.held: dict[str, PodInfo] = {}  # uid -> pod
        self.allowed: list[tuple[str, str]] = []  # uid, plugin
        self.rejected: list[tuple[str, str, str]] = []  # uid, plugin, reason

    def waiting(self) -> Iterable[PodInfo]:
        return list(self.held.values())

    def allow(self, uid: str, plugin: str) -> None:
        self.allowed.append((uid, plugin))

    def reject(self, uid: str, plugin: str, reason: str) -> None:
        self.rejected.append((uid, plugin, reason))


class FakePodGroups:
    """Implements `PodGroupMembers` and `PodGroupObjects` with the members and groups of a test."""

    def __init__(self) -> None:
        self.changes = 0
        self.counts: dict[GroupKey, int] = {}
        self.in_queue: dict[GroupKey, list[str]] = {}
        self.on_nodes: dict[GroupKey, list[PodInfo]] = {}
        self.groups: dict[GroupKey, PodGroup] = {}

    def count(self, key: GroupKey) -> int:
        return self.counts.get(key, 0)

    def pending(self, key: GroupKey) -> Collection[str]:
        return self.in_queue.get(key, ())

    def placed(self, key: GroupKey) -> Collection[PodInfo]:
        return self.on_nodes.get(key, ())

    def pod_group(self, key: GroupKey) -> PodGroup | None:
        return self.groups.get(key)

    def tree(self, key: GroupKey) -> PodGroup | None:
        return self.groups.get(key)

    def lineage(self, key: GroupKey) -> Sequence[PodGroup]:
        found, parent = [], self.groups.get(key)
        while parent is not None:
            found.append(parent)
            child = parent.key
            parent = next((each for each in self.groups.values() if child in _keys(each.children)), None)
        return found


def _keys(groups: Iterable[PodGroup]) -> set[GroupKey]:
    return {group.key for group in groups}


class FakeFeatures:
    """Implements `Features`.

    Attributes:
        version: the emulated version of Kubernetes.
        gates: feature gates that differ from their default.
    """

    def __init__(self, version: str = "", **gates: bool) -> None:
        self._features = features_of(gates, version)
        self.version = self._features.version

    def enabled(self, name: str) -> bool:
        return self._features.enabled(name)


class Fakes:
    """One fake for each capability; a test may replace some of them."""

    def __init__(self) -> None:
        self.binder = FakeBinder()
        self.clock = ManualClock()
        self.web = FakeWeb()
        self.api = FakeApi()
        self.background = FakeBackground()
        self.events = FakeEvents()
        self.metrics = FakeMetrics()
        self.activator = FakeActivator()
        self.assumed_pods = FakeAssumedPods()
        self.happenings = FakeWaitForEvent()
        self.keyed_lock = FakeKeyedLock()
        self.time_slice = FakeTimeSlice()
        self.queued = FakeQueuedPods()
        self.waiting_pods = FakeWaitingPods()
        self.pod_groups = FakePodGroups()
        self.features = FakeFeatures()

    def by_protocol(self) -> dict[type, object]:
        """Return Protocol -> its fake."""
        return {
            PodBinder: self.binder,
            Clock: self.clock,
            Sleep: FakeSleep(self.clock),
            KeyedLock: self.keyed_lock,
            TimeSlice: self.time_slice,
            HttpGet: self.web,
            ApiGet: self.web,
            ApiWrite: self.api,
            AssumedPods: self.assumed_pods,
            StatusWrite: self.api,
            Background: self.background,
            SlicedWork: WithoutSlices(),
            PodEvents: self.events,
            PluginMetrics: self.metrics,
            PodActivator: self.activator,
            PodGroupMembers: self.pod_groups,
            PodGroupObjects: self.pod_groups,
            QueuedPods: self.queued,
            WaitForEvent: self.happenings,
            WaitingPods: self.waiting_pods,
            Features: self.features,
        }
