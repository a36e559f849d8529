"""The places of pending pods and of their groups, the legal moves between them, and the history of each pod.

The table `MOVES` holds every legal move. Any other move is a bug and raises an error with the pod's history.
"""

from __future__ import annotations

from collections import Counter
from enum import Enum
from itertools import pairwise
from typing import TYPE_CHECKING, Final, NamedTuple

from scheduler.objects.caches import BoundedDict

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

    from scheduler.objects.pod_group import GroupKey

_LONGEST_HISTORY = 32
_DEPARTED_KEPT = 1000


class Place(Enum):
    """The place of a pod; the values appear in histories and explanations."""

    __hash__ = object.__hash__  # there is one object per member, and Enum's own is a Python call

    OUTSIDE = "outside"
    """Not in the queue: never added, deleted, or done."""
    ACTIVE = "active"
    """In activeQ: tried when it reaches the front."""
    BACKOFF = "backoff"
    """In backoffQ: tried again after its backoff."""
    UNSCHEDULABLE = "unschedulable"
    """Rejected, and no event since then requeues it."""
    GATED = "gated"
    """A PreEnqueue plugin prevents any attempt."""
    IN_FLIGHT = "in flight"
    """Popped, and being scheduled or bound."""


MOVES: dict[Place, frozenset[Place]] = {
    # To BACKOFF when another leader quarantined the pod, according to the pod's condition; from ACTIVE too.
    Place.OUTSIDE: frozenset({Place.ACTIVE, Place.BACKOFF, Place.GATED}),
    Place.GATED: frozenset({Place.ACTIVE, Place.BACKOFF, Place.OUTSIDE}),
    # To GATED when a new configuration adds a PreEnqueue plugin that rejects the pod; from BACKOFF too.
    Place.ACTIVE: frozenset({Place.IN_FLIGHT, Place.BACKOFF, Place.GATED, Place.OUTSIDE}),
    # To IN_FLIGHT when activeQ is empty: an early attempt is better than none.
    Place.BACKOFF: frozenset({Place.ACTIVE, Place.IN_FLIGHT, Place.GATED, Place.OUTSIDE}),
    # PreEnqueue runs again when the pod leaves, so a pod can become gated.
    Place.UNSCHEDULABLE: frozenset({Place.ACTIVE, Place.BACKOFF, Place.GATED, Place.OUTSIDE}),
    Place.IN_FLIGHT: frozenset(
        {Place.ACTIVE, Place.BACKOFF, Place.UNSCHEDULABLE, Place.GATED, Place.OUTSIDE}
    ),
}
"""Every legal move: from -> to."""


class Move(NamedTuple):
    """One entry of a pod's history; if `start` equals `end`, the pod stayed and only the reason is new.

    Attributes:
        at: seconds of the daemon's monotonic clock.
        start: the place before.
        end: the place after.
        why: the reason for people, as in "NodeAdd" or "rejected by NodeResourcesFit".
    """

    at: float
    start: Place
    end: Place
    why: str

    def __str__(self) -> str:
        return f"{self.at:.3f} {self.start.value} -> {self.end.value}: {self.why}"


class Places:
    """The place and the history of each pod.

    A history keeps the last 32 moves. Of pods outside the queue, the last 1000 histories are kept, so that the reason for
    the waiting time of a pod that is already running remains available.
    """

    def __init__(self) -> None:
        self._histories: dict[str, list[Move]] = {}  # uid -> history, of pods inside
        # Uid -> history, of pods outside, by when they left.
        self._departed: BoundedDict[str, list[Move]] = BoundedDict(_DEPARTED_KEPT)
        self._counts = Counter[Place]()

    def of(self, uid: str) -> Place:
        """Return the place of a pod; OUTSIDE if it is unknown."""
        history = self._histories.get(uid)
        return history[-1].end if history else Place.OUTSIDE

    def move(self, uid: str, end: Place, *, at: float, why: str) -> None:
        """Record a move.

        Raises:
            AssertionError: the move is not in `MOVES`; the message contains the pod's history.
        """
        start = self.of(uid)
        if end not in MOVES[start]:
            raise AssertionError(
                self.objection(uid, f"{start.value} -> {end.value} ({why}) is no legal move")
            )
        history = self._departed.pop(uid, []) if start is Place.OUTSIDE else self._histories.pop(uid)
        history.append(Move(at, start, end, why))
        if len(history) > _LONGEST_HISTORY:
            del history[0]
        if end is Place.OUTSIDE:
            self._departed[uid] = history
        else:
            self._histories[uid] = history
            self._counts[end] += 1
        if start is not Place.OUTSIDE:
            self._counts[start] -= 1

    def resume(self, uid: str, place: Place, *, at: float) -> None:
        """Record a pod taken over from another queue; it may start in a place that no move from OUTSIDE reaches."""
        self._histories[uid] = [Move(at, Place.OUTSIDE, place, "resumed")]
        self._counts[place] += 1

    def note(self, uid: str, *, at: float, why: str) -> None:
        """Record that a pod stays in its place, and why; the same reason is not repeated."""
        history = self._histories[uid]
        last = history[-1]
        if last.why != why:
            history.append(Move(at, last.end, last.end, why))
            if len(history) > _LONGEST_HISTORY:
                del history[0]

    def history(self, uid: str) -> tuple[Move, ...]:
        """Return the history of a pod, oldest entry first; empty if it is unknown or left long ago."""
        return tuple(self._histories.get(uid) or self._departed.get(uid) or ())

    def count(self, place: Place) -> int:
        """Return the number of pods in a place; OUTSIDE is not counted."""
        return self._counts[place]

    def inside(self) -> Iterator[tuple[str, Move]]:
        """Yield (uid, last move) of every pod that is not outside."""
        for uid, history in self._histories.items():
            yield uid, history[-1]

    def objection(self, uid: str, problem: str) -> str:
        """Return a message about an error of a pod, with its history."""
        lines = [f"pod {uid}: {problem}", *(f"  {move}" for move in self.history(uid))]
        return "\n".join(lines)

    def check(self) -> None:
        """Assert the invariants."""
        for uid, history in (*self._histories.items(), *self._departed.items()):
            for move in history:
                legal = move.end in MOVES[move.start] or move.start is move.end
                assert legal, self.objection(uid, f"made an illegal move: {move}")
            for earlier, later in pairwise(history):
                assert earlier.end is later.start, self.objection(uid, "was in two places")
                assert earlier.at <= later.at, self.objection(uid, "went back in time")
            assert len(history) <= _LONGEST_HISTORY, self.objection(uid, "has too long a story")
            assert (history[-1].end is Place.OUTSIDE) == (uid in self._departed), self.objection(
                uid, "strayed"
            )
        counts = Counter(history[-1].end for history in self._histories.values())
        assert counts == +self._counts, f"{counts} pods found, {self._counts} counted"
        assert len(self._departed) <= _DEPARTED_KEPT


_WAITING: Final = (Place.ACTIVE, Place.BACKOFF, Place.UNSCHEDULABLE, Place.GATED)
"""In order of precedence: all pods of a group are tried with the first of them that is popped."""


class GroupPlaces:
    """The places where groups wait: each in the first place of `_WAITING` that has one of its pods.

    Attributes:
        of: uid -> the group with which a pod is counted; it follows a change of its group at its next move.

    Source:
        kube-scheduler v1.37, metrics/metric_recorder.go, QueuedEntitiesRecorder.
    """

    def __init__(self) -> None:
        # group -> place -> number of its pods, those in flight too
        self._groups: dict[GroupKey, Counter[Place]] = {}
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
