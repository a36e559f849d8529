"""Changes from the watches: each can be applied and reverted; merged in the order in which they happened."""

from __future__ import annotations

import asyncio
import itertools
from dataclasses import dataclass, field
from heapq import heappop, heappush
from typing import TYPE_CHECKING, Any, Final, TypeVar

from scheduler.daemon.app.shadow.decisions import decision_in
from scheduler.objects.node import NodeObject
from scheduler.objects.pod import PodInfo
from scheduler.snapshot.object_store import resource_version

if TYPE_CHECKING:
    from collections.abc import Iterator

    from scheduler.clock import Clock
    from scheduler.daemon.app.shadow.comparison import ShadowVerdict
    from scheduler.daemon.app.shadow.decisions import ShadowedDecision
    from scheduler.engine.cycle.event_handlers import EventHandler
    from scheduler.errors import ObjectError
    from scheduler.kube.client.store import Handler
    from scheduler.kube.client.wire import ObjectIdentity


@dataclass(eq=False, slots=True)
class ObservedChange:
    """A change of one object.

    Attributes:
        handler: applies the change.
        old: the object before; None for an addition.
        new: the object after; None for a deletion.
        version: the resourceVersion after it, as far as known.
        at: when it was received, in seconds of the monotonic clock.
        decision: the decision in it; None if there is none.
        verdicts: the results for that decision in the entry's current place, one for each evaluating profile.
        was_moved: whether the decision agrees only in another order than the received one.
        is_settled: whether other orders were tried already, or are not needed.
    """

    handler: EventHandler[Any]
    old: Any
    new: Any
    version: int
    at: float
    decision: ShadowedDecision | None = None
    verdicts: list[ShadowVerdict] = field(default_factory=list)
    was_moved: bool = False
    is_settled: bool = False

    @property
    def uid(self) -> str:
        """UID of the pod of the change; "" for another object."""
        pod = self.old if self.new is None else self.new
        return pod.uid if isinstance(pod, PodInfo) else ""

    @property
    def matters(self) -> bool:
        """Whether the change may affect other decisions: not if it concerns a pod without a node and a nomination."""
        return any(
            not isinstance(each, PodInfo) or each.node_name or each.pod.status.nominated_node_name
            for each in (self.old, self.new)
            if each is not None
        )

    @property
    def agrees(self) -> bool:
        """Whether no explanation is needed: there is no decision, or some profile makes the same one."""
        return not self.verdicts or any(verdict.agrees for verdict in self.verdicts)

    def make(self) -> None:
        self.handler.change(self.old, self.new)

    def take_back(self) -> None:
        self.handler.change(self.new, self.old)


def version_of(obj: Any) -> int:
    """Return the resourceVersion of an object as a number; 0 if it has none."""
    if isinstance(obj, PodInfo):
        return number_of(obj.resource_version)
    if isinstance(obj, NodeObject):
        return number_of(obj.node.metadata.resource_version)
    return resource_version(obj)


def number_of(version: str) -> int:
    """Return a resourceVersion as a number; 0 if it is not one."""
    return int(version) if version.isascii() and version.isdigit() else 0


T = TypeVar("T")

HOLD_SECONDS: Final = 0.5
"""How far one watch may be behind another."""


class HeldChanges:
    """Changes that were received and not yet applied, by their resourceVersion.

    Args:
        scheduler_name: the scheduler whose decisions are detected.
        clock: the time.

    Attributes:
        is_open: whether changes are held; before that, they are applied at once.
        came: set when a change arrives.
        unseen: number of pods of that scheduler that already were on a node when they were first seen.
    """

    def __init__(self, scheduler_name: str, clock: Clock) -> None:
        self._name = scheduler_name
        self._clock = clock
        self._held: list[tuple[int, int, ObservedChange]] = []
        self._count = itertools.count()
        self.is_open = False
        self.came = asyncio.Event()
        self.unseen = 0

    def __len__(self) -> int:
        return len(self._held)

    def held(self, handler: EventHandler[T]) -> Handler[T]:
        """Return a handler that holds the changes for another handler."""
        return _Holding(self, handler)

    def put(self, handler: EventHandler[Any], old: Any, new: Any, version: int) -> None:
        """Hold a change."""
        at = self._clock.monotonic()
        decision = decision_in(old, new, self._name)
        is_new = old is None and isinstance(new, PodInfo)
        if is_new and new.node_name and new.scheduler_name == self._name:
            self.unseen += 1
        entry = ObservedChange(handler, old, new, version, at, decision, is_settled=decision is None)
        heappush(self._held, (version, next(self._count), entry))
        self.came.set()

    def due(self, now: float) -> Iterator[ObservedChange]:
        """Yield the changes that were held long enough, in order."""
        while self._held and self._held[0][2].at <= now - HOLD_SECONDS:
            yield heappop(self._held)[2]

    def rest(self) -> Iterator[ObservedChange]:
        """Yield all changes, in order."""
        while self._held:
            yield heappop(self._held)[2]


class _Holding:
    """Wraps a handler; implements `Handler` and `DatingHandler`.

    A watch reports its kind in order: a change without a version, such as a deletion found by a new list, gets the version
    of the previous change.
    """

    def __init__(self, arrivals: HeldChanges, handler: EventHandler[Any]) -> None:
        self._arrivals = arrivals
        self._handler = handler
        self._version = 0

    def on_add(self, obj: Any) -> None:
        self._take_in(None, obj)

    def on_update(self, old: Any, new: Any) -> None:
        self._take_in(old, new)

    def on_delete(self, old: Any) -> None:
        self._take_in(old, None)

    def on_delete_at(self, old: Any, version: str) -> None:
        self._version = max(self._version, number_of(version))
        self._take_in(old, None)

    def on_undecodable(self, identity: ObjectIdentity, error: ObjectError) -> None:
        self._handler.on_undecodable(identity, error)

    def _take_in(self, old: Any, new: Any) -> None:
        self._version = max(self._version, version_of(old if new is None else new))
        if self._arrivals.is_open:
            self._arrivals.put(self._handler, old, new, self._version)
        else:
            self._handler.change(old, new)
