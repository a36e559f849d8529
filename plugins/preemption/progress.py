"""Searches for room that take more than one attempt: what was found is kept until the pod is tried again.

Between two attempts the cluster goes on. What was found of a node is good for as long as neither the node nor the pods on it
change; whoever chooses a node looks at it once more.
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
    from scheduler.snapshot.change_log import ChangeLog

    Found = Status | tuple[tuple[PodInfo, ...], int]
    """Why preempting does not help on a node, or who must go and how many disruption budgets that breaks."""

_MOST_SEARCHES: Final = 16
"""So many are kept; a pod whose search is not is searched for anew. Few are advanced at a time."""


@dataclass(slots=True)
class Progress:
    """One search, under way.

    Attributes:
        pod: whose; a pod that was changed since is another.
        enough: how many candidates are looked for.
        known: node name -> what was found, on the cluster as it is.
    """

    pod: PodInfo
    enough: int
    known: dict[str, Found] = field(default_factory=dict)
    _places: Mapping[str, int] = field(default_factory=dict)  # node name -> its turn
    _log: ChangeLog | None = None
    _seen: int = 0

    @classmethod
    def begun(cls, pod: PodInfo, rows: Sequence[int], enough: int, snapshot: Snapshot) -> Progress:
        """Return a new search of nodes in the order given."""
        places = {snapshot.name_of(row): place for place, row in enumerate(rows)}
        progress = cls(pod, enough, _places=places)
        progress.follow(snapshot)
        return progress

    def is_of(self, pod: PodInfo) -> bool:
        return (self.pod.uid, self.pod.pod.spec, self.pod.labels) == (pod.uid, pod.pod.spec, pod.labels)

    def follow(self, snapshot: Snapshot) -> None:
        """Forget what was found of nodes that have changed since."""
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
        """Return nodes in the order of the search, those that came since at the end."""
        last = len(self._places)
        return sorted(rows, key=lambda row: self._places.get(snapshot.name_of(row), last))


class Searches:
    """The searches that are under way, by pod."""

    def __init__(self) -> None:
        self._under_way: OrderedDict[str, Progress] = OrderedDict()  # uid -> search

    def of(self, pod: PodInfo) -> Progress | None:
        """Return a pod's search; None if there is none, or the pod is another by now."""
        progress = self._under_way.get(pod.uid)
        return progress if progress is not None and progress.is_of(pod) else None

    def end(self, uid: str) -> None:
        """Let go of a pod's search."""
        self._under_way.pop(uid, None)

    def to_be_continued(self, progress: Progress) -> NeedsTime:
        """Keep a search until the pod is tried again; return what is to be raised."""
        uid = progress.pod.uid
        self.end(uid)
        self._under_way[uid] = progress
        if len(self._under_way) > _MOST_SEARCHES:
            self._under_way.popitem(last=False)
        pause = self._pause(uid)
        next(pause)  # so that it hears of its end
        return NeedsTime(pause)

    def _pause(self, uid: str) -> Generator[None, None, None]:
        """Do nothing: the search goes on in the next attempt. If there is none, it ends."""
        try:
            yield
        except GeneratorExit:
            self.end(uid)
            raise
