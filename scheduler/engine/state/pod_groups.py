"""Membership of pod groups: this scheduler's pending pods, and all pods on nodes.

Source:
    kube-scheduler v1.36, backend/cache/podgroupstate.go.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from scheduler.objects.pod import PodInfo
    from scheduler.objects.pod_group import GroupKey


_NOBODY: dict[str, None] = {}


class _Members:
    """The pods of one group: pending ones by uid, in arrival order, and those on nodes.

    `away` has the uids of those on nodes that a simulation excludes. They exist, so they count.
    """

    __slots__ = ("away", "count", "pending", "placed")

    def __init__(self) -> None:
        self.pending: dict[str, None] = {}
        self.placed: dict[str, PodInfo] = {}
        self.away: set[str] = set()
        self.count = 0  # of all together; a pod that is being bound is pending and placed

    def is_on_node(self, uid: str) -> bool:
        return uid in self.placed or uid in self.away


class PodGroups:
    """The members of every group, as long as it has any; implements `PodGroupMembers`.

    The queue and the cache add and remove members; a pod that is being bound is in both.

    Attributes:
        changes: changes with each member.
        keys_of_pending: uid -> group, of pending pods.
    """

    def __init__(self) -> None:
        self.changes = 0
        self._groups: dict[GroupKey, _Members] = {}
        self.keys_of_pending: dict[str, GroupKey] = {}

    def pending(self, key: GroupKey) -> dict[str, None]:
        """Return the uids of a group's pods in the queue, in arrival order."""
        members = self._groups.get(key)
        return _NOBODY if members is None else members.pending

    def all_pending(self) -> Iterator[tuple[GroupKey, Collection[str]]]:
        """Yield each group that has pods in the queue, with their uids."""
        for key, members in self._groups.items():
            if members.pending:
                yield key, members.pending.keys()

    def placed(self, key: GroupKey) -> Collection[PodInfo]:
        members = self._groups.get(key)
        return () if members is None else members.placed.values()

    def count(self, key: GroupKey) -> int:
        members = self._groups.get(key)
        return 0 if members is None else members.count

    def note_pending(self, pod: PodInfo) -> GroupKey | None:
        """Record that a pod is in the queue, or its new version, which may belong to another group; return its group.

        A pod on a node is in the queue for its resize, and no pending member.
        """
        uid, key = pod.uid, None if pod.node_name else pod.group
        before = self.keys_of_pending.get(uid)
        if before == key:
            return key
        if before is not None:
            self.drop_pending(uid)
        if key is not None:
            members = self._groups.setdefault(key, _Members())
            self.changes += 1
            members.pending[uid] = None
            members.count += not members.is_on_node(uid)
            self.keys_of_pending[uid] = key
        return key

    def drop_pending(self, uid: str) -> None:
        """Record that a pod has left the queue."""
        key = self.keys_of_pending.pop(uid, None)
        if key is not None:
            self.changes += 1
            members = self._groups[key]
            del members.pending[uid]
            members.count -= not members.is_on_node(uid)
            self._forget_if_empty(key, members)

    def note_placed(self, pod: PodInfo) -> None:
        """Record that a pod is on a node, or its new version there."""
        key = pod.group
        if key is not None:
            self.changes += 1
            members = self._groups.setdefault(key, _Members())
            members.count += not members.is_on_node(pod.uid) and pod.uid not in members.pending
            members.placed[pod.uid] = pod
            members.away.discard(pod.uid)

    def drop_placed(self, pod: PodInfo) -> None:
        """Record that a pod is no longer on a node; `pod` is the recorded version."""
        key = pod.group
        if key is not None:
            self.changes += 1
            members = self._groups[key]
            del members.placed[pod.uid]
            members.count -= pod.uid not in members.pending
            self._forget_if_empty(key, members)

    def leave_out(self, pod: PodInfo) -> None:
        """Exclude a pod from its node for a simulation; it stays a member, and `note_placed` puts it back."""
        key = pod.group
        if key is not None:
            members = self._groups[key]
            del members.placed[pod.uid]
            members.away.add(pod.uid)

    def _forget_if_empty(self, key: GroupKey, members: _Members) -> None:
        if not members.count:
            del self._groups[key]

    def check(self) -> None:
        """Assert the invariants.

        Raises:
            AssertionError: one does not hold.
        """
        pending = {uid: key for key, members in self._groups.items() for uid in members.pending}
        assert pending == self.keys_of_pending, f"{pending} by group, {self.keys_of_pending} by pod"
        for key, members in self._groups.items():
            found = members.pending.keys() | members.placed.keys()
            assert found, f"group {key.key} is kept without pods"
            assert len(found) == members.count, f"group {key.key} has {len(found)} pods, not {members.count}"
            astray = [pod.key for pod in members.placed.values() if pod.group != key]
            assert not astray, f"pods {astray} are kept under group {key.key}"
