"""What the queue asks the plugins of the profiles in force, and what it says to those who count."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from scheduler.framework.events import EventWithHint
    from scheduler.framework.queued_pod import QueuedPodInfo
    from scheduler.framework.status import Status
    from scheduler.objects.pod import PodInfo
    from scheduler.objects.pod_group import GroupKey


class QueuePlugins(Protocol):
    """The plugins of the profiles in force, which may be others after `SchedulingQueue.reload`. Must not raise."""

    def sort_key(self, queued: QueuedPodInfo) -> tuple[float, ...]:
        """Return QueueSort's key; the smallest is tried first."""
        ...

    def run_pre_enqueue(self, pod: PodInfo) -> Status:
        """Return the first rejection by a PreEnqueue plugin of the pod's profile, its `plugin` set, or a success."""
        ...

    def group_of(self, pod: PodInfo) -> GroupKey | None:
        """Return the group with which a pod is tried; None where it is tried by itself."""
        ...

    def events(self, profile: str) -> Mapping[str, Sequence[EventWithHint]]:
        """Return what each plugin of a profile registered for.

        The same object as long as nothing changes there, an empty one for a name that is no profile's.
        """
        ...


class QueueObserver(Protocol):
    """Is told of what cannot be read from the queue afterwards. Must neither raise nor call the queue."""

    def incoming(self, queue: str, event: str) -> None:
        """A pod entered "active", "backoff" or "unschedulable" because of an event."""
        ...

    def hint_asked(self, plugin: str, event: str, result: str, seconds: float) -> None:
        """A plugin was asked whether an event helps a pod; the result is "Queue", "QueueSkip" or "Error"."""
        ...
