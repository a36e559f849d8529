"""What the watches show, one entry each: changes that can be made and taken back, and in some a decision shows."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from scheduler.objects.node import NodeObject
from scheduler.objects.pod import PodInfo
from scheduler.snapshot.object_store import resource_version

if TYPE_CHECKING:
    from scheduler.app.shadow.decisions import Decision
    from scheduler.app.shadow.verdicts import Verdict
    from scheduler.cycle.event_handlers import EventHandler


@dataclass(eq=False, slots=True)
class Entry:
    """A change of one object.

    Attributes:
        handler: makes it.
        old: the object before; None for an addition.
        new: the object after; None for a deletion.
        version: of the cluster after it, as far as is known.
        at: when it was seen, in seconds of the monotonic clock.
        decision: what shows in it; None where no decision does.
        verdicts: on that decision, one of each profile that judges, where the entry stands now.
        was_moved: whether it took another order than the one seen to agree.
        is_settled: whether other orders were tried already, or need not be.
    """

    handler: EventHandler[Any]
    old: Any
    new: Any
    version: int
    at: float
    decision: Decision | None = None
    verdicts: list[Verdict] = field(default_factory=list)
    was_moved: bool = False
    is_settled: bool = False

    @property
    def uid(self) -> str:
        """Of the pod that it is about; "" of another object."""
        pod = self.old if self.new is None else self.new
        return pod.uid if isinstance(pod, PodInfo) else ""

    @property
    def matters(self) -> bool:
        """Whether others may be judged otherwise after it than before: not where a pod waits that is expected nowhere."""
        return any(
            not isinstance(each, PodInfo) or each.node_name or each.pod.status.nominated_node_name
            for each in (self.old, self.new)
            if each is not None
        )

    @property
    def agrees(self) -> bool:
        """Whether nothing is left to be explained: no decision, or one that some profile would have made as well."""
        return not self.verdicts or any(verdict.agrees for verdict in self.verdicts)

    def make(self) -> None:
        self.handler.turn(self.old, self.new)

    def take_back(self) -> None:
        self.handler.turn(self.new, self.old)


def version_of(obj: Any) -> int:
    """Return the version of the cluster that an object came with; 0 of one that does not say."""
    if isinstance(obj, PodInfo):
        return number_of(obj.resource_version)
    if isinstance(obj, NodeObject):
        return number_of(obj.node.metadata.resource_version)
    return resource_version(obj)


def number_of(version: str) -> int:
    """Return a resourceVersion as a number; 0 where it is none."""
    return int(version) if version.isascii() and version.isdigit() else 0
