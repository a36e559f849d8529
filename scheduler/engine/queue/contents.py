"""The parts of the queue, the single way by which pods move between them, and the queue's readable state.

Time is divided into windows of one second. A pod whose backoff ends within a window leaves when that window is over.
Pods of one window therefore leave together, and priority decides among them.
"""

from __future__ import annotations

from collections import Counter
from math import floor, inf, ldexp
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar

from scheduler.engine.queue.in_flight import InFlight
from scheduler.engine.queue.pod_places import GroupPlaces, Place, Places
from scheduler.engine.queue.unschedulable import KeyedHeap, UnschedulablePods

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from scheduler.engine.queue.pod_places import Move
    from scheduler.engine.queue.ports import QueueObserver, QueuePlugins
    from scheduler.engine.state.pod_groups import PodGroups
    from scheduler.framework.queued_pod import QueuedPodInfo
    from scheduler.objects.pod import PodInfo

T = TypeVar("T")

ByCode = tuple[str, str, str, str]
"""Reason code, plugin, namespace and profile."""

MOST_NAMESPACES: Final = 100
"""Maximum number of namespaces that are counted by reason code at once; further ones are counted as `OTHER`."""
_MOST_BY_CODE: Final = 10_000
"""Maximum number of counters by reason code, for plugins with too many codes; further codes are counted as `OTHER`."""
OTHER: Final = "other"


class _Counted(NamedTuple):
    """The counters of one pod.

    Attributes:
        by_plugin: (plugin, profile) of each.
        by_code: (code, plugin, namespace or `OTHER`, profile) of each.
        namespace: its namespace, if that is counted by name; else "".
    """

    by_plugin: Sequence[tuple[str, str]]
    by_code: Sequence[ByCode] = ()
    namespace: str = ""


class Rejections:
    """Counts the waiting pods, in any place, by what rejected their last attempt or gates them: by plugin, and by code.

    Attributes:
        by_plugin: (plugin, profile) -> number of pods; plugins that had pods earlier stay, with 0.
        by_code: (code, plugin, namespace or `OTHER`, profile) -> number of pods; never 0.
    """

    def __init__(self) -> None:
        self.by_plugin = Counter[tuple[str, str]]()
        self.by_code = Counter[ByCode]()
        self._counted: dict[str, _Counted] = {}  # by uid
        # Number of counted pods, of the namespaces that are counted by name.
        self._namespaces = Counter[str]()

    def note(self, queued: QueuedPodInfo) -> None:
        """Count a pod under its current rejecting plugins and reason codes instead of the earlier ones."""
        uid = queued.pod.uid
        self.forget(uid)
        rejectors = queued.unschedulable_plugins | queued.pending_plugins
        if rejectors or queued.reason_codes:
            by_plugin = [(plugin, queued.pod.scheduler_name) for plugin in rejectors]
            self.by_plugin.update(by_plugin)
            self._counted[uid] = _Counted(by_plugin, *self._count_codes(queued))

    def _count_codes(self, queued: QueuedPodInfo) -> tuple[Sequence[ByCode], str]:
        """Count a pod under its reason codes; return the counters, and its namespace if that is counted by name."""
        if not queued.reason_codes:
            return (), ""
        name, profile = queued.pod.namespace, queued.pod.scheduler_name
        is_named = name in self._namespaces or len(self._namespaces) < MOST_NAMESPACES
        if is_named:
            self._namespaces[name] += 1
        by_code: list[ByCode] = []
        for code, plugin in queued.reason_codes:
            key = code, plugin, name if is_named else OTHER, profile
            if key not in self.by_code and len(self.by_code) >= _MOST_BY_CODE:
                key = OTHER, OTHER, OTHER, profile
            self.by_code[key] += 1
            by_code.append(key)
        return by_code, name if is_named else ""

    def forget(self, uid: str) -> None:
        """Stop counting a pod."""
        counted = self._counted.pop(uid, None)
        if counted is None:
            return
        for each in counted.by_plugin:
            self.by_plugin[each] -= 1
        for key in counted.by_code:
            _count_down(self.by_code, key)
        if counted.namespace:
            _count_down(self._namespaces, counted.namespace)

    def check(self) -> None:
        """Assert the invariants."""
        by_plugin = Counter(key for counted in self._counted.values() for key in counted.by_plugin)
        assert by_plugin == +self.by_plugin, f"{by_plugin} found, {self.by_plugin} counted"
        by_code = Counter(key for counted in self._counted.values() for key in counted.by_code)
        assert by_code == self.by_code, f"{by_code} found, {self.by_code} counted"


def _count_down(counter: Counter[T], key: T) -> None:
    """Subtract one; a counter at 0 is removed."""
    counter[key] -= 1
    if not counter[key]:
        del counter[key]


WINDOW_SECONDS = 1
_MOST_DOUBLINGS = 500  # beyond any maximum, and far below the largest float


class BackoffQueue:
    """Uids of pods, ordered by the end of their backoff.

    Pods that failed with an error wait separately and are never tried early: their backoff protects the API server. Members
    of groups wait with them, because an attempt at a group takes long and blocks all other pods.

    Source:
        kube-scheduler v1.36, backend/queue/backoff_queue.go.
    """

    def __init__(self, *, initial_seconds: float, max_seconds: float, plugins: QueuePlugins) -> None:
        self._initial_seconds = initial_seconds
        self._max_seconds = max_seconds
        self._pops_early = True
        self._plugins = plugins
        self._rejected = KeyedHeap()
        self._failed = KeyedHeap()

    def configure(self, *, initial_seconds: float, max_seconds: float, pops_early: bool) -> None:
        """Change the backoff durations, and whether `pop` returns pods; the caller must put the pods in backoff again."""
        self._initial_seconds = initial_seconds
        self._max_seconds = max_seconds
        self._pops_early = pops_early

    def duration(self, queued: QueuedPodInfo) -> float:
        """Return how long a pod backs off after its last attempt, in seconds.

        The backoff doubles with each rejection, up to the maximum. If the last attempt ended with an error, it doubles with
        each error in a row. A quarantined pod waits for its quarantine.
        """
        if queued.quarantine_seconds:
            return queued.quarantine_seconds
        count = queued.consecutive_errors_count or queued.unschedulable_count
        if count == 0:
            return 0.0
        return min(ldexp(self._initial_seconds, min(count - 1, _MOST_DOUBLINGS)), self._max_seconds)

    def ends_in(self, queued: QueuedPodInfo) -> float:
        """Return the start of the window in which a pod's backoff ends; -inf if it has none."""
        if queued.quarantine_seconds:
            return _window(queued.timestamp + queued.quarantine_seconds)
        if self._max_seconds == 0 or not (queued.consecutive_errors_count or queued.unschedulable_count):
            return -inf
        return _window(queued.timestamp + self.duration(queued))

    def leaves_at(self, queued: QueuedPodInfo) -> float:
        """Return the latest time at which `finished` yields a pod."""
        return self.ends_in(queued) + WINDOW_SECONDS

    def is_backing_off(self, queued: QueuedPodInfo, now: float) -> bool:
        """Return whether a pod has to wait: it does until the window in which its backoff ends is over."""
        return self.ends_in(queued) >= _window(now)

    def put(self, queued: QueuedPodInfo) -> None:
        """Add a pod, or reorder it by its new version; the plugins that rejected it must not change here."""
        uid = queued.pod.uid
        ends_in = self.ends_in(queued)
        was_rejected = queued.unschedulable_plugins or queued.pending_plugins
        if was_rejected and self._plugins.root_of(queued.pod) is None:
            self._failed.remove(uid)  # it may have left its group
            self._rejected.put(uid, (ends_in, *self._plugins.sort_key(queued)))
        else:
            self._rejected.remove(uid)
            self._failed.put(uid, (ends_in,))

    def remove(self, uid: str) -> None:
        """Remove a pod, if present."""
        self._rejected.remove(uid)
        self._failed.remove(uid)

    def pop(self) -> str | None:
        """Remove and return the next pod before its backoff ends; never one that failed with an error."""
        return self._rejected.pop() if self._pops_early else None

    def finished(self, now: float) -> Iterator[str]:
        """Remove and yield the pods whose backoff is over, in the order in which they are tried."""
        for heap in (self._rejected, self._failed):
            while (first := heap.peek()) is not None and first[0][0] < _window(now):
                heap.pop()
                yield first[1]

    def in_turn(self) -> list[str]:
        """Return all pods in the order in which their backoff ends."""
        return [uid for heap in (self._rejected, self._failed) for uid, _ in heap.in_turn()]

    def next_deadline(self) -> float | None:
        """Return the next time at which `finished` has a pod to yield; None if no pod backs off."""
        firsts = [first[0][0] for heap in (self._rejected, self._failed) if (first := heap.peek())]
        return min(firsts) + WINDOW_SECONDS if firsts else None

    def __len__(self) -> int:
        return len(self._rejected) + len(self._failed)

    def __contains__(self, uid: object) -> bool:
        return uid in self._rejected or uid in self._failed

    def check(self) -> None:
        """Assert the invariants."""
        twice = set(self._rejected) & set(self._failed)
        assert not twice, f"pods {sorted(twice)} back off twice"


def _window(at: float) -> float:
    return floor(at / WINDOW_SECONDS) * WINDOW_SECONDS


POP_FROM_BACKOFF_Q = "PopFromBackoffQ"

_ENTERED = {
    Place.ACTIVE: "active",
    Place.BACKOFF: "backoff",
    Place.UNSCHEDULABLE: "unschedulable",
    Place.GATED: "unschedulable",
}  # place -> label in metrics


class QueueContents:
    """Every pod of the queue, in the part that belongs to its place.

    Attributes:
        pods: uid -> pod, including pods in flight.
        places: the place and the history of each pod.
        active: activeQ, the pods in ACTIVE: by the key of QueueSort, equal keys in arrival order.
        backoff: the pods in BACKOFF.
        unschedulable: the pods in UNSCHEDULABLE and GATED.
        in_flight: the pods in IN_FLIGHT.
        groups: the group membership of pods.
        group_places: where the groups wait.
        rejections: the plugins and the reason codes for which the waiting pods were rejected.
    """

    def __init__(
        self,
        *,
        plugins: QueuePlugins,
        backoff: BackoffQueue,
        groups: PodGroups,
        observer: QueueObserver,
    ) -> None:
        self.pods: dict[str, QueuedPodInfo] = {}
        self.places = Places()
        self.active = KeyedHeap()
        self.backoff = backoff
        self.unschedulable = UnschedulablePods(plugins)
        self.in_flight = InFlight()
        self.groups = groups
        self.group_places = GroupPlaces()
        self.rejections = Rejections()
        self._plugins = plugins
        self._observer = observer

    def put(
        self,
        queued: QueuedPodInfo,
        place: Place,
        *,
        at: float,
        label: str,
        why: str = "",
        flush_at: float | None = None,
        shown: int | None = None,
    ) -> Place:
        """Move a pod from its current place to a place where it waits; return that place.

        Args:
            queued: the pod, its attempt ended if it was in flight.
            place: the new place.
            at: the current time.
            label: the event's label in metrics.
            why: the reason for people; defaults to the label.
            flush_at: when an unschedulable or gated pod is tried again without an event; None for never.
            shown: the number of the last event that such a pod was checked against; None for the latest event.
        """
        uid = queued.pod.uid
        start = self.places.of(uid)
        self._remove(uid, start)
        if place is Place.ACTIVE and queued.initial_attempt_timestamp is None:
            queued.initial_attempt_timestamp = at
        self._insert(queued, place, flush_at, shown)
        if start is place:
            self.places.note(uid, at=at, why=why or label)
        else:
            self.places.move(uid, place, at=at, why=why or label)
            self._observer.incoming(_ENTERED[place], label)
            if uid in self.groups.keys_of_pending or uid in self.group_places.of:
                has_entered = self._moved_member(uid, start, place)
                self._observer.incoming_member(_ENTERED[place], label, with_group=has_entered)
        return place

    def _moved_member(self, uid: str, start: Place, end: Place) -> bool:
        """Record a move of a pod that may have a group; return whether its group entered the place with it."""
        queued = self.pods.get(uid) if end is not Place.OUTSIDE else None
        key = None if queued is None else self._plugins.root_of(queued.pod)
        return self.group_places.moved(uid, key, start, end)

    def resume(self, queued: QueuedPodInfo, place: Place) -> None:
        """Add a pod that waited in another queue, in the same place."""
        uid = queued.pod.uid
        self._insert(queued, place)
        self.places.resume(uid, place, at=queued.timestamp)
        if uid in self.groups.keys_of_pending or uid in self.group_places.of:
            self._moved_member(uid, Place.OUTSIDE, place)

    def _insert(
        self, queued: QueuedPodInfo, place: Place, flush_at: float | None = None, shown: int | None = None
    ) -> None:
        """Insert a pod into the part that belongs to a place."""
        uid = queued.pod.uid
        self.pods[uid] = queued
        if place is Place.ACTIVE:
            self.active.put(uid, self._plugins.sort_key(queued))
        elif place is Place.BACKOFF:
            self.backoff.put(queued)
        else:
            self.unschedulable.put(queued, flush_at, shown=shown)
        self.rejections.note(queued)

    def renew(self, queued: QueuedPodInfo) -> None:
        """Reorder a pod in activeQ or backoffQ by its new version."""
        place = self.places.of(queued.pod.uid)
        if place is Place.ACTIVE:
            self.active.put(queued.pod.uid, self._plugins.sort_key(queued))
        elif place is Place.BACKOFF:
            self.backoff.put(queued)

    def pop(self, at: float) -> QueuedPodInfo | None:
        """Move the next pod of activeQ, else of backoffQ, in flight and return it."""
        uid, why = self.active.pop(), "popped"
        if uid is None:
            uid, why = self.backoff.pop(), POP_FROM_BACKOFF_Q
            if uid is None:
                return None
            self._observer.incoming(_ENTERED[Place.ACTIVE], POP_FROM_BACKOFF_Q)
        return self._begin(uid, at=at, why=why)

    def pop_with(self, uid: str, first: QueuedPodInfo, at: float) -> QueuedPodInfo:
        """Move a pod of activeQ or backoffQ in flight together with another pod of its group."""
        self._remove(uid, self.places.of(uid))
        return self._begin(uid, at=at, why=f"popped with {first.pod.key}")

    def _begin(self, uid: str, *, at: float, why: str) -> QueuedPodInfo:
        queued = self.pods[uid]
        queued.attempts += 1
        queued.try_at = 0.0
        self.rejections.forget(uid)
        if uid in self.groups.keys_of_pending or uid in self.group_places.of:
            self._moved_member(uid, self.places.of(uid), Place.IN_FLIGHT)
        self.places.move(uid, Place.IN_FLIGHT, at=at, why=why)
        self.in_flight.begin(queued.pod)
        return queued

    def drop(self, uid: str, *, at: float, why: str) -> None:
        """Remove a pod from the queue, its attempt ended if it was in flight."""
        self._remove(uid, self.places.of(uid))
        self.rejections.forget(uid)
        self._leave_group(uid)
        del self.pods[uid]
        self.places.move(uid, Place.OUTSIDE, at=at, why=why)

    def holds(self, uid: str) -> bool:
        """Return whether a pod is consistent: known, and in the part that belongs to its place."""
        place = self.places.of(uid)
        if place is Place.OUTSIDE:
            return uid not in self.pods
        return uid in self.pods and uid in self._part(place)

    def discard(self, uid: str, *, at: float, why: str) -> None:
        """Remove all remains of a pod from every part."""
        for part in (self.active, self.backoff, self.unschedulable):
            part.remove(uid)
        if uid in self.in_flight:
            self.in_flight.end(uid)
        self.rejections.forget(uid)
        self._leave_group(uid)
        self.pods.pop(uid, None)
        if self.places.of(uid) is not Place.OUTSIDE:
            self.places.move(uid, Place.OUTSIDE, at=at, why=why)

    def _leave_group(self, uid: str) -> None:
        if uid in self.groups.keys_of_pending or uid in self.group_places.of:
            self._moved_member(uid, self.places.of(uid), Place.OUTSIDE)
            self.groups.drop_pending(uid)

    def newest(self, uid: str) -> PodInfo | None:
        """Return a pod's newest version; None if it is unknown or was deleted while in flight."""
        if uid in self.in_flight:
            return self.in_flight.newest(uid)
        queued = self.pods.get(uid)
        return None if queued is None else queued.pod

    def check(self) -> None:
        """Assert the invariants."""
        for checked in (self.places, self.backoff, self.unschedulable, self.in_flight, self.rejections):
            checked.check()
        self.groups.check()
        self.group_places.check(self.places)
        inside = {uid: move.end for uid, move in self.places.inside()}
        assert inside.keys() == self.pods.keys(), f"{inside.keys() ^ self.pods.keys()} are half inside"
        parts = (self.active, self.backoff, self.unschedulable, self.in_flight)
        for uid, place in inside.items():
            holders = [part for part in parts if uid in part]
            assert holders == [self._part(place)], self.places.objection(uid, f"is in {holders}")
            gated = self.pods[uid].is_gated
            assert gated == (place is Place.GATED), self.places.objection(uid, f"is_gated is {gated}")
        held = sum(len(part) for part in parts)
        assert held == len(inside), f"the parts hold {held} pods, {len(inside)} are inside"

    def _remove(self, uid: str, place: Place) -> None:
        if place is Place.ACTIVE:
            self.active.remove(uid)
        elif place is Place.BACKOFF:
            self.backoff.remove(uid)
        elif place in {Place.UNSCHEDULABLE, Place.GATED}:
            self.unschedulable.remove(uid)

    def _part(self, place: Place) -> KeyedHeap | BackoffQueue | UnschedulablePods | InFlight:
        if place is Place.ACTIVE:
            return self.active
        if place is Place.BACKOFF:
            return self.backoff
        return self.in_flight if place is Place.IN_FLIGHT else self.unschedulable


class QueueView:
    """The read-only side of the scheduling queue."""

    def __init__(self, contents: QueueContents) -> None:
        self._contents = contents

    def count(self, place: Place) -> int:
        """Return the number of pods in a place; OUTSIDE is not counted."""
        return self._contents.places.count(place)

    @property
    def group_places(self) -> GroupPlaces:
        """The places of the groups."""
        return self._contents.group_places

    @property
    def in_flight_events(self) -> Mapping[str, int]:
        """Event label -> number of events recorded for pods in flight; PodPopped is the number of those pods."""
        return self._contents.in_flight.counts()

    @property
    def rejections(self) -> Mapping[tuple[str, str], int]:
        """(plugin, profile) -> number of waiting pods that it rejected or gates; 0 for plugins that had some."""
        return self._contents.rejections.by_plugin

    @property
    def rejections_by_code(self) -> Mapping[tuple[str, str, str, str], int]:
        """(reason code, plugin, namespace, profile) -> number of waiting pods that were rejected, or are gated, for it."""
        return self._contents.rejections.by_code

    def place_of(self, uid: str) -> Place:
        """Return the place of a pod; OUTSIDE if it is unknown."""
        return self._contents.places.of(uid)

    def history(self, uid: str) -> tuple[Move, ...]:
        """Return the history of a pod, oldest entry first; also of a pod that left recently."""
        return self._contents.places.history(uid)

    def get(self, uid: str) -> QueuedPodInfo | None:
        """Return a pod of the queue, in flight or not."""
        return self._contents.pods.get(uid)

    def newest(self, uid: str) -> PodInfo | None:
        """Return a pod's newest version; None if it is unknown or was deleted while in flight."""
        return self._contents.newest(uid)

    def turn_of(self, uid: str) -> int | None:
        """Return the number of pods of activeQ that are tried before this one; None if it is not in activeQ."""
        return self._contents.active.turn_of(uid)

    def backoff_left(self, uid: str, now: float) -> float | None:
        """Return how many seconds a pod of backoffQ still waits there; None if it is not in backoffQ."""
        backoff = self._contents.backoff
        return max(0.0, backoff.leaves_at(self._contents.pods[uid]) - now) if uid in backoff else None

    def holds(self, uid: str) -> bool:
        """Return whether a pod is consistent with `place_of`; False indicates a bug."""
        return self._contents.holds(uid)

    def pods(self) -> Iterable[QueuedPodInfo]:
        """Return all pods of the queue, including pods in flight; the queue must not change during the iteration."""
        return self._contents.pods.values()

    def in_turn(self) -> Iterator[QueuedPodInfo]:
        """Yield all pods that are not in flight, place by place, each in its order."""
        contents = self._contents
        active = [uid for uid, _ in contents.active.in_turn()]
        for uid in (*active, *contents.backoff.in_turn(), *contents.unschedulable.in_turn()):
            yield contents.pods[uid]

    def flushes(self) -> list[tuple[str, float]]:
        """Return the pods that are tried again without an event, and when, in order of time."""
        return self._contents.unschedulable.flushes()

    def check(self) -> None:
        """Assert the invariants."""
        self._contents.check()
