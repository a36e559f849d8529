"""Groups in the queue: the attempts at them, and the members that wait for other members.

A pod of a group that is being tried waits for the end of the attempt. Since Kubernetes 1.37 a group waits as one entity:
its members share their backoff, and none is tried while PreEnqueue rejects one of them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from scheduler.engine.queue.hints import RequeueStrategy
from scheduler.engine.queue.pod_places import Place
from scheduler.framework.queued_pod import ITS_GROUP
from scheduler.framework.status import Status

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from scheduler.engine.queue.contents import QueueContents
    from scheduler.engine.queue.ports import QueuePlugins
    from scheduler.framework.queued_pod import QueuedPodInfo
    from scheduler.objects.pod_group import GroupKey

_IS_TRIED = Status.unschedulable("its group is being tried").by(ITS_GROUP)
_IS_GATED = Status.unschedulable("another pod of its group is gated").by(ITS_GROUP)


def share(queued: QueuedPodInfo, other: QueuedPodInfo) -> None:
    """Give a pod the turn and the backoff of another pod of its group."""
    queued.timestamp = other.timestamp
    queued.unschedulable_count = other.unschedulable_count
    queued.consecutive_errors_count = other.consecutive_errors_count
    queued.over_budget_count = other.over_budget_count
    queued.quarantine_seconds = other.quarantine_seconds


@dataclass(slots=True)
class GroupAttempt:
    """A running attempt at a group.

    Attributes:
        key: the group.
        is_entity: whether the group waits as one entity.
        timestamp: when the group entered the queue before the attempt.
        unschedulable_count: the number of its rejected attempts before.
        consecutive_errors_count: the number of its consecutive attempts with an error before.
        uids: the members that were popped.
        returned: uid -> why a member came back, of the members that wait for the end of the attempt.
    """

    key: GroupKey
    is_entity: bool
    timestamp: float
    unschedulable_count: int
    consecutive_errors_count: int
    uids: Sequence[str]
    returned: dict[str, str] = field(default_factory=dict)

    def share_result(
        self,
        returned: Sequence[QueuedPodInfo],
        arrived: Sequence[QueuedPodInfo],
        *,
        is_placed: bool,
        at: float,
    ) -> None:
        """Count the attempt for the group instead of for its members; at least one returned.

        An attempt that placed members keeps the turn of the others. Else it is an error if a returned pod has no rejecting
        plugin, and a rejection otherwise.

        Source:
            kube-scheduler v1.37, backend/queue/scheduling_queue.go, AddAttemptedPodGroupIfNeeded (#138567, #139613).
        """
        rejections, errors = self.unschedulable_count, self.consecutive_errors_count
        if is_placed:
            at = self.timestamp
        elif all(each.unschedulable_plugins for each in returned):
            rejections, errors = rejections + 1, 0
        else:
            errors += 1
        for each in returned:
            each.timestamp, each.unschedulable_count, each.consecutive_errors_count = at, rejections, errors
        for each in arrived:
            share(each, returned[0])


class GroupAttempts:
    """The running attempts at groups, and the gated members of entities.

    Args:
        contents: the pods of the queue.
        plugins: the plugins of the active profiles.

    Attributes:
        of_pod: uid -> the running attempt for which a pod was popped.
    """

    def __init__(self, contents: QueueContents, plugins: QueuePlugins) -> None:
        self._contents, self._plugins = contents, plugins
        self._running: dict[GroupKey, GroupAttempt] = {}
        # Group -> its gated members. Those that have left since are removed when they are found.
        self._gated: dict[GroupKey, dict[str, None]] = {}  # rejected by PreEnqueue, of entities only
        # Admitted, and waiting for other members; how each goes on when it need not wait for them.
        self._held: dict[GroupKey, dict[str, RequeueStrategy]] = {}
        self.of_pod: dict[str, GroupAttempt] = {}

    def begin(self, key: GroupKey, members: Sequence[QueuedPodInfo]) -> bool:
        """Record that an attempt at a group begins; return whether the group is an entity."""
        first, uids = members[0], [each.pod.uid for each in members]
        attempt = self._running[key] = GroupAttempt(
            key,
            self._plugins.entity_of(first.pod) is not None,
            first.timestamp,
            first.unschedulable_count,
            first.consecutive_errors_count,
            uids,
        )
        self._held.pop(key, None)
        self.of_pod.update(dict.fromkeys(uids, attempt))
        return attempt.is_entity

    def end(self, key: GroupKey) -> GroupAttempt | None:
        """Record that the attempt at a group is over, and return it; None if none was running."""
        attempt = self._running.pop(key, None)
        for uid in () if attempt is None else attempt.uids:
            if self.of_pod.get(uid) is attempt:  # it may be tried with another group now
                del self.of_pod[uid]
        return attempt

    def is_running(self, key: GroupKey) -> bool:
        """Return whether an attempt at a group is running."""
        return key in self._running

    def keeps_waiting(self, key: GroupKey) -> bool:
        """Return whether no pod of a group may be tried now, because of an attempt or of a gated member."""
        return key in self._running or self._first_gated(key) is not None

    def admitted(self, queued: QueuedPodInfo, status: Status) -> Status:
        """Return the result of PreEnqueue for a pod of a group, with regard to the other members.

        Source:
            kube-scheduler v1.37, backend/queue/scheduling_queue.go, runPreEnqueuePlugins: one gated pod gates its group.
        """
        key = queued.group
        assert key is not None
        if not status.is_success:
            self.note_gated(queued)
            return status
        if key in self._gated:
            self._gated[key].pop(queued.pod.uid, None)
        if not self.keeps_waiting(key):
            return status
        return _IS_TRIED if key in self._running else _IS_GATED

    def note_gated(self, queued: QueuedPodInfo) -> None:
        """Record that PreEnqueue rejected a pod."""
        key = self._plugins.entity_of(queued.pod)
        if key is not None:
            self._gated.setdefault(key, {})[queued.pod.uid] = None

    def note_held(
        self, queued: QueuedPodInfo, strategy: RequeueStrategy = RequeueStrategy.AFTER_BACKOFF
    ) -> None:
        """Record that a pod waits for other pods of its group, and how it goes on afterwards; the greatest strategy wins."""
        assert queued.group is not None
        held = self._held.setdefault(queued.group, {})
        held[queued.pod.uid] = max(strategy, held.get(queued.pod.uid, strategy))

    def goes_on(self, queued: QueuedPodInfo) -> RequeueStrategy:
        """Return how a pod goes on that waited for other pods of its group."""
        assert queued.group is not None
        return self._held[queued.group][queued.pod.uid]

    def first_held(self, key: GroupKey) -> QueuedPodInfo | None:
        """Return a pod that waits for other pods of its group; None if there is none."""
        return self._first(self._held, key, lambda queued: queued.is_held and queued.group == key)

    def _first_gated(self, key: GroupKey) -> QueuedPodInfo | None:
        return self._first(
            self._gated,
            key,
            lambda queued: (
                queued.is_gated and not queued.is_held and self._plugins.entity_of(queued.pod) == key
            ),
        )

    def _first(
        self,
        noted: dict[GroupKey, dict[str, None]] | dict[GroupKey, dict[str, RequeueStrategy]],
        key: GroupKey,
        belongs: Callable[[QueuedPodInfo], bool],
    ) -> QueuedPodInfo | None:
        uids = noted.get(key, {})
        while uids:
            uid = next(iter(uids))
            queued = self._contents.pods.get(uid)
            if queued is not None and belongs(queued):
                return queued
            del uids[uid]
        noted.pop(key, None)
        return None

    def arrived(self, key: GroupKey) -> list[QueuedPodInfo]:
        """Return the gated pods of a group."""
        uids = (*self._held.get(key, ()), *self._gated.get(key, ()))
        pods = (queued for uid in uids if (queued := self._contents.pods.get(uid)) is not None)
        return [queued for queued in pods if queued.is_gated and queued.group == key]

    def join(self, queued: QueuedPodInfo) -> bool:
        """Let a pod share the turn and the backoff of its entity; return whether members of it wait."""
        if queued.group is None or self._plugins.entity_of(queued.pod) is None:
            return False
        for leaf in self._plugins.groups_with(queued.pod):
            # The newest members are not being bound.
            for uid in reversed(self._contents.groups.pending(leaf)):
                other = self._contents.pods.get(uid)
                is_waiting = self._contents.places.of(uid) is not Place.IN_FLIGHT
                if other is not None and other is not queued and is_waiting:
                    share(queued, other)
                    return True
        return False

    def check(self) -> None:
        """Assert the invariants."""
        for uid, attempt in self.of_pod.items():
            assert self._running.get(attempt.key) is attempt, f"pod {uid} is tried and its group is not"
            assert uid in attempt.uids, f"pod {uid} was not popped with its group"
        for key, attempt in self._running.items():
            astray = attempt.returned.keys() - set(attempt.uids)
            assert not astray, f"pods {astray} returned to group {key.key} and were not tried"
