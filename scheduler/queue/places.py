"""Where a pending pod can be, which moves are legal, and what happened to each pod.

All that may happen to a pod in the queue is read in one table, `MOVES`. A pod that goes anywhere else is a mistake
of ours and raises with the pod's story, which is most of what one needs to find the mistake.
"""

from __future__ import annotations

from collections import Counter
from enum import Enum
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

_LONGEST_STORY = 32
_DEPARTED_KEPT = 1000


class Place(Enum):
    """Where a pod is; the values are the words of stories and explanations."""

    __hash__ = object.__hash__  # there is one object per member, and Enum's own is a Python call

    OUTSIDE = "outside"
    """Not the queue's: never added, deleted, or done with."""
    ACTIVE = "active"
    """In activeQ: tried as soon as its turn comes."""
    BACKOFF = "backoff"
    """In backoffQ: worth another try, but not so soon after the last."""
    UNSCHEDULABLE = "unschedulable"
    """Rejected, and nothing has happened since that may help."""
    GATED = "gated"
    """Kept from being tried at all by a PreEnqueue plugin."""
    IN_FLIGHT = "in flight"
    """Popped, and being scheduled or bound."""


MOVES: dict[Place, frozenset[Place]] = {
    # To BACKOFF when another leader put the pod aside, by the pod's own condition; from ACTIVE too.
    Place.OUTSIDE: frozenset({Place.ACTIVE, Place.BACKOFF, Place.GATED}),
    Place.GATED: frozenset({Place.ACTIVE, Place.BACKOFF, Place.OUTSIDE}),
    # To GATED when a new configuration brings a PreEnqueue plugin that refuses the pod; from BACKOFF too.
    Place.ACTIVE: frozenset({Place.IN_FLIGHT, Place.BACKOFF, Place.GATED, Place.OUTSIDE}),
    # To IN_FLIGHT when activeQ is empty: better try a pod early than nobody.
    Place.BACKOFF: frozenset({Place.ACTIVE, Place.IN_FLIGHT, Place.GATED, Place.OUTSIDE}),
    # PreEnqueue is asked again on the way out, so a pod can become gated.
    Place.UNSCHEDULABLE: frozenset({Place.ACTIVE, Place.BACKOFF, Place.GATED, Place.OUTSIDE}),
    Place.IN_FLIGHT: frozenset(
        {Place.ACTIVE, Place.BACKOFF, Place.UNSCHEDULABLE, Place.GATED, Place.OUTSIDE}
    ),
}
"""Every legal move: from -> to."""


class Move(NamedTuple):
    """One line of a pod's story; where `start` is `end`, the pod stayed and something was learnt.

    Attributes:
        at: seconds of the daemon's monotonic clock.
        start: where the pod was.
        end: where it went.
        why: for people, as in "NodeAdd" or "rejected by NodeResourcesFit".
    """

    at: float
    start: Place
    end: Place
    why: str

    def __str__(self) -> str:
        return f"{self.at:.3f} {self.start.value} -> {self.end.value}: {self.why}"


class Places:
    """Each pod's place and story.

    A story keeps its last 32 moves; of pods outside, the last 1000 stories are kept, so that one can still ask
    why a pod that is running by now had to wait.
    """

    def __init__(self) -> None:
        self._stories: dict[str, list[Move]] = {}  # uid -> story, of pods inside
        self._departed: dict[str, list[Move]] = {}  # uid -> story, of pods outside, by when they left
        self._counts = Counter[Place]()

    def of(self, uid: str) -> Place:
        """Return where a pod is; OUTSIDE if it is not known."""
        story = self._stories.get(uid)
        return story[-1].end if story else Place.OUTSIDE

    def move(self, uid: str, end: Place, *, at: float, why: str) -> None:
        """Note a move.

        Raises:
            AssertionError: the move is none of `MOVES`; the text holds the pod's story.
        """
        start = self.of(uid)
        if end not in MOVES[start]:
            raise AssertionError(
                self.objection(uid, f"{start.value} -> {end.value} ({why}) is no legal move")
            )
        story = self._departed.pop(uid, []) if start is Place.OUTSIDE else self._stories.pop(uid)
        story.append(Move(at, start, end, why))
        if len(story) > _LONGEST_STORY:
            del story[0]
        if end is Place.OUTSIDE:
            self._departed[uid] = story
            if len(self._departed) > _DEPARTED_KEPT:
                del self._departed[next(iter(self._departed))]
        else:
            self._stories[uid] = story
            self._counts[end] += 1
        if start is not Place.OUTSIDE:
            self._counts[start] -= 1

    def resume(self, uid: str, place: Place, *, at: float) -> None:
        """Note a pod that comes from where another left off, where no move leads at once."""
        self._stories[uid] = [Move(at, Place.OUTSIDE, place, "resumed")]
        self._counts[place] += 1

    def note(self, uid: str, *, at: float, why: str) -> None:
        """Note that a pod stays where it is, and why; the same reason again is not repeated."""
        story = self._stories[uid]
        last = story[-1]
        if last.why != why:
            story.append(Move(at, last.end, last.end, why))
            if len(story) > _LONGEST_STORY:
                del story[0]

    def story(self, uid: str) -> tuple[Move, ...]:
        """Return what happened to one pod, oldest first; empty if it was never seen or is long gone."""
        return tuple(self._stories.get(uid) or self._departed.get(uid) or ())

    def count(self, place: Place) -> int:
        """Return how many pods are there; OUTSIDE is not counted."""
        return self._counts[place]

    def inside(self) -> Iterator[tuple[str, Move]]:
        """Yield (uid, last move) of every pod that is not outside."""
        for uid, story in self._stories.items():
            yield uid, story[-1]

    def objection(self, uid: str, problem: str) -> str:
        """Return a text that says what is wrong with a pod, with its story."""
        lines = [f"pod {uid}: {problem}", *(f"  {move}" for move in self.story(uid))]
        return "\n".join(lines)

    def check(self) -> None:
        """Assert what always holds."""
        for uid, story in (*self._stories.items(), *self._departed.items()):
            for move in story:
                legal = move.end in MOVES[move.start] or move.start is move.end
                assert legal, self.objection(uid, f"made an illegal move: {move}")
            for earlier, later in pairwise(story):
                assert earlier.end is later.start, self.objection(uid, "was in two places")
                assert earlier.at <= later.at, self.objection(uid, "went back in time")
            assert len(story) <= _LONGEST_STORY, self.objection(uid, "has too long a story")
            assert (story[-1].end is Place.OUTSIDE) == (uid in self._departed), self.objection(uid, "strayed")
        counts = Counter(story[-1].end for story in self._stories.values())
        assert counts == +self._counts, f"{counts} pods found, {self._counts} counted"
        assert len(self._departed) <= _DEPARTED_KEPT
