"""Searches for candidates that take more than one attempt: results are kept until the pod is tried again.

The cluster changes between two attempts. The result of a node is valid as long as neither the node nor its pods change;
the chosen node is tried once more.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from scheduler.framework import NeedsTime, Status

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Mapping, Sequence

    from scheduler.objects.pod import PodInfo
    from scheduler.snapshot import Snapshot
    from scheduler.snapshot.arrays import ChangeLog

    Found = Status | tuple[tuple[PodInfo, ...], int]
    """Why preemption does not help on a node, or its victims and the number of violated disruption budgets."""

_MOST_SEARCHES: Final = 16
"""The number of kept searches; a pod without one starts again. Few are advanced at a time."""


@dataclass(slots=True)
class Progress:
    """An unfinished search.

    Attributes:
        pod: the preemptor; a changed pod needs a new search.
        enough: how many candidates to find.
        known: node name -> its result on the current cluster.
    """

    pod: PodInfo
    enough: int
    known: dict[str, Found] = field(default_factory=dict)
    _places: Mapping[str, int] = field(default_factory=dict)  # node name -> its position
    _log: ChangeLog | None = None
    _seen: int = 0

    @classmethod
    def begun(cls, pod: PodInfo, rows: Sequence[int], enough: int, snapshot: Snapshot) -> Progress:
        """Return a new search of nodes in the given order."""
        places = {snapshot.name_of(row): place for place, row in enumerate(rows)}
        progress = cls(pod, enough, _places=places)
        progress.follow(snapshot)
        return progress

    def is_of(self, pod: PodInfo) -> bool:
        return (self.pod.uid, self.pod.pod.spec, self.pod.labels) == (pod.uid, pod.pod.spec, pod.labels)

    def follow(self, snapshot: Snapshot) -> None:
        """Forget the results of nodes that have changed."""
        changes = snapshot.changes
        changed = changes.since(self._seen) if changes is not None and changes is self._log else None
        if changed is None:
            self.known.clear()
        else:
            for row in changed:
                if row < snapshot.n_nodes:
                    self.known.pop(snapshot.name_of(row), None)
        self._log, self._seen = changes, 0 if changes is None else changes.end

    def in_turn(self, rows: Iterable[int], snapshot: Snapshot) -> list[int]:
        """Return nodes in the order of the search, nodes added since at the end."""
        last = len(self._places)
        return sorted(rows, key=lambda row: self._places.get(snapshot.name_of(row), last))


class Searches:
    """The unfinished searches, by pod."""

    def __init__(self) -> None:
        self._under_way: OrderedDict[str, Progress] = OrderedDict()  # uid -> search

    def of(self, pod: PodInfo) -> Progress | None:
        """Return a pod's search; None if there is none, or the pod has changed."""
        progress = self._under_way.get(pod.uid)
        return progress if progress is not None and progress.is_of(pod) else None

    def end(self, uid: str) -> None:
        """Remove a pod's search."""
        self._under_way.pop(uid, None)

    def to_be_continued(self, progress: Progress) -> NeedsTime:
        """Keep a search until the pod is tried again; return the exception to raise."""
        uid = progress.pod.uid
        self.end(uid)
        self._under_way[uid] = progress
        if len(self._under_way) > _MOST_SEARCHES:
            self._under_way.popitem(last=False)
        pause = self._pause(uid)
        next(pause)  # so that its end is noticed
        return NeedsTime(pause)

    def _pause(self, uid: str) -> Generator[None, None, None]:
        """Do nothing: the search continues in the next attempt. If there is none, remove the search."""
        try:
            yield
        except GeneratorExit:
            self.end(uid)
            raise
