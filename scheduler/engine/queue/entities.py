"""The groups in the queue: where each of them waits. In metrics since Kubernetes 1.37, a group counts as one entity."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

from scheduler.engine.queue.pod_places import Place

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from scheduler.engine.queue.pod_places import Places
    from scheduler.objects.pod_group import GroupKey

_WAITING: Final = (Place.ACTIVE, Place.BACKOFF, Place.UNSCHEDULABLE, Place.GATED)
"""In order of precedence: all pods of a group are tried with the first of them that is popped."""


class GroupPlaces:
    """Where groups wait: each in the first place of `_WAITING` that has one of its pods.

    Attributes:
        of: uid -> the group with which a pod is counted; it follows a change of its group at its next move.

    Source:
        kube-scheduler v1.37, metrics/metric_recorder.go, QueuedEntitiesRecorder.
    """

    def __init__(self) -> None:
        self._groups: dict[
            GroupKey, Counter[Place]
        ] = {}  # group -> place -> number of its pods, those in flight too
        self.of: dict[str, GroupKey] = {}
        self._waiting = Counter[Place]()  # place -> number of groups
        self._pods = Counter[Place]()  # place -> number of pods of groups

    def moved(self, uid: str, key: GroupKey | None, start: Place, end: Place) -> bool:
        """Record a move of a pod of a group; return whether the group as a whole entered the new place by it.

        Args:
            uid: the pod.
            key: the group with which it is tried; None if it is tried alone, or is outside from now on.
            start: its place before.
            end: its place from now on.
        """
        before = self.of.pop(uid, None)
        if before is not None:
            self._count(before, start, -1)
        if key is None:
            return False
        self.of[uid] = key
        was = self.place_of(key)
        self._count(key, end, 1)
        # A pod that comes while others are in flight does not bring its group.
        is_settled = start is Place.IN_FLIGHT or Place.IN_FLIGHT not in self._groups[key]
        return is_settled and self.place_of(key) is end is not was

    def _count(self, key: GroupKey, place: Place, change: int) -> None:
        places = self._groups.setdefault(key, Counter())
        was = self.place_of(key)
        places[place] += change
        self._pods[place] += change
        if not places[place]:
            del places[place]
        if not places:
            del self._groups[key]
        now = self.place_of(key)
        if now is not was:
            self._waiting[was] -= was is not Place.OUTSIDE
            self._waiting[now] += now is not Place.OUTSIDE

    def place_of(self, key: GroupKey) -> Place:
        """Return where a group waits; OUTSIDE if all its pods are in flight, or if it has none."""
        places = self._groups.get(key, ())
        return next((each for each in _WAITING if each in places), Place.OUTSIDE)

    def places_of(self, key: GroupKey) -> Mapping[Place, int]:
        """Return place -> number of pods of a group."""
        return self._groups.get(key, {})

    def groups(self) -> Collection[GroupKey]:
        """Return all groups with pods in the queue."""
        return self._groups.keys()

    def count(self, place: Place) -> int:
        """Return the number of groups that wait in a place."""
        return self._waiting[place]

    def count_pods(self, place: Place) -> int:
        """Return the number of pods of groups in a place."""
        return self._pods[place]

    def check(self, places: Places) -> None:
        """Assert the invariants."""
        found: dict[GroupKey, Counter[Place]] = {}
        for uid, key in self.of.items():
            found.setdefault(key, Counter())[places.of(uid)] += 1
        assert found == self._groups, f"{found} found, {self._groups} counted"
        waiting = Counter(map(self.place_of, found))
        del waiting[Place.OUTSIDE]
        assert waiting == +self._waiting, f"groups wait in {waiting}, {self._waiting} counted"
        pods = Counter(map(places.of, self.of))
        assert pods == +self._pods, f"pods of groups are in {pods}, {self._pods} counted"
