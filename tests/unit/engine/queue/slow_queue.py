"""A slow and obvious model of the scheduling queue: a list of pods that is searched for everything.

It has no heaps, no indexes and no shared record of events: each pod in flight keeps a list of its missed events.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import floor
from typing import TYPE_CHECKING, Any

from scheduler.framework import QueueingHint
from scheduler.framework.events import FORCE_ACTIVATE, UNSCHEDULABLE_TIMEOUT, pod_changes
from tests.unit.engine.queue.cluster import REGISTERED

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from scheduler.framework import ClusterEvent
    from scheduler.objects.pod import PodInfo

INITIAL, MOST, FLUSH = 1.0, 10.0, 300.0
SKIP, LATER, NOW = "skip", "after backoff", "immediately"


@dataclass
class SlowPod:
    pod: PodInfo
    place: str
    timestamp: float
    put_at: float
    attempts: int = 0
    rejections: int = 0
    errors: int = 0
    rejectors: set[str] = field(default_factory=set)
    pending: set[str] = field(default_factory=set)
    gate: str | None = None
    flushed: bool = False
    newest: PodInfo | None = None
    missed: list[tuple[ClusterEvent, Any, Any]] = field(default_factory=list)

    @property
    def key(self) -> tuple[float, float]:
        return (-self.pod.priority, self.timestamp)

    @property
    def backoff_ends_in(self) -> float:
        """The window in which its backoff ends."""
        count = self.errors or self.rejections
        seconds = min(INITIAL * 2 ** (count - 1), MOST) if count else -1e9
        return float(floor(self.timestamp + seconds))

    @property
    def failed(self) -> bool:
        """Whether it backs off because of an error."""
        return not self.rejectors


class SlowQueue:
    def __init__(self, refused_by: Callable[[PodInfo], str | None]) -> None:
        self.refused_by = refused_by
        self.pods: dict[str, SlowPod] = {}

    def at(self, *places: str) -> list[SlowPod]:
        return [each for each in self.pods.values() if each.place in places]

    def add(self, pod: PodInfo, now: float) -> None:
        if pod.uid in self.pods:
            self.update(self.pods[pod.uid].pod, pod, now)
            return
        each = self.pods[pod.uid] = SlowPod(pod, "outside", now, now)
        self.requeue(each, NOW, now)

    def update(self, old: PodInfo, new: PodInfo, now: float) -> None:
        if new.uid not in self.pods:
            self.add(new, now)
            return
        each = self.pods[new.uid]
        if each.place == "in flight":
            each.newest = new
            each.missed += [(event, old, new) for event in pod_changes(old, new)]
            return
        each.pod = new
        if each.place in {"unschedulable", "gated"}:
            for event in pod_changes(old, new):
                self.requeue(each, self.strategy(each, event, old, new), now)
                if each.place in {"active", "backoff"}:
                    break

    def delete(self, uid: str) -> None:
        each = self.pods.get(uid)
        if each is None:
            return
        if each.place == "in flight":
            each.newest = None
        else:
            del self.pods[uid]

    def may_pop(self) -> list[SlowPod]:
        """Return the pods that may be popped: several where keys are equal."""
        candidates = self.at("active")
        if candidates:
            return [each for each in candidates if each.key == min(other.key for other in candidates)]
        candidates = [each for each in self.at("backoff") if not each.failed]
        best = min(((each.backoff_ends_in, each.key) for each in candidates), default=None)
        return [each for each in candidates if (each.backoff_ends_in, each.key) == best]

    def pop(self, each: SlowPod) -> None:
        each.place = "in flight"
        each.attempts += 1
        each.newest, each.missed = each.pod, []

    def come_back(self, each: SlowPod, rejectors: set[str], pending: set[str], now: float) -> None:
        if each.newest is None:
            del self.pods[each.pod.uid]
            return
        each.pod, each.timestamp, each.flushed = each.newest, now, False
        each.rejectors, each.pending = rejectors | pending, set(pending)
        if each.rejectors:
            each.rejections, each.errors = each.rejections + 1, 0
            strategies = {self.strategy(each, *missed) for missed in each.missed}
            best = NOW if NOW in strategies else LATER if LATER in strategies else SKIP
        else:
            each.errors += 1
            best = LATER
        if best == SKIP:
            each.place, each.put_at = "unschedulable", now
        else:
            self.requeue(each, best, now)

    def happen(self, event: ClusterEvent, old: Any, new: Any, now: float, spared: Iterable[str] = ()) -> None:
        for each in self.at("in flight"):
            each.missed.append((event, old, new))
        for each in self.at("unschedulable", "gated"):
            if each.pod.uid in spared:
                continue
            if each.place == "gated" and not self.hears(each.gate, event):
                continue
            self.requeue(each, self.strategy(each, event, old, new), now)

    def activate(self, uid: str, now: float) -> None:
        each = self.pods.get(uid)
        if each is None or each.place == "active":
            return
        if each.place == "in flight":
            each.missed.append((FORCE_ACTIVATE, None, None))
        elif each.place == "backoff":
            each.place = "active"
        else:
            self.requeue(each, NOW, now)

    def flush(self, now: float) -> None:
        for each in self.at("backoff"):
            if now >= each.backoff_ends_in + 1:
                each.place = "active"
        for each in self.at("unschedulable", "gated"):
            if self.is_flushed(each) and now >= each.put_at + FLUSH:
                self.requeue(each, LATER, now)
                each.flushed = each.flushed or each.place in {"active", "backoff"}

    def is_flushed(self, each: SlowPod) -> bool:
        return each.place == "unschedulable" or self.hears(each.gate, UNSCHEDULABLE_TIMEOUT)

    def next_deadline(self, now: float) -> float | None:
        deadlines = [each.backoff_ends_in + 1 for each in self.at("backoff")]
        deadlines += [
            each.put_at + FLUSH for each in self.at("unschedulable", "gated") if self.is_flushed(each)
        ]
        return max(now, min(deadlines)) if deadlines else None

    def requeue(self, each: SlowPod, strategy: str, now: float) -> None:
        if strategy == SKIP:
            return
        each.put_at = now
        each.gate = self.refused_by(each.pod)
        if each.gate:
            each.rejectors.add(each.gate)
            each.place = "gated"
        elif strategy == LATER and each.backoff_ends_in >= floor(now):
            each.place = "backoff"
        else:
            each.place = "active"

    def hears(self, plugin: str | None, event: ClusterEvent) -> bool:
        return plugin is not None and any(
            registration.event.covers(event) for registration in REGISTERED[plugin]
        )

    def strategy(self, each: SlowPod, event: ClusterEvent, old: Any, new: Any) -> str:
        if event.is_wildcard:
            return LATER
        helping = {
            plugin
            for plugin in each.rejectors
            for registration in REGISTERED[plugin]
            if registration.event.covers(event) and self.helps(registration.hint, each.pod, old, new)
        }
        if helping & each.pending:
            return NOW
        return LATER if helping else SKIP

    def helps(self, hint: Any, pod: PodInfo, old: Any, new: Any) -> bool:
        try:
            return hint is None or hint(pod, old, new) is QueueingHint.QUEUE
        except RuntimeError:
            return True
