"""The interfaces of the queue: to the plugins of the active profiles, and to an observer."""

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
    """The plugins of the active profiles; they may change before `SchedulingQueue.reload`. Must not raise."""

    def sort_key(self, queued: QueuedPodInfo) -> tuple[float, ...]:
        """Return QueueSort's key; the smallest is tried first."""
        ...

    def run_pre_enqueue(self, pod: PodInfo) -> Status:
        """Return the first rejection by a PreEnqueue plugin of the pod's profile, its `plugin` set, or a success."""
        ...

    def root_of(self, pod: PodInfo) -> GroupKey | None:
        """Return the group with which a pod is tried, the root of its tree; None if it is tried alone."""
        ...

    def entity_of(self, pod: PodInfo) -> GroupKey | None:
        """Return the group with which a pod waits as one entity; None if it waits on its own."""
        ...

    def groups_with(self, pod: PodInfo) -> Sequence[GroupKey]:
        """Return the groups whose pods are tried with a pod: its own, and all others of its tree; none if it is tried alone."""
        ...

    def events(self, profile: str) -> Mapping[str, Sequence[EventWithHint]]:
        """Return the registrations of each plugin of a profile.

        The same object while they are unchanged; an empty one for an unknown profile.
        """
        ...


class QueueObserver(Protocol):
    """Is notified of what cannot be read from the queue afterwards. Must neither raise nor call the queue."""

    def incoming(self, queue: str, event: str) -> None:
        """A pod entered "active", "backoff" or "unschedulable" because of an event."""
        ...

    def incoming_member(self, queue: str, event: str, *, with_group: bool) -> None:
        """The pod is of a group; `with_group` says whether the group as a whole entered with it."""
        ...

    def hint_asked(self, plugin: str, event: str, result: str, seconds: float) -> None:
        """A hint was called; the result is "Queue", "QueueSkip" or "Error"."""
        ...
