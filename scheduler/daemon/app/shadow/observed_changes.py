"""Changes from the watches: each can be applied and reverted, and some contain a decision."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from scheduler.objects.node import NodeObject
from scheduler.objects.pod import PodInfo
from scheduler.snapshot.object_store import resource_version

if TYPE_CHECKING:
    from scheduler.daemon.app.shadow.comparison import ShadowVerdict
    from scheduler.daemon.app.shadow.decisions import ShadowedDecision
    from scheduler.engine.cycle.event_handlers import EventHandler


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
        self.handler.turn(self.old, self.new)

    def take_back(self) -> None:
        self.handler.turn(self.new, self.old)


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
