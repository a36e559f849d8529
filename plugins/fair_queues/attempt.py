"""One attempt at a pod: which queue limit rejects it, also after pods are added to or removed from a node."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np

from scheduler.objects.readable_amounts import readable_amounts

if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Self

    from plugins.fair_queues.ledger import QueueUsage
    from scheduler.objects.pod import PodInfo
    from scheduler.snapshot import Int64s


@dataclass(frozen=True, slots=True)
class InTheWay:
    """A queue that would exceed a limit.

    Attributes:
        place: index of the queue.
        resource: the resource.
        is_max: whether the queue would exceed its max, else its fair share.
        used: what the queue uses; milliCPU, bytes or a count.
        promised: what pods that preempted will use in addition.
        most: the limit.
        asked: what the pod requests.
    """

    place: int
    resource: str
    is_max: bool
    used: int
    promised: int
    most: int
    asked: int

    def message(self, standing: QueueUsage) -> str:
        """Return the message."""
        title, kind = standing.tree.title(self.place), "max" if self.is_max else "fair"
        used, most, asked, promised = readable_amounts(
            self.resource, self.used, self.most, self.asked, self.promised
        )
        description = f"queue {title} has {used} of its {kind} {most} {self.resource}"
        if self.promised:
            description += f" and keeps {promised} for pods that preempted"
        return f"{description}, the pod requests {asked}"


@dataclass(frozen=True, slots=True)
class QueueAttempt:
    """What one attempt knows of the queues.

    Attributes:
        standing: the state of the queues.
        leaf: the pod's queue; "" for none.
        path: the indexes of the queues from the leaf to its root.
        asked: (n_resources,), what the pod requests.
        promised: (len(path), n_resources), what nominated pods will use of these queues.
        is_overdue: whether the pod has waited so long that its queue may exceed its share for it.
        changed: row -> (len(path), n_resources), what pods added to the row use in addition, or removed pods use no
            longer.
        with_it: (n_resources,), what other members of the pod's group use that are placed in the same attempt: for an
            overdue group the share limits the whole group as it limits one pod.
    """

    standing: QueueUsage
    leaf: str
    path: tuple[int, ...]
    asked: Int64s
    promised: Int64s
    is_overdue: bool
    changed: dict[int, Int64s] = field(default_factory=dict)
    with_it: Int64s | int = 0

    def clone(self) -> Self:
        return replace(self, changed=dict(self.changed))

    def count(self, pods: Iterable[tuple[int, PodInfo]], sign: int) -> None:
        """Count (row, pod) pairs as added, or with a sign of -1 as removed."""
        for row, pod in pods:
            its = self.standing.tree.queue_of(pod)
            if not its or not self.path:
                continue
            above = set(self.standing.tree.paths[its])
            shared = np.array([place in above for place in self.path])
            amounts = shared[:, None] * self.standing.amounts(pod.resources.taken)
            before = self.changed.get(row)
            self.changed[row] = sign * amounts + (0 if before is None else before)

    def in_the_way(
        self, row: int | None = None, *, up_to: int | None = None, promised: bool = True
    ) -> InTheWay | None:
        """Return the first queue, from the leaf up, that would exceed a limit with the pod; None if there is none.

        Args:
            row: count the changes on this row.
            up_to: how many queues of the path to check; all if not given.
            promised: whether to count what is promised to other pods.
        """
        wanted = np.flatnonzero(self.asked > 0)
        if not wanted.size or not self.path:
            return None
        path = list(self.path[:up_to])
        kept = self.promised[: len(path)] * promised
        used = self.standing.used[path] + kept
        if row is not None and row in self.changed:
            used = used + self.changed[row][: len(path)]
        with_pod = used + self.asked
        limit, deserved = self.standing.limit[path], self.standing.deserved[path]
        beyond_max = with_pod > limit
        beyond_share = (with_pod > deserved) & (used - self.with_it >= deserved if self.is_overdue else True)
        for beyond, most, is_max in ((beyond_max, limit, True), (beyond_share, deserved, False)):
            found = np.argwhere(beyond[:, wanted])
            if found.size:
                level, column = int(found[0, 0]), int(wanted[found[0, 1]])
                name = list(self.standing.resources)[column]
                amounts = (
                    used[level, column] - kept[level, column],
                    kept[level, column],
                    most[level, column],
                    self.asked[column],
                )
                return InTheWay(path[level], name, is_max, *map(int, amounts))
        return None

    def fits_ever(self) -> bool:
        """Return whether no max is smaller than the pod itself."""
        return not (self.standing.limit[list(self.path)] < self.asked).any()
